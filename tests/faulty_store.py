"""An HTTP proxy before an object store, which does to requests what stores and networks do."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tools.nodes.ports import LOOPBACK

Kind = Literal[
    "unavailable",  # 503, and the store never hears of the request
    "slow down",  # 429
    "forbidden",  # 403
    "broken",  # the connection breaks before an answer; the store never hears of the request
    "lost answer",  # the store does it, and the connection breaks before the answer
    "silent",  # no answer ever; the store never hears of the request
    "cut body",  # half of the answer's body, then the connection breaks
    "slow first byte",  # the answer comes after ``delay_s``
    "changed body",  # a byte of the answer's body is another one
    "stale list",  # what the same list was at the first time
    "no condition",  # an object that exists is put with success, in spite of the condition
]
LINE_BYTES_MAX: Final = 64 * 1024
PIECE_BYTES: Final = 256 * 1024
HEAD_END: Final = b"\r\n\r\n"


class Request(NamedTuple):
    """As it came from the client."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and "list-type" in parse_qs(urlsplit(self.target).query)


@dataclass
class Fault:
    """Strikes ``times`` requests, of those that match."""

    kind: Kind
    times: int = 1
    matches: Callable[[Request], bool] = lambda _: True
    delay_s: float = 0.0
    struck: int = 0


class Answer(NamedTuple):
    head: bytes
    body: bytes


@dataclass
class FaultyStore:
    """Between a client and the store at ``port``; start it, and give the client its ``endpoint``."""

    port: int
    latency_s: float = 0.0
    """Of each request: a round trip."""
    bytes_per_s: int | None = None
    """What all answers together may have of the line."""
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    """All that came."""
    _server: asyncio.Server | None = None
    _line_free_s: float = 0.0
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _lists: dict[str, Answer] = field(default_factory=dict)
    _connections: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        assert self._server is not None
        return f"http://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "FaultyStore":
        self._server = await asyncio.start_server(self._serve, LOOPBACK, limit=LINE_BYTES_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for it in self._connections:
            it.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def strike(
        self,
        kind: Kind,
        *,
        times: int = 1,
        method: str | None = None,
        within: str = "",
        delay_s: float = 0.0,
    ) -> Fault:
        """The next ``times`` requests of that method whose target has ``within``."""
        fault = Fault(
            kind,
            times,
            lambda it: method in (None, it.method) and within in it.target,
            delay_s,
        )
        self.faults.append(fault)
        return fault

    def count(self, method: str, within: str = "") -> int:
        return sum(it.method == method and within in it.target for it in self.requests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve_one(reader, writer):
                    pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False: the connection is over."""
        request = await _read_request(reader, writer)
        self.requests.append(request)
        fault = next(
            (it for it in self.faults if it.struck < it.times and it.matches(request)), None
        )
        if fault is not None:
            fault.struck += 1
        kind = fault.kind if fault is not None else None
        await asyncio.sleep(self.latency_s)
        if kind == "silent":
            await asyncio.sleep(3600)
        if kind == "broken":
            return False
        statuses = {"unavailable": "503 Slow Down", "slow down": "429 Slow", "forbidden": "403 No"}
        if kind in statuses:
            writer.write(f"HTTP/1.1 {statuses[kind]}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return True
        # The server looks whether there is an object, and then writes; a store does both at once.
        async with self._writing if request.method == "PUT" else contextlib.nullcontext():
            answer = await self._forward(request)
        refused = answer.head.split(b" ", 2)[1] in (b"412", b"409")  # S3 and Google, Azure
        if kind == "no condition" and refused:
            answer = Answer(b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 0', b"")
        if request.is_list:
            first = self._lists.setdefault(request.target, answer)
            answer = first if kind == "stale list" else answer
        if kind == "lost answer":
            return False
        if kind == "slow first byte" and fault is not None:
            await asyncio.sleep(fault.delay_s)
        if kind == "cut body":
            writer.write(answer.head + HEAD_END + answer.body[: len(answer.body) // 2])
            await writer.drain()
            return False
        body = answer.body
        if kind == "changed body":
            at = len(body) // 2
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        writer.write(answer.head + HEAD_END)
        for start in range(0, len(body), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            await self._use_line(len(piece))
            writer.write(piece)
            await writer.drain()
        return True

    async def _use_line(self, size_bytes: int) -> None:
        if self.bytes_per_s is None:
            return
        now_s = time.monotonic()
        self._line_free_s = max(self._line_free_s, now_s) + size_bytes / self.bytes_per_s
        await asyncio.sleep(self._line_free_s - now_s)

    async def _forward(self, request: Request) -> Answer:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port, limit=LINE_BYTES_MAX)
        try:
            lines = [f"{request.method} {request.target} HTTP/1.1"]
            lines += [f"{name}: {value}" for name, value in request.headers.items()]
            writer.write("\r\n".join(lines).encode() + HEAD_END + request.body)
            await writer.drain()
            head = (await reader.readuntil(HEAD_END)).removesuffix(HEAD_END)
            fields = _fields(head)
            status = int(head.split(b" ", 2)[1])
            if request.method == "HEAD" or status in (204, 304):
                return Answer(head, b"")
            if "chunked" in fields.get("transfer-encoding", ""):
                body = await _read_chunked(reader)
                kept = [it for it in head.split(b"\r\n") if not it.lower().startswith(b"transfer")]
                return Answer(b"\r\n".join([*kept, b"Content-Length: %d" % len(body)]), body)
            return Answer(head, await reader.readexactly(int(fields.get("content-length", "0"))))
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    head = (await reader.readuntil(HEAD_END)).removesuffix(HEAD_END)
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    headers = _fields(head)
    if headers.pop("expect", None):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", ""):
        body = await _read_chunked(reader)
        del headers["transfer-encoding"]
        headers["content-length"] = str(len(body))
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    while (await reader.readline()).strip():
        pass
    return b"".join(parts)


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.split(":", 1) for line in lines)
    return {name.strip().lower(): value.strip() for name, value in pairs}
