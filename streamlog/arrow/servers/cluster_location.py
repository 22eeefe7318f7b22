"""Streams as the nodes tell of them over the socket API."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeVar

from streamlog.arrow.location import Bounds, Listing, PartitionRange, piece_bytes
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.options.security_files import cluster_by
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.client.blocking import BlockingCluster, with_retries
from streamlog.client.topology import TopicInfo
from streamlog.errors import StreamlogError, StreamNotFound
from streamlog.model import TopicPartition
from streamlog.record.batch import read_header
from streamlog.wire.errors import check
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from streamlog.wire.special_offsets import EARLIEST, LATEST, NOT_FOUND

T = TypeVar("T")

DESCRIBE: Final = "streams.describe"
MANIFESTS: Final = "streams.manifests"


def open_cluster(options: ReadOptions) -> BlockingCluster:
    """Opens no connection yet. Raises ConfigError."""
    assert options.servers is not None
    return cluster_by(options.security, options.servers)


class ClusterLocation:
    """A leader that is away is waited for, as long as ``fetchTimeoutMs`` says."""

    def __init__(self, options: ReadOptions) -> None:
        self._servers = options.servers or ""
        self._patience_ms = options.fetch.timeout_ms
        self._cluster = open_cluster(options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cluster.close()

    def listing(self, wanted: StreamSubscription) -> Listing:
        """Raises NodeUnreachable at once where no server answers."""
        if wanted.named_streams:
            try:
                topics = self._cluster.topology(wanted.named_streams).topics
            except StreamNotFound:
                topics = self._cluster.topology().topics  # the error tells what there is
        else:
            topics = self._cluster.topology().topics
        ids = {
            TopicPartition(topic.name, it.partition): _id_of(topic)
            for topic in topics.values()
            for it in topic.partitions
        }
        return Listing(self._servers, ids)

    def bounds(self, names: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The ends last: what is committed then was there when the starts were asked for, or is
        newer.
        """
        starts = self._list_offsets(names, EARLIEST)
        ends = self._list_offsets(names, LATEST)
        return {name: Bounds(starts[name], max(starts[name], ends[name])) for name in names}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for time_ms in sorted(set(times.values())):
            names = [name for name, wanted in times.items() if wanted == time_ms]
            offsets = self._list_offsets(names, time_ms)
            found |= {n: None if at == NOT_FOUND else at for n, at in offsets.items()}
        return found

    def bytes_between(
        self,
        ranges: Iterable[PartitionRange],
        local_starts: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> dict[TopicPartition, int]:
        """From what the whole partition takes: its records are taken to be of one size.

        ``local_starts``: where what lies on the disks of tiered partitions begins.
        """
        ranges = list(ranges)
        names = [range_.name for range_ in ranges]
        sizes = self._patiently(lambda: self._cluster.log_bytes(names))
        local = {
            name: replace(it, log_start=max(it.log_start, local_starts.get(name, 0)))
            for name, it in self.bounds(names).items()
        }
        return {it.name: _share(it, sizes.get(it.name, 0), local[it.name]) for it in ranges}

    def placed(self, ranges: Iterable[PartitionRange]) -> list[PartitionRange]:
        return list(ranges)

    def settings(self, stream: str) -> Mapping[str, Any]:
        """Raises StreamNotFound."""
        told = self._patiently(lambda: self._cluster.operate(DESCRIBE, {"name": stream}))
        config: Mapping[str, Any] = told["config"]
        return config

    def manifests(self, stream: str) -> dict[str, Any]:
        """What ``streams.manifests`` tells. Raises StreamNotFound."""
        return self._patiently(lambda: self._cluster.operate(MANIFESTS, {"name": stream}))

    def cut(
        self, ranges: list[PartitionRange], bytes_max: int | None, tasks_min: int
    ) -> list[PartitionRange]:
        ranges = [it for it in ranges if it.start_offset < it.end_offset]
        sizes = self.bytes_between(ranges)
        size = piece_bytes(sum(sizes.values()), bytes_max, tasks_min)
        return [piece for it in ranges for piece in self.pieces(it, -(-sizes[it.name] // size))]

    def pieces(self, range_: PartitionRange, count: int) -> Iterable[PartitionRange]:
        """About ``count`` of a range, at batch boundaries."""
        start, records = range_.start_offset, range_.end_offset - range_.start_offset
        count = max(1, min(count, records))
        cuts = {self._boundary(range_, start + records * i // count) for i in range(1, count)}
        bounds = {start, range_.end_offset, *(it for it in cuts if start < it < range_.end_offset)}
        for piece_start, piece_end in pairwise(sorted(bounds)):
            yield replace(range_, start_offset=piece_start, end_offset=piece_end)

    def _boundary(self, range_: PartitionRange, offset: int) -> int:
        """Where the batch begins that holds the offset: a node gives no less than a batch."""
        name = range_.name

        def ask() -> int:
            node, epoch = self._cluster.leader(name)
            wanted = FetchPartition(name.partition, offset, 1, epoch)
            topic = FetchTopic(name.stream, [wanted], id_bytes(range_.stream_id))
            try:
                answer = self._cluster.connection(node).fetch(FetchRequest([topic], 0, 1, 1))
                check(answer.error_code, str(name))
            except StreamlogError:
                self._cluster.forget(name.stream)
                raise
            for fetched in answer.partitions:
                if fetched.records:
                    return read_header(fetched.records).base_offset
            return offset  # the task that reads it says what is wrong

        return self._patiently(ask)

    def _list_offsets(
        self, names: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        return self._patiently(lambda: self._cluster.list_offsets(names, timestamp))

    def _patiently(self, ask: Callable[[], T]) -> T:
        return with_retries(ask, self._patience_ms, about=self._servers)


def id_bytes(stream_id: str) -> bytes:
    """As a fetch names the stream."""
    return bytes.fromhex(stream_id.replace("-", ""))


def _id_of(topic: TopicInfo) -> str:
    return "" if topic.topic_id is None else str(topic.topic_id)


def _share(range_: PartitionRange, size: int, bounds: Bounds) -> int:
    records = bounds.high_watermark - bounds.log_start
    return size * (range_.end_offset - range_.start_offset) // records if records else 0
