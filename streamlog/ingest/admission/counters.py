"""Counters: messages that add to the value of their subject, as JetStream has them (ADR-49).

A message with ``Nats-Incr`` and no payload is stored with the sum as its payload, ``{"val":"5"}``. So
the newest message of a subject has the counter's value, and the log is all that there is of it.

A message that a source brings has the value of another counter. What is added is the difference to the value that
this counter brought before. That is in the header ``Nats-Counter-Sources`` of the newest message, which each message
takes over: ``{"<origin>":{"<subject there>":"<value>"}}``. So a value that is missed, or read again after a restart,
makes no sum wrong.

``CounterTotals`` is what the counters of a partition are, as of the end of the run that is gathered for it; it works
on the event loop, all else is pure. The index of subjects tells which message is the newest of a subject, and that
message has the value. So a leader needs nothing but the log, and what has become of the log since (a message deleted,
a limit, a copy by a Kafka producer) counts at once. Values that were read or made are remembered with the offset
that they are of: they are right for as long as the newest message has this offset.

A message of the run counts for those after it. Where the run is not appended as it was counted, it is
refused: ``CounterTotals.objection_to``.
"""

import json
import re
from typing import Final, NamedTuple

from streamlog.errors import StreamlogError
from streamlog.ingest.admission.log_records import record_now
from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import INTERNAL, PublishRefusal, refusal_of
from streamlog.ingest.admission.subject_sequences import EVERYTHING, SubjectSequences
from streamlog.partition.partition import Partition
from streamlog.record.codec import RecordRun

HEADER: Final = b"Nats-Incr"
SOURCES_HEADER: Final = b"Nats-Counter-Sources"
DIGITS_MAX: Final = 4_000
"""Of one increment; JetStream has no limit but that of a header. Reading and writing a number takes the
square of its digits."""
TOTAL_DIGITS_MAX: Final = 4_200
"""No sum of increments comes to more, and Python reads no number of more than 4,300."""

DISABLED: Final = PublishRefusal(400, 10168, "message counters is disabled", "counter")
MISSING: Final = PublishRefusal(400, 10169, "message counter increment is missing", "counter")
PAYLOAD: Final = PublishRefusal(400, 10170, "message counter has payload", "counter")
INVALID: Final = PublishRefusal(400, 10171, "message counter increment is invalid", "counter")
BROKEN: Final = PublishRefusal(400, 10172, "message counter is broken", "counter")

_INTEGER: Final = re.compile(rb"[+-]?[0-9]+")
_TOTAL: Final = re.compile(rf"[+-]?[0-9]{{1,{TOTAL_DIGITS_MAX}}}")
_NOT_TOGETHER: Final = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
)


def objection(headers: Headers, *, allowed: bool, has_payload: bool) -> PublishRefusal | None:
    """To an increment; a message without one has to do with ``missing``."""
    text = headers.get(HEADER)
    if not text:
        return None
    if not _INTEGER.fullmatch(text):
        return INVALID
    if not allowed:
        return DISABLED
    if has_payload:
        return PAYLOAD
    if len(text) > DIGITS_MAX or any(headers.get(name) for name in _NOT_TOGETHER):
        return INVALID
    return None


def missing(headers: Headers, *, allowed: bool) -> PublishRefusal | None:
    """Each message of a stream of counters is an increment."""
    return MISSING if allowed and not headers.get(HEADER) else None


def increment_of(headers: Headers) -> int:
    """Of a message that was admitted."""
    return int(headers[HEADER])


def body_of(total: int) -> bytes:
    """What is stored."""
    return b'{"val":"%d"}' % total


def total_of(body: bytes) -> int | None:
    """What a stored message says the counter is; None: it is none."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    text = said.get("val") if isinstance(said, dict) else None
    return int(text) if isinstance(text, str) and _TOTAL.fullmatch(text) else None


class CounterState(NamedTuple):
    """Of a counter, as its newest message has it."""

    total: int = 0
    sources: bytes = b""
    """The value of ``SOURCES_HEADER``; empty: nothing was sourced."""


class SourcedCount(NamedTuple):
    """What a sourced message makes of a counter."""

    state: CounterState
    increment: int


def sourced(state: CounterState, origin: str, subject: str, value: int) -> SourcedCount | None:
    """``subject``: that of the origin, whose counter has come to ``value``. None: what was sourced cannot be read."""
    known = _sources_of(state.sources)
    if known is None:
        return None
    values = known.setdefault(origin, {})
    text = values.get(subject, "0")
    if not _TOTAL.fullmatch(text):
        return None
    values[subject] = str(value)
    increment = value - int(text)
    told = json.dumps(known, separators=(",", ":"), sort_keys=True).encode()
    return SourcedCount(CounterState(state.total + increment, told), increment)


def _sources_of(header: bytes) -> dict[str, dict[str, str]] | None:
    if not header:
        return {}
    try:
        said = json.loads(header)
    except (ValueError, RecursionError):
        return None
    is_whole = isinstance(said, dict) and all(
        isinstance(values, dict) and all(isinstance(it, str) for it in values.values())
        for values in said.values()
    )
    return said if is_whole else None


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
