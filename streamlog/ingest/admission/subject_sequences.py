"""What a message that expects a subject's last sequence is held to. On the event loop.

The partition's index has what is in the log; the messages before this one in the same run are taken
into it as well, and out again if the run is not appended after all.
"""

from collections import Counter
from contextlib import suppress
from typing import Final

from streamlog.errors import StreamlogError
from streamlog.partition.partition import Partition
from streamlog.record.codec import RecordRun
from streamlog.record.compiled.subjects import NOTHING, SubjectIndex

READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""So much of the log is read at once to judge a message; where there is more, it is told to come
again."""
FOLLOWED_BYTES: Final = 4 * 1024 * 1024
EVERYTHING: Final = 2**62


class SubjectSequences:
    """Of one partition, and the run that is gathered for it.

    Invariant: between two reads of the socket the index has nothing beyond the log end.
    """

    __slots__ = ("_base_offset", "_partition", "_position", "_run", "_unread_bytes", "_wanted")

    def __init__(self, partition: Partition, run: RecordRun) -> None:
        self._partition = partition
        self._run = run
        self._wanted = False
        self._unread_bytes = 0
        self._base_offset = NOTHING
        """The log end that the records of the run were counted from, as far as they are known."""
        self._position = 0
        """The bytes of the run that are known."""

    def last(self, pattern: bytes) -> int | None:
        """The last sequence on the subjects that match, 0 where there is none, as of the end of the
        run. None: it is not known now, but will be soon.
        """
        index = self.index()
        if index is None:
            return None
        return index.last(pattern, EVERYTHING) + 1

    def count(self, subject: bytes) -> int | None:
        """How many messages it has, those of the run included. None as above."""
        index = self.index()
        return None if index is None else index.count(subject)

    def counts(self) -> tuple[list[bytes | None], dict[bytes, int]] | None:
        """The subject of each message of the run; and how many messages each of these subjects has
        without the run. None as above.
        """
        index = self.index()
        if index is None:
            return None
        end = self._partition.log_end_offset
        subjects = [index.subject_at(end + place) for place in range(self._run.count)]
        in_run = Counter(subject for subject in subjects if subject is not None)
        return subjects, {it: index.count(it) - count for it, count in in_run.items()}

    def abort(self, from_offset: int) -> None:
        """Messages at and above it are not stored after all."""
        if self._base_offset != NOTHING:
            index = self._at_hand()
            if index is not None:
                index.cut(from_offset)
            self._base_offset = NOTHING

    def expect(self) -> None:
        """Messages will ask: the index is made before any comes; at once where the log is small, as that
        of a new stream is.
        """
        self._want()
        with suppress(StreamlogError):  # who asks hears of it
            self._partition.subjects.at_hand()

    def close(self) -> None:
        """No message asks any more."""
        self._wanted = False
        self._partition.subjects.let_go()

    def follow(self, size_bytes: int) -> None:
        """So much is to be appended, and a message after it may ask, as an object's last one does after all its
        chunks. The index is made, and stays less behind the log than is read at once: no such message is refused.
        """
        self._want()
        self._unread_bytes += size_bytes
        if self._unread_bytes >= FOLLOWED_BYTES:
            self._unread_bytes = 0
            self._at_hand()

    def _want(self) -> None:
        if not self._wanted:
            self._wanted = True
            self._partition.subjects.want()

    def index(self) -> SubjectIndex | None:
        """With the messages of the run; None as above."""
        index = self._at_hand()
        self._want()
        if index is None:
            self._partition.subjects.want()
            return None
        return index if self._take_in(index) else None

    def _at_hand(self) -> SubjectIndex | None:
        try:
            return self._partition.subjects.at_hand(READ_BYTES_MAX)
        except StreamlogError:
            return None

    def _take_in(self, index: SubjectIndex) -> bool:
        """The rest of the run; whether there is room for it."""
        run, end = self._run, self._partition.log_end_offset
        known = index.next_offset - end
        if self._base_offset != end or not 0 <= known <= run.count:
            index.cut(end)
            self._base_offset, self._position, known = end, 0, 0
        if known == run.count:
            return True
        upper = end + run.count
        full_at = index.note(run.body_from(self._position), run.count - known, end, upper)
        self._position = run.size_bytes
        return full_at == NOTHING
