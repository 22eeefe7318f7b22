"""An index of subjects, and what is asked of it at once."""

from collections.abc import Sequence
from typing import Any

from streamlog.record.compiled.subjects import SEED_BYTES, SubjectIndex, is_pattern
from streamlog.record.offset_set import OffsetSet
from tests.record_batches import HandRecord, record_bytes

SUBJECTS = 100
MESSAGES = 300


class WatchedIndex:
    """Of 300 messages on 100 subjects, ``x.0`` to ``x.99``."""

    start_offset = 0

    def __init__(self) -> None:
        self.index = SubjectIndex(bytes(SEED_BYTES), bytes_max=1 << 30)
        for at in range(MESSAGES):
            record = HandRecord(b"v", headers=[(b"subject", b"x.%d" % (at % SUBJECTS))])
            self.index.note(record_bytes(record, 0), 1, at, at + 1)
        self.number_of = self.index.number_of
        self.bounds = self.index.bounds
        self.compared: list[int] = []
        """How many comparisons of a pattern with a subject each call took."""
        self.looked: list[int] = []
        """How many offsets each call passed over, at most."""

    @property
    def number_end(self) -> int:
        return self.index.number_end

    def matching(self, wild: Sequence[bytes], *, low: int, high: int) -> list[int]:
        self.compared.append(len(wild) * (high - low))
        return self.index.matching(wild, low=low, high=high)

    def mark(
        self, pattern: bytes, marks: bytearray, *, low: int = 0, high: int = SUBJECTS
    ) -> tuple[int, int]:
        if is_pattern(pattern):
            self.compared.append(high - low)
        return self.index.mark(pattern, marks, low=low, high=high + 1)

    def last_of_each(self, numbers: Sequence[int], low: int, below: int) -> Any:
        self.looked.append(below - low)
        return self.index.last_of_each(numbers, low, below)

    def last(self, pattern: bytes, below: int, *, low: int = 0) -> int:
        self.compared.append(SUBJECTS if is_pattern(pattern) else 0)
        self.looked.append(below - low)
        return self.index.last(pattern, below, low=low)

    def next(self, subject: bytes, low: int, high: int) -> int:
        self.looked.append(high - low)
        return self.index.next(subject, low, high)

    def last_marked(self, marks: bytearray, low: int, high: int) -> int:
        self.looked.append(high - low)
        return self.index.last_marked(marks, low, high)

    def offsets(self, marks: bytearray, low: int, high: int, *, limit: int) -> list[int]:
        self.looked.append(high - low)
        return self.index.offsets(marks, low, high, limit=limit)

    def message_total(self, marks: bytearray, low: int, high: int) -> int:
        self.looked.append(high - low)
        return self.index.message_total(marks, low, high)


class WatchedPartition:
    """Its index is made anew after the first look."""

    log_start_offset = 0
    high_watermark = stable_offset = MESSAGES

    def __init__(self) -> None:
        self.first, self.watched = WatchedIndex(), WatchedIndex()
        self.erased = OffsetSet()
        self.turns = 0

    @property
    def subjects(self) -> Any:
        return self

    async def know(self) -> Any:
        self.turns += 1
        return self.first if self.turns == 1 else self.watched
