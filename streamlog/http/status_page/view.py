"""What a watcher is shown: a summary, and one page of the list that was asked for. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeVar

from streamlog.http.status_page.cluster_snapshot import ClusterSnapshot, CoordinatedGroup, Local
from streamlog.http.status_page.event_log import EventLog
from streamlog.http.status_page.node_findings import findings
from streamlog.http.status_page.overview import Overview, counts_of, wants
from streamlog.http.status_page.query import LED_HERE, Query
from streamlog.http.status_page.rates import Rates
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.config import is_internal
from streamlog.model import NO_LEADER, NodeId, TopicPartition, consumer_lag
from streamlog.record.codec import Record

KEY_BYTES_MAX: Final = 256
VALUE_BYTES_MAX: Final = 2_048
HEADERS_MAX: Final = 20
HEADER_BYTES_MAX: Final = 256


def shown(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _record_data(record.key, KEY_BYTES_MAX),
        "value": _record_data(record.value, VALUE_BYTES_MAX),
        "headers": [
            [name[:HEADER_BYTES_MAX], _record_data(value, HEADER_BYTES_MAX)]
            for name, value in record.headers[:HEADERS_MAX]
        ],
        "headers_more": max(0, len(record.headers) - HEADERS_MAX),
    }


def _record_data(data: bytes | None, most: int) -> dict[str, Any] | None:
    """Text where it is UTF-8, else hexadecimal; with its true length where it was cut."""
    if data is None:
        return None
    cut = bytes(data[:most])
    try:
        # A cut may go through the middle of a character.
        text, form = cut.decode(errors="strict" if len(data) <= most else "ignore"), "text"
        if len(data) > most and len(cut) - len(text.encode()) > 3:
            raise UnicodeError
    except UnicodeError:
        text, form = cut[: most // 2].hex(" "), "hex"
    whole = len(data) <= (most if form == "text" else most // 2)
    return {form: text, "size_bytes": len(data), "cut": not whole}


Row = dict[str, Any]
T = TypeVar("T")

FINDINGS_MAX: Final = 50
SUMS_MS: Final = 900
SUMS_MAX: Final = 1_000
SUMMED_MAX: Final = 500
"""Partitions of which a turn adds up what they hold."""
LAGGING_MAX: Final = 10
"""Partitions of a group that are told one by one, those with the most to read first."""


@dataclass(frozen=True, slots=True)
class FoundItems:
    """A page, and how many rows there are in all."""

    rows: list[Row]
    total: int


class _Places(NamedTuple):
    """Where partitions are in a list of them: so many are shown of these streams and all before."""

    image: MetadataImage
    asked: Query
    names: Sequence[str]
    ends: list[int]


class View:
    """``prepare`` each look in turns of the event loop; then the rest of it is cheap.

    Holds what makes it cheap to look again: counts and lists of images that have not changed.
    """

    def __init__(self, local: Local, rates: Rates, chronicle: EventLog) -> None:
        self._local = local
        self._rates = rates
        self._chronicle = chronicle
        self.overview = Overview()
        self._sums: dict[str, tuple[int, Row]] = {}
        self._lags: dict[str, tuple[int, Row]] = {}
        self._named: tuple[MetadataImage, Query, Sequence[str]] | None = None
        self._placed: _Places | None = None

    def prepare(self, moment: ClusterSnapshot, query: Query | None = None) -> Iterator[None]:
        """Does what takes long of a look, a turn at a time. What is left out is done by the look.

        Yields after each turn but the last; without any, ``moment`` is still the present one.
        """
        self.overview.follow(moment.image)
        while not self.overview.work():
            yield
        if query is None:
            return
        summed = 0
        for count in self._preparing_rows(moment, query):
            summed += count
            if summed >= SUMMED_MAX:
                summed = 0
                yield

    def _preparing_rows(self, moment: ClusterSnapshot, query: Query) -> Iterator[int]:
        """How many partitions were looked at for them, in parts."""
        if query.show == "streams":
            for name in _page(self._matching_streams(moment, query), query):
                yield from self._summing(moment.image.streams[name], moment.now_ms)
        elif query.show == "groups":
            for group in _page(_matching_groups(moment, query), query):
                yield from self._lagging(group, moment.now_ms)

    def whole(self, moment: ClusterSnapshot, query: Query) -> Row:
        """All that the page shows at once."""
        found = self.list(moment, query)
        return {
            **self.summary(moment),
            "list": query.show,
            "page": query.page,
            "size": query.size,
            "total": found.total,
            "rows": found.rows,
        }

    def summary(self, moment: ClusterSnapshot) -> Row:
        found = findings(moment, self._overview_of(moment))
        return {
            "cluster": self._cluster(moment),
            "nodes": [_node(moment, node_id) for node_id in sorted(moment.image.nodes)],
            "findings": [it._asdict() for it in found[:FINDINGS_MAX]],
            "findings_total": len(found),
        }

    def list(self, moment: ClusterSnapshot, query: Query) -> FoundItems:
        match query.show:
            case "streams":
                return self._streams(moment, query)
            case "partitions":
                return self._partitions(moment, query)
            case "groups":
                return self._groups(moment, query)
            case _:
                return self._events(query)

    def shown_partitions(self, moment: ClusterSnapshot, query: Query) -> Sequence[TopicPartition]:
        """Whose ends are worth asking others for."""
        if query.show != "partitions":
            return ()
        return self._partitions_of_page(moment, query)

    def _overview_of(self, moment: ClusterSnapshot) -> Overview:
        overview = self.overview
        overview.follow(moment.image)
        while not overview.work():
            pass
        return overview

    def _cluster(self, it: ClusterSnapshot) -> Row:
        rate, overview = self._rates.total(), self._overview_of(it)
        total = overview.total
        total = total._replace(leaderless=total.leaderless + overview.unled(it.silent))
        return {
            "id": it.cluster_id,
            "version": it.version,
            "node": it.node_id,
            "time_ms": it.now_ms,
            "role": it.role,
            "epoch": it.quorum_epoch,
            "controller": it.controller,
            "voters": list(it.voters),
            "metadata_offset": it.image.offset,
            "streams": len(it.image.streams),
            "groups": len(it.groups),
            "groups_hidden": it.groups_hidden,
            "rate": None if rate is None else round(rate, 1),
            "tail_refused": it.tail_refused,
            **total._asdict(),
        }

    def _streams(self, moment: ClusterSnapshot, query: Query) -> FoundItems:
        names = self._matching_streams(moment, query)
        streams = [moment.image.streams[name] for name in _page(names, query)]
        return FoundItems([self._stream(it, moment.now_ms) for it in streams], len(names))

    def _matching_streams(self, moment: ClusterSnapshot, query: Query) -> Sequence[str]:
        """In order; the same until the image or the filter is another."""
        asked = Query(filter=query.filter, only=query.only)
        named = self._named
        if named is not None and named[0] is moment.image and named[1] == asked:
            return named[2]
        names = self._names(moment, asked)
        self._named = (moment.image, asked, names)
        return names

    def _names(self, moment: ClusterSnapshot, asked: Query) -> Sequence[str]:
        """Of the streams that have partitions such as are asked for."""
        overview = self._overview_of(moment)
        if asked.stream:
            names: Sequence[str] = [asked.stream] if asked.stream in moment.image.streams else []
        elif asked.only == LED_HERE:
            names = sorted(overview.led_by(moment.node_id))
        elif asked.only:
            names = sorted(overview.wanting(asked.only))
        else:
            names = tuple(overview.names)
        return [it for it in names if asked.filter in it] if asked.filter else names

    def _stream(self, stream: StreamImage, now_ms: int) -> Row:
        return {
            "name": stream.name,
            "internal": is_internal(stream.name),
            "subjects": list(stream.config.subjects[:LAGGING_MAX]),
            "replicas": stream.config.replicas,
            **self.overview.counts(stream.name)._asdict(),
            **self._sum(stream, now_ms),
        }

    def _sum(self, stream: StreamImage, now_ms: int) -> Row:
        """Over its partitions here, which may be ten thousand: not for each look of each client."""
        for _ in self._summing(stream, now_ms):
            pass
        return self._sums[stream.name][1]

    def _summing(self, stream: StreamImage, now_ms: int) -> Iterator[int]:
        """Adds up where what is known is too old; how many partitions it took, in parts."""
        known = self._sums.get(stream.name)
        if known is not None and 0 <= now_ms - known[0] < SUMS_MS:
            return
        records = size_bytes = 0
        rates = []
        count = len(stream.partitions)
        for start in range(0, count, SUMMED_MAX):
            for number in range(start, min(start + SUMMED_MAX, count)):
                tp = TopicPartition(stream.name, number)
                kept, rate = self._local.kept(tp), self._rates.of(tp)
                if kept is not None:
                    records += max(0, kept.high_watermark - kept.log_start_offset)
                    size_bytes += kept.size_bytes
                if rate is not None:
                    rates.append(rate)
            yield min(SUMMED_MAX, count - start)
        row: Row = {
            "records": records,
            "size_bytes": size_bytes,
            "rate": round(sum(rates), 1) if rates else None,
        }
        _remember(self._sums, stream.name, (now_ms, row))

    def _partitions(self, moment: ClusterSnapshot, query: Query) -> FoundItems:
        found = self._partitions_of_page(moment, query)
        ends = self._places(moment, query).ends
        rows = [self._partition(moment.image, tp) for tp in found]
        return FoundItems(rows, ends[-1] if ends else 0)

    def _partitions_of_page(
        self, moment: ClusterSnapshot, query: Query
    ) -> Sequence[TopicPartition]:
        """Only the partitions of streams that are on the page are looked at."""
        places = self._places(moment, query)
        start = query.page * query.size
        first = bisect_right(places.ends, start)
        skipped = start - (places.ends[first - 1] if first else 0)
        found: MutableSequence[TopicPartition] = []
        for name in places.names[first:]:
            numbers = _numbers(moment, moment.image.streams[name], query.only)
            wanted = numbers[skipped : skipped + query.size - len(found)]
            found += [TopicPartition(name, number) for number in wanted]
            skipped = 0
            if len(found) == query.size:
                break
        return found

    def _places(self, moment: ClusterSnapshot, query: Query) -> _Places:
        """The same until the image or the filter is another."""
        asked = Query(filter=query.filter, stream=query.stream, only=query.only)
        placed = self._placed
        if placed is not None and placed.image is moment.image and placed.asked == asked:
            return placed
        names = self._names(moment, asked)
        node_id = moment.node_id if asked.only == LED_HERE else None
        count = self._overview_of(moment).count
        ends = list(accumulate(count(name, asked.only, node_id) for name in names))
        self._placed = _Places(moment.image, asked, names, ends)
        return self._placed

    def _partition(self, image: MetadataImage, tp: TopicPartition) -> Row:
        stream = image.streams[tp.stream]
        it = stream.partitions[tp.partition]
        rate, kept = self._rates.of(tp), self._local.statistics(tp)
        row = {
            "stream": tp.stream,
            "partition": tp.partition,
            "leader": None if it.leader == NO_LEADER else it.leader,
            "epoch": it.leader_epoch,
            "replicas": list(it.replicas),
            "isr": list(it.isr),
            "wants": sorted(wants(stream, tp.partition, it)),
            "high_watermark": self._local.end(tp),
            "rate": None if rate is None else round(rate, 1),
            "kept_here": kept is not None,
        }
        if kept is not None:
            row |= {
                "log_start_offset": kept.log_start_offset,
                "log_end_offset": kept.log_end_offset,
                "size_bytes": kept.size_bytes,
                "lag": kept.follower_lag if kept.is_leader else None,
            }
        return row

    def _groups(self, moment: ClusterSnapshot, query: Query) -> FoundItems:
        groups = _matching_groups(moment, query)
        rows = [self._group(it, moment.now_ms) for it in _page(groups, query)]
        return FoundItems(rows, len(groups))

    def _group(self, group: CoordinatedGroup, now_ms: int) -> Row:
        for _ in self._lagging(group, now_ms):
            pass
        return {
            "group": group.group_id,
            "state": group.state,
            "members": group.member_count,
            "coordinator": group.coordinator,
            "partitions": len(group.committed),
            **self._lags[group.group_id][1],
        }

    def _lagging(self, group: CoordinatedGroup, now_ms: int) -> Iterator[int]:
        """As ``_summing``: a group may have committed in ten thousand partitions, too."""
        known = self._lags.get(group.group_id)
        if known is not None and 0 <= now_ms - known[0] < SUMS_MS:
            return
        lags = []
        unknown = 0
        for number, (tp, offset) in enumerate(group.committed.items(), 1):
            end = self._local.end(tp)
            if end is None:
                unknown += 1
            else:
                lags.append((consumer_lag(end, offset), tp, offset))
            if not number % SUMMED_MAX:
                yield SUMMED_MAX
        row: Row = {
            "lag": sum(lag for lag, _, _ in lags),
            "lag_unknown": unknown,
            "furthest": [
                {"stream": tp.stream, "partition": tp.partition, "offset": offset, "lag": lag}
                for lag, tp, offset in nsmallest(LAGGING_MAX, lags, key=lambda it: (-it[0], it[1]))
            ],
        }
        _remember(self._lags, group.group_id, (now_ms, row))
        yield len(group.committed) % SUMMED_MAX

    def _events(self, query: Query) -> FoundItems:
        events = [it for it in self._chronicle.latest(10_000) if query.filter in it.text]
        return FoundItems([it._asdict() for it in _page(events, query)], len(events))


def _numbers(moment: ClusterSnapshot, stream: StreamImage, only: str) -> Sequence[int]:
    """Of the partitions that are shown."""
    partitions = stream.partitions
    if not only:
        return range(len(partitions))
    if only == LED_HERE:
        return [number for number, it in enumerate(partitions) if it.leader == moment.node_id]
    return [
        number for number, it in enumerate(partitions) if counts_of(stream, number, it).of(only)
    ]


def _matching_groups(moment: ClusterSnapshot, query: Query) -> list[CoordinatedGroup]:
    found = [it for it in moment.groups if query.filter in it.group_id]
    return sorted(found, key=lambda it: it.group_id)


def _remember(known: dict[str, tuple[int, Row]], name: str, told: tuple[int, Row]) -> None:
    if len(known) >= SUMS_MAX and name not in known:
        known.clear()
    known[name] = told


def _page(rows: Sequence[T], query: Query) -> Sequence[T]:
    return rows[query.page * query.size : (query.page + 1) * query.size]


def _node(moment: ClusterSnapshot, node_id: NodeId) -> Row:
    node = moment.image.nodes[node_id]
    load = moment.image.load(node.node_id)
    answers = moment.answers.get(node_id)
    states = [
        name
        for name, holds in (
            ("stopped", node.stopping),
            ("gone", node.fenced and not node.stopping),
            ("does not answer", answers is False and not node.fenced),
            ("answers", answers is True and not node.fenced),
            ("full", node.full),
            *((f"{name} trouble", True) for name in node.unfit),
            ("draining", node.draining),
        )
        if holds
    ]
    return {
        "node": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "states": states or ["alive"],
        "alive": not node.fenced and answers is not False,
        "this": node.node_id == moment.node_id,
        "controller": node.node_id == moment.controller,
        "voter": node.node_id in moment.voters,
        "leaders": load.leaders,
        "replicas": load.replicas,
    }
