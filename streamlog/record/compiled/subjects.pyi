"""Which message has which subject, compiled.

A message's subject is the value of its record's first header, if that is named ``subject``.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from streamlog.record.compression import Buffer

SOURCES: int

SEED_BYTES: Final = 16

NOTHING: Final = -1
"""In place of an offset."""

class Total(NamedTuple):
    """A subject and how many messages it has."""

    subject: bytes
    messages: int

class SubjectIndex:
    """Which subject each message has, of the offsets from ``start_offset`` to ``next_offset``.

    Pure: it is told of records in the order of their offsets, and of what goes. ``bytes_max`` is
    the most memory that it takes; a record for which there is no more is refused, and all after it.
    """

    BYTES_FOR_SUBJECT: Final = 56
    BYTES_FOR_MESSAGE: Final = 4
    bytes_max: int

    def __init__(self, seed: bytes, *, bytes_max: int, start_offset: int = 0) -> None: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def __len__(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """The memory that it takes, about."""

    @property
    def message_count(self) -> int:
        """How many have a subject."""

    def note(self, body: Buffer, count: int, base_offset: int, upper_offset: int) -> int:
        """Take in an opened batch's ``count`` records, but for those below ``next_offset``.

        -1, and ``next_offset`` is ``upper_offset`` where that is more; or the offset of the first
        for which there is no room, where it ends. Raises CorruptBatch, as for an offset that is not
        below ``upper_offset`` or does not rise, and has taken in what is before it.
        """

    def advance(self, offset: int) -> None:
        """There is nothing with a subject up to ``offset``."""

    def forget_below(self, offset: int) -> None:
        """The log begins there now."""

    def cut(self, offset: int) -> None:
        """The log ends there now."""

    def erase(self, offset: int) -> bool:
        """Forget one message; whether it was there."""

    def erase_matching(self, pattern: bytes, below: int, *, keep: int = 0) -> int:
        """Forget the messages of all subjects that match ``pattern``, with offsets ``below`` that,
        but the last ``keep`` of them all; how many they were.
        """

    def trim(self, keep: int, below: int, *, limit: int = ...) -> list[int]:
        """Forget, of each subject, all but the last ``keep`` of its messages ``below``, the first
        ``limit`` of all these; their offsets, in order.
        """

    def keep_only(self, other: SubjectIndex) -> int:
        """Forget what ``other`` does not have, of the offsets that it spans; how many."""

    def subject_at(self, offset: int) -> bytes | None:
        """None where there is no message with a subject."""

    def count(self, subject: bytes) -> int:
        """How many messages it has."""

    def last(self, pattern: bytes, below: int, *, low: int = 0) -> int:
        """The offset of the last message from ``low`` on whose subject matches; -1: of none."""

    def next(self, subject: bytes, offset: int, below: int) -> int:
        """The offset of its first message at or after ``offset``."""

    def bounds(self, subject: bytes) -> tuple[int, int]:
        """All its messages are from the one on and below the other; it may have none there."""

    def number_of(self, subject: bytes) -> int | None:
        """The number of a subject; None where it has none. It stays as long as it has messages."""

    def matching(
        self, patterns: Iterable[bytes], *, low: int = 0, high: int | None = None
    ) -> list[int]:
        """The numbers of ``[low, high)`` of subjects that match one of the patterns. Each subject
        is compared with each pattern.
        """

    def last_of_each(
        self, numbers: Sequence[int], low: int, below: int
    ) -> tuple[list[int], list[int]]:
        """The last message below ``below`` of each of these subjects, in no order, and those
        subjects whose last message is to be looked for below ``low``. Costs no more than the
        subjects and ``below - low``, however many subjects there are.
        """

    @property
    def number_end(self) -> int:
        """Subjects have numbers from 0 on, below this one."""

    def totals(
        self, pattern: bytes, below: int, *, low: int = 0, high: int | None = None
    ) -> list[Total]:
        """All subjects that match and have messages; of those with numbers of ``[low, high)``, so
        that no other task has to wait for a million of them.
        """

    def mark(
        self, pattern: bytes, marks: bytearray, *, low: int = 0, high: int | None = None
    ) -> tuple[int, int]:
        """Set ``marks[number]`` for each subject with a number of ``[low, high)`` that matches.
        Between which offsets their messages are; (0, 0) where there are no such subjects.

        ``marks`` gets longer as there are more subjects. It is good for the messages that were
        there before the first call, however long the calls take: a number goes to another subject
        only when all messages of the first one are gone.
        """

    def offsets(self, marks: bytearray, low: int, high: int, *, limit: int = ...) -> list[int]:
        """Of messages in ``[low, high)`` whose subject is marked, in order: the first ``limit``."""

    def last_marked(self, marks: bytearray, low: int, high: int) -> int:
        """The last of them; -1: there is none."""

    def message_total(self, marks: bytearray, low: int, high: int) -> int:
        """How many they are."""

    def subject_count(self, below: int) -> int:
        """How many subjects have messages."""

def is_pattern(text: bytes) -> bool:
    """Does it have a wildcard?"""

def matches(pattern: bytes, subject: bytes) -> bool:
    """``*`` stands for a token, ``>`` at the end for one and all after it."""
