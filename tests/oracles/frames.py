"""The frame parser in plain Python, which the compiled one is held to.

Only a line that no nats-server writes is an error of the connection.
"""

import re
from collections.abc import Collection
from typing import Final

from streamlog.errors import FrameTooLarge, MalformedFrame
from tests.oracles.collector import Message, RecordCollector
from tests.oracles.partitioner import Partitioner

Control = tuple[str, bytes]

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
LINE_BYTES_MAX: Final = 1024 * 1024
NUMBER_DIGITS_MAX: Final = 18

_TOLD: Final = {b"PONG": "PONG", b"INFO": "INFO", b"-ERR": "ERR"}
_QUIET: Final = (b"PING", b"+OK")
"""Answered, or of no use, without anyone's being told."""
_BLANKS: Final = b" \t"
_FIELD: Final = re.compile(rb"[^ \t]+")


class FrameParser:
    """NATS protocol lines and payloads in any pieces; messages go to the inflow of their sid.

    After an error the connection is of no more use. What was parsed before it is still handed out:
    the error is raised by the first ``feed`` or ``take_controls`` that has nothing else to return.
    """

    def __init__(
        self, *, frame_bytes_max: int = FRAME_BYTES_MAX, whole: Collection[int] = ()
    ) -> None:
        """``whole``: messages of these sids are kept as they are."""
        self._whole = whole
        self._messages: list[tuple[int, bytes, bytes, bytes, bytes]] = []
        self.pings = 0
        self.dropped = 0
        """Messages of an unknown sid."""
        self._frame_bytes_max = frame_bytes_max
        self._targets: dict[int, RecordCollector | Partitioner] = {}
        self._controls: list[Control] = []
        self._error: Exception | None = None
        self._rest = bytearray()
        """The beginning of a frame of which the end is still to come."""
        self._needed = 0
        """Nothing can be parsed before ``_rest`` has this many bytes."""
        self._searched = 0
        """There is no line feed in this many bytes of ``_rest``, where ``_needed`` is not known."""

    def bind(self, sid: int, target: RecordCollector | Partitioner) -> None:
        """Messages of ``sid`` go to ``target``, or to the inflow that it chooses."""
        self._targets[sid] = target

    def unbind(self, sid: int) -> None:
        """Messages of ``sid`` are dropped, and counted."""
        self._targets.pop(sid, None)

    def take_controls(self) -> list[Control]:
        """(PONG, INFO or ERR; its argument) in the order in which they came."""
        controls, self._controls = self._controls, []
        if self._error and not controls:
            raise self._error
        return controls

    def feed(self, data: bytes | memoryview) -> list[RecordCollector]:
        """Parse; the inflows touched, in the order of the first touch.

        Raises MalformedFrame or FrameTooLarge, and what an ``admit`` raises.
        """
        touched: list[RecordCollector] = []
        if self._error is None:
            self._rest += data
            try:
                self._parse(touched)
            except Exception as error:
                self._error = error
            for inflow in touched:
                inflow.touched = False
        if self._error and not (touched or self._controls or self._messages):
            raise self._error
        return touched

    def take_messages(self) -> list[tuple[int, bytes, bytes, bytes, bytes]]:
        messages, self._messages = self._messages, []
        return messages

    def _parse(self, touched: list[RecordCollector]) -> None:
        rest = self._rest
        if len(rest) < self._needed:
            return
        if (
            not self._needed
            and rest.find(b"\n", self._searched) < 0
            and len(rest) <= LINE_BYTES_MAX
        ):
            self._searched = len(rest)
            return
        data, start = bytes(rest), 0
        self._needed = self._searched = 0
        try:
            while (end := self._frame(data, start, touched)) > start:
                start = end
        finally:
            del rest[:start]

    def _frame(self, data: bytes, start: int, touched: list[RecordCollector]) -> int:
        """The position after the frame at ``start``; ``start`` itself if its end is to come."""
        line_end = data.find(b"\n", start)
        length = (line_end if line_end >= 0 else len(data)) - start
        if length > LINE_BYTES_MAX + 1:
            raise FrameTooLarge(f"line of more than {LINE_BYTES_MAX} bytes")
        if line_end < 0:
            self._searched = length
            return start
        if not data.endswith(b"\r", start, line_end):
            raise MalformedFrame("line does not end with CRLF")
        fields = _FIELD.findall(data, start, line_end - 1)
        operation = fields[0].upper() if fields else b""
        if operation in (b"MSG", b"HMSG"):
            return self._message(data, start, line_end + 1, fields, touched)
        self._control(operation, data[start : line_end - 1])
        return line_end + 1

    def _control(self, operation: bytes, line: bytes) -> None:
        name = _TOLD.get(operation)
        if name is None:
            if operation in _QUIET:
                self.pings += operation == b"PING"
                return
            raise MalformedFrame(f"{bytes(line[:24])!r} is no operation")
        argument = line.strip(_BLANKS)[len(operation) :].strip(_BLANKS)
        if name == "PONG":
            argument = b""
        if name == "ERR":
            argument = argument.strip(b"'")
        self._controls.append((name, argument))

    def _message(
        self,
        data: bytes,
        start: int,
        body: int,
        fields: list[bytes],
        touched: list[RecordCollector],
    ) -> int:
        has_headers = len(fields[0]) == len(b"HMSG")
        count = len(fields) - has_headers
        if count not in (4, 5):
            raise MalformedFrame(f"message with {len(fields)} fields")
        sid, total = _number(fields[2]), _number(fields[-1])
        head = _number(fields[-2]) if has_headers else 0
        if head > total:
            raise MalformedFrame(f"{head} bytes of headers in a message of {total}")
        if total > self._frame_bytes_max:
            raise FrameTooLarge(f"message of {total} bytes, limit {self._frame_bytes_max}")
        end = body + total + 2
        if end > len(data):
            self._needed = end - start
            return start
        if not data.endswith(b"\r\n", body + total, end):
            raise MalformedFrame("payload does not end with CRLF")
        reply = fields[3] if count == 5 else b""
        head += body
        message = Message(fields[1], reply, data[body:head], data[head : end - 2])
        if sid in self._whole:
            self._messages.append((sid, *message))
            return end
        self._deliver(sid, message, touched)
        return end

    def _deliver(self, sid: int, message: Message, touched: list[RecordCollector]) -> None:
        target = self._targets.get(sid)
        if target is None:
            self.dropped += 1
            return
        inflow = target.choose(message) if isinstance(target, Partitioner) else target
        if inflow is None:
            return
        if not inflow.touched:
            inflow.touched = True
            touched.append(inflow)
        inflow.gather(message)


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > NUMBER_DIGITS_MAX:
        raise MalformedFrame(f"{text[:24]!r} is not a number")
    return int(text)
