"""What the counters of a partition are, as of the end of the run that is gathered for it. On the event loop.

The index of subjects tells which message is the newest of a subject, and that message has the value. So a
leader needs nothing but the log, and what has become of the log since (a message deleted, a limit, a
copy by a Kafka producer) counts at once. Values that were read or made are remembered with the offset
that they are of: they are right for as long as the newest message has this offset.

A message of the run counts for those after it. Where the run is not appended as it was counted, it is
refused: ``objection_to``.
"""

from typing import Final, NamedTuple

from streamlog.errors import StreamlogError
from streamlog.ingest.admission.counters import (
    BROKEN,
    SOURCES_HEADER,
    CounterState,
    body_of,
    increment_of,
    sourced,
    total_of,
)
from streamlog.ingest.admission.log_records import record_now
from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import INTERNAL, PublishRefusal, refusal_of
from streamlog.ingest.admission.subject_sequences import EVERYTHING, SubjectSequences
from streamlog.partition.partition import Partition
from streamlog.record.codec import RecordRun

NOT_KNOWN: Final = PublishRefusal(
    503, 10008, "the counters of the stream are not known yet; ask again", "not_ready"
)
_SOURCES: Final = SOURCES_HEADER.decode()
KNOWN_MAX: Final = 100_000
"""Counters whose values are remembered; others are read from the log again."""


class Counted(NamedTuple):
    """A message of the run that is answered for itself."""

    position: int
    reply: bytes
    total: int


class CountedMessage(NamedTuple):
    """What a message is stored as."""

    body: bytes
    sources: bytes
    """The value of ``SOURCES_HEADER``; empty: it has none."""


class _Known(NamedTuple):
    offset: int
    state: CounterState


NO_MESSAGE: Final = _Known(-1, CounterState())


class CounterTotals:
    """Ask ``objection``; then ``count`` what has none, before anything else is asked."""

    __slots__ = (
        "_base_offset",
        "_counted",
        "_known",
        "_partition",
        "_sequences",
        "_spoiled",
        "_stored",
    )

    def __init__(self, partition: Partition, sequences: SubjectSequences) -> None:
        self._partition = partition
        self._sequences = sequences
        self._known: dict[bytes, _Known] = {}
        self._base_offset = 0
        """The log end that the run is counted from."""
        self._stored = 0
        """Messages that were counted into the run."""
        self._counted: list[Counted] = []
        self._spoiled = False
        """What the run was counted from is not in the log any more."""

    def objection(self, subject: bytes) -> PublishRefusal | None:
        """Why nothing can be added to this counter now."""
        try:
            known = self._find(subject)
        except StreamlogError as error:
            return refusal_of(error)
        if isinstance(known, PublishRefusal):
            return known
        self._known[subject] = known
        return None

    def count(self, headers: Headers, subject: bytes, position: int) -> CountedMessage:
        """The message that goes into the run there."""
        state = self._begin(subject, position)
        state = state._replace(total=state.total + increment_of(headers))
        return self._stored_as(subject, position, state)

    def count_sourced(
        self, subject: bytes, position: int, origin: str, origin_subject: str, value: int
    ) -> tuple[CountedMessage, int] | None:
        """The same of a message that a source brings, with what it adds. None: what was sourced before cannot be read,
        and the message is not for the run.
        """
        found = sourced(self._known[subject].state, origin, origin_subject, value)
        if found is None:
            return None
        self._begin(subject, position)
        return self._stored_as(subject, position, found.state), found.increment

    def _begin(self, subject: bytes, position: int) -> CounterState:
        """As the counter is before the message."""
        if not self._stored:
            self._base_offset = self._partition.log_end_offset
        self._stored += 1
        known = self._known.pop(subject, None)  # the newest are the last ones
        if known is None or known.offset >= self._base_offset + position:
            self._spoiled = True  # it was not asked for: nothing of this run is stored
            known = NO_MESSAGE
        return known.state

    def _stored_as(self, subject: bytes, position: int, state: CounterState) -> CountedMessage:
        self._known[subject] = _Known(self._base_offset + position, state)
        return CountedMessage(body_of(state.total), state.sources)

    def answer(self, subject: bytes, position: int, reply: bytes) -> None:
        """The message there, which was counted just now, is answered with its value."""
        if reply:
            self._counted.append(Counted(position, reply, self._known[subject].state.total))

    def objection_to(self, run: RecordRun) -> PublishRefusal | None:
        """Why the run cannot be appended: not all in it was counted for where it would be stored."""
        if not self._stored and not run.count:
            return None
        is_whole = self._stored == run.count and not self._spoiled
        if is_whole and self._base_offset == self._partition.log_end_offset:
            return None
        self._known.clear()
        return INTERNAL

    def take(self) -> list[Counted]:
        """Who is to be answered for the run, which is appended or dropped; the next one begins."""
        counted, self._counted = self._counted, []
        self._stored, self._spoiled = 0, False
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return counted

    def abort(self, from_offset: int) -> None:
        """Messages at and above it are not stored after all."""
        if self._stored and from_offset < self._base_offset + self._stored:
            self._spoiled = True
        self._known = {it: known for it, known in self._known.items() if known.offset < from_offset}

    def _find(self, subject: bytes) -> _Known | PublishRefusal:
        index = self._sequences.index()
        if index is None:
            return NOT_KNOWN
        offset = index.last(subject, EVERYTHING)
        if offset < 0:
            return NO_MESSAGE
        known = self._known.get(subject)
        if known is not None and known.offset == offset:
            return known
        if offset >= self._partition.log_end_offset:
            return INTERNAL  # a message of the run that was not counted
        record = record_now(self._partition, offset)
        if record is None:
            return NOT_KNOWN
        total = total_of(record.value or b"")
        if total is None:
            return BROKEN
        sources = next((value for name, value in record.headers if name == _SOURCES), None)
        return _Known(offset, CounterState(total, sources or b""))
