"""What a watcher is shown: a summary, and one page of the list that was asked for. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from streamlog.console.page.chronicle import Chronicle
from streamlog.console.page.counts import Counts, CountsOf, wants
from streamlog.console.page.findings import findings
from streamlog.console.page.moment import GroupElsewhere, Local, Moment
from streamlog.console.page.query import LED_HERE, Query
from streamlog.console.page.rates import Rates
from streamlog.metadata.image import Image, PartitionImage, StreamImage
from streamlog.metadata.stream import is_internal
from streamlog.model import NO_LEADER, NodeId, TopicPartition

Row = dict[str, Any]
T = TypeVar("T")

FINDINGS_MAX: Final = 50
SUMS_MS: Final = 900
SUMS_MAX: Final = 1_000
LAGGING_MAX: Final = 10
"""Partitions of a group that are told one by one, those with the most to read first."""


@dataclass(frozen=True, slots=True)
class Found:
    """A page, and how many rows there are in all."""

    rows: list[Row]
    total: int


class View:
    """Holds what makes it cheap to look again: counts and lists of images that have not changed."""

    def __init__(self, local: Local, rates: Rates, chronicle: Chronicle) -> None:
        self._local = local
        self._rates = rates
        self._chronicle = chronicle
        self._counts = CountsOf()
        self._sums: dict[str, tuple[int, Row]] = {}
        self._named: tuple[Image, Query, list[StreamImage]] | None = None
        self._matching: tuple[Image, Query, list[TopicPartition]] | None = None

    def whole(self, moment: Moment, query: Query) -> Row:
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

    def summary(self, moment: Moment) -> Row:
        total = self._counts.total(moment.image, moment.silent)
        found = findings(moment, total)
        return {
            "cluster": self._cluster(moment, total),
            "nodes": [_node(moment, node_id) for node_id in sorted(moment.image.nodes)],
            "findings": [it._asdict() for it in found[:FINDINGS_MAX]],
            "findings_total": len(found),
        }

    def list(self, moment: Moment, query: Query) -> Found:
        match query.show:
            case "streams":
                return self._streams(moment, query)
            case "partitions":
                return self._partitions(moment, query)
            case "groups":
                return self._groups(moment, query)
            case _:
                return self._events(query)

    def shown_partitions(self, moment: Moment, query: Query) -> Sequence[TopicPartition]:
        """Whose ends are worth asking others for."""
        if query.show != "partitions":
            return ()
        return _page(self._matching_partitions(moment, query), query)

    def _cluster(self, it: Moment, total: Counts) -> Row:
        rate = self._rates.total()
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

    def _streams(self, moment: Moment, query: Query) -> Found:
        streams = self._matching_streams(moment.image, query)
        now_ms = moment.now_ms
        return Found([self._stream(it, now_ms) for it in _page(streams, query)], len(streams))

    def _matching_streams(self, image: Image, query: Query) -> Sequence[StreamImage]:
        """The same until the image or the filter is another, as for partitions."""
        asked = Query(filter=query.filter, only=query.only)
        if self._named is not None and self._named[0] is image and self._named[1] == asked:
            return self._named[2]
        streams = [
            stream
            for name, stream in sorted(image.streams.items())
            if query.filter in name
            and (not query.only or getattr(self._counts.stream(stream), query.only, False))
        ]
        self._named = (image, asked, streams)
        return streams

    def _stream(self, stream: StreamImage, now_ms: int) -> Row:
        return {
            "name": stream.name,
            "internal": is_internal(stream.name),
            "subjects": list(stream.config.subjects[:LAGGING_MAX]),
            "replicas": stream.config.replicas,
            **self._counts.stream(stream)._asdict(),
            **self._sum(stream, now_ms),
        }

    def _sum(self, stream: StreamImage, now_ms: int) -> Row:
        """Over its partitions here, which may be ten thousand: not for each look of each client."""
        known = self._sums.get(stream.name)
        if known is not None and 0 <= now_ms - known[0] < SUMS_MS:
            return known[1]
        records = size_bytes = 0
        rates = []
        for number in range(len(stream.partitions)):
            tp = TopicPartition(stream.name, number)
            kept, rate = self._local.kept(tp), self._rates.of(tp)
            if kept is not None:
                records += max(0, kept.high_watermark - kept.log_start_offset)
                size_bytes += kept.size_bytes
            if rate is not None:
                rates.append(rate)
        row: Row = {
            "records": records,
            "size_bytes": size_bytes,
            "rate": round(sum(rates), 1) if rates else None,
        }
        if len(self._sums) >= SUMS_MAX:
            self._sums.clear()
        self._sums[stream.name] = (now_ms, row)
        return row

    def _partitions(self, moment: Moment, query: Query) -> Found:
        matching = self._matching_partitions(moment, query)
        rows = [self._partition(moment.image, tp) for tp in _page(matching, query)]
        return Found(rows, len(matching))

    def _matching_partitions(self, moment: Moment, query: Query) -> Sequence[TopicPartition]:
        """The same until the image or the filter is another: ten thousand are not for each look."""
        asked = Query(filter=query.filter, stream=query.stream, only=query.only)
        if self._matching is not None and self._matching[:2] == (moment.image, asked):
            return self._matching[2]
        found = list(_matching(moment, asked))
        self._matching = (moment.image, asked, found)
        return found

    def _partition(self, image: Image, tp: TopicPartition) -> Row:
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

    def _groups(self, moment: Moment, query: Query) -> Found:
        groups = sorted(
            (it for it in moment.groups if query.filter in it.group_id),
            key=lambda it: it.group_id,
        )
        return Found([self._group(it) for it in _page(groups, query)], len(groups))

    def _group(self, group: GroupElsewhere) -> Row:
        lags: list[tuple[int, TopicPartition, int]] = []
        unknown = 0
        for tp, offset in group.committed.items():
            end = self._local.end(tp)
            if end is None:
                unknown += 1
            else:
                lags.append((max(0, end - offset), tp, offset))
        lags.sort(key=lambda it: (-it[0], it[1]))
        return {
            "group": group.group_id,
            "state": group.state,
            "members": group.member_count,
            "coordinator": group.coordinator,
            "partitions": len(group.committed),
            "lag": sum(lag for lag, _, _ in lags),
            "lag_unknown": unknown,
            "furthest": [
                {"stream": tp.stream, "partition": tp.partition, "offset": offset, "lag": lag}
                for lag, tp, offset in lags[:LAGGING_MAX]
            ],
        }

    def _events(self, query: Query) -> Found:
        events = [it for it in self._chronicle.latest(10_000) if query.filter in it.text]
        return Found([it._asdict() for it in _page(events, query)], len(events))


def _matching(moment: Moment, query: Query) -> Iterator[TopicPartition]:
    streams = moment.image.streams
    for name in sorted(streams):
        if (query.stream and name != query.stream) or query.filter not in name:
            continue
        stream = streams[name]
        for number, it in enumerate(stream.partitions):
            if not query.only or _is_wanted(moment, stream, number, it, query.only):
                yield TopicPartition(name, number)


def _is_wanted(
    moment: Moment, stream: StreamImage, number: int, it: PartitionImage, only: str
) -> bool:
    if only == LED_HERE:
        return it.leader == moment.node_id
    return only in wants(stream, number, it)


def _page(rows: Sequence[T], query: Query) -> Sequence[T]:
    return rows[query.page * query.size : (query.page + 1) * query.size]


def _node(moment: Moment, node_id: NodeId) -> Row:
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
