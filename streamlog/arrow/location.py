"""Where streams are read: files under a path, or the nodes themselves; as a plan sees them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

from streamlog.arrow.options.read_options import OptionNames
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.errors import ConfigError, PartitionNotFound, StreamNotFound
from streamlog.model import TopicPartition
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.object_layout import PartitionPrefix

PIECE_BYTES_LEAST: Final = 128 << 20
PIECE_BYTES_MOST: Final = 512 << 20
PIECES_LEAST: Final = 8
"""So many tasks are there before one has more than the least."""


@dataclass(frozen=True)
class StoredSegments:
    """Segments in the object store, of which a range is read as far as they reach."""

    prefix: PartitionPrefix
    start_offset: int
    """The log started there when the read was planned; the first segment may begin below."""
    segments: tuple[TieredSegment, ...]
    """One or more, without a hole."""

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset


@dataclass(frozen=True)
class PartitionRange:
    """Records of one partition with ``start_offset <= offset < end_offset``."""

    name: TopicPartition
    stream_id: str
    """Of the stream that was planned for, not of one created again under its name; empty if
    unknown.
    """
    start_offset: int
    end_offset: int
    stored: StoredSegments | None = None
    """None: nothing of it is in an object store, or that is not asked."""


@dataclass(frozen=True)
class Bounds:
    """What of a partition can be read: ``log_start <= offset < high_watermark``."""

    log_start: int
    high_watermark: int


@dataclass(frozen=True)
class Listing:
    """The partitions that are there."""

    where: str
    stream_ids: Mapping[TopicPartition, str]
    sole_stream: str | None = None
    """The one that is meant where none is named."""

    @property
    def streams(self) -> list[str]:
        return sorted({name.stream for name in self.stream_ids})

    def choose(self, wanted: StreamSubscription, names: OptionNames) -> list[TopicPartition]:
        """The partitions to read. Raises where something that was named is not there."""
        there = ", ".join(self.streams) or "none"
        if wanted.names_nothing:
            if self.sole_stream is not None:
                return sorted(n for n in self.stream_ids if n.stream == self.sole_stream)
            remedy = f"{names.name_streams}; streams here: {there}"
            raise ConfigError(names.streams, "no stream is named", remedy)
        for stream in wanted.named_streams:
            if stream not in self.streams:
                raise StreamNotFound(f"{self.where} has no stream {stream!r}; it has {there}")
        for name in wanted.partitions:
            if name not in self.stream_ids:
                raise PartitionNotFound(f"{self.where} has no partition {name}")
        chosen = [name for name in sorted(self.stream_ids) if wanted.wants(name)]
        if not chosen:
            raise StreamNotFound(f"no stream in {self.where} matches the pattern; it has {there}")
        return chosen


def piece_bytes(total_bytes: int, bytes_max: int | None, tasks_min: int) -> int:
    """How large the pieces are that so many bytes are cut into: ``bytes_max`` or less, ``tasks_min`` pieces or more.

    ``bytes_max`` None: a task costs about 60 ms of processors beside its reading, which counts where it reads
    little; large ones leave processors without work. So there are some tasks before they are larger than the least.
    """
    if bytes_max is None:
        bytes_max = min(max(PIECE_BYTES_LEAST, total_bytes // PIECES_LEAST), PIECE_BYTES_MOST)
    return max(1, min(bytes_max, -(-total_bytes // tasks_min)))


class Location(Protocol):
    """Asked each time: the answer may have changed."""

    def listing(self, wanted: StreamSubscription) -> Listing:
        """At least what is wanted of what is there."""

    def bounds(self, names: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]: ...

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose timestamp (ms) is not earlier; None where there is none."""

    def bytes_between(self, ranges: Iterable[PartitionRange]) -> dict[TopicPartition, int]:
        """What each range takes, about."""

    def cut(
        self, ranges: list[PartitionRange], bytes_max: int | None, tasks_min: int
    ) -> list[PartitionRange]:
        """Each range at batch boundaries in pieces of about ``piece_bytes`` of all; fewer where there are fewer
        batches. Empty ranges are left out.
        """

    def placed(self, ranges: Iterable[PartitionRange]) -> list[PartitionRange]:
        """The same ranges, each with where it is read."""

    def settings(self, stream: str) -> Mapping[str, Any]:
        """Of the stream, as the nodes call them; none where no node is asked."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
