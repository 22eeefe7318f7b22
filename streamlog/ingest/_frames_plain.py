"""The frame parser in plain Python: the twin that the compiled one is held to."""

import struct
from collections.abc import Callable
from typing import Final

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.record.codec import RecordRun

Admit = Callable[[bytes, bytes, bytes, int], bool]
Control = tuple[str, bytes]

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
LINE_BYTES_MAX: Final = 1024 * 1024
INBOX_PREFIX: Final = b"_INBOX."
KEY_HEADER: Final = b"streamlog-key"
DECIDED_PREFIXES: Final = (b"nats-", b"streamlog-ack")

_REPLY: Final = struct.Struct("<IH")


class Inflow:
    """What one subscription gathered since it was last taken."""

    def __init__(
        self, *, value_bytes_max: int, admit: Admit | None = None, owner: object = None
    ) -> None:
        self.value_bytes_max = value_bytes_max
        self.admit = admit
        self.owner = owner
        self.run = RecordRun()
        self.reply_count = 0
        self.touched = False
        self._replies = bytearray()
        self._oversize: list[bytes] = []

    def take_replies(self) -> bytes:
        """Acks wanted, packed: repeatedly u32 offset delta, u16 length, both little-endian, reply."""
        replies = bytes(self._replies)
        self._replies.clear()
        self.reply_count = 0
        return replies

    def take_oversize(self) -> list[bytes]:
        """The reply subjects of messages that were too large, b"" for none; they are not in the run."""
        oversize, self._oversize = self._oversize, []
        return oversize

    def gather(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        if len(payload) + len(block) > self.value_bytes_max:
            self._oversize.append(reply)
            return
        headers = header_lines(block)
        if self.admit is not None and any(
            name.lower().startswith(DECIDED_PREFIXES) for name, _ in headers
        ):
            if not self.admit(block, subject, reply, self.run.count):
                return
        key = None
        fields = [(b"subject", subject)]
        if reply and not reply.startswith(INBOX_PREFIX):
            fields.append((b"reply", reply))
        for name, content in headers:
            if name.lower() == KEY_HEADER:
                key = content
            fields.append((name, content))
        if reply:
            self._replies += _REPLY.pack(self.run.count, len(reply)) + reply
            self.reply_count += 1
        self.run.append(key, payload, fields)


class FrameParser:
    """NATS protocol lines and payloads in any pieces; messages go to the inflow of their sid."""

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.dropped = 0
        """Messages of an unknown sid."""
        self._frame_bytes_max = frame_bytes_max
        self._inflows: dict[int, Inflow] = {}
        self._controls: list[Control] = []
        self._rest = bytearray()
        """A frame of which the end is still to come."""
        self._needed = 0
        """Nothing can be parsed before ``_rest`` has this many bytes."""

    def bind(self, sid: int, inflow: Inflow) -> None:
        self._inflows[sid] = inflow

    def unbind(self, sid: int) -> None:
        self._inflows.pop(sid, None)

    def take_controls(self) -> list[Control]:
        """(operation, argument) of what was not a message, in order."""
        controls, self._controls = self._controls, []
        return controls

    def feed(self, data: bytes) -> list[Inflow]:
        """Parse; the inflows touched, in the order of the first touch.

        Raises MalformedFrame or FrameTooLarge; the connection is then of no more use.
        """
        touched: list[Inflow] = []
        self._rest += data
        if len(self._rest) < self._needed:
            return touched
        self._needed = 0
        data, position = bytes(self._rest), 0
        try:
            while (end := self._frame(data, position, touched)) > position:
                position = end
        finally:
            del self._rest[:position]
            for inflow in touched:
                inflow.touched = False
        return touched

    def _frame(self, data: bytes, start: int, touched: list[Inflow]) -> int:
        """The position after the frame at ``start``; ``start`` itself if its end is to come."""
        line_end = data.find(b"\r\n", start)
        if line_end < 0:
            if len(data) - start > LINE_BYTES_MAX:
                raise FrameTooLarge(f"line of more than {LINE_BYTES_MAX} bytes")
            self._needed = len(data) - start + 1
            return start
        line = data[start:line_end]
        operation, _, rest = line.partition(b" ")
        operation = operation.upper()
        if operation in (b"MSG", b"HMSG"):
            return self._message(data, start, line_end + 2, operation, rest, touched)
        self._control(operation, rest)
        return line_end + 2

    def _control(self, operation: bytes, rest: bytes) -> None:
        name = operation.lstrip(b"+-").decode("ascii", "replace")
        if operation not in (b"PING", b"PONG", b"INFO", b"+OK", b"-ERR"):
            raise MalformedFrame(f"unknown operation {operation[:16]!r}")
        self._controls.append((name, rest.strip().strip(b"'") if name == "ERR" else rest))

    def _message(
        self,
        data: bytes,
        start: int,
        body: int,
        operation: bytes,
        rest: bytes,
        touched: list[Inflow],
    ) -> int:
        fields = rest.split()
        sizes = 2 if operation == b"HMSG" else 1
        if len(fields) not in (2 + sizes, 3 + sizes):
            raise MalformedFrame(f"{operation.decode()} with {len(fields)} fields")
        reply = fields[2] if len(fields) == 3 + sizes else b""
        total = _number(fields[-1])
        head = _number(fields[-2]) if sizes == 2 else 0
        if head > total:
            raise MalformedFrame(f"{head} bytes of headers in a frame of {total}")
        if total > self._frame_bytes_max:
            raise FrameTooLarge(f"frame of {total} bytes, limit {self._frame_bytes_max}")
        end = body + total + 2
        if end > len(data):
            self._needed = end - start
            return start
        if data[end - 2 : end] != b"\r\n":
            raise MalformedFrame("payload does not end with CRLF")
        inflow = self._inflows.get(_number(fields[1]))
        if inflow is None:
            self.dropped += 1
            return end
        if not inflow.touched:
            inflow.touched = True
            touched.append(inflow)
        inflow.gather(fields[0], reply, data[body : body + head], data[body + head : end - 2])
        return end


def header_lines(block: bytes) -> list[tuple[bytes, bytes]]:
    """(name, value) of each well-formed line of a NATS header block; the rest is left out."""
    lines = block.split(b"\r\n")
    if not lines[0].startswith(b"NATS/1.0"):
        return []
    headers = []
    for line in lines[1:]:
        name, colon, content = line.partition(b":")
        if colon and name:
            headers.append((name, content.strip()))
    return headers


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise MalformedFrame(f"{text[:24]!r} is not a number")
    return int(text)
