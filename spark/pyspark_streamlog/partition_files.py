"""One partition's folder as it was at one moment."""

from bisect import bisect_right

from pyspark_streamlog.files import Files, read_small
from pyspark_streamlog.keys import Openers
from pyspark_streamlog.segment import OFFSET_MAX, Segment
from streamlog.errors import CorruptFile
from streamlog.log.layout import segment_base_offsets
from streamlog.log.mark import METADATA_NAME, decode_mark


class PartitionFiles:
    """The segments of a partition as they were when this was made."""

    def __init__(self, files: Files, folder: str, openers: Openers) -> None:
        """None where the folder is gone."""
        try:
            names, _ = files.children(folder)
        except FileNotFoundError:
            names = {}
        bases = segment_base_offsets(names)
        self.segments = [Segment(files, folder, base, openers) for base in bases]
        self._files = files
        self._folder = folder

    def stream_id(self) -> str:
        """Of the stream whose folder it is; empty where nothing tells. Raises CorruptFile."""
        path = f"{self._folder}/{METADATA_NAME}"
        try:
            return str(decode_mark(read_small(self._files, path)).stream_id)
        except FileNotFoundError:
            return ""
        except ValueError:
            raise CorruptFile(f"{path}: does not name a stream id") from None

    @property
    def start_offset(self) -> int:
        """The first offset that is there; 0 where there is no segment."""
        return self.segments[0].base_offset if self.segments else 0

    def end_offset(self) -> int:
        """The end of the last whole batch."""
        return self.segments[-1].end_offset() if self.segments else 0

    def segments_between(self, offset: int, end_offset: int) -> list[Segment]:
        """From the segment that holds ``offset`` to the one that holds the last of the range."""
        bases = [segment.base_offset for segment in self.segments]
        first = max(0, bisect_right(bases, offset) - 1)
        return [s for s in self.segments[first:] if s.base_offset < end_offset]

    def segment_from(self, offset: int) -> Segment | None:
        """The one that holds the offset, else the first after it; None where there is none."""
        return next(iter(self.segments_between(offset, OFFSET_MAX)), None)

    def segment_after(self, segment: Segment) -> Segment | None:
        return next((s for s in self.segments if s.base_offset > segment.base_offset), None)

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """The first offset whose timestamp is not earlier."""
        for segment in self.segments:
            offset = segment.first_offset_at(timestamp_ms)
            if offset is not None:
                return offset
        return None
