"""A snapshot on its way from the leader into the store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import NodeUnreachable, StreamlogError
from streamlog.metadata.image.snapshot import encode_snapshot, snapshot_id
from streamlog.metadata.quorum.peers import PeerAddress
from streamlog.metadata.quorum.raft_driver import RaftTransport
from streamlog.model import NodeId
from streamlog.raft.messages import SnapshotId
from tests.unit.metadata_folder import Node

LEADER, OTHER = NodeId(1), NodeId(2)
PIECE_BYTES = 100


class Leaders:
    """Give pieces, and fail when a test says so."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[int] = []
        self.left = -1
        """Pieces before the next failure."""

    async def fetch_snapshot(
        self, address: PeerAddress, snapshot: SnapshotId, position: int, timeout_ms: int
    ) -> tuple[bytes, int]:
        self.asked.append(position)
        if self.left == 0:
            raise NodeUnreachable("cut off")
        self.left -= 1
        return self.data[position : position + PIECE_BYTES], len(self.data)


class World:
    def __init__(self, folder: Path) -> None:
        self.leader, self.follower = Node(folder / "leader"), Node(folder / "follower")
        for number in range(3):
            self.leader.register(number + 1)
        self.snapshot = snapshot_id(self.leader.image)
        self.leaders = Leaders(encode_snapshot(self.leader.image))
        replica: Any = self
        peers: Any = self.leaders
        self.transport = RaftTransport(
            replica, peers, request_timeout_ms=1, tell=lambda _: None, in_turn=self.in_turn
        )

        def address_of(node_id: NodeId) -> PeerAddress | None:
            return PeerAddress("h", node_id)

        self.transport.address_of = address_of  # type: ignore[method-assign]

    @property
    def store(self) -> Any:
        return self.follower.store

    async def in_turn(self, call: Callable[[], None]) -> None:
        call()

    async def fetch(self, leader: NodeId = LEADER) -> bool:
        return await self.transport.fetch_snapshot(leader, self.snapshot)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_it_comes_in_pieces_and_is_installed(world: World) -> None:
    assert await world.fetch()
    assert len(world.leaders.asked) == -(-len(world.leaders.data) // PIECE_BYTES) > 3
    assert world.store.install_snapshot(world.snapshot) == world.leader.image


async def test_after_a_failure_the_rest_is_enough(world: World) -> None:
    world.leaders.left = 3
    assert not await world.fetch()
    world.leaders.left = -1
    world.leaders.asked.clear()
    assert await world.fetch()
    assert world.leaders.asked[0] == 3 * PIECE_BYTES
    assert world.store.install_snapshot(world.snapshot) == world.leader.image


async def test_another_leader_gives_it_from_the_beginning(world: World) -> None:
    """It may write the same metadata in other words."""
    world.leaders.left = 3
    assert not await world.fetch()
    world.leaders.left = -1
    world.leaders.asked.clear()
    assert await world.fetch(OTHER)
    assert world.leaders.asked[0] == 0
    assert world.store.install_snapshot(world.snapshot) == world.leader.image


async def test_one_that_changes_on_the_way_is_begun_again(world: World) -> None:
    data = world.leaders.data
    world.leaders.left = 3
    assert not await world.fetch()
    world.leaders.data, world.leaders.left = data + b"more", -1
    assert not await world.fetch()
    world.leaders.data = data
    world.leaders.asked.clear()
    assert await world.fetch()
    assert world.leaders.asked[0] == 0
    assert world.store.install_snapshot(world.snapshot) == world.leader.image


async def test_a_disk_that_takes_nothing_is_no_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(position: int, data: bytes) -> None:
        raise StreamlogError("the disk is full")

    monkeypatch.setattr(world.store, "take_piece", refuse)
    assert not await world.fetch()
    monkeypatch.undo()
    assert await world.fetch()
    assert world.store.install_snapshot(world.snapshot) == world.leader.image
