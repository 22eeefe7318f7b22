"""A node that is sent frames of any kind: each is answered in order, or ends its connection."""

import asyncio
import logging
import socket
from contextvars import ContextVar
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple

from immutables import Map

from streamlog.errors import ProtocolViolation
from streamlog.metadata.commands import Command, CreateStream, DescribeCluster, Granted
from streamlog.wire import api_messages, fetch
from streamlog.wire.cursor import Cursor
from streamlog.wire.framing import frame
from streamlog.wire.header import (
    RequestHeader,
    encode_request_header,
    read_request_header,
    read_response_header,
)
from streamlog.wire.registry import API_VERSIONS, APIS, FETCH, PRODUCE
from tests.kafka_node import KafkaNode
from tests.random_requests import SPOKEN, RandomRequests

PATIENCE_S: Final = 60.0
"""What takes that long hangs."""
LAST: Final = 0x1A57
"""The correlation id of the request that ends each input."""
END: Final = frame(encode_request_header(APIS[API_VERSIONS], 0, LAST, "end"))


class Outcome(NamedTuple):
    """What came of one input."""

    answers: list[bytes]
    """Frames, without the one to ``END``."""
    closed: bool
    peer: str
    """The client, as the node's log has it."""


_HEARING: ContextVar["_Heard | None"] = ContextVar("_HEARING", default=None)
"""Tasks and connections of a node have the context that the node was begun in."""


class _Heard(logging.Handler):
    """Several nodes may run side by side, and have clients of the same port."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if _HEARING.get() in (self, None):  # a worker thread has no context: all hear it
            self.records.append(record)


class FrameFuzzer:
    """Over partitions of a few lines; real sockets, dispatch, handlers, controller and files."""

    def __init__(self, *, idle_timeout_ms: int = 1_000, patience_s: float = PATIENCE_S) -> None:
        """No fetch waits for longer than the idle timeout. An answer that takes ``patience_s``
        does not come.
        """
        self._patience_s = patience_s
        self.node = KafkaNode(idle_timeout_ms=idle_timeout_ms)
        self.node.metadata.take = self._take  # type: ignore[method-assign]
        self._heard = _Heard()
        self._logger = logging.getLogger("streamlog")

    async def __aenter__(self) -> "FrameFuzzer":
        self._logger.addHandler(self._heard)
        self._logger.propagate = False  # so many lines are of no use to anybody else
        _HEARING.set(self._heard)
        await self.node.__aenter__()
        await self.restore()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.node.__aexit__(kind, error, trace)
        finally:
            self._logger.removeHandler(self._heard)
            self._logger.propagate = not any(isinstance(it, _Heard) for it in self._logger.handlers)

    async def _take(self, command: Command, *, forwarded: bool) -> Granted:
        """Carried out, as by the controller."""
        if isinstance(command, CreateStream):
            _, created = await self.node.metadata.create_stream(command.config)
            return Granted(self.node.metadata.image.offset, {"created": created})
        if isinstance(command, DescribeCluster):
            folder = "0cdef59f-2d4e-4d3e-8e1c-5d2cb28a3a11"
            voter = {"node_id": 7, "host": "h", "port": 1, "directory_id": folder}
            replica = {"node_id": 7, "end_offset": 5, "lag": 0, "last_fetch_ms": None}
            known = {"controller": 7, "epoch": 3, "high_watermark": 5}
            return Granted(5, {**known, "voters": [voter], "replicas": [replica], "nodes": []})
        return await self.node.metadata.request(command)

    async def restore(self) -> None:
        """What a request may have taken away, or given."""
        metadata = self.node.metadata
        for tp in list(self.node.local):
            partition = self.node.local.pop(tp)
            partition.wake()
            partition.close()
        metadata.image = type(metadata.image)(metadata.image.cluster_id)
        metadata.register(self.node.port)
        for name in ("flights", "ships"):
            (await self.node.add_stream(name, 2)).append([b"x"] * 10)

    def requests(self, rng: Random) -> RandomRequests:
        streams = self.node.metadata.image.streams.values()
        return RandomRequests(rng, [it.stream_id for it in streams])

    def input(self, seed: int) -> bytes:
        """A whole frame."""
        rng = Random(seed)
        requests = self.requests(rng)
        api, version = SPOKEN[seed % len(SPOKEN)]
        head = encode_request_header(api, version, 7, rng.choice(("raw", "", "x" * 300)))
        body = requests.body(api, version) or rng.randbytes(rng.randrange(60))
        match rng.randrange(10):
            case 0 | 1 | 2:
                return frame(head, body)
            case 3:
                return frame(requests.changed(head + body))
            case 4:
                return frame(head, requests.swollen(body, rng.randrange(3_000)))
            case 5:
                return frame(head, rng.randbytes(rng.randrange(100)))
            case _:
                return frame(head, requests.changed(body))

    async def send(self, data: bytes) -> Outcome:
        """``data``, and then ``END``, on a connection of its own."""
        answers: list[bytes] = []
        async with asyncio.timeout(self._patience_s):
            sock = socket.create_connection(("127.0.0.1", self.node.port))
            # Sent before the node accepts: a process that stands still then is no idle client.
            sent = sock.send(data + END, socket.MSG_DONTWAIT)
            peer = "{}:{}".format(*sock.getsockname())
            reader, writer = await asyncio.open_connection(sock=sock)
            try:
                writer.write((data + END)[sent:])
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    answer = await reader.readexactly(size)
                    if int.from_bytes(answer[:4], "big") == LAST:
                        return Outcome(answers, closed=False, peer=peer)
                    answers.append(answer)
            except (asyncio.IncompleteReadError, ConnectionError):
                return Outcome(answers, closed=True, peer=peer)
            finally:
                writer.close()

    async def check(self, data: bytes) -> None:
        """Raises AssertionError if something is not as it must be."""
        self._heard.records.clear()
        metadata = self.node.metadata
        metadata.image = replace(metadata.image, quotas=Map())  # nobody is to wait for long
        outcome = await self.send(data)
        assert not any(it.exc_info for it in self._heard.records), self._heard.records
        closed = self._closings(outcome.peer)
        if outcome.closed:
            assert closed == ["protocol"], closed
        else:  # who has all answers and is slow to leave may be idle
            assert closed in ([], ["idle"]), closed
        expected = _header_of(data)
        if outcome.closed:
            assert not outcome.answers
            return
        assert expected is not None, "what is no request was answered"
        if not outcome.answers:
            assert expected.api.key == PRODUCE
            return
        (answer,) = outcome.answers
        _check_answer(answer, expected)

    def _closings(self, peer: str) -> list[str]:
        """The reasons that the node gave for them; a line about another client may come late."""
        lines = [
            it.__dict__ for it in self._heard.records if it.getMessage() == "connection closed"
        ]
        return [line["reason"] for line in lines if line["peer"] == peer]


def _header_of(data: bytes) -> RequestHeader | None:
    try:
        return read_request_header(Cursor(data[4:]))
    except ProtocolViolation:
        return None


def _check_answer(answer: bytes, header: RequestHeader) -> None:
    """It is read to its last byte."""
    api, version = header.api, header.version
    if version > api.version_max:
        assert api.key == API_VERSIONS
        version = 0
    cursor = Cursor(answer)
    assert read_response_header(cursor, api, version) == header.correlation_id
    if api.key == FETCH:
        fetch.read_response(cursor, version)
    elif api.key == PRODUCE and version < 3:
        return
    else:
        values: dict[str, Any] = api_messages.read_response(cursor, api, version)
        assert values is not None
    assert cursor.remaining == 0
