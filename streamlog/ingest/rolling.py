"""The messages of a run that have those before them go.

Right behind the run its leader appends the erasure of what was before them, so a crash can part the
two at the end of the log alone: there a new leader looks (``openings``).
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from streamlog.errors import Overloaded
from streamlog.ingest.refusal import Refusal
from streamlog.ingest.rollups import ALL, SUBJECT
from streamlog.ingest.subject_sequences import IndexedPartition
from streamlog.partition.state import Acknowledgement
from streamlog.record.offset_set import OffsetSet
from streamlog.record.subjects import NOTHING, SubjectIndex

NOT_KNOWN: Final = Refusal(
    503, 10008, "the messages of each subject are not known yet; ask again", "not_ready"
)
NOT_REMOVED: Final = Refusal(
    503, 10077, "stored, but what was before it could not be removed; ask again", "internal"
)


class Rollup(NamedTuple):
    """One message of a run."""

    position: int
    subject: bytes | None
    """None: of all subjects."""
    reply: bytes
    """Answered once the erasure is committed; of a message in a batch, b""."""


class Erasing(Protocol):
    """What is needed of ``partition.erasing.Erasing``."""

    def append(self, erased: OffsetSet, ack: Acknowledgement) -> None: ...
    def foresee(self, offsets: OffsetSet) -> None: ...


class RolledPartition(IndexedPartition, Protocol):
    """What is needed of ``partition.owner.Partition``."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def erased(self) -> OffsetSet: ...
    @property
    def erasing(self) -> Erasing: ...


def superseded(
    partition: RolledPartition,
    rollups: Iterable[tuple[int, bytes | None]],
    index: SubjectIndex | None,
) -> OffsetSet:
    """What is before these messages, by offset and subject, and is there. ``index`` may be None
    where they are of all subjects.
    """
    start, found = partition.log_start_offset, OffsetSet()
    for offset, subject in rollups:
        if subject is None:
            found.update(OffsetSet.between_ends(start, offset))
        else:
            assert index is not None, "a rollup of a subject was admitted without an index"
            found.update(OffsetSet.in_order(_of_subject(index, subject, start, offset)))
    found.remove_all(partition.erased)
    return found


def _of_subject(index: SubjectIndex, subject: bytes, start: int, end: int) -> Iterable[int]:
    while (start := index.next(subject, start, end)) != NOTHING:
        yield start
        start += 1


class Rollups:
    """Those of the run that is gathered for one partition. On the event loop."""

    __slots__ = ("_at_hand", "_partition", "_run")

    def __init__(
        self, partition: RolledPartition, at_hand: Callable[[], SubjectIndex | None]
    ) -> None:
        """``at_hand``: the index, if it is there; else it will be soon."""
        self._partition = partition
        self._at_hand = at_hand
        self._run: list[Rollup] = []

    def __bool__(self) -> bool:
        return bool(self._run)

    @property
    def kinds(self) -> dict[int, bytes]:
        """By position."""
        return {it.position: ALL if it.subject is None else SUBJECT for it in self._run}

    def objection(self, asked: bytes) -> Refusal | None:
        """Why such a message cannot be stored now."""
        return NOT_KNOWN if asked == SUBJECT and self._at_hand() is None else None

    def add(self, asked: bytes, subject: bytes, position: int, reply: bytes = b"") -> None:
        """A message goes into the run, there; b"" asks for nothing."""
        if asked:
            self._run.append(Rollup(position, None if asked == ALL else subject, reply))

    def add_again(self, rollup: Rollup, position: int) -> None:
        """It goes there instead."""
        self._run.append(rollup._replace(position=position))

    def take(self) -> list[Rollup]:
        """All of them; there are none afterwards."""
        run, self._run = self._run, []
        return run

    def erase(self, rollups: Iterable[Rollup], base_offset: int, ack: Acknowledgement) -> None:
        """The run was appended there: what these messages supersede goes. Raises StreamlogError."""
        places = [(base_offset + it.position, it.subject) for it in rollups]
        index = None
        if any(subject is not None for _, subject in places):
            index = self._at_hand()
            if index is None:
                raise Overloaded("the index of subjects has no room")
        gone = superseded(self._partition, places, index)
        if gone:
            self._partition.erasing.append(gone, ack)
