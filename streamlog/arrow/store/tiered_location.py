"""Where tiered streams are: the nodes say what there is, and objects of the store have the old part of it.

Each partition's leader names the manifest that counts. Manifests never change, and name segments without a hole, so one
manifest is one snapshot of the store. What was uploaded since is read from servers. The store is not listed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from streamlog.arrow.files.segment_reader import SegmentFile
from streamlog.arrow.location import Bounds, Listing, PartitionRange, StoredSegments, piece_bytes
from streamlog.arrow.options.encryption_keys import Openers
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.arrow.servers.cluster_location import ClusterLocation
from streamlog.arrow.store import stored_ranges
from streamlog.arrow.store.segment_objects import SegmentObjects, batch_ends
from streamlog.arrow.store.stored_ranges import StoredPartition
from streamlog.errors import ConfigError, ObjectNotFound, StreamNotFound
from streamlog.log.layout import INDEX_SUFFIX
from streamlog.model import TopicPartition
from streamlog.tier.blocking_store import BlockingStore, ManifestPlace
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.object_layout import ManifestVersion, StreamPrefix

TRIES_MAX: Final = 3
"""So often in a row a manifest has gone since a leader named it; more often, the store is another one."""
SEARCHED_BYTES: Final = 1 << 20
"""One request of a search by time."""


@dataclass(frozen=True)
class _Told:
    """What a leader says of a partition."""

    stream_id: str
    place: ManifestPlace
    log_start_offset: int
    local_log_start_offset: int
    end_offset: int


class TieredLocation:
    """Of one plan: what was read of the store holds for all of it."""

    def __init__(self, options: ReadOptions) -> None:
        assert options.store is not None
        self._store_options = options.store
        self._keys = options.keys
        self._cluster = ClusterLocation(options)
        self._store: BlockingStore | None = None
        self._told: dict[str, dict[TopicPartition, _Told]] = {}
        self._stored: dict[TopicPartition, StoredPartition | None] = {}

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
        self._cluster.__exit__(kind, error, trace)

    def listing(self, wanted: StreamSubscription) -> Listing:
        return self._cluster.listing(wanted)

    def settings(self, stream: str) -> Mapping[str, Any]:
        return self._cluster.settings(stream)

    def bounds(self, names: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return self._cluster.bounds(names)

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """From the store where it is there: a node would have to fetch whole segments for it."""
        there = self._partitions(times)
        found: dict[TopicPartition, int | None] = {}
        for name, time_ms in times.items():
            offset = self._offset_at(there[name], time_ms)
            if offset is not None:
                found[name] = offset
        return found | self._cluster.offsets_at({n: t for n, t in times.items() if n not in found})

    def bytes_between(self, ranges: Iterable[PartitionRange]) -> dict[TopicPartition, int]:
        ranges = self.placed(ranges)
        rest = self._rest_bytes(ranges)
        return {it.name: stored_ranges.stored_bytes(it) + rest[it.name] for it in ranges}

    def cut(
        self, ranges: list[PartitionRange], bytes_max: int | None, tasks_min: int
    ) -> list[PartitionRange]:
        ranges = self.placed(it for it in ranges if it.start_offset < it.end_offset)
        rest = self._rest_bytes(ranges)
        total = sum(map(stored_ranges.stored_bytes, ranges)) + sum(rest.values())
        size = piece_bytes(total, bytes_max, tasks_min)
        pieces: list[PartitionRange] = []
        for it in ranges:
            middle = stored_ranges.stored_end(it)
            if it.start_offset < middle:
                stored = replace(it, end_offset=middle)
                pieces += stored_ranges.cut(stored, size, self._batch_ends_of(stored))
            if middle < it.end_offset:
                tail = replace(it, start_offset=middle, stored=None)
                pieces += self._cluster.pieces(tail, -(-rest[it.name] // size))
        return pieces

    def placed(self, ranges: Iterable[PartitionRange]) -> list[PartitionRange]:
        ranges = list(ranges)
        there = self._partitions([it.name for it in ranges], of=ranges)
        return [stored_ranges.with_segments(it, there[it.name]) for it in ranges]

    def _rest_bytes(self, ranges: Iterable[PartitionRange]) -> dict[TopicPartition, int]:
        """What servers have to give of each, about."""
        tails = [
            replace(it, start_offset=stored_ranges.stored_end(it), stored=None) for it in ranges
        ]
        asked = [it for it in tails if it.start_offset < it.end_offset]
        starts = {
            name: told.local_log_start_offset
            for of_stream in self._told.values()
            for name, told in of_stream.items()
        }
        sizes = self._cluster.bytes_between(asked, starts) if asked else {}
        return {it.name: sizes.get(it.name, 0) for it in tails}

    def _batch_ends_of(self, range_: PartitionRange) -> stored_ranges.BatchEnds:
        def ask(segment: TieredSegment) -> list[tuple[int, int]]:
            assert range_.stored is not None
            (index,) = self._opened().named_parts(INDEX_SUFFIX, [(range_.stored.prefix, segment)])
            return batch_ends(segment, index)

        return ask

    def _offset_at(self, there: StoredPartition | None, time_ms: int) -> int | None:
        """None: the store has no record of that time or later, or a node has to say which."""
        if there is None:
            return None
        openers = Openers(self._keys)
        for it in there.segments:
            if it.max_timestamp_ms < time_ms or it.end_offset <= there.log_start_offset:
                continue
            only = StoredSegments(there.prefix, there.log_start_offset, (it,))
            objects = SegmentObjects(self._opened(), only, piece_bytes=SEARCHED_BYTES, ahead=0)
            segment = SegmentFile(objects, objects.folder, it.base_offset, openers)
            found = segment.first_offset_at(time_ms)
            if found is not None:
                return found if found >= there.log_start_offset else None
        return None

    def _partitions(
        self, names: Iterable[TopicPartition], of: Iterable[PartitionRange] | None = None
    ) -> dict[TopicPartition, StoredPartition | None]:
        """What of each is in the store; ``of``: as far as these ranges need to know it."""
        names = list(names)
        for tries_left in reversed(range(TRIES_MAX)):
            wanted = {
                it.name: told
                for it in ([] if of is None else of)
                if (told := self._of_stream(it.name.stream).get(it.name)) is not None
                and it.start_offset < min(told.end_offset, it.end_offset)
            }
            if of is None:
                told_all = ((it, self._of_stream(it.stream).get(it)) for it in names)
                wanted = {name: told for name, told in told_all if told is not None}
            missing = {it: told for it, told in wanted.items() if it not in self._stored}
            try:
                self._read(missing)
                break
            except ObjectNotFound as error:
                if not tries_left:
                    problem = f"it has no manifest that a node names ({error})"
                    remedy = "name the same place as tier.url of the nodes"
                    raise ConfigError(self._store_options.option, problem, remedy) from None
                for it in missing:  # another manifest counts by now
                    self._told.pop(it.stream, None)
        return {it: self._stored.get(it) for it in names}

    def _read(self, told: Mapping[TopicPartition, _Told]) -> None:
        """Raises ObjectNotFound."""
        if not told:
            return
        manifests = self._opened().manifests(it.place for it in told.values())
        for (name, it), manifest in zip(told.items(), manifests, strict=True):
            self._stored[name] = StoredPartition(
                it.stream_id,
                it.place.prefix,
                max(it.log_start_offset, manifest.log_start_offset),
                manifest.segments,
            )

    def _of_stream(self, stream: str) -> Mapping[TopicPartition, _Told]:
        """Those of its partitions of which something is in the store."""
        if stream not in self._told:
            try:
                self._told[stream] = _told(stream, self._cluster.manifests(stream))
            except StreamNotFound:  # it has gone since it was listed, or is internal
                self._told[stream] = {}
        return self._told[stream]

    def _opened(self) -> BlockingStore:
        if self._store is None:
            self._store = self._store_options.open()
        return self._store


def _told(stream: str, answer: Mapping[str, Any]) -> dict[TopicPartition, _Told]:
    stream_id = UUID(answer["stream_id"])
    prefix = StreamPrefix(answer["cluster_id"], stream_id)
    return {
        TopicPartition(stream, it["partition"]): _Told(
            str(stream_id),
            ManifestPlace(
                prefix.partition(it["partition"]),
                ManifestVersion(it["leader_epoch"], it["version"]),
            ),
            it["log_start_offset"],
            it["local_log_start_offset"],
            it["end_offset"],
        )
        for it in answer["partitions"]
        if it["end_offset"] is not None
    }
