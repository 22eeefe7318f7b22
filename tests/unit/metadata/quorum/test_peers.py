"""Calls between nodes, against a real listener and against nodes that misbehave."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from streamlog.errors import (
    MalformedFrame,
    NoController,
    NodeUnreachable,
    OtherCluster,
    RequestTimedOut,
    StreamlogError,
)
from streamlog.metadata.commands import DeleteStream, Granted, decode_result, encode_command
from streamlog.metadata.quorum import peers as peers_module
from streamlog.metadata.quorum.peers import PeerAddress, Peers
from streamlog.model import NodeId
from streamlog.raft.messages import (
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    FetchAnswer,
    RaftFetchRequest,
    Request,
    SnapshotId,
    VoteAnswer,
    VoteRequest,
)
from streamlog.raft.voters import ReplicaKey
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode
from tools.nodes.ports import free_port

ME = NodeId(3)
KEY = ReplicaKey(ME, UUID(int=33))
VOTE = VoteRequest(4, KEY, 3, 17, False, UUID(int=9))
BEGIN = BeginEpochRequest(4, ME)
END = EndEpochRequest(4, ME, (NODE,))
FETCH = RaftFetchRequest(4, KEY, 17, 3)
COMMAND = encode_command(DeleteStream(name="flights"))
PATIENCE_MS = 10_000


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as running:
        yield running


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    peers = Peers(CLUSTER_ID, ME)
    yield peers
    peers.close()


@pytest.fixture
async def silent() -> AsyncIterator[PeerAddress]:
    """A machine that accepts, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield PeerAddress(*server.getsockname())


def of(node: KafkaNode) -> PeerAddress:
    return PeerAddress("127.0.0.1", node.port)


def answers(node: KafkaNode, answer: Answer) -> list[Request]:
    asked: list[Request] = []

    async def take(request: Request) -> Answer:
        asked.append(request)
        return answer

    node.metadata.raft_answers = take
    return asked


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (VOTE, VoteAnswer(4, None, True, ReplicaKey(NODE, UUID(int=7)))),
        (BEGIN, EpochAnswer(4, ME)),
        (END, EpochAnswer(4, None)),
        (FETCH, FetchAnswer(4, NODE, high_watermark=9, records=b"batches")),
    ],
)
async def test_a_message_and_its_answer_arrive(
    node: KafkaNode, peers: Peers, request_: Request, answer: Answer
) -> None:
    asked = answers(node, answer)
    for _ in range(3):
        assert await peers.send(of(node), NODE, request_, PATIENCE_MS) == answer
    assert asked == [request_] * 3


async def test_connections_are_kept(node: KafkaNode, peers: Peers) -> None:
    answers(node, EpochAnswer(4, ME))
    before = node.metric("streamlog_requests_total", api="ApiVersions")
    for _ in range(10):
        await peers.send(of(node), NODE, BEGIN, PATIENCE_MS)
    assert node.metric("streamlog_requests_total", api="ApiVersions") == before + 1


async def test_a_fetch_that_waits_holds_up_nothing(node: KafkaNode, peers: Peers) -> None:
    released = asyncio.Event()

    async def take(request: Request) -> Answer:
        if isinstance(request, RaftFetchRequest):
            await released.wait()
            return FetchAnswer(4, NODE)
        return EpochAnswer(4, ME)

    node.metadata.raft_answers = take
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(peers.send(of(node), NODE, FETCH, PATIENCE_MS))
        assert await peers.send(of(node), NODE, BEGIN, PATIENCE_MS) == EpochAnswer(4, ME)
        assert not waiting.done()
        released.set()
    assert waiting.result() == FetchAnswer(4, NODE)


async def test_a_restarted_peer_is_reached_at_once(peers: Peers) -> None:
    """Its old connection is known to be closed before anything is entrusted to it."""
    port = free_port()
    for _ in range(3):
        async with KafkaNode(port=port) as node:
            asked = answers(node, EpochAnswer(4, ME))
            assert await peers.send(of(node), NODE, BEGIN, PATIENCE_MS) == EpochAnswer(4, ME)
            assert asked == [BEGIN]


async def test_a_refused_connection_is_told_from_silence(peers: Peers, silent: PeerAddress) -> None:
    nobody = PeerAddress("127.0.0.1", free_port())
    with pytest.raises(NodeUnreachable) as refused:
        await peers.send(nobody, NODE, BEGIN, PATIENCE_MS)
    assert refused.value.refused
    assert await peers.refuses(nobody)
    assert not await peers.refuses(silent)
    with pytest.raises(NodeUnreachable) as unknown:
        await peers.send(PeerAddress("no.such.host.invalid", 1), NODE, BEGIN, PATIENCE_MS)
    assert not unknown.value.refused
    assert not await peers.refuses(PeerAddress("no.such.host.invalid", 1))


@pytest.mark.parametrize("request_", [VOTE, BEGIN, END, FETCH])
async def test_one_limit_of_time_holds_for_a_call_as_a_whole(
    peers: Peers, silent: PeerAddress, request_: Request
) -> None:
    """Nothing else would end it: the other side is silent for good."""
    with pytest.raises(RequestTimedOut, match="100 ms"):
        await peers.send(silent, NODE, request_, 100)


async def test_calls_that_wait_for_a_connection_are_limited_too(
    node: KafkaNode, peers: Peers
) -> None:
    """The second waits for the first one's turn to end, but no longer than it may."""
    asked, released = asyncio.Event(), asyncio.Event()

    async def take(_: Request) -> Answer:
        asked.set()
        await released.wait()
        return EpochAnswer(4, ME)

    node.metadata.raft_answers = take
    async with asyncio.TaskGroup() as group:
        first = group.create_task(peers.send(of(node), NODE, BEGIN, PATIENCE_MS))
        await asked.wait()
        with pytest.raises(RequestTimedOut):
            await peers.send(of(node), NODE, END, 100)
        released.set()
    assert first.result() == EpochAnswer(4, ME)


async def test_a_fetch_may_take_longer_by_what_it_waits(node: KafkaNode, peers: Peers) -> None:
    async def take(_: Request) -> Answer:
        await asyncio.sleep(0.2)
        return FetchAnswer(4, NODE)

    answers(node, FetchAnswer(4, NODE))
    await peers.send(of(node), NODE, FETCH, PATIENCE_MS)  # a connection may be slow to open
    node.metadata.raft_answers = take
    waits = RaftFetchRequest(4, KEY, 17, 3, wait_ms=PATIENCE_MS)
    assert await peers.send(of(node), NODE, waits, 100) == FetchAnswer(4, NODE)


@pytest.mark.parametrize("request_", [VOTE, BEGIN, END, FETCH])
async def test_both_clusters_are_named_where_they_differ(
    node: KafkaNode, request_: Request
) -> None:
    stranger = Peers("another", ME)
    with pytest.raises(OtherCluster, match=f"of cluster '{CLUSTER_ID}', not 'another'"):
        await stranger.send(of(node), NODE, request_, PATIENCE_MS)
    for purpose in ("", "Heartbeat"):
        with pytest.raises(OtherCluster, match="'another'"):
            await stranger.command(of(node), COMMAND, PATIENCE_MS, purpose=purpose)
    with pytest.raises(OtherCluster, match="'another'"):
        await stranger.fetch_snapshot(of(node), SnapshotId(1, 1), 0, PATIENCE_MS)
    stranger.close()


async def test_a_peer_that_takes_no_part(node: KafkaNode, peers: Peers) -> None:
    with pytest.raises(NoController):
        await peers.send(of(node), NODE, VOTE, PATIENCE_MS)
    with pytest.raises(NoController):
        await peers.send(of(node), NODE, FETCH, PATIENCE_MS)


async def test_a_snapshot_comes_in_pieces(
    node: KafkaNode, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_module, "SNAPSHOT_PIECE_BYTES", 1_000)
    snapshot, empty = SnapshotId(100, 2), SnapshotId(7, 1)
    node.metadata.snapshots = {snapshot: bytes(range(250)) * 15, empty: b""}
    found = b""
    while len(found) < 3_750:
        piece, size = await peers.fetch_snapshot(of(node), snapshot, len(found), PATIENCE_MS)
        assert len(piece) <= 1_000
        assert size == 3_750
        found += piece
    assert found == node.metadata.snapshots[snapshot]
    assert await peers.fetch_snapshot(of(node), empty, 0, PATIENCE_MS) == (b"", 0)
    with pytest.raises(StreamlogError):
        await peers.fetch_snapshot(of(node), SnapshotId(8, 1), 0, PATIENCE_MS)


async def test_a_snapshot_that_ends_early(node: KafkaNode, peers: Peers) -> None:
    async def cut(*_: Any) -> tuple[bytes, int]:
        return b"", 10

    node.metadata.read_snapshot = cut  # type: ignore[assignment, method-assign]
    with pytest.raises(MalformedFrame, match="0 of a snapshot's 10 bytes"):
        await peers.fetch_snapshot(of(node), SnapshotId(1, 1), 0, PATIENCE_MS)


@pytest.mark.parametrize("purpose", ["", "Heartbeat"])
async def test_a_command_is_handed_on(node: KafkaNode, peers: Peers, purpose: str) -> None:
    node.metadata.result = Granted(5, {"deleted": True})
    data = await peers.command(of(node), COMMAND, PATIENCE_MS, purpose=purpose)
    assert decode_result(data) == Granted(5, {"deleted": True})
    assert node.metadata.taken == [(DeleteStream(name="flights"), True)]


async def test_a_held_connection_tells_of_the_peers_end(peers: Peers) -> None:
    async with KafkaNode() as node:
        watched = await peers.watch(of(node))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(watched.wait_closed())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await node.listener.stop()
            async with asyncio.timeout(10):
                await waiting
    watched.close()


async def test_closed_peers_say_nothing(node: KafkaNode, peers: Peers) -> None:
    answers(node, EpochAnswer(4, ME))
    await peers.send(of(node), NODE, BEGIN, PATIENCE_MS)
    peers.close()
    assert not peers._connections


class OpenedInTurn:
    """In the place of ``Connection``: each ``open`` ends when the test says so."""

    def __init__(self) -> None:
        self.opened: list[Any] = []
        self.may_end: list[asyncio.Event] = []

    async def open(self, host: str, port: int, *, timeout_ms: int, security: Any) -> Any:
        connection, event = Mock(broken=False), asyncio.Event()
        self.opened.append(connection)
        self.may_end.append(event)
        await event.wait()
        return connection


async def test_no_connection_is_left_open(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are made at once, the first breaks before the second is there, and then all is closed."""
    made = OpenedInTurn()
    monkeypatch.setattr("streamlog.metadata.quorum.peers.Connection", made)
    address = PeerAddress("nowhere", 1)
    calls = [asyncio.create_task(peers._connection(address, "request", 1)) for _ in range(3)]
    await asyncio.sleep(0)
    made.may_end[0].set()
    assert await calls[0] is made.opened[0]
    made.opened[0].broken = True  # type: ignore[misc]
    made.may_end[1].set()
    assert await calls[1] is made.opened[1]
    made.opened[0].close.assert_called_once_with()  # type: ignore[attr-defined]
    peers.close()
    made.may_end[2].set()
    with pytest.raises(NodeUnreachable):
        await calls[2]
    for connection in made.opened:
        connection.close.assert_called_once_with()


async def test_the_connection_to_an_address_that_a_peer_has_left_is_let_go(
    node: KafkaNode, peers: Peers
) -> None:
    async with KafkaNode() as before:
        answers(before, EpochAnswer(4, ME))
        await peers.send(of(before), NODE, BEGIN, PATIENCE_MS)
        (old,) = peers._connections.values()
    answers(node, EpochAnswer(4, ME))
    await peers.send(of(node), NODE, BEGIN, PATIENCE_MS)
    assert [address for address, _ in peers._connections] == [of(node)]
    assert old._sock.fileno() == -1
