"""What nodes ask of each other about the partitions that they lead: Envelope requests on the socket.

A request is JSON, ``{"request": name, "fields": {...}}``: so it begins otherwise than a command to the
controller, which is in an Envelope, too. An answer is one line of JSON, and after it a message's bytes as
they are. An error travels by the name of its class in ``errors``, as a command's does.

Requests to one node share ``CONNECTIONS_MAX`` connections. Each has a connection by itself as long as
that many are enough: a read that waits for a cold disk does not hold up the next one.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from streamlog.condition import FAULT
from streamlog.errors import (
    CorruptData,
    InvalidRequest,
    NodeUnreachable,
    NotLetIn,
    RequestTimedOut,
    StreamlogError,
)
from streamlog.metadata.commands import encode_refused
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.peers import PeerAddress, Peers
from streamlog.model import NodeId
from streamlog.wire.errors import error_named

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 8
"""To each node."""
_BEGIN: Final = b'{"request":'

Fields = Mapping[str, Any]


class NodeAnswer(NamedTuple):
    """``fields`` are JSON."""

    fields: Fields
    data: bytes = b""


Handler = Callable[[Fields], Awaitable[NodeAnswer]]
"""Raises errors of streamlog, and KeyError, TypeError, ValueError for fields that are none."""


def is_node_request(data: bytes | memoryview) -> bool:
    """Whether an Envelope holds one; else it is a command."""
    return bytes(data[: len(_BEGIN)]) == _BEGIN


def encode_request(name: str, fields: Fields) -> bytes:
    return json.dumps({"request": name, "fields": fields}, separators=(",", ":")).encode()


def encode_answer(answer: NodeAnswer) -> bytes:
    return json.dumps(answer.fields, separators=(",", ":")).encode() + b"\n" + answer.data


def encode_error(error: StreamlogError) -> bytes:
    return encode_refused(error) + b"\n"


def decode_answer(data: bytes) -> NodeAnswer:
    """Raises the error that the answer tells of, and CorruptData."""
    line, newline, rest = data.partition(b"\n")
    try:
        fields = json.loads(line) if newline else None
        if isinstance(fields, dict):
            if "error" in fields:
                raise error_named(str(fields["error"]), str(fields["message"]))
            return NodeAnswer(fields, rest)
    except (ValueError, KeyError, RecursionError):
        pass
    raise CorruptData("another node's answer does not decode")


async def _here(_: Fields) -> NodeAnswer:
    return NodeAnswer({})


class NodeRequests:
    """Asks other nodes, and answers what they ask. ``register`` before the node takes requests."""

    def __init__(self, peers: Peers, image: Callable[[], MetadataImage]) -> None:
        self._peers = peers
        self._image = image
        self._handlers: dict[str, Handler] = {}
        self._busy: dict[NodeId, set[int]] = defaultdict(set)
        """Connections on which a request waits for its answer."""
        self._turns = 0
        self.register("HERE", _here)

    def register(self, name: str, handler: Handler) -> None:
        self._handlers[name] = handler

    def close(self) -> None:
        self._peers.close()

    async def ask(
        self, node_id: NodeId, name: str, fields: Fields, *, timeout_s: float
    ) -> NodeAnswer:
        """Raises what the node answers; NodeUnreachable: it has not been heard; RequestTimedOut: it may
        have been; CorruptData.
        """
        data = encode_request(name, fields)
        node = self._image().nodes.get(node_id)
        if node is None:
            raise NodeUnreachable(f"node {node_id} is not registered")
        async with self._connection(node_id) as purpose:
            try:
                address = PeerAddress(node.host, node.port)
                answer = await self._peers.command(
                    address, data, int(timeout_s * 1000), purpose=purpose
                )
            except NodeUnreachable as error:
                if error.refused or isinstance(error, NotLetIn):
                    raise
                text = f"node {node_id}: {error}; whether it was done is not known"
                raise RequestTimedOut(text) from None
        return decode_answer(answer)

    async def answering(self, node_ids: Collection[NodeId], *, timeout_s: float) -> set[NodeId]:
        """Those of the nodes that answer in time."""

        async def answers(node_id: NodeId) -> bool:
            try:
                await self.ask(node_id, "HERE", {}, timeout_s=timeout_s)
            except (NodeUnreachable, RequestTimedOut):
                return False
            except StreamlogError:  # it refuses, and is there
                pass
            return True

        asked = await asyncio.gather(*(answers(node_id) for node_id in node_ids))
        return {node_id for node_id, is_there in zip(node_ids, asked, strict=True) if is_there}

    async def answer(self, data: bytes | memoryview) -> bytes:
        """The answer to what another node asks. Never raises what the request is the reason of."""
        name = ""
        try:
            request = json.loads(bytes(data))
            name, fields = str(request["request"]), dict(request["fields"])
            handler = self._handlers.get(name)
            if handler is None:
                raise InvalidRequest(f"nodes do not answer {name[:40]!r}")
            return encode_answer(await handler(fields))
        except StreamlogError as error:
            return encode_error(error)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            return encode_error(InvalidRequest(f"not a request of a node: {error!r}"))
        except Exception as error:
            failed = FAULT.logged_as("another node's request failed")
            logger.exception(failed, extra={"request": name[:40]})
            return encode_error(StreamlogError(f"internal error: {type(error).__name__}"))

    @asynccontextmanager
    async def _connection(self, node_id: NodeId) -> AsyncIterator[str]:
        """The purpose that names it."""
        busy = self._busy[node_id]
        free = (it for it in range(CONNECTIONS_MAX) if it not in busy)
        self._turns += 1
        number = next(free, self._turns % CONNECTIONS_MAX)
        is_first = number not in busy
        busy.add(number)
        try:
            yield f"control-{number}"
        finally:
            if is_first:
                busy.discard(number)
