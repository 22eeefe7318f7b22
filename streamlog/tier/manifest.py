"""Which segments of a partition are in the object store (Kafka's remote log metadata). Pure.

A manifest is a value: the partition's log start offset and the tiered segments in order, without a
hole between them. It is stored as an object that is never changed; each change makes one of the
next version. Which of them counts is decided by the metadata quorum, not by what the store holds.

The bytes are JSON with a CRC-32C of the manifest as it is written, so that other programs read it
with no code of streamlog.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from crc32c import crc32c

from streamlog.errors import BrokenInvariant, CorruptFile, InvalidRequest
from streamlog.log.layout import LOG_SUFFIX
from streamlog.log.leader_epochs import EpochStart
from streamlog.model import NO_EPOCH
from streamlog.tier.object_layout import ManifestVersion, is_segment_name

FORMAT: Final = 1

_START: Final = re.compile(rb'\{"crc32c":(\d{1,10}),"manifest":')
_END: Final = b"}\n"
_PART_NAME: Final = re.compile(r"\.?[a-z][a-z0-9-]{0,63}")
"""It becomes part of a file's name."""


class SegmentPart(NamedTuple):
    """A file of a segment beside its batches, within the segment's object."""

    name: str
    """The suffix of the file (``.index``), or the name of what is kept of the whole log."""
    position: int
    size_bytes: int
    crc32c: int

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredSegment:
    """A sealed segment in the store. Its object begins with the bytes of its ``.log`` file."""

    base_offset: int
    end_offset: int
    max_timestamp_ms: int
    """The latest timestamp of its batches; -1: they have none."""
    size_bytes: int
    """Of the ``.log`` file."""
    crc32c: int
    """Of the ``.log`` file."""
    leader_epochs: tuple[EpochStart, ...] = ()
    """Those of its batches, as far as known; the first one begins at the base offset or later."""
    name: str
    """Of its object, within the partition's ``segments``."""
    parts: tuple[SegmentPart, ...] = ()
    """The files beside, in the order in which they follow in the object."""

    def __post_init__(self) -> None:
        """Raises BrokenInvariant."""
        problem = self._problem()
        if problem:
            raise BrokenInvariant(f"segment at {self.base_offset}: {problem}")

    def _problem(self) -> str:
        if not 0 <= self.base_offset < self.end_offset:
            return f"it ends at {self.end_offset}"
        if self.size_bytes <= 0:
            return f"it has {self.size_bytes} bytes"
        if not is_segment_name(self.name):
            return f"its object cannot be called {self.name!r}"
        position, names = self.size_bytes, set[str]()
        for part in self.parts:
            if part.position != position or part.size_bytes < 0 or part.name in names:
                return f"its part {part.name!r} is misplaced, or there twice"
            if not _PART_NAME.fullmatch(part.name) or part.name == LOG_SUFFIX:
                return f"a part cannot be called {part.name!r}"
            position, names = part.end_position, {*names, part.name}
        starts = [it.start_offset for it in self.leader_epochs]
        if starts and not self.base_offset <= starts[0] <= starts[-1] < self.end_offset:
            return "leader epochs lie outside"
        return "" if _is_ascending(self.leader_epochs) else "leader epochs are out of order"

    @property
    def object_bytes(self) -> int:
        """Of the whole object."""
        return self.parts[-1].end_position if self.parts else self.size_bytes

    def part(self, name: str) -> SegmentPart | None:
        return next((it for it in self.parts if it.name == name), None)


@dataclass(frozen=True, kw_only=True)
class TierManifest:
    """The tiered segments of a partition at one version. Everything in
    ``[log_start_offset, end_offset)`` is in the store.
    """

    stream_id: UUID
    partition: int
    leader_epoch: int = 0
    """Of the leader that wrote it."""
    version: int = 0
    """Grows by 1 with each that the controller accepts."""
    log_start_offset: int = 0
    """Within the first segment, if there is one."""
    segments: tuple[TieredSegment, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Raises BrokenInvariant where segments leave a hole, overlap or begin above the log start."""
        problem = self._problem()
        if problem:
            raise BrokenInvariant(f"manifest of partition {self.partition}: {problem}")

    def _problem(self) -> str:
        if min(self.partition, self.leader_epoch, self.version, self.log_start_offset) < 0:
            return "a number is below 0"
        if self.segments:
            first = self.segments[0]
            if not first.base_offset <= self.log_start_offset < first.end_offset:
                return (
                    f"the log start offset {self.log_start_offset} is not in the first segment,"
                    f" which has [{first.base_offset}, {first.end_offset})"
                )
        return next((it for it in map(_pair_problem, pairwise(self.segments)) if it), "")

    @property
    def end_offset(self) -> int:
        """The tiered end offset, exclusive."""
        return self.segments[-1].end_offset if self.segments else self.log_start_offset

    @property
    def manifest_version(self) -> ManifestVersion:
        return ManifestVersion(self.leader_epoch, self.version)

    @property
    def size_bytes(self) -> int:
        """Of the ``.log`` files, for retention by size."""
        return self._sizes[-1] if self._sizes else 0

    @cached_property
    def _bases(self) -> list[int]:
        return [it.base_offset for it in self.segments]

    @cached_property
    def _sizes(self) -> list[int]:
        return list(accumulate(it.size_bytes for it in self.segments))

    @cached_property
    def _latest_ms(self) -> list[int]:
        """The latest timestamp up to each segment."""
        return list(accumulate((it.max_timestamp_ms for it in self.segments), max))

    @cached_property
    def leader_epochs(self) -> tuple[EpochStart, ...]:
        """Of all segments; each where its first batch in the store begins."""
        found: list[EpochStart] = []
        for segment in self.segments:
            new = (it for it in segment.leader_epochs if not found or it.epoch > found[-1].epoch)
            found.extend(new)
        return tuple(found)

    def segment_at(self, offset: int) -> TieredSegment | None:
        """The segment with ``offset``; None: it is not in ``[log_start_offset, end_offset)``."""
        if not self.log_start_offset <= offset < self.end_offset:
            return None
        return self.segments[bisect_right(self._bases, offset) - 1]

    def segment_after(self, segment: TieredSegment) -> TieredSegment | None:
        """None: it is the last one."""
        return self.segment_at(segment.end_offset)

    def segment_since(self, timestamp_ms: int) -> TieredSegment | None:
        """The first segment with a record of that time or later; None: there is none."""
        at = bisect_left(self._latest_ms, timestamp_ms)
        return self.segments[at] if at < len(self.segments) else None

    def bytes_from(self, offset: int) -> int:
        """How much the segments have that begin at ``offset`` or above."""
        at = bisect_left(self._bases, offset)
        return self.size_bytes - (self._sizes[at - 1] if at else 0)

    def with_segment(self, segment: TieredSegment) -> "TierManifest":
        """``segment`` follows at the end. Raises BrokenInvariant where it does not."""
        if not self.segments and not segment.base_offset <= self.log_start_offset:
            raise BrokenInvariant(
                f"the first segment begins at {segment.base_offset}, above the log start offset"
                f" {self.log_start_offset}"
            )
        return self._replaced(segments=(*self.segments, segment))

    def without_below(self, offset: int) -> "TierManifest":
        """The log starts at ``offset``; segments wholly below are no longer named.

        An ``offset`` below the log start changes nothing.
        """
        start = max(offset, self.log_start_offset)
        at = bisect_right([it.end_offset for it in self.segments], start)
        return self._replaced(log_start_offset=start, segments=self.segments[at:])

    def next_version(self, leader_epoch: int) -> "TierManifest":
        """The same as the next version, written by the leader of that epoch.

        Raises BrokenInvariant for an epoch that is older than this one's.
        """
        if leader_epoch < self.leader_epoch:
            raise BrokenInvariant(
                f"leader epoch {leader_epoch} does not follow {self.leader_epoch}"
            )
        return self._replaced(leader_epoch=leader_epoch, version=self.version + 1)

    def removed_since(self, before: "TierManifest") -> tuple[TieredSegment, ...]:
        """Segments that ``before`` named and this one does not."""
        names = {it.name for it in self.segments}
        return tuple(it for it in before.segments if it.name not in names)

    def _replaced(self, **changes: Any) -> "TierManifest":
        values: dict[str, Any] = {
            "stream_id": self.stream_id,
            "partition": self.partition,
            "leader_epoch": self.leader_epoch,
            "version": self.version,
            "log_start_offset": self.log_start_offset,
            "segments": self.segments,
        }
        return TierManifest(**{**values, **changes})

    def encode(self) -> bytes:
        content = {
            "format": FORMAT,
            "stream_id": self.stream_id.hex,
            "partition": self.partition,
            "leader_epoch": self.leader_epoch,
            "version": self.version,
            "log_start_offset": self.log_start_offset,
            "segments": [_segment_content(it) for it in self.segments],
        }
        body = orjson.dumps(content)
        return b'{"crc32c":%d,"manifest":%b}\n' % (crc32c(body), body)

    @classmethod
    def decode(cls, data: bytes, where: str) -> "TierManifest":
        """Raises CorruptFile, and InvalidRequest for one of a later format."""
        start = _START.match(data)
        if start is None or not data.endswith(_END):
            raise CorruptFile(f"{where}: not a manifest of tiered storage")
        body = data[start.end() : -len(_END)]
        if crc32c(body) != int(start[1]):
            raise CorruptFile(f"{where}: the checksum does not fit")
        try:
            content = orjson.loads(body)
            number = content["format"]
            if number == FORMAT:
                return cls(
                    stream_id=UUID(hex=content["stream_id"]),
                    partition=content["partition"],
                    leader_epoch=content["leader_epoch"],
                    version=content["version"],
                    log_start_offset=content["log_start_offset"],
                    segments=tuple(map(_segment, content["segments"])),
                )
        except (ValueError, KeyError, TypeError, BrokenInvariant) as error:
            raise CorruptFile(f"{where}: does not decode: {error!r}") from None
        raise InvalidRequest(
            f"{where}: has format {number}, and this streamlog knows {FORMAT}; use a later streamlog"
        )


def _segment_content(it: TieredSegment) -> dict[str, Any]:
    return {
        "name": it.name,
        "base_offset": it.base_offset,
        "end_offset": it.end_offset,
        "max_timestamp_ms": it.max_timestamp_ms,
        "size_bytes": it.size_bytes,
        "crc32c": it.crc32c,
        "leader_epochs": [list(epoch) for epoch in it.leader_epochs],
        "parts": [list(part) for part in it.parts],
    }


def _segment(content: dict[str, Any]) -> TieredSegment:
    """Raises ValueError, KeyError, TypeError, BrokenInvariant."""
    return TieredSegment(
        base_offset=content["base_offset"],
        end_offset=content["end_offset"],
        max_timestamp_ms=content["max_timestamp_ms"],
        size_bytes=content["size_bytes"],
        crc32c=content["crc32c"],
        leader_epochs=tuple(EpochStart(*it) for it in content["leader_epochs"]),
        name=content["name"],
        parts=tuple(SegmentPart(*it) for it in content["parts"]),
    )


def _is_ascending(epochs: Sequence[EpochStart]) -> bool:
    return all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(epochs))


def _last_epoch(epochs: Iterable[EpochStart]) -> int:
    return max((it.epoch for it in epochs), default=NO_EPOCH)


def _pair_problem(pair: tuple[TieredSegment, TieredSegment]) -> str:
    before, after = pair
    if before.end_offset != after.base_offset:
        return (
            f"a segment ends at {before.end_offset}, and the next one begins at {after.base_offset}"
        )
    if after.leader_epochs and after.leader_epochs[0].epoch < _last_epoch(before.leader_epochs):
        return f"the segment at {after.base_offset} has an older leader epoch than the one before"
    return ""
