"""What the leader of a partition knows about it, as it travels between nodes."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from streamlog.control.messages.subject_counts import count_subjects
from streamlog.errors import OffsetOutOfRange, StreamlogError
from streamlog.model import NodeId
from streamlog.partition.partition import OriginProgress, Partition
from streamlog.record.batch import read_header
from streamlog.wire.fetch import TopicIdPartition


class TierState(NamedTuple):
    """What of a tiered partition is where."""

    local_log_start_offset: int
    """Of its leader: what is below is in the object store alone."""
    tiered_end_offset: int | None
    """The store has all below; None: nothing is there."""
    lag_bytes: int
    """Of closed segments that the store does not have."""


class ManifestState(NamedTuple):
    """What of a partition is in the object store, for a reader of it; a name and a range of offsets."""

    stream_id: str
    log_start_offset: int
    local_log_start_offset: int
    end_offset: int | None = None
    """All from the log start up to there is in the store; None: nothing is."""
    leader_epoch: int = 0
    """With ``version`` the name of the manifest that counts."""
    version: int = 0

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError for what is none."""
        return cls(**fields)


async def manifest_of(partition: Partition) -> ManifestState:
    """Of a partition that is led here. Raises ObjectStoreUnavailable, CorruptData."""
    tiered = partition.tiered
    state = ManifestState(
        str(UUID(bytes=partition.topic_id)),
        partition.log_start_offset,
        partition.local_log_start_offset,
    )
    if not partition.config.tiered or tiered.tiered_end_offset is None:
        return state
    manifest = await tiered.own_manifest()
    if manifest.end_offset <= partition.log_start_offset:
        return state
    leader_epoch, version = manifest.manifest_version
    return state._replace(
        log_start_offset=partition.log_start_offset,
        local_log_start_offset=partition.local_log_start_offset,
        end_offset=manifest.end_offset,
        leader_epoch=leader_epoch,
        version=version,
    )


class LeaderPartitionState(NamedTuple):
    """Offsets, size, and the times of the first and the last committed record."""

    log_start_offset: int
    high_watermark: int
    size_bytes: int
    first_ms: int | None = None
    last_ms: int | None = None
    replica_lags: Mapping[NodeId, int] = MappingProxyType({})
    """How many records each follower lacks."""
    erased_count: int = 0
    """Of the offsets in between: those of no message any more."""
    erased: Sequence[int] | None = None
    """These, in order, where they were asked for."""
    is_auto_paused: bool = False
    trailing_erasures: int = 0
    """So many offsets before the high watermark are erasures that follow the last message: they are not in between."""

    origins: tuple[OriginProgress, ...] = ()
    """Of a mirror, or a stream with sources."""
    tier: TierState | None = None
    """None: it is not tiered."""

    @property
    def messages_end(self) -> int:
        """Behind the last message that was ever stored."""
        return self.high_watermark - self.trailing_erasures

    @property
    def message_count(self) -> int:
        return self.messages_end - self.log_start_offset - self.erased_count

    def json(self) -> dict[str, Any]:
        return {
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "size_bytes": self.size_bytes,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "replica_lags": {str(node_id): lag for node_id, lag in self.replica_lags.items()},
            "erased_count": self.erased_count,
            "erased": self.erased,
            "is_auto_paused": self.is_auto_paused,
            "trailing_erasures": self.trailing_erasures,
            "origins": [it._asdict() for it in self.origins],
            "tier": None if self.tier is None else list(self.tier),
        }

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError for what is none."""
        return cls(
            log_start_offset=int(fields["log_start_offset"]),
            high_watermark=int(fields["high_watermark"]),
            size_bytes=int(fields["size_bytes"]),
            first_ms=fields["first_ms"],
            last_ms=fields["last_ms"],
            replica_lags={NodeId(int(k)): int(lag) for k, lag in fields["replica_lags"].items()},
            erased_count=int(fields["erased_count"]),
            erased=fields["erased"],
            is_auto_paused=bool(fields.get("is_auto_paused")),
            trailing_erasures=int(fields.get("trailing_erasures", 0)),
            origins=tuple(OriginProgress(**it) for it in fields.get("origins", ())),
            tier=None if fields.get("tier") is None else TierState(*fields["tier"]),
        )


Times = tuple[int | None, int | None]
"""Of the first and of the latest committed record; None where there is none."""
KNOWN_MAX: Final = 20_000


class KnownFacts:
    """What the logs of partitions have told, and would tell again: none is read before it changes."""

    def __init__(self) -> None:
        self._times: dict[TopicIdPartition, tuple[object, Times]] = {}
        self._counts: dict[TopicIdPartition, tuple[object, int | None]] = {}

    async def times(self, partition: Partition, start: int) -> Times:
        """``start``: of the first record that is not erased. Raises StreamlogError."""
        partition.reader.check_open()
        if start >= partition.high_watermark:
            return None, None
        mark = start, _mark(partition)
        known = self._times.get(partition.key)
        if known is not None and known[0] == mark:
            return known[1]
        found = await _times(partition, start)
        _keep(self._times, partition, mark, found)
        return found

    def subject_count(self, partition: Partition) -> int | None:
        """See ``subjects.count_subjects``."""
        mark = len(partition.erased) if partition.erased else 0, _mark(partition)
        known = self._counts.get(partition.key)
        if known is not None and known[0] == mark:
            return known[1]
        count = count_subjects(partition)
        if count is not None:
            _keep(self._counts, partition, mark, count)
        return count


def _mark(partition: Partition) -> object:
    """Another one where the log has changed, be it by a new leader or by compaction."""
    end = partition.high_watermark, partition.log_end_offset
    return end, partition.log_start_offset, partition.leader_epoch, partition.size_bytes


def _keep(
    known: dict[TopicIdPartition, Any], partition: Partition, mark: object, fact: Any
) -> None:
    if len(known) >= KNOWN_MAX:
        known.clear()
    known[partition.key] = mark, fact


async def _times(partition: Partition, start: int) -> Times:
    first = await partition.offset_for_timestamp(0)
    last = await partition.latest_timestamp()
    first_ms = first[1] if first else None
    if partition.log_start_offset < start < partition.high_watermark:
        # Retention may be quicker.
        with suppress(OffsetOutOfRange), await partition.read(start, 1) as part:
            first_ms = read_header(await asyncio.to_thread(part.read)).max_timestamp_ms
    return first_ms, last[1] if last else None


async def state_of(
    partition: Partition, known: KnownFacts, *, details: bool = False
) -> LeaderPartitionState:
    """As of now; a log begins with its first message that is not erased."""
    if partition.surplus.kept is not None:
        with suppress(StreamlogError):  # then what goes is still counted
            await partition.surplus.settle()
    with suppress(StreamlogError):  # as above
        await partition.settle_messages_max()
    start, end, erased = partition.log_start_offset, partition.high_watermark, partition.erased
    messages_end = partition.committed_messages_end
    if erased:
        start = min(erased.first_absent(start), messages_end)
        erased = erased.between(start, messages_end)
    first_ms, last_ms = await known.times(partition, start)
    return LeaderPartitionState(
        log_start_offset=start,
        high_watermark=end,
        size_bytes=partition.size_bytes,
        first_ms=first_ms,
        last_ms=last_ms,
        replica_lags=partition.replica_lags(),
        erased_count=len(erased) if erased else 0,
        erased=list(erased) if details else None,
        is_auto_paused=partition.is_auto_paused,
        trailing_erasures=end - messages_end,
        origins=tuple(partition.origins()),
        tier=_tier_of(partition),
    )


def _tier_of(partition: Partition) -> TierState | None:
    if not partition.config.tiered:
        return None
    tiered = partition.tiered
    lag_bytes = tiered.lag().size_bytes
    return TierState(partition.local_log_start_offset, tiered.tiered_end_offset, lag_bytes)
