"""What the leader of a partition knows about it, as it travels between nodes."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from streamlog.errors import StreamlogError
from streamlog.model import NodeId
from streamlog.partition.partition import Partition
from streamlog.record.batch import read_header


@dataclass(frozen=True, slots=True)
class LeaderPartitionState:
    """Offsets, size, and the times of the first and the last committed record."""

    log_start_offset: int
    high_watermark: int
    size_bytes: int
    first_ms: int | None = None
    last_ms: int | None = None
    replica_lags: Mapping[NodeId, int] = field(default_factory=dict)
    """How many records each follower lacks."""
    erased_count: int = 0
    """Of the offsets in between: those of no message any more."""
    erased: Sequence[int] | None = None
    """These, in order, where they were asked for."""
    is_auto_paused: bool = False

    @property
    def message_count(self) -> int:
        return self.high_watermark - self.log_start_offset - self.erased_count

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
        )


async def state_of(partition: Partition, *, details: bool = False) -> LeaderPartitionState:
    """As of now; a log begins with its first message that is not erased."""
    with suppress(StreamlogError):  # then what goes is still counted
        await partition.surplus.settle()
    first = await partition.offset_for_timestamp(0)
    last = await partition.latest_timestamp()
    statistics = partition.statistics()
    end = statistics.high_watermark
    start = min(partition.erased.first_absent(statistics.log_start_offset), end)
    first_ms = first[1] if first else None
    if statistics.log_start_offset < start < end:
        with await partition.read(start, 1) as part:
            first_ms = read_header(await asyncio.to_thread(part.read)).max_timestamp_ms
    erased = partition.erased.between(start, end)
    return LeaderPartitionState(
        log_start_offset=start,
        high_watermark=end,
        size_bytes=statistics.size_bytes,
        first_ms=first_ms,
        last_ms=last[1] if last else None,
        replica_lags=partition.replica_lags(),
        erased_count=len(erased),
        erased=list(erased) if details else None,
        is_auto_paused=statistics.is_auto_paused,
    )
