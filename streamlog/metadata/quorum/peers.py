"""Connections to other nodes: for the quorum's messages, for commands, and only to be held."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from streamlog.client.connection import Connection, connected
from streamlog.client.security import NO_SECURITY, Security
from streamlog.errors import (
    AuthenticationFailed,
    MalformedFrame,
    NodeUnreachable,
    NotLetIn,
    OtherCluster,
    RequestTimedOut,
    UnsupportedMechanism,
)
from streamlog.metadata.quorum import raft_codec as form
from streamlog.model import NodeId
from streamlog.raft.messages import (
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    RaftFetchRequest,
    Request,
    SnapshotId,
    VoteRequest,
)
from streamlog.wire import registry
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import check

SNAPSHOT_PIECE_BYTES: Final = 1 << 20
PROBE_MS: Final = 200
WATCH_MS: Final = 1_000
"""For the connection, its TLS and a first answer."""


class PeerAddress(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Peers:
    """Keeps a connection for each address and purpose: a long poll holds up nothing else.

    What it raises: NodeUnreachable (``refused``: nothing listens there), RequestTimedOut,
    OtherCluster, and ProtocolViolation. Time limits hold for a call as a whole.
    """

    def __init__(
        self, cluster_id: str, node_id: NodeId, *, security: Security = NO_SECURITY
    ) -> None:
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._security = security
        self._connections: dict[tuple[PeerAddress, str], Connection] = {}
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def send(
        self, address: PeerAddress, peer: NodeId, request: Request, timeout_ms: int
    ) -> Answer:
        """The peer's answer to a message of the quorum; a fetch may take ``wait_ms`` longer."""
        match request:
            case RaftFetchRequest():
                return await self._fetch(address, request, timeout_ms)
            case VoteRequest():
                vote = form.encode_vote(request, self._cluster_id, peer)
                return form.read_vote_answer(
                    await self._request(address, registry.VOTE, vote, timeout_ms)
                )
            case BeginEpochRequest():
                begin = form.encode_begin_epoch(request, self._cluster_id, peer)
                return form.read_epoch_answer(
                    await self._request(address, registry.BEGIN_QUORUM_EPOCH, begin, timeout_ms)
                )
            case EndEpochRequest():
                end = form.encode_end_epoch(request, self._cluster_id)
                return form.read_epoch_answer(
                    await self._request(address, registry.END_QUORUM_EPOCH, end, timeout_ms)
                )

    async def fetch_snapshot(
        self, address: PeerAddress, snapshot: SnapshotId, position: int, timeout_ms: int
    ) -> tuple[bytes, int]:
        """A piece of it, and how long the whole is."""
        values = form.encode_fetch_snapshot(
            snapshot, position, SNAPSHOT_PIECE_BYTES, self._cluster_id
        )
        answer = await self._request(
            address, registry.FETCH_SNAPSHOT, values, timeout_ms, purpose="snapshot"
        )
        piece, size, code = form.read_snapshot_answer(answer)
        check(code, str(address))
        if not piece and position < size:
            raise MalformedFrame(f"{address}: {position} of a snapshot's {size} bytes")
        return piece, size

    async def command(
        self, address: PeerAddress, data: bytes, timeout_ms: int, *, purpose: str = ""
    ) -> bytes:
        """The answer to a command, which this node hands on.

        Those of one ``purpose`` share a connection, and wait for each other.
        """
        values = {
            "request_data": data,
            "request_principal": form.encode_principal(self._cluster_id),
            "client_host_address": b"",
        }
        if purpose:
            answer = await self._request(
                address, registry.ENVELOPE, values, timeout_ms, purpose=purpose
            )
        else:
            async with (
                _within(timeout_ms, address),
                await self._open(address, timeout_ms) as connection,
            ):
                answer = await connection.request(registry.ENVELOPE, values, timeout_ms=timeout_ms)
                await self._check(answer["error_code"], connection, address)
        return bytes(answer["response_data"] or b"")

    async def write_markers(
        self, address: PeerAddress, values: form.Message, timeout_ms: int, *, purpose: str
    ) -> form.Message:
        """The answer to WriteTxnMarkers, which has an error for each partition. ``purpose``: as of ``command``."""
        async with _within(timeout_ms, address):
            connection = await self._connection(address, purpose, timeout_ms)
            return await connection.request(
                registry.WRITE_TXN_MARKERS, values, timeout_ms=timeout_ms
            )

    async def watch(self, address: PeerAddress) -> Connection:
        """A connection to be held, on which nothing more is said."""
        return await self._open(address, WATCH_MS)

    async def refuses(self, address: PeerAddress) -> bool:
        """Whether nothing listens there; silence says nothing."""
        try:
            sock = await connected(address.host, address.port, PROBE_MS)
        except NodeUnreachable as error:
            return error.refused
        except RequestTimedOut:
            return False
        sock.close()
        return False

    async def _open(self, address: PeerAddress, timeout_ms: int) -> Connection:
        try:
            return await Connection.open(*address, timeout_ms=timeout_ms, security=self._security)
        except (AuthenticationFailed, UnsupportedMechanism) as error:
            raise NotLetIn(f"this node is not let in: {error}") from None

    async def _fetch(
        self, address: PeerAddress, request: RaftFetchRequest, timeout_ms: int
    ) -> Answer:
        wanted = form.encode_fetch(request, self._cluster_id)
        async with _within(timeout_ms + request.wait_ms, address):
            connection = await self._connection(address, "fetch", timeout_ms)
            fetched = await connection.fetch(wanted, timeout_ms=timeout_ms)
            await self._check(fetched.error_code, connection, address)
        return form.read_fetch_answer(fetched)

    async def _request(
        self,
        address: PeerAddress,
        key: int,
        values: form.Message,
        timeout_ms: int,
        purpose: str = "request",
    ) -> form.Message:
        async with _within(timeout_ms, address):
            connection = await self._connection(address, purpose, timeout_ms)
            answer = await connection.request(key, values, timeout_ms=timeout_ms)
            await self._check(answer["error_code"], connection, address)
        return answer

    async def _check(self, code: int, connection: Connection, address: PeerAddress) -> None:
        """Raises what the answer's error code stands for; both clusters' names, if they differ."""
        if code == ErrorCode.inconsistent_cluster_id:
            theirs = (await connection.request(registry.METADATA, {"topics": []}))["cluster_id"]
            raise OtherCluster(f"{address} is of cluster {theirs!r}, not {self._cluster_id!r}")
        check(code, str(address))

    async def _connection(self, address: PeerAddress, purpose: str, timeout_ms: int) -> Connection:
        key = address, purpose
        connection = self._connections.get(key)
        if connection is None or connection.broken:
            self._forget_broken()
            connection = await self._open(address, timeout_ms)
            before = self._connections.get(key)
            if before is not None and not before.broken:  # another caller was quicker
                connection.close()
                return before
            if self._closed:
                connection.close()
                raise NodeUnreachable(f"{address}: no more connections are made")
            self._forget_broken()  # one that was quicker, and has broken since
            self._connections[key] = connection
        return connection

    def _forget_broken(self) -> None:
        """Also those to addresses that are no longer asked, since the peer has another one."""
        for key, connection in list(self._connections.items()):
            if connection.broken:
                connection.close()
                del self._connections[key]


@contextlib.asynccontextmanager
async def _within(timeout_ms: int, address: PeerAddress) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            yield
    except TimeoutError:
        raise RequestTimedOut(f"{address}: no answer after {timeout_ms} ms") from None
