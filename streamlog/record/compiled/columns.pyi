"""Record batches into the buffers of Arrow columns, compiled."""

from collections.abc import Callable, Collection
from typing import Final

from streamlog.record.columns import Part

SOURCES: int

DATA_BYTES_MAX: Final[int]
"""Rows are handed out before they pass this. Even with one record as large as a batch may
open to, each of its bytes replaced by three, the int32 offsets of Arrow's columns cannot
overflow."""
ROW_BYTES: Final = 16
"""What a row, or a header of a row, counts for beside its keys and values."""
TIMESTAMP_MS_MAX: Final[int]
"""Arrow counts microseconds."""

class ColumnDecoder:
    """Record batches in, buffers of the wanted columns out; see ``streamlog.record.columns``."""

    passes_over: Callable[[int, int], bool] | None
    """Whether a batch of a transaction, by its producer and its base offset, has no rows: it was aborted."""

    @property
    def position(self) -> int:
        """All of the buffer before it is decoded."""

    @property
    def next_offset(self) -> int:
        """Batches below it have been read or skipped; none may come back."""

    @property
    def finished(self) -> bool:
        """A batch at or above ``end_offset`` was met, or the range is full."""

    def __init__(
        self,
        columns: Collection[str],
        *,
        start_offset: int = 0,
        end_offset: int = ...,
        check_crc: bool = True,
        rows_max: int = 65536,
        bytes_max: int = 4 << 20,
    ) -> None: ...
    @property
    def row_count(self) -> int:
        """Rows that ``take`` would give."""

    def feed(self, buffer: bytes | bytearray | memoryview) -> None:
        """The next bytes; they begin with a batch. What is left of the last ones is forgotten."""

    @property
    def bytes_needed(self) -> int:
        """How many bytes, from ``position`` on, the next step needs at least."""

    def decode(self) -> bool:
        """Go on until a ``take`` is due (True) or all whole batches are used up (False)."""

    def take(self) -> tuple[int, dict[str, Part]]:
        """The rows so far: their number, and each wanted column in its parts."""
