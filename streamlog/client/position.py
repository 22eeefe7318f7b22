"""Where to begin reading a partition."""

from dataclasses import dataclass
from typing import Final

from streamlog.client.cluster import Cluster
from streamlog.model import TopicPartition


@dataclass(frozen=True)
class Offset:
    """This record, or the first after it where it has been compacted away."""

    offset: int


@dataclass(frozen=True)
class Timestamp:
    """The first record of this time or later; where there is none yet, the next to be written."""

    timestamp_ms: int


@dataclass(frozen=True)
class Earliest:
    """The oldest record kept."""


@dataclass(frozen=True)
class Latest:
    """The next record to be committed."""


EARLIEST: Final = Earliest()
LATEST: Final = Latest()

Position = Earliest | Latest | Offset | Timestamp


async def resolve(position: Position, tp: TopicPartition, cluster: Cluster) -> int:
    """The offset that ``position`` is at this moment. An Offset is taken at its word."""
    match position:
        case Offset(offset):
            return offset
        case Earliest():
            return await cluster.earliest_offset(tp)
        case Latest():
            return await cluster.latest_offset(tp)
        case Timestamp(timestamp_ms):
            found = await cluster.offset_for_timestamp(tp, timestamp_ms)
            return await cluster.latest_offset(tp) if found is None else found
