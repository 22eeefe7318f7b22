from bisect import bisect_right
from collections.abc import Iterator

from streamlog.errors import BrokenInvariant
from streamlog.log.segment.segment import Segment


class Segments:
    """A log's segments in order; there is at least one, and the last is the active one."""

    __slots__ = ("_bases", "_sealed_bytes", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        if not segments:
            raise BrokenInvariant("a log has a segment at least")
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]  # same order
        self._sealed_bytes = sum(segment.size_bytes for segment in segments[:-1])

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def last(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self._segments[-1].size_bytes

    def damaged_from(self, start: int) -> int | None:
        """The first offset that is known to be damaged, of a log that begins at ``start``."""
        damages = (damage for it in self._segments for damage in it.damages)
        return next((it.offset for it in damages if it.end_offset > start), None)

    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    def index(self, offset: int) -> int:
        """Which in the row is the segment with ``offset``, which must not be below the first."""
        return bisect_right(self._bases, offset) - 1

    def floor(self, offset: int) -> Segment:
        """The segment with ``offset``, which must not be below the first."""
        return self._segments[self.index(offset)]

    def since(self, offset: int) -> list[Segment]:
        """The segment with ``offset`` and all after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def add(self, segment: Segment) -> None:
        """Becomes the active one; the one before must be sealed."""
        last = self._segments[-1]
        if not segment.base_offset == last.next_offset > last.base_offset:
            raise BrokenInvariant(
                f"the segment at {segment.base_offset} does not follow what ends at"
                f" {last.next_offset}"
            )
        self._sealed_bytes += last.size_bytes
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, old: list[Segment], new: Segment) -> None:
        """``new`` has the offsets of ``old``, which are sealed and lie next to each other."""
        at = self._segments.index(old[0])
        if self._segments[at : at + len(old)] != old or old[-1] is self._segments[-1]:
            raise BrokenInvariant("only sealed segments that lie next to each other are replaced")
        if (new.base_offset, new.next_offset) != (old[0].base_offset, old[-1].next_offset):
            raise BrokenInvariant(f"{new.path} does not have the offsets of what it replaces")
        self._segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]
        self._sealed_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)

    def let_go(self) -> None:
        """Of all files."""
        for segment in self._segments:
            segment.let_go()

    def drop_first(self) -> Segment:
        """Take out the oldest, which must not be the active one."""
        if len(self._segments) <= 1:
            raise BrokenInvariant("the active segment stays")
        del self._bases[0]
        segment = self._segments.pop(0)
        self._sealed_bytes -= segment.size_bytes
        return segment

    def drop_last(self) -> Segment:
        """Take out the active one; the one before becomes it."""
        if len(self._segments) <= 1:
            raise BrokenInvariant("one segment stays")
        del self._bases[-1]
        segment = self._segments.pop()
        self._sealed_bytes -= self._segments[-1].size_bytes
        return segment
