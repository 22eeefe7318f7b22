"""One partition's folder as it was at one moment.

Its node may replace segments meanwhile. A ``.swap`` file is whole: from the moment it has that name
the files that it was made of are removed one by one, and it is renamed over the first of them last.
So it is read in place of the first, and what else it reaches over is passed by.
"""

from bisect import bisect_right

from streamlog.arrow.files.file_system import Files, read_small
from streamlog.arrow.files.segment_reader import OFFSET_MAX, SegmentFile
from streamlog.arrow.options.encryption_keys import Openers
from streamlog.errors import CorruptFile
from streamlog.log.layout import (
    LOG_SUFFIX,
    METADATA_NAME,
    SWAP_SUFFIX,
    PartitionMetadata,
    decode_mark,
    segment_base_offsets,
)
from streamlog.log.transactions.folder_transactions import FolderTransactions
from streamlog.log.transactions.transactions_file import FILE_NAME as TRANSACTIONS_NAME


class PartitionFiles:
    """The segments of a partition as they were when this was made."""

    def __init__(self, files: Files, folder: str, openers: Openers) -> None:
        """None where the folder is gone."""
        try:
            names, _ = files.children(folder)
        except FileNotFoundError:
            names = {}
        swapped = segment_base_offsets(
            name.removesuffix(SWAP_SUFFIX) for name in names if name.endswith(SWAP_SUFFIX)
        )
        bases = sorted({*segment_base_offsets(names), *swapped})
        self.segments = [
            SegmentFile(files, folder, base, openers, is_swap=base in swapped) for base in bases
        ]
        self._sizes = {
            name: size for name, size in names.items() if name.endswith((LOG_SUFFIX, SWAP_SUFFIX))
        }
        self._files = files
        self._folder = folder

    def stream_id(self) -> str:
        """Of the stream whose folder it is; empty where nothing tells. Raises CorruptFile."""
        metadata = self.metadata()
        return "" if metadata is None else str(metadata.stream_id)

    def metadata(self) -> PartitionMetadata | None:
        """Which log the folder is for; None where nothing tells. Raises CorruptFile."""
        path = f"{self._folder}/{METADATA_NAME}"
        try:
            return decode_mark(read_small(self._files, path))
        except FileNotFoundError:
            return None
        except ValueError:
            raise CorruptFile(f"{path}: does not name a stream id") from None

    def transactions(self) -> FolderTransactions:
        """Raises CorruptFile."""
        try:
            data = read_small(self._files, f"{self._folder}/{TRANSACTIONS_NAME}")
        except FileNotFoundError:
            data = b""
        return FolderTransactions(data, self._folder)

    @property
    def start_offset(self) -> int:
        """The first offset that is there; 0 where there is no segment."""
        return self.segments[0].base_offset if self.segments else 0

    def end_offset(self) -> int:
        """The end of the last whole batch."""
        return self.segments[-1].end_offset() if self.segments else 0

    def segments_between(self, offset: int, end_offset: int) -> list[SegmentFile]:
        """From the segment that holds ``offset`` to the one that holds the last of the range."""
        bases = [segment.base_offset for segment in self.segments]
        first = max(0, bisect_right(bases, offset) - 1)
        return [s for s in self.segments[first:] if s.base_offset < end_offset]

    def segment_from(self, offset: int) -> SegmentFile | None:
        """The one that holds the offset, else the first after it; None where there is none."""
        return next(iter(self.segments_between(offset, OFFSET_MAX)), None)

    def segment_after(self, segment: SegmentFile, offset: int) -> SegmentFile | None:
        """The one that holds ``offset``, up to which ``segment`` was read, else the first after it;
        None where there is none.
        """
        found = self.segment_from(offset)
        if found is None or found.base_offset > segment.base_offset:
            return found
        return next((s for s in self.segments if s.base_offset > segment.base_offset), None)

    def has_sealed_as(self, other: "PartitionFiles") -> bool:
        """The same segments; the last one may have grown."""
        last = self.segments[-1].path.rpartition("/")[2] if self.segments else ""
        return {**self._sizes, last: 0} == {**other._sizes, last: 0}

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """The first offset whose timestamp is not earlier."""
        for segment in self.segments:
            offset = segment.first_offset_at(timestamp_ms)
            if offset is not None:
                return offset
        return None
