"""A NATS client of bare bytes: says what no library would, and takes apart what it is answered."""

import json
import re
import socket
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

PATIENCE_S: Final = 10.0
"""No answer takes that long; a server that says nothing fails the test instead."""

_LINE: Final = re.compile(rb"([^\r\n]*)\r\n")
_NO_RESPONDERS: Final = re.compile(rb"^(HMSG [^ ]*) [^ ]*(?= (\d+) \2\r\nNATS/1.0 503\r\n)")
END: Final = b"PING\r\nPING\r\nSUB .. end\r\nPING\r\n"
"""What is said last: the answer shows that all before it was carried out. In any mode an error
comes of such a subject; the first PING may bring an INFO."""
ENDED: Final = b"PONG\r\n-ERR 'Invalid Subject'\r\nPONG\r\n"


class Answer(NamedTuple):
    """What a server said, frame by frame without INFO, and whether it closed the connection."""

    frames: tuple[bytes, ...]
    is_closed: bool


class RawNats:
    """``with RawNats(port) as client``: a blocking socket, and the server's greeting."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", greeted: bool = True) -> None:
        self.sock = socket.create_connection((host, port), PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        """What has come and is not taken."""
        self.info: dict[str, Any] = {}
        if greeted:
            self.info = self.take_info()

    def __enter__(self) -> "RawNats":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> bool:
        """False: the server has closed meanwhile."""
        try:
            self.sock.sendall(data)
        except OSError:
            return False
        return True

    def receive(self) -> bool:
        """Take more of what comes; False: the server has closed. Raises TimeoutError."""
        try:
            data = self.sock.recv(1 << 18)
        except ConnectionError:
            return False
        self.received += data
        return bool(data)

    def line(self) -> bytes:
        """The next line, without its end; b"" where there is none any more."""
        while b"\r\n" not in self.received:
            if not self.receive():
                return b""
        line, _, self.received = self.received.partition(b"\r\n")
        return line

    def take_info(self) -> dict[str, Any]:
        line = self.line()
        assert line.startswith(b"INFO "), line
        found: dict[str, Any] = json.loads(line[5:])
        return found

    def until(self, end: bytes) -> bytes:
        """All up to where ``end`` is the last that came. Raises EOFError."""
        while not self.received.endswith(end):
            if not self.receive():
                raise EOFError(self.received)
        taken, self.received = self.received, b""
        return taken

    def rest(self) -> bytes:
        """All that comes until the server closes."""
        while self.receive():
            pass
        taken, self.received = self.received, b""
        return taken

    def is_closed(self) -> bool:
        """Waits for the server's close."""
        while self.receive():
            pass
        return True


def answer_to(port: int, script: bytes) -> Answer:
    """What a server says to these bytes."""
    with RawNats(port) as client:
        client.send(script + END)
        while not client.received.endswith(ENDED):
            if not client.receive():
                return Answer(in_order(frames_of(client.received)), is_closed=True)
        return Answer(in_order(frames_of(client.received)), is_closed=False)


def frames_of(data: bytes) -> list[bytes]:
    """Each a line, with its payload where it is a message; without INFO, whatever is in it."""
    frames = []
    position = 0
    while position < len(data):
        found = _LINE.match(data, position)
        if found is None:
            frames.append(data[position:])
            break
        line, position = found[1], found.end()
        end = position
        if line.startswith((b"MSG ", b"HMSG ")):
            end = position + int(line.rpartition(b" ")[2]) + 2
        if not line.startswith(b"INFO "):
            frames.append(line + b"\r\n" + data[position:end])
        position = end
    return frames


def in_order(frames: Sequence[bytes]) -> tuple[bytes, ...]:
    """Of one message to several subscriptions no order is promised: by their sids here. Nor is it
    promised which one is told of no responders: none here.
    """
    frames = [_NO_RESPONDERS.sub(rb"\1 -", frame) for frame in frames]

    def message_of(frame: bytes) -> tuple[bytes, bytes]:
        if not frame.startswith((b"MSG ", b"HMSG ")):
            return b"", b""
        line, _, payload = frame.partition(b"\r\n")
        return line.split(b" ")[1], payload

    ordered: list[bytes] = []
    for message, run in groupby(frames, message_of):
        same = list(run)
        ordered += same if message == (b"", b"") else sorted(same)
    return tuple(ordered)
