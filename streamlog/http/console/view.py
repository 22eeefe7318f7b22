"""What a watcher is shown: a summary, and one page of the list that was asked for. Pure."""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import accumulate, islice
from typing import Any, Final, NamedTuple, TypeVar

from streamlog.groups.offsets import consumer_lag
from streamlog.http.console.cluster_snapshot import (
    ClusterSnapshot,
    CoordinatedGroup,
    CoordinatedTransaction,
    Local,
)
from streamlog.http.console.event_log import EVENTS_MAX, ClusterEvent, EventLog
from streamlog.http.console.names import FilteredNames, RankedNames
from streamlog.http.console.node_findings import findings
from streamlog.http.console.overview import Overview, counts_of, wants
from streamlog.http.console.query import LED_HERE, Query
from streamlog.http.console.traffic import StreamSum, Traffic
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.stream_config import is_internal
from streamlog.model import NO_LEADER, NodeId, TopicPartition

Row = dict[str, Any]
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

FINDINGS_MAX: Final = 50
SUMS_MS: Final = 900
LAGS_MAX: Final = 10_000
ROWS_KEPT_MAX: Final = 10_000
LISTS_KEPT_MAX: Final = 64
"""Filtered lists of names that are kept; the one that was used longest ago goes."""
SORTED_MS: Final = 60_000
"""A sorted list that is not asked for is let go after this."""
SUMMED_MAX: Final = 500
"""Partitions of which a turn adds up what they hold."""
LAGGING_MAX: Final = 10
"""Partitions of a group, or of a transaction, that are told one by one: those with the most to read, or to wait for."""
OVERDUE_MS: Final = 5_000
"""After its time-out a transaction is about to be aborted; longer than that something is in its way."""


class ShownRow(NamedTuple):
    """A row, and its JSON: most rows are the same from one look to the next."""

    key: str
    row: Row
    text: str


def _shown_row(key: str, row: Row) -> ShownRow:
    return ShownRow(key, row, json.dumps(row, separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class FoundItems:
    """A page, and how many rows there are in all."""

    shown: Sequence[ShownRow]
    total: int

    @property
    def rows(self) -> list[Row]:
        return [it.row for it in self.shown]


class _Places(NamedTuple):
    """Where partitions are in a list of them: so many are shown of these streams and all before."""

    version: int
    names: Sequence[str]
    ends: list[int]


class _PartitionRow(NamedTuple):
    """The row, and what it was made of."""

    made_of: tuple[object, ...]
    shown: ShownRow


SeesStream = Callable[[str], bool]


class View:
    """``prepare`` each look in turns of the event loop; then the rest of it is cheap.

    Holds what makes it cheap to look again: counts, lists and rows that have not changed. It is told
    what has: ``follow`` an image, ``moved`` the streams whose sums or rates are others.
    """

    def __init__(
        self,
        local: Local,
        traffic: Traffic,
        chronicle: EventLog,
        sees: SeesStream | None = None,
    ) -> None:
        """``sees``: whether its watchers may know of a stream that something else than the image names; None: of
        every one.
        """
        self._local = local
        self._sees = sees
        self._traffic = traffic
        self._chronicle = chronicle
        self.overview = Overview()
        self._image: MetadataImage | None = None
        self._streams_kept: dict[str, ShownRow] = {}
        """Each is right until its stream changes, or moves."""
        self._partitions_kept: dict[TopicPartition, _PartitionRow] = {}
        self._events_kept: dict[int, ShownRow] = {}
        self._lags: dict[str, tuple[int, ShownRow]] = {}
        self._transactions_kept: dict[str, ShownRow] = {}
        self._filtered: dict[str, FilteredNames] = {}
        self._wanting: dict[Query, tuple[int, Sequence[str]]] = {}
        self._sorted: dict[tuple[str, bool], RankedNames] = {}
        self._places_kept: dict[Query, _Places] = {}

    def follow(self, image: MetadataImage) -> None:
        """What it says of streams has changed with those that it names; with all if it does not."""
        known, self._image = self._image, image
        if image is known:
            return
        if known is not None and image.parent_offset == known.offset:
            for name in image.touched:
                self._traffic.forget_sum(name)
            self.moved(image.touched)
        else:
            self.forget()
        self.overview.follow(image)

    def moved(self, names: AbstractSet[str]) -> None:
        """Their rates, or what is kept of them, are others now."""
        for name in self._streams_kept.keys() & names:
            del self._streams_kept[name]
        for it in self._sorted.values():
            it.update(names)

    def forget(self) -> None:
        """Whatever may have changed without a word."""
        self._traffic.forget_sums()
        self._streams_kept.clear()
        self._sorted.clear()

    def prepare(self, moment: ClusterSnapshot, query: Query | None = None) -> Iterator[None]:
        """Does what takes long of a look, a turn at a time. What is left out is done by the look.

        Yields after each turn but the last; without any, ``moment`` is still the present one.
        """
        self.follow(moment.image)
        while not self.overview.work():
            yield
        if query is None:
            return
        if query.show == "streams" and query.sort not in ("", "name"):
            yield from self._sorted_by(query, moment.now_ms).build(self.overview)
        summed = 0
        for count in self._preparing_rows(moment, query):
            summed += count
            if summed >= SUMMED_MAX:
                summed = 0
                yield

    def _preparing_rows(self, moment: ClusterSnapshot, query: Query) -> Iterator[int]:
        """How many partitions were looked at for them, in parts."""
        if query.show == "streams":
            for name in self._names_of_page(moment, query):
                if name not in self._streams_kept:
                    yield from self._summing(moment.image.streams[name])
        elif query.show == "groups":
            shown = moment.groups if query.sort == "lag" else self._groups_of_page(moment, query)
            for group in shown:
                yield from self._lagging(group, moment.now_ms)

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
            case "transactions":
                return self._transactions(moment, query)
            case "events":
                return self._events(query)
        return FoundItems((), 0)

    def stream(self, moment: ClusterSnapshot, name: str) -> Row | None:
        """One by itself, with its configuration; None where there is none."""
        stream = moment.image.streams.get(name)
        if stream is None:
            return None
        config = stream.config.model_dump(mode="json", exclude_none=True)
        shown = self._streams_kept.get(name) or self._stream(stream)
        return {**shown.row, "created_ms": stream.created_ms, "config": config}

    def shown_partitions(self, moment: ClusterSnapshot, query: Query) -> Sequence[TopicPartition]:
        """Whose ends are worth asking others for."""
        if query.show != "partitions":
            return ()
        return self._partitions_of_page(moment, query)

    def _overview_of(self, moment: ClusterSnapshot) -> Overview:
        self.follow(moment.image)
        while not self.overview.work():
            pass
        return self.overview

    def _cluster(self, it: ClusterSnapshot) -> Row:
        overview = self._overview_of(it)
        total = overview.total
        total = total._replace(leaderless=total.leaderless + overview.unled(it.silent))
        return {
            "id": it.cluster_id,
            "version": it.version,
            "node": it.node_id,
            "role": it.role,
            "epoch": it.quorum_epoch,
            "controller": it.controller,
            "voters": list(it.voters),
            "metadata_offset": it.image.offset,
            "streams": len(overview.names),
            "groups": len(it.groups),
            "groups_hidden": it.groups_hidden,
            "tail_refused": it.tail_refused,
            "console_writes": it.console_writes,
            **total._asdict(),
        }

    def _streams(self, moment: ClusterSnapshot, query: Query) -> FoundItems:
        total = len(self._matching_streams(moment, query))
        kept, streams = self._streams_kept, moment.image.streams
        names = self._names_of_page(moment, query)
        return FoundItems([kept.get(it) or self._stream(streams[it]) for it in names], total)

    def _names_of_page(self, moment: ClusterSnapshot, query: Query) -> Sequence[str]:
        names = self._matching_streams(moment, query)
        start = query.page * query.size
        if not query.sort:
            return names[start : start + query.size]
        if query.sort == "name":
            end = max(0, len(names) - start)
            return names[max(0, end - query.size) : end][::-1]
        if query.stream:
            return names
        ordered = self._sorted_by(query, moment.now_ms)
        for _ in ordered.build(self.overview):
            pass
        ordered.follow(self.overview)
        accept = None
        if query.only:
            accept = frozenset(names).__contains__
        elif query.filter:
            accept = partial(_contains, query.filter)
        return ordered.some(start, query.size, accept)

    def _sorted_by(self, query: Query, now_ms: int) -> RankedNames:
        key = query.sort, query.descending
        found = self._sorted.get(key)
        if found is None:
            value_of = {
                "records": lambda name: self._sum(name).records,
                "size_bytes": lambda name: self._sum(name).size_bytes,
                "rate": lambda name: self._traffic.of_stream(name) or 0.0,
            }[query.sort]
            found = self._sorted[key] = RankedNames(value_of, descending=query.descending)
        found.used_ms = now_ms
        for other, it in tuple(self._sorted.items()):
            if now_ms - it.used_ms > SORTED_MS:
                del self._sorted[other]
        return found

    def _matching_streams(self, moment: ClusterSnapshot, query: Query) -> Sequence[str]:
        """In order; not to be changed."""
        overview = self._overview_of(moment)
        if query.stream:
            return (query.stream,) if query.stream in moment.image.streams else ()
        if not query.only:
            if not query.filter:
                return overview.names
            return self._names_with(query.filter).follow(overview)
        asked = Query(filter=query.filter, only=query.only)
        version, names = self._wanting.get(asked, (-1, ()))
        if version != overview.version:
            wanting = (
                overview.led_by(moment.node_id)
                if asked.only == LED_HERE
                else overview.wanting(asked.only)
            )
            names = sorted(it for it in wanting if asked.filter in it)
            _remember(self._wanting, asked, (overview.version, names), LISTS_KEPT_MAX)
        return names

    def _names_with(self, text: str) -> FilteredNames:
        found = self._filtered.pop(text, None) or FilteredNames(text)
        _remember(self._filtered, text, found, LISTS_KEPT_MAX)
        return found

    def _stream(self, stream: StreamImage) -> ShownRow:
        total = self._sum(stream.name)
        row = {
            "name": stream.name,
            "internal": is_internal(stream.name),
            "subjects": list(stream.config.subjects[:LAGGING_MAX]),
            "replicas": stream.config.replicas,
            **self.overview.counts(stream.name)._asdict(),
            "records": total.records,
            "size_bytes": total.size_bytes,
            "rate": self._traffic.of_stream(stream.name),
        }
        shown = _shown_row(stream.name, row)
        _remember(self._streams_kept, stream.name, shown, ROWS_KEPT_MAX)
        return shown

    def _sum(self, name: str) -> StreamSum:
        known = self._traffic.sum_of(name)
        if known is None:
            stream = None if self._image is None else self._image.streams.get(name)
            if stream is None:
                return StreamSum(0, 0)
            for _ in self._summing(stream):
                pass
            known = self._traffic.sum_of(name)
        return known or StreamSum(0, 0)

    def _summing(self, stream: StreamImage) -> Iterator[int]:
        """Adds up over its partitions here, which may be ten thousand, unless it is known; how many
        partitions it took, in parts. By what the traffic knows, which moves the sum along later.
        """
        if self._traffic.sum_of(stream.name) is not None:
            return
        records = size_bytes = 0
        count = len(stream.partitions)
        for start in range(0, count, SUMMED_MAX):
            for number in range(start, min(start + SUMMED_MAX, count)):
                tp = TopicPartition(stream.name, number)
                kept = self._traffic.held(tp) or self._local.kept(tp)
                if kept is not None:
                    records += kept.records
                    size_bytes += kept.size_bytes
            yield min(SUMMED_MAX, count - start)
        self._traffic.keep_sum(stream.name, StreamSum(records, size_bytes))

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
        for name in islice(places.names, first, None):
            numbers = _numbers(moment, moment.image.streams[name], query.only)
            wanted = numbers[skipped : skipped + query.size - len(found)]
            found += [TopicPartition(name, number) for number in wanted]
            skipped = 0
            if len(found) == query.size:
                break
        return found

    def _places(self, moment: ClusterSnapshot, query: Query) -> _Places:
        """The same until what is counted or the filter is another."""
        asked = Query(filter=query.filter, stream=query.stream, only=query.only)
        overview = self._overview_of(moment)
        placed = self._places_kept.get(asked)
        if placed is not None and placed.version == overview.version:
            return placed
        names = self._matching_streams(moment, asked)
        node_id = moment.node_id if asked.only == LED_HERE else None
        ends = list(accumulate(overview.count(name, asked.only, node_id) for name in names))
        placed = _Places(overview.version, tuple(names), ends)
        _remember(self._places_kept, asked, placed, LISTS_KEPT_MAX)
        return placed

    def _partition(self, image: MetadataImage, tp: TopicPartition) -> ShownRow:
        stream = image.streams[tp.stream]
        it = stream.partitions[tp.partition]
        rate, kept = self._traffic.of(tp), self._local.statistics(tp)
        end = self._local.end(tp)
        made_of = (it, stream.config, rate, kept, end)
        known = self._partitions_kept.get(tp)
        if known is not None and known.made_of == made_of:
            return known.shown
        row = {
            "stream": tp.stream,
            "partition": tp.partition,
            "leader": None if it.leader == NO_LEADER else it.leader,
            "epoch": it.leader_epoch,
            "replicas": list(it.replicas),
            "isr": list(it.isr),
            "wants": sorted(wants(stream, tp.partition, it)),
            "high_watermark": end,
            "rate": rate,
            "kept_here": kept is not None,
        }
        if kept is not None:
            row |= {
                "log_start_offset": kept.log_start_offset,
                "log_end_offset": kept.log_end_offset,
                "size_bytes": kept.size_bytes,
                "lag": kept.follower_lag if kept.is_leader else None,
            }
            if stream.config.tiered and kept.is_leader:
                row["tier_lag_bytes"] = kept.tier_lag_bytes
        shown = _shown_row(f"{tp.stream}/{tp.partition}", row)
        _remember(self._partitions_kept, tp, _PartitionRow(made_of, shown), ROWS_KEPT_MAX)
        return shown

    def _groups(self, moment: ClusterSnapshot, query: Query) -> FoundItems:
        groups = self._groups_of_page(moment, query)
        rows = [self._group(it, moment.now_ms) for it in groups]
        return FoundItems(rows, len(_matching_groups(moment, query)))

    def _groups_of_page(self, moment: ClusterSnapshot, query: Query) -> Sequence[CoordinatedGroup]:
        groups = _matching_groups(moment, query)
        if query.sort == "lag":
            groups.sort(key=lambda it: int(self._group(it, moment.now_ms).row["lag"]))
        elif query.sort == "members":
            groups.sort(key=lambda it: it.member_count)
        if query.descending:
            groups.reverse()
        return _page(groups, query)

    def _group(self, group: CoordinatedGroup, now_ms: int) -> ShownRow:
        for _ in self._lagging(group, now_ms):
            pass
        return self._lags[group.group_id][1]

    def _lagging(self, group: CoordinatedGroup, now_ms: int) -> Iterator[int]:
        """As ``_summing``: a group may have committed in ten thousand partitions, too."""
        known = self._lags.get(group.group_id)
        if known is not None and 0 <= now_ms - known[0] < SUMS_MS:
            return
        lags = []
        unknown = 0
        for number, (tp, offset) in enumerate(group.committed.items(), 1):
            if self._sees is None or self._sees(tp.stream):
                end = self._local.end(tp)
                if end is None:
                    unknown += 1
                else:
                    lags.append((consumer_lag(end, offset), tp, offset))
            if not number % SUMMED_MAX:
                yield SUMMED_MAX
        row: Row = {
            "group": group.group_id,
            "state": group.state,
            "members": group.member_count,
            "coordinator": group.coordinator,
            "partitions": len(lags) + unknown,
            "lag": sum(lag for lag, _, _ in lags),
            "lag_unknown": unknown,
            "furthest": [
                {"stream": tp.stream, "partition": tp.partition, "offset": offset, "lag": lag}
                for lag, tp, offset in nsmallest(LAGGING_MAX, lags, key=lambda it: (-it[0], it[1]))
            ],
        }
        shown = (
            known[1]
            if known is not None and known[1].row == row
            else _shown_row(group.group_id, row)
        )
        _remember(self._lags, group.group_id, (now_ms, shown), LAGS_MAX)
        yield len(group.committed) % SUMMED_MAX

    def _transactions(self, moment: ClusterSnapshot, query: Query) -> FoundItems:
        found = [it for it in moment.transactions if query.filter in it.transactional_id]
        if query.sort == "name":
            found.sort(key=lambda it: it.transactional_id)
        elif query.sort == "partitions":
            found.sort(key=lambda it: len(it.transaction.partitions))
        if query.descending:
            found.reverse()
        rows = [self._transaction(it, moment.now_ms) for it in _page(found, query)]
        return FoundItems(rows, len(found))

    def _transaction(self, it: CoordinatedTransaction, now_ms: int) -> ShownRow:
        """``held_up``: in its partitions on this node, of which there may be thousands: so many are looked at."""
        kept = it.transaction
        partitions = sorted(
            TopicPartition(*place)
            for place in kept.partitions
            if self._sees is None or self._sees(place[0])
        )
        waiting = {tp: self._undecided(tp) for tp in partitions[:SUMMED_MAX]}
        held_up = {tp: count for tp, count in waiting.items() if count is not None}
        row: Row = {
            "transactional_id": it.transactional_id,
            "state": kept.state.shown,
            "open_s": max(0, now_ms - kept.start_ms) // 1000 if kept.is_open else None,
            "timeout_s": kept.timeout_ms // 1000,
            "overdue": kept.is_open and now_ms - kept.start_ms > kept.timeout_ms + OVERDUE_MS,
            "producer_id": kept.producer.producer_id,
            "producer_epoch": kept.producer.epoch,
            "coordinator": it.coordinator,
            "partitions": len(partitions),
            "held_up": sum(held_up.values()),
            "held_up_unknown": len(partitions) - len(held_up),
            "furthest": [
                {"stream": tp.stream, "partition": tp.partition, "held_up": count}
                for tp, count in nsmallest(
                    LAGGING_MAX, held_up.items(), key=lambda held: (-held[1], held[0])
                )
            ],
        }
        known = self._transactions_kept.get(it.transactional_id)
        if known is None or known.row != row:
            known = _shown_row(it.transactional_id, row)
            _remember(self._transactions_kept, it.transactional_id, known, ROWS_KEPT_MAX)
        return known

    def _undecided(self, tp: TopicPartition) -> int | None:
        """Committed records that readers of committed records wait for; None: the partition is not here."""
        kept = self._local.statistics(tp)
        return None if kept is None else kept.undecided

    def _events(self, query: Query) -> FoundItems:
        events = [
            it
            for it in self._chronicle.latest(EVENTS_MAX)
            if query.filter in it.text and (self._sees is None or it.is_seen(self._sees))
        ]
        return FoundItems([self._event(it) for it in _page(events, query)], len(events))

    def _event(self, event: ClusterEvent) -> ShownRow:
        known = self._events_kept.get(event.number)
        if known is None:
            known = _shown_row(str(event.number), event._asdict())
            _remember(self._events_kept, event.number, known, EVENTS_MAX)
        return known


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


def _contains(text: str, name: str) -> bool:
    return text in name


def _remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    """What was put there longest ago makes room."""
    if len(known) >= most and key not in known:
        del known[next(iter(known))]
    known[key] = value


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
