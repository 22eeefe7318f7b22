"""A NATS connection over a plain blocking socket: no library between the program and the server."""

import json
import re
import socket
from typing import Final

from tools.nodes.server_process import ServerEndedError

BUFFER_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 30.0
TAIL_BYTES: Final = 16
"""Kept from one read to the next, so that a pattern cut by the read is seen."""

_MESSAGE = re.compile(rb"MSG (\S+) \d+ (?:\S+ )?(\d+)\r\n")


class BenchmarkError(Exception):
    """The run is void: an error came back, or something is missing."""


VOID: Final = (BenchmarkError, TimeoutError, ServerEndedError)
"""What makes a run void."""


class Connection:
    """One connection; reads land in one buffer, which the caller counts in."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("nats://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * BUFFER_BYTES)
        self.buffer = bytearray(TAIL_BYTES + BUFFER_BYTES)
        self._window = memoryview(self.buffer)[TAIL_BYTES:]
        self.send(
            b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
            b'"protocol":1,"lang":"benchmark","version":"1"}\r\n'
        )
        self.flush()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def subscribe(self, subject: str, sid: int) -> None:
        self.send(f"SUB {subject} {sid}\r\n".encode())
        self.flush()

    def unsubscribe(self, sid: int) -> None:
        self.send(f"UNSUB {sid}\r\n".encode())
        self.flush()

    def flush(self) -> None:
        """Return when the server has handled all that was sent."""
        self.send(b"PING\r\n")
        seen = b""
        while b"PONG\r\n" not in seen:
            seen = seen[-TAIL_BYTES:] + self.receive()

    def receive(self) -> bytes:
        """One read as bytes, for slow paths."""
        size = self.read()
        return bytes(self._window[:size])

    def read(self) -> int:
        """One read into ``buffer[TAIL_BYTES:]``; its size. Before it: the tail of the last one."""
        size = self.socket.recv_into(self._window)
        if not size:
            raise BenchmarkError("the server closed the connection")
        return size

    def keep_tail(self, size: int) -> None:
        """Move the last bytes of a read of ``size`` in front of the next one."""
        self.buffer[:TAIL_BYTES] = self.buffer[size : size + TAIL_BYTES]

    def refuse_errors(self, size: int) -> None:
        """Raise if the last read holds an error ack, a "no responders" or a protocol error."""
        end = TAIL_BYTES + size
        for pattern in (b'"error"', b"HMSG ", b"-ERR"):
            found = self.buffer.find(pattern, 0, end)
            if found >= 0:
                raise BenchmarkError(
                    bytes(self.buffer[found : found + 200]).decode(errors="replace")
                )

    def answer_pings(self, size: int) -> None:
        """nats-server asks now and then whether we are there."""
        if self.buffer.find(b"PING\r\n", 0, TAIL_BYTES + size) >= 0:
            self.send(b"PONG\r\n")

    def request(self, subject: str, payload: bytes = b"") -> dict[str, object]:
        """One request with a JSON answer."""
        self.send(b"SUB _INBOX.request 9\r\nUNSUB 9 1\r\n")
        self.send(b"PUB %s _INBOX.request %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))
        seen = b""
        while True:
            seen += self.receive()
            if b"HMSG " in seen:
                raise BenchmarkError(f"nobody answers {subject}")
            found = _MESSAGE.search(seen)
            if found and len(seen) >= found.end() + int(found[2]) + 2:
                answer = json.loads(seen[found.end() : found.end() + int(found[2])])
                assert isinstance(answer, dict)
                return answer
