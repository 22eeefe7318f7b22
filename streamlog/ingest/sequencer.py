"""Decides about messages whose headers ask for something: duplicates and expectations. Pure.

One for each partition. Only messages with a ``Nats-`` or ``Streamlog-Ack`` header come here; all
others cost nothing. The order of the checks is JetStream's, and so is that names match exactly.

Invariant: an id is in the window only if its message is in the log or in the run that is about to
be appended; whoever drops a run or hears that an append failed calls ``abort``.
"""

import re
from enum import Enum, auto
from typing import NamedTuple

from streamlog.ingest.duplicates import DuplicateWindow, Slot
from streamlog.ingest.refusal import (
    IDS_FULL,
    WRONG_STREAM,
    Refusal,
    wrong_last_message_id,
    wrong_last_sequence,
)

IDS_MAX = 5_000_000
"""Per partition. At the limit a new id is refused; none is forgotten early."""

SEQUENCE_DIGITS_MAX = 20

Last = tuple[bytes, int] | None
"""The youngest id and its offset."""

_HEADER = re.compile(rb"\r\n(Nats-[^:\r\n]*|Streamlog-Ack):[ \t]*([^\r\n]*)")

_BAD_ACK = Refusal(400, 10003, "bad request: Streamlog-Ack is none, leader or all", "unsupported")
_NO_SUBJECT_SEQUENCE = Refusal(
    503, 10163, "Nats-Expected-Last-Subject-Sequence is not supported", "unsupported"
)
_ROLLUP = Refusal(500, 10111, "rollup not permitted", "unsupported")


def _unsupported(code: int, err_code: int, description: str) -> Refusal:
    return Refusal(code, err_code, description, "unsupported")


# What JetStream checks before expectations, with the error of a stream that does not allow it.
_REFUSED_FIRST: dict[bytes, Refusal] = {
    b"Nats-Required-Api-Level": _unsupported(412, 10185, "JetStream minimum api level required"),
    b"Nats-Batch-Id": _unsupported(400, 10174, "atomic publish is disabled"),
    b"Nats-Batch-Sequence": _unsupported(400, 10174, "atomic publish is disabled"),
    b"Nats-Batch-Commit": _unsupported(400, 10174, "atomic publish is disabled"),
    b"Nats-Stream-Source": _unsupported(400, 10227, "message stream source header is not allowed"),
    b"Nats-Incr": _unsupported(400, 10168, "message counters is disabled"),
}
_REFUSED: dict[bytes, Refusal] = {
    b"Nats-TTL": _unsupported(400, 10166, "per-message TTL is disabled"),
    b"Nats-Expected-Last-Subject-Sequence": _NO_SUBJECT_SEQUENCE,
    b"Nats-Expected-Last-Subject-Sequence-Subject": _NO_SUBJECT_SEQUENCE,
}
_SCHEDULES = _unsupported(400, 10188, "message schedules is disabled")


class Ack(Enum):
    """When the publisher is answered."""

    COMMITTED = auto()
    APPENDED = auto()
    NEVER = auto()


_ACKS = {b"all": Ack.COMMITTED, b"leader": Ack.APPENDED, b"none": Ack.NEVER}


class Verdict(NamedTuple):
    """``store`` it; or answer ``refusal`` now; or ``duplicate_of`` once that is committed."""

    store: bool
    refusal: Refusal | None = None
    duplicate_of: int | None = None
    ack: Ack | None = None
    """What the message itself asks for; None: as the stream is set."""


class Sequencer:
    """One partition's window of message ids and its last one."""

    def __init__(self, stream: str, *, duplicate_window_ms: int, ids_max: int = IDS_MAX) -> None:
        self._stream = stream.encode()
        self._window = DuplicateWindow(duplicate_window_ms, ids_max=ids_max)
        self._last: Last = None
        """The youngest id and its offset; kept when the window forgets it."""

    def __len__(self) -> int:
        return len(self._window)

    def admit(
        self,
        header_block: bytes,
        subject: bytes,
        reply: bytes,
        position: int,
        *,
        log_end_offset: int,
        now_ms: int,
    ) -> Verdict:
        """Judge the message that would get offset ``log_end_offset + position``."""
        headers = publish_headers(header_block)
        wish = headers.get(b"Streamlog-Ack")
        ack = _ACKS.get(wish) if wish is not None else None
        if wish is not None and ack is None:
            return Verdict(False, _BAD_ACK)
        offset = log_end_offset + position
        refusal = self._objection(headers, offset)
        if refusal:
            return Verdict(False, refusal, ack=ack)
        message_id = headers.get(b"Nats-Msg-Id")
        if message_id:
            self._window.expire(now_ms)
            first = self._window.find(message_id)
            if first is not None:
                return Verdict(False, duplicate_of=first, ack=ack)
        refusal = self._late_objection(headers, offset)
        if refusal:
            return Verdict(False, refusal, ack=ack)
        if message_id:
            if self._window.is_full():
                return Verdict(False, IDS_FULL, ack=ack)
            self._add(message_id, offset, now_ms)
        return Verdict(True, ack=ack)

    def remember(self, message_id: bytes, offset: int, timestamp_ms: int) -> None:
        """An id found in the log, which is read in order.

        Of a repeated one the last counts: the one before had been forgotten when it was admitted,
        and will be first again.
        """
        self._add(message_id, offset, timestamp_ms)

    def expire(self, now_ms: int) -> None:
        """Forget what the window no longer covers; ``admit`` does so itself."""
        self._window.expire(now_ms)

    def abort(self, from_offset: int) -> None:
        """Messages at and above ``from_offset`` were not stored after all."""
        self._window.forget(from_offset)
        if self._last and self._last[1] >= from_offset:
            self._last = self._window.last()

    @property
    def complete_since_ms(self) -> int:
        """Every id in the log as young as that is known."""
        return self._window.complete_since_ms

    def leave_out(self, before_ms: int) -> None:
        """Ids older than that were not looked for."""
        self._window.complete_since_ms = max(self._window.complete_since_ms, before_ms)

    def known(self) -> tuple[list[Slot], Last]:
        """The ids by slot, and the youngest, however old."""
        return self._window.slots(), self._last

    def restore(self, slots: list[Slot], last: Last, *, complete_since_ms: int) -> None:
        """What ``known`` has given; nothing was known before."""
        self._window.restore(slots)
        self._last = last
        self.leave_out(complete_since_ms)

    @property
    def duplicate_window_ms(self) -> int:
        return self._window.window_ms

    def configure(self, *, duplicate_window_ms: int) -> None:
        """Another window from now on."""
        self._window.window_ms = duplicate_window_ms

    def _add(self, message_id: bytes, offset: int, now_ms: int) -> None:
        self._window.add(message_id, offset, now_ms)
        self._last = (message_id, offset)

    def _objection(self, headers: dict[bytes, bytes], offset: int) -> Refusal | None:
        """What JetStream looks at before it looks for duplicates."""
        for name, refusal in _REFUSED_FIRST.items():
            if name in headers:
                return refusal
        expected_stream = headers.get(b"Nats-Expected-Stream")
        if expected_stream and expected_stream != self._stream:
            return WRONG_STREAM
        for name, refusal in _REFUSED.items():
            if name in headers:
                return refusal
        expected = headers.get(b"Nats-Expected-Last-Sequence")
        if expected is not None and _number(expected) != offset:
            return wrong_last_sequence(offset)  # the last sequence is the last offset + 1
        if any(name.startswith(b"Nats-Schedule") for name in headers):
            return _SCHEDULES
        return None

    def _late_objection(self, headers: dict[bytes, bytes], offset: int) -> Refusal | None:
        """What JetStream looks at after that."""
        expected = headers.get(b"Nats-Expected-Last-Msg-Id")
        if expected:
            last = self._last[0] if self._last and self._last[1] == offset - 1 else b""
            if expected != last:
                return wrong_last_message_id(last)
        if b"Nats-Rollup" in headers:
            return _ROLLUP
        return None


def publish_headers(header_block: bytes) -> dict[bytes, bytes]:
    """The headers that matter here; of a repeated one the first."""
    found: dict[bytes, bytes] = {}
    for name, value in _HEADER.findall(header_block):
        found.setdefault(name, value.rstrip())
    return found


def _number(text: bytes) -> int:
    """A sequence, or -1, which is none."""
    return int(text) if text.isdigit() and len(text) <= SEQUENCE_DIGITS_MAX else -1
