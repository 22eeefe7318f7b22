"""The frame parser in plain Python: the twin that the compiled one is held to.

What a publisher can put into a message is never an error of the connection: odd subjects are kept,
broken header lines left out, what is too large refused. Only a line that no nats-server writes is.
"""

import re
import struct
from collections.abc import Callable
from typing import Final

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.record.codec import RecordRun

Admit = Callable[[bytes, bytes, bytes, int], bool]
Control = tuple[str, bytes]
Header = tuple[bytes, bytes]

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
LINE_BYTES_MAX: Final = 1024 * 1024
REPLY_BYTES_MAX: Final = 2**16 - 1
RECORD_OVERHEAD_BYTES: Final = 64
"""More than the lengths and counts in a record take, those of its own headers apart."""
HEADER_GROWTH: Final = 3
"""More than a header block grows when it becomes headers and a key."""
NUMBER_DIGITS_MAX: Final = 18

STATUS_LINE: Final = b"NATS/1.0"
INBOX_PREFIX: Final = b"_INBOX."
KEY_HEADER: Final = b"streamlog-key"
DECIDED_PREFIXES: Final = (b"nats-", b"streamlog-ack")

_CONTROLS: Final = {b"PING": "PING", b"PONG": "PONG", b"INFO": "INFO", b"+OK": "OK", b"-ERR": "ERR"}
_REPLY: Final = struct.Struct("<IH")
_BLANKS: Final = b" \t"
_FIELD: Final = re.compile(rb"[^ \t]+")


class Inflow:
    """What one subscription gathered since the last take. Not thread-safe; one owner.

    ``admit(header_block, subject, reply, position)`` decides about a message with a header that
    asks for something; if it says no, the message is not stored and it has seen to the answer.
    ``position`` is the message's place in the run.

    ``keyed``: of a compacted stream. A message without a key is not stored, and one without a
    payload becomes a record without a value, which is how a key is deleted.
    """

    def __init__(
        self, *, value_bytes_max: int, admit: Admit | None = None, owner: object = None
    ) -> None:
        self.value_bytes_max = value_bytes_max
        """Of headers and payload together, as NATS counts."""
        self.admit = admit
        self.owner = owner
        self.run = RecordRun()
        self.keyed = False
        self.reply_count = 0
        self.oversize_count = 0
        self.keyless_count = 0
        self.touched = False
        """It is in the list that the feed under way returns."""
        self._replies = bytearray()
        self._oversize: list[bytes] = []
        self._keyless: list[bytes] = []

    def take_replies(self) -> bytes:
        """Acks wanted: repeatedly u32 offset delta, u16 length, both little-endian, reply."""
        replies = bytes(self._replies)
        self._replies.clear()
        self.reply_count = 0
        return replies

    def take_oversize(self) -> list[bytes]:
        """The replies, b"" for none, of messages that were too large; they are not in the run."""
        oversize, self._oversize = self._oversize, []
        self.oversize_count = 0
        return oversize

    def take_keyless(self) -> list[bytes]:
        """Likewise of messages that must have a key, and have none."""
        keyless, self._keyless = self._keyless, []
        self.keyless_count = 0
        return keyless

    def gather(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        """One message becomes one record, if it may."""
        if self._is_oversize(subject, reply, block, payload):
            self._oversize.append(reply)
            self.oversize_count += 1
            return
        headers = header_lines(block)
        key = next((content for name, content in headers if name.lower() == KEY_HEADER), None)
        if self.keyed and key is None:
            self._keyless.append(reply)
            self.keyless_count += 1
            return
        if (
            self.admit is not None
            and any(name.lower().startswith(DECIDED_PREFIXES) for name, _ in headers)
            and not self.admit(block, subject, reply, self.run.count)
        ):
            return
        fields = [(b"subject", subject)]
        if reply and not reply.startswith(INBOX_PREFIX):
            fields.append((b"reply", reply))
        value = None if self.keyed and not payload else payload
        position = self.run.append(key, value, fields + headers)
        if reply:
            self._replies += _REPLY.pack(position, len(reply)) + reply
            self.reply_count += 1

    def _is_oversize(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> bool:
        """Also where the reply cannot be packed, or the run has no room; the last seen too early
        rather than too late: who was admitted must be stored."""
        size = RECORD_OVERHEAD_BYTES + HEADER_GROWTH * len(block)
        size += len(subject) + len(reply) + len(payload)
        return (
            len(block) + len(payload) > self.value_bytes_max
            or len(reply) > REPLY_BYTES_MAX
            or size > self.run.bytes_max - self.run.size_bytes
        )


class FrameParser:
    """NATS protocol lines and payloads in any pieces; messages go to the inflow of their sid.

    After an error the connection is of no more use. What was parsed before it is still handed out:
    the error is raised by the first ``feed`` or ``take_controls`` that has nothing else to return.
    """

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.dropped = 0
        """Messages of an unknown sid."""
        self._frame_bytes_max = frame_bytes_max
        self._inflows: dict[int, Inflow] = {}
        self._controls: list[Control] = []
        self._error: Exception | None = None
        self._rest = bytearray()
        """The beginning of a frame of which the end is still to come."""
        self._needed = 0
        """Nothing can be parsed before ``_rest`` has this many bytes."""
        self._searched = 0
        """There is no line feed in this many bytes of ``_rest``, where ``_needed`` is not known."""

    def bind(self, sid: int, inflow: Inflow) -> None:
        """Messages of ``sid`` go to ``inflow``."""
        self._inflows[sid] = inflow

    def unbind(self, sid: int) -> None:
        """Messages of ``sid`` are dropped, and counted."""
        self._inflows.pop(sid, None)

    def take_controls(self) -> list[Control]:
        """(PING, PONG, INFO, ERR or OK; its argument) in the order in which they came."""
        controls, self._controls = self._controls, []
        if self._error and not controls:
            raise self._error
        return controls

    def feed(self, data: bytes | memoryview) -> list[Inflow]:
        """Parse; the inflows touched, in the order of the first touch.

        Raises MalformedFrame or FrameTooLarge, and what an ``admit`` raises.
        """
        touched: list[Inflow] = []
        if self._error is None:
            self._rest += data
            try:
                self._parse(touched)
            except Exception as error:
                self._error = error
            for inflow in touched:
                inflow.touched = False
        if self._error and not touched and not self._controls:
            raise self._error
        return touched

    def _parse(self, touched: list[Inflow]) -> None:
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

    def _frame(self, data: bytes, start: int, touched: list[Inflow]) -> int:
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
        name = _CONTROLS.get(operation)
        if name is None:
            raise MalformedFrame(f"{bytes(line[:24])!r} is no operation")
        argument = line.strip(_BLANKS)[len(operation) :].strip(_BLANKS)
        if name == "ERR":
            argument = argument.strip(b"'")
        self._controls.append((name, argument))

    def _message(
        self, data: bytes, start: int, body: int, fields: list[bytes], touched: list[Inflow]
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
        inflow = self._inflows.get(sid)
        if inflow is None:
            self.dropped += 1
            return end
        if not inflow.touched:
            inflow.touched = True
            touched.append(inflow)
        reply = fields[3] if count == 5 else b""
        inflow.gather(fields[1], reply, data[body : body + head], data[body + head : end - 2])
        return end


def header_lines(block: bytes) -> list[Header]:
    """(name, value) of each well-formed line of a NATS header block; the rest is left out.

    A name that is not UTF-8 is none: Kafka's clients could not decode the record.
    """
    if not block.startswith(STATUS_LINE):
        return []
    headers = []
    for line in block.split(b"\r\n")[1:-1]:  # what follows the last CRLF is no line
        if not line:
            break
        name, colon, content = line.partition(b":")
        if colon and name and _is_text(name):
            headers.append((name, content.lstrip(_BLANKS)))
    return headers


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > NUMBER_DIGITS_MAX:
        raise MalformedFrame(f"{text[:24]!r} is not a number")
    return int(text)
