"""The index of subjects in plain Python, which the compiled one is held to.

A message's subject is the value of its record's first header, if that is named ``subject``.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from streamlog.errors import CorruptBatch
from streamlog.record.compiled.subjects import NOTHING, SEED_BYTES, Total
from streamlog.record.compression import Buffer
from tests.oracles.codec import get_bytes, get_varint

NAME: Final = b"subject"


class SubjectIndex:
    """Which subject each message has, of the offsets from ``start_offset`` to ``next_offset``.

    Pure: it is told of records in the order of their offsets, and of what goes. ``bytes_max`` is
    the most memory that it takes; a record for which there is no more is refused, and all after it.
    """

    BYTES_FOR_SUBJECT: Final = 300
    BYTES_FOR_MESSAGE: Final = 64

    def __init__(self, seed: bytes, *, bytes_max: int, start_offset: int = 0) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed of {len(seed)} bytes cannot be")
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.bytes_max = bytes_max
        self._subjects: dict[int, bytes] = {}
        """By offset, in its order."""
        self._offsets: dict[bytes, dict[int, None]] = {}
        """The other way round."""
        self._numbers: dict[bytes, int] = {}
        self._names: list[bytes | None] = []
        """By their numbers; None: a number that the next new subject gets."""
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, about."""
        names = sum(map(len, self._offsets))
        subjects = len(self._offsets) * self.BYTES_FOR_SUBJECT
        return names + subjects + len(self._subjects) * self.BYTES_FOR_MESSAGE

    @property
    def message_count(self) -> int:
        """How many have a subject."""
        return len(self._subjects)

    # Taking in

    def note(self, body: Buffer, count: int, base_offset: int, upper_offset: int) -> int:
        """Take in an opened batch's ``count`` records, but for those below ``next_offset``.

        -1, and ``next_offset`` is ``upper_offset`` where that is more; or the offset of the first
        for which there is no room, where it ends. Raises CorruptBatch, as for an offset that is not
        below ``upper_offset`` or does not rise, and has taken in what is before it.
        """
        for offset, subject in _records(memoryview(body), count, base_offset):
            if offset < self.next_offset:
                continue
            if offset >= upper_offset:
                raise CorruptBatch(f"a record of offset {offset}, above its batch")
            if subject is not None:
                if self.size_bytes >= self.bytes_max:
                    self.next_offset = offset
                    return offset
                self._subjects[offset] = subject
                self._give_number(subject)
                self._offsets.setdefault(subject, {})[offset] = None
            self.next_offset = offset + 1
        self.advance(upper_offset)
        return NOTHING

    def advance(self, offset: int) -> None:
        """There is nothing with a subject up to ``offset``."""
        self.next_offset = max(self.next_offset, offset)

    # Forgetting

    def forget_below(self, offset: int) -> None:
        """The log begins there now."""
        for each in [it for it in self._subjects if it < offset]:
            self._drop(each)
        self.start_offset = max(self.start_offset, offset)
        self.next_offset = max(self.next_offset, offset)

    def cut(self, offset: int) -> None:
        """The log ends there now."""
        for each in [it for it in self._subjects if it >= offset]:
            self._drop(each)
        self.next_offset = min(self.next_offset, max(offset, self.start_offset))

    def erase(self, offset: int) -> bool:
        """Forget one message; whether it was there."""
        if offset not in self._subjects:
            return False
        self._drop(offset)
        return True

    def erase_matching(self, pattern: bytes, below: int, *, keep: int = 0) -> int:
        """Forget the messages of all subjects that match ``pattern``, with offsets ``below`` that,
        but the last ``keep`` of them all; how many they were.
        """
        found = [at for at, it in self._subjects.items() if at < below and matches(pattern, it)]
        gone = found[: max(0, len(found) - keep)]
        for offset in gone:
            self._drop(offset)
        return len(gone)

    def trim(self, keep: int, below: int, *, limit: int = sys.maxsize) -> list[int]:
        """Forget, of each subject, all but the last ``keep`` of its messages ``below``, the first
        ``limit`` of all these; their offsets, in order.
        """
        gone: list[int] = []
        left = Counter(it for at, it in self._subjects.items() if at < below)
        for offset, subject in list(self._subjects.items()):
            if len(gone) == limit:
                break
            if offset < below and left[subject] > keep:
                left[subject] -= 1
                gone.append(offset)
                self._drop(offset)
        return gone

    def keep_only(self, other: "SubjectIndex") -> int:
        """Forget what ``other`` does not have, of the offsets that it spans; how many."""
        gone = [
            at
            for at in self._subjects
            if other.start_offset <= at < other.next_offset and at not in other._subjects
        ]
        for offset in gone:
            self._drop(offset)
        return len(gone)

    def _drop(self, offset: int) -> None:
        subject = self._subjects.pop(offset)
        offsets = self._offsets[subject]
        del offsets[offset]
        if not offsets:
            del self._offsets[subject]
            number = self._numbers.pop(subject)
            self._names[number] = None
            self._free.append(number)

    def _give_number(self, subject: bytes) -> None:
        if subject in self._numbers:
            return
        if not self._free:
            self._free.append(len(self._names))
            self._names.append(None)
        number = self._free.pop()
        self._numbers[subject], self._names[number] = number, subject

    # Asking; ``below``: of the messages with lower offsets alone

    def subject_at(self, offset: int) -> bytes | None:
        """None where there is no message with a subject."""
        return self._subjects.get(offset)

    def count(self, subject: bytes) -> int:
        """How many messages it has."""
        return len(self._offsets.get(subject, ()))

    def last(self, pattern: bytes, below: int, *, low: int = 0) -> int:
        """The offset of the last message from ``low`` on whose subject matches; -1: of none."""
        return max((at for at in self._of(pattern) if low <= at < below), default=NOTHING)

    def next(self, subject: bytes, offset: int, below: int) -> int:
        """The offset of its first message at or after ``offset``."""
        offsets = self._offsets.get(subject, ())
        return min((at for at in offsets if offset <= at < below), default=NOTHING)

    def bounds(self, subject: bytes) -> tuple[int, int]:
        """All its messages are from the one on and below the other; it may have none there."""
        offsets = self._offsets.get(subject)
        return (min(offsets), max(offsets) + 1) if offsets else (0, 0)

    def number_of(self, subject: bytes) -> int | None:
        """The number of a subject; None where it has none. It stays as long as it has messages."""
        return self._numbers.get(subject)

    def matching(
        self, patterns: Iterable[bytes], *, low: int = 0, high: int | None = None
    ) -> list[int]:
        """The numbers of ``[low, high)`` of subjects that match one of the patterns. Each subject
        is compared with each pattern.
        """
        wanted = list(patterns)
        return [
            number
            for number, subject in self._numbered(low, high)
            if any(matches(pattern, subject) for pattern in wanted)
        ]

    def _numbered(self, low: int, high: int | None) -> Iterator[tuple[int, bytes]]:
        for number, subject in enumerate(self._names[low:high], low):
            if subject is not None:
                yield number, subject

    def last_of_each(
        self, numbers: Sequence[int], low: int, below: int
    ) -> tuple[list[int], list[int]]:
        """The last message below ``below`` of each of these subjects, in no order, and those
        subjects whose last message is to be looked for below ``low``. Costs no more than the
        subjects and ``below - low``, however many subjects there are.
        """
        found, rest = [], []
        for number in dict.fromkeys(numbers):
            subject = self._names[number]
            offsets = () if subject is None else self._offsets[subject]
            before = [at for at in offsets if at < below]
            if before and max(before) >= low:
                found.append(max(before))
            elif before:
                rest.append(number)
        return found, rest

    @property
    def number_end(self) -> int:
        """Subjects have numbers from 0 on, below this one."""
        return len(self._names)

    def totals(
        self, pattern: bytes, below: int, *, low: int = 0, high: int | None = None
    ) -> list[Total]:
        """All subjects that match and have messages; of those with numbers of ``[low, high)``, so
        that nobody has to wait for a million of them.
        """
        found = []
        for _, subject in self._numbered(low, high):
            count = sum(at < below for at in self._offsets[subject])
            if count and matches(pattern, subject):
                found.append(Total(subject, count))
        return found

    def mark(
        self, pattern: bytes, marks: bytearray, *, low: int = 0, high: int | None = None
    ) -> tuple[int, int]:
        """Set ``marks[number]`` for each subject with a number of ``[low, high)`` that matches.
        Between which offsets their messages are; (0, 0) where there are no such subjects.

        ``marks`` gets longer as there are more subjects. It is good for the messages that were
        there before the first call, however long the calls take: a number goes to another subject
        only when all messages of the first one are gone.
        """
        self._lengthen(marks)
        found = set[int]()
        for number, subject in self._numbered(low, high):
            if matches(pattern, subject) if is_pattern(pattern) else pattern == subject:
                marks[number] = 1
                found.update(self._offsets[subject])
        return (min(found), max(found) + 1) if found else (0, 0)

    def offsets(
        self, marks: bytearray, low: int, high: int, *, limit: int | None = None
    ) -> list[int]:
        """Of messages in ``[low, high)`` whose subject is marked, in order: the first ``limit``."""
        return sorted(self._marked(marks, low, high))[:limit]

    def last_marked(self, marks: bytearray, low: int, high: int) -> int:
        """The last of them; -1: there is none."""
        return max(self._marked(marks, low, high), default=NOTHING)

    def message_total(self, marks: bytearray, low: int, high: int) -> int:
        """How many they are."""
        return sum(1 for _ in self._marked(marks, low, high))

    def _marked(self, marks: bytearray, low: int, high: int) -> Iterator[int]:
        self._lengthen(marks)
        for offset, subject in self._subjects.items():
            if low <= offset < high and marks[self._numbers[subject]]:
                yield offset

    def _lengthen(self, marks: bytearray) -> None:
        marks.extend(bytes(max(0, len(self._names) - len(marks))))

    def subject_count(self, below: int) -> int:
        """How many subjects have messages."""
        return sum(min(offsets) < below for offsets in self._offsets.values())

    def _of(self, pattern: bytes) -> Iterator[int]:
        if not is_pattern(pattern):
            yield from self._offsets.get(pattern, ())
            return
        for subject, offsets in self._offsets.items():
            if matches(pattern, subject):
                yield from offsets


def is_pattern(text: bytes) -> bool:
    """Does it have a wildcard?"""
    return any(token in (b"*", b">") for token in text.split(b"."))


def matches(pattern: bytes, subject: bytes) -> bool:
    """``*`` stands for a token, ``>`` at the end for one and all after it."""
    wanted, tokens = pattern.split(b"."), subject.split(b".")
    for i, token in enumerate(wanted):
        if i == len(tokens):
            return False
        if token == b">" and i == len(wanted) - 1:
            return True
        if token not in (b"*", tokens[i]):
            return False
    return len(wanted) == len(tokens)


def _records(view: memoryview, count: int, base: int) -> Iterator[tuple[int, bytes | None]]:
    position = 0
    for _ in range(count):
        length, position = get_varint(view, position)
        end = position + length
        if length <= 0 or end > len(view):
            raise CorruptBatch(f"record of {length} bytes where {len(view) - position} are left")
        delta, subject = _record(view[position + 1 : end])
        yield base + delta, subject
        position = end
    if position != len(view):
        raise CorruptBatch(f"{len(view) - position} bytes follow the last record")


def _record(view: memoryview) -> tuple[int, bytes | None]:
    _, position = get_varint(view, 0)
    delta, position = get_varint(view, position)
    _, position = get_bytes(view, position)
    _, position = get_bytes(view, position)
    count, position = get_varint(view, position)
    if count <= 0:
        return delta, None
    name, position = get_bytes(view, position)
    if name != NAME:
        return delta, None
    subject, _ = get_bytes(view, position)
    return delta, subject
