"""Messages that have those before them go: ``Nats-Rollup``, ``sub`` or ``all``.

What a message asks for is judged by functions that are pure; ``Rollups`` has those of a run, on the event loop.
Right behind the run its leader appends the erasure of what was before them, so a crash can part the
two at the end of the log alone: there a new leader looks (``dedup_recovery.window_scan``). Where the erasure cannot
be appended, it is owed: it is tried again before anything else is stored.
"""

import json
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from streamlog.errors import Overloaded
from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.partition.partition import Partition
from streamlog.partition.state import Acknowledgement
from streamlog.record.compiled.subjects import NOTHING, SubjectIndex, is_pattern
from streamlog.record.offset_set import OffsetSet

HEADER: Final = b"Nats-Rollup"
SUBJECT: Final = b"sub"
ALL: Final = b"all"


def _failed(description: str) -> PublishRefusal:
    return PublishRefusal(500, 10111, description, "rollup")


_NOT_PERMITTED: Final = _failed("rollup not permitted")
_NOT_FIRST_OF_SUBJECT: Final = _failed("batch rollup sub invalid")
_NOT_FIRST: Final = _failed("batch rollup all invalid")


def asked_rollup(headers: Headers) -> bytes:
    """``sub``, ``all``, what else is asked for; or b""."""
    return headers.get(HEADER, b"").lower()


def objection(headers: Headers, *, allowed: bool) -> PublishRefusal | None:
    asked = asked_rollup(headers)
    if not asked:
        return None
    if not allowed:
        return _NOT_PERMITTED
    if asked in (SUBJECT, ALL):
        return None
    return _failed("rollup value invalid: " + json.dumps(asked.decode(errors="replace")))


def objection_in_batch(
    headers: Headers, subject: bytes, written: Collection[bytes], *, allowed: bool
) -> PublishRefusal | None:
    """``written``: the subjects of the messages of the batch before it."""
    refusal = objection(headers, allowed=allowed)
    if refusal or not written:
        return refusal
    asked = asked_rollup(headers)
    if asked == ALL:
        return _NOT_FIRST
    return _NOT_FIRST_OF_SUBJECT if asked == SUBJECT and subject in written else None


Place = tuple[int, bytes | None]
"""The offset of a message that has others go, and their subject; None: of all subjects."""
NOWHERE: Final = -1

NOT_KNOWN: Final = PublishRefusal(
    503, 10008, "the messages of each subject are not known yet; ask again", "not_ready"
)
NOT_REMOVED: Final = PublishRefusal(
    503, 10077, "stored, but what was before it could not be removed; ask again", "internal"
)
OWED: Final = PublishRefusal(
    503, 10077, "an earlier message's Nats-Rollup is not done yet; nothing was stored", "internal"
)


class Rollup(NamedTuple):
    """One message of a run."""

    position: int
    subject: bytes | None
    """None: of all subjects."""
    reply: bytes
    """Answered once the erasure is committed; of a message in a batch, b""."""


def superseded(
    partition: Partition,
    rollups: Iterable[Place],
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
    """A message may be published to a subject with wildcards: it supersedes what they match."""
    if is_pattern(subject):
        marks = bytearray()
        low, high = index.mark(subject, marks)
        yield from index.offsets(marks, max(start, low), min(end, high))
        return
    while (start := index.next(subject, start, end)) != NOTHING:
        yield start
        start += 1


class Rollups:
    """Those of the run that is gathered for one partition. On the event loop.

    Invariant: no message of NATS is appended while an erasure is owed. So the next leader finds a
    message that was stored without its erasure at the end of the log.
    """

    __slots__ = ("_at_hand", "_partition", "_run", "erased_end", "owed")

    def __init__(self, partition: Partition, at_hand: Callable[[], SubjectIndex | None]) -> None:
        """``at_hand``: the index, if it is there; else it will be soon."""
        self._partition = partition
        self._at_hand = at_hand
        self._run: list[Rollup] = []
        self.owed: list[Place] = []
        """Messages in the log whose erasure is not there yet: it could not be appended."""
        self.erased_end = NOWHERE
        """The offset of the last erasure that was appended, by a former leader perhaps: messages
        whose erasures it has are acknowledged when it is committed."""

    def __bool__(self) -> bool:
        return bool(self._run)

    @property
    def kinds(self) -> dict[int, bytes]:
        """By position."""
        return {it.position: ALL if it.subject is None else SUBJECT for it in self._run}

    def objection(self, asked: bytes, purged: bytes = b"") -> PublishRefusal | None:
        """Why such a message cannot be stored now."""
        is_by_subject = asked == SUBJECT or purged
        return NOT_KNOWN if is_by_subject and self._at_hand() is None else None

    def add(
        self,
        asked: bytes,
        subject: bytes,
        position: int,
        reply: bytes = b"",
        *,
        purged: bytes = b"",
    ) -> None:
        """A message goes into the run, there; b"" asks for nothing. ``purged``: a subject all of whose messages
        go, too.
        """
        if purged:
            self._run.append(Rollup(position, purged, b"" if asked else reply))
        if asked:
            self._run.append(Rollup(position, None if asked == ALL else subject, reply))

    def take(self) -> list[Rollup]:
        """All of them; there are none afterwards."""
        run, self._run = self._run, []
        return run

    def erase(self, rollups: Iterable[Rollup], base_offset: int, ack: Acknowledgement) -> None:
        """The run was appended there: what these messages supersede goes. Raises StreamlogError;
        then the erasure is owed.
        """
        self.owed += [(base_offset + it.position, it.subject) for it in rollups]
        self.erase_owed(ack)

    def erase_owed(self, ack: Acknowledgement) -> None:
        """Raises StreamlogError, and owes it further."""
        index = None
        if any(subject is not None for _, subject in self.owed):
            index = self._at_hand()
            if index is None:
                raise Overloaded("the index of subjects has no room")
        if self.owed:
            self._partition.hold_removals(min(self.owed)[0])
        gone = superseded(self._partition, self.owed, index)
        if gone:
            self._partition.erasing.append(gone, ack)
            self.erased_end = self._partition.log_end_offset - 1
        self.owed.clear()

    def inherit(self, places: Iterable[Place]) -> None:
        """A former leader has appended these messages. Their erasures are owed, unless they are in the
        log: there they may be the first of what is not committed yet.
        """
        self.owed += places
        self.erased_end = self._partition.log_end_offset - 1

    def owes(self, offset: int) -> bool:
        """The message there has others go, which it did not yet."""
        return any(at == offset for at, _ in self.owed)

    def awaited(self, offset: int) -> int:
        """What is to be committed before the message there is acknowledged again."""
        return max(offset, self.erased_end)
