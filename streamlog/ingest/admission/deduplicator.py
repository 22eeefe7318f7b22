"""Decides about messages whose headers ask for something: duplicates and expectations. Pure.

One for each partition. Only messages with a ``Nats-`` or ``Streamlog-Ack`` header come here; all
others cost nothing. The order of the checks is JetStream's; ``expectations`` has them.

Invariant: an id is in the window only if its message is in the log or in the run that is about to
be appended; a caller that drops a run or hears that an append failed calls ``abort``.
"""

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from streamlog.ingest.admission import counters, message_ttl, rollups
from streamlog.ingest.admission.duplicate_window import DuplicateWindow, WindowSlot
from streamlog.ingest.admission.expectations import (
    SubjectSequence,
    expected_at_first,
    expected_before_batch,
    expected_last_message_id,
    expected_last_sequence,
    expected_last_subject_sequence,
    expected_stream,
    unknown_sequence,
)
from streamlog.ingest.admission.message_ttl import Lifetimes
from streamlog.ingest.admission.publish_headers import (
    AckPolicy,
    Headers,
    not_in_batches,
    publish_headers,
    sources,
)
from streamlog.ingest.admission.refusal import (
    IDS_FULL,
    REPEATED_IN_BATCH,
    REPEATED_SOON,
    PublishRefusal,
)
from streamlog.ingest.schedules import scheduling_rules
from streamlog.ingest.schedules.scheduling_rules import (
    ScheduleOn,
    ScheduleRoom,
    SchedulingRules,
    no_message,
)

IDS_MAX = 5_000_000
"""Per partition. At the limit a new id is refused; none is forgotten early."""

Asked = tuple[bytes, Headers]
"""A message of a batch: its subject, and what its headers ask for."""
Last = tuple[bytes, int] | None
"""The youngest id and its offset."""

_BAD_ACK = PublishRefusal(
    400, 10003, "bad request: Streamlog-Ack is none, leader or all", "unsupported"
)
_ACKS = {b"all": AckPolicy.COMMITTED, b"leader": AckPolicy.APPENDED, b"none": AckPolicy.NEVER}


class Admission(NamedTuple):
    """``store`` it; or answer ``refusal`` now; or ``duplicate_of`` once that is committed."""

    store: bool
    refusal: PublishRefusal | None = None
    duplicate_of: int | None = None
    ack: AckPolicy | None = None
    """What the message itself asks for; None: as the stream is set."""
    rollup: bytes = b""
    """It has others go: see ``rollups``."""
    purged: bytes = b""
    """Of a schedule's end: the subject of the schedule, which goes."""
    added: tuple[bytes, bytes] | None = None
    """A header that it is stored with besides its own."""


class Deduplicator:
    """One partition's window of message ids and its last one."""

    def __init__(self, stream: str, *, duplicate_window_ms: int, ids_max: int = IDS_MAX) -> None:
        self.lifetimes = Lifetimes.NONE
        self.rolls_up = False
        """``Nats-Rollup`` is allowed."""
        self.counts = False
        """Each message is an increment."""
        self.scheduling: SchedulingRules | None = None
        """Of a stream that takes schedules."""
        self.schedule_on: ScheduleOn = no_message
        self.schedule_room = ScheduleRoom()
        self._stream = stream.encode()
        self.window = DuplicateWindow(duplicate_window_ms, ids_max=ids_max)

    def __len__(self) -> int:
        return len(self.window)

    def admit(
        self,
        header_block: bytes,
        subject: bytes,
        reply: bytes,
        position: int,
        *,
        log_end_offset: int,
        messages_end: int | None = None,
        now_ms: int,
        last_on: SubjectSequence = unknown_sequence,
        has_payload: bool = False,
    ) -> Admission:
        """Judge the message that would get offset ``log_end_offset + position``.

        ``messages_end``: from there to the log's end no message has come; None: that is its end.
        ``has_payload`` matters to increments alone.
        """
        headers, added = scheduling_rules.with_rollup(
            publish_headers(header_block), self.scheduling
        )
        wish = headers.get(b"Streamlog-Ack")
        ack = _ACKS.get(wish) if wish is not None else None
        if wish is not None and ack is None:
            return Admission(False, _BAD_ACK)
        offset = log_end_offset + position
        before = offset if position or messages_end is None else messages_end
        refusal = counters.objection(headers, allowed=self.counts, has_payload=has_payload)
        refusal = refusal or self._objection(
            headers, subject, offset, before, last_on, now_ms=now_ms
        )
        if refusal:
            return Admission(False, refusal, ack=ack)
        message_id = headers.get(b"Nats-Msg-Id")
        if message_id:
            self.window.expire(now_ms)
            first = self.window.find(message_id)
            if first is not None:
                return Admission(False, duplicate_of=first, ack=ack)
        refusal = self._late_objection(headers, before)
        if refusal:
            return Admission(False, refusal, ack=ack)
        if message_id:
            if self.window.is_full():
                return Admission(False, IDS_FULL, ack=ack)
            self.window.add(message_id, offset, now_ms)
        asked = rollups.asked_rollup(headers)
        purged = scheduling_rules.purged(headers)
        return Admission(True, ack=ack, rollup=asked, purged=purged, added=added)

    def admit_batch(
        self,
        messages: Sequence[Asked],
        position: int,
        *,
        log_end_offset: int,
        messages_end: int | None = None,
        now_ms: int,
        last_on: SubjectSequence = unknown_sequence,
        committed_end: int | None = None,
        with_payload: Container[int] = (),
    ) -> PublishRefusal | None:
        """Judge messages that are stored together, the first at that position, or not at all.

        Each is judged as if those before it were in the log; but ``last_on`` is as of the batch's
        beginning. None: store them. A repeated id is refused for good where its first message is
        below ``committed_end``: the publisher takes it for stored. None: all of them are.
        ``with_payload``: the numbers of messages, from 0, for which it matters that they have one.
        """
        self.window.expire(now_ms)
        base_offset = log_end_offset + position
        before = base_offset if position or messages_end is None else messages_end
        ids: dict[bytes, int] = {}
        written: dict[bytes, bool] = {}
        """The subjects of the messages before, and whether the last one of each is a schedule."""
        for number, (subject, headers) in enumerate(messages):
            refusal = (
                not_in_batches(headers)
                or counters.objection(
                    headers, allowed=self.counts, has_payload=number in with_payload
                )
                or self._objection_in_batch(headers, number, base_offset + number, before, ids)
                or expected_before_batch(headers, subject, written)
                or expected_last_subject_sequence(headers, subject, last_on)
                or self._objection_to_schedule(headers, subject, now_ms, written)
                or rollups.objection_in_batch(headers, subject, written, allowed=self.rolls_up)
            )
            if refusal:
                if refusal is REPEATED_IN_BATCH and committed_end is not None:
                    first = self.window.find(headers[b"Nats-Msg-Id"])
                    if first is not None and first >= committed_end:
                        return REPEATED_SOON
                return refusal
            written[subject] = scheduling_rules.is_schedule(headers)
        if len(self.window) + len(ids) > self.window.ids_max:
            return IDS_FULL
        for message_id, offset in ids.items():
            self.window.add(message_id, offset, now_ms)
        return None

    def remember(self, message_id: bytes, offset: int, timestamp_ms: int) -> None:
        """An id found in the log, which is read in order.

        Of a repeated one the last counts: the one before had been forgotten when it was admitted,
        and will be first again.
        """
        self.window.add(message_id, offset, timestamp_ms)

    def expire(self, now_ms: int) -> None:
        """Forget what the window no longer covers; ``admit`` does so itself."""
        self.window.expire(now_ms)

    def abort(self, from_offset: int) -> None:
        """Messages at and above ``from_offset`` were not stored after all."""
        self.window.forget(from_offset)

    @property
    def complete_since_ms(self) -> int:
        """Every id in the log as young as that is known."""
        return self.window.complete_since_ms

    def leave_out(self, before_ms: int) -> None:
        """Ids older than that were not looked for."""
        self.window.complete_since_ms = max(self.window.complete_since_ms, before_ms)

    def known(self) -> tuple[list[WindowSlot], Last]:
        """The ids by slot, and the youngest, however old."""
        return self.window.slots(), self.window.youngest

    def restore(self, window: DuplicateWindow, *, complete_since_ms: int) -> None:
        """The ids of ``window``, which has none afterwards; nothing was known before."""
        self.window.adopt(window)
        self.leave_out(complete_since_ms)

    @property
    def duplicate_window_ms(self) -> int:
        return self.window.window_ms

    def configure(self, *, duplicate_window_ms: int) -> None:
        """Another window from now on."""
        self.window.window_ms = duplicate_window_ms

    def _objection(
        self,
        headers: Headers,
        subject: bytes,
        offset: int,
        before: int,
        last_on: SubjectSequence,
        *,
        now_ms: int,
    ) -> PublishRefusal | None:
        """What JetStream looks at before it looks for duplicates, in its order; ``before``: where
        the messages before this one end.
        """
        return (
            expected_stream(headers, self._stream)
            or message_ttl.objection(headers, self.lifetimes)
            or expected_last_subject_sequence(headers, subject, last_on)
            or expected_last_sequence(headers, offset, of_message=before)  # the last offset + 1
            or self._objection_to_schedule(headers, subject, now_ms)
            or sources(headers)
        )

    def _objection_to_schedule(
        self,
        headers: Headers,
        subject: bytes,
        now_ms: int,
        written: Mapping[bytes, bool] | None = None,
    ) -> PublishRefusal | None:
        """``written``: by the messages of the same batch before it, whether each is a schedule."""

        def schedule_on(wanted: bytes) -> bool | PublishRefusal | None:
            found = None if written is None else written.get(wanted)
            return self.schedule_on(wanted) if found is None else found

        return scheduling_rules.objection(
            headers,
            subject,
            self.scheduling,
            now_ms,
            schedule_on=schedule_on,
            room=self.schedule_room,
        )

    def _late_objection(self, headers: Headers, before: int) -> PublishRefusal | None:
        """What it looks at after that."""
        return (
            expected_last_message_id(headers, self._last_id(before))
            or rollups.objection(headers, allowed=self.rolls_up)
            or message_ttl.late_objection(headers, self.lifetimes)
            or counters.missing(headers, allowed=self.counts)
        )

    def _objection_in_batch(
        self, headers: Headers, number: int, offset: int, before: int, ids: dict[bytes, int]
    ) -> PublishRefusal | None:
        """The same for message ``number`` of a batch; its id joins those of the batch."""
        refusal = expected_stream(headers, self._stream) or message_ttl.objection_in_batch(
            headers, self.lifetimes
        )
        message_id = headers.get(b"Nats-Msg-Id")
        if message_id and not refusal:
            if message_id in ids or self.window.find(message_id) is not None:
                return REPEATED_IN_BATCH
            ids[message_id] = offset
        return (
            refusal
            or counters.missing(headers, allowed=self.counts)
            or sources(headers)
            or expected_last_sequence(headers, offset, of_message=None if number else before)
            or expected_at_first(headers, number)
        )

    def _last_id(self, before: int) -> bytes:
        """That of the last message, where these end ``before``."""
        youngest = self.window.youngest
        return youngest[0] if youngest is not None and youngest[1] == before - 1 else b""
