"""What a page asks of node 1, out of a node 2."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from streamlog.config import GroupsSection
from streamlog.control.service import ControlService
from streamlog.errors import NodeUnreachable
from streamlog.groups.records import NO_TOPIC_ID
from streamlog.groups.requests import CommitRequest, GroupCaller, OffsetToCommit
from streamlog.http.console.cluster_snapshot import CoordinatedGroup
from streamlog.http.console.other_nodes import AllTransactions, NodeProbe, RemoteGroups
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.peers import PeerAddress
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId, TopicPartition
from streamlog.transactions.replay import KnownTransaction
from streamlog.transactions.transaction import TransactionState, new_transaction
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode, until

PAGE_NODE = NodeId(NODE + 1)


class PeersHere:
    """In the place of sockets."""

    def __init__(self, node: KafkaNode) -> None:
        assert node.context.control_service is not None
        self._nodes = node.context.control_service.nodes
        self.is_cut = False

    async def command(
        self, address: PeerAddress, data: bytes, timeout_ms: int, *, purpose: str = ""
    ) -> bytes:
        if self.is_cut:
            raise NodeUnreachable(f"{address}: nothing is heard")
        return await self._nodes.answer(data)


class World:
    """Node 1 with its groups, and what the page's node asks by."""

    def __init__(self, node: KafkaNode) -> None:
        self.node = node
        self.peers = PeersHere(node)
        self.image = lambda: node.metadata.image
        self.control = ControlService(
            node_id=PAGE_NODE,
            metadata=node.metadata,
            partitions=cast("Any", node),
            peers=cast("Any", self.peers),
        )
        self.is_watched = True

    def groups(self, partitions_max: int = 100) -> RemoteGroups:
        return RemoteGroups(
            self.control,
            image=self.image,
            is_watched=lambda: self.is_watched,
            partitions_max=partitions_max,
        )

    async def commit(self, group: str, *offsets: int) -> None:
        """Of the partitions of ``flights``, in turn."""
        wanted = {
            ("flights", number): OffsetToCommit(offset, -1, "", NO_TOPIC_ID)
            for number, offset in enumerate(offsets)
        }
        request = CommitRequest(group, GroupCaller(""), wanted)
        reply: Any = self.node.groups.call(
            group, lambda coordinator, token, now: coordinator.commit(request, token, now)
        )
        await until(lambda: bool(reply.is_there))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with KafkaNode(GroupsSection(offsets_partitions=2)) as node:
        running = asyncio.create_task(node.groups.run())
        await node.metadata.create_stream(StreamConfig.of(name="flights", partitions=2))
        await node.groups.find("g")
        node.groups.apply(MetadataImage(CLUSTER_ID), node.metadata.image)
        await until(lambda: not node.groups.statistics().loading)
        yield World(node)
        await node.groups.stop()
        running.cancel()
        await asyncio.wait([running])


async def test_groups_of_another_node_are_told_without_a_write_to_its_log(world: World) -> None:
    await world.commit("a", 5, 7)
    await world.commit("b", 3)
    ends = [it.high_watermark for it in world.node.offsets.made.values()]
    page = world.groups()
    await page.refresh()
    first, second = TopicPartition("flights", 0), TopicPartition("flights", 1)
    assert sorted(page.groups) == [
        CoordinatedGroup("a", "Empty", 0, {first: 5, second: 7}, NODE),
        CoordinatedGroup("b", "Empty", 0, {first: 3}, NODE),
    ]
    assert page.hidden == 0
    assert [it.high_watermark for it in world.node.offsets.made.values()] == ends


async def test_groups_beyond_the_limit_are_counted(world: World) -> None:
    await world.commit("a", 5, 7)
    await world.commit("b", 3)
    page = world.groups(partitions_max=2)
    await page.refresh()
    assert [it.group_id for it in page.groups] == ["a"]
    assert page.hidden == 1


async def test_a_node_that_is_not_heard_leaves_its_groups_until_it_is_fenced(world: World) -> None:
    await world.commit("a", 5)
    page = world.groups()
    await page.refresh()
    world.peers.is_cut = True
    await page.refresh()
    assert [it.group_id for it in page.groups] == ["a"]
    world.node.metadata.fence(NODE)
    await page.refresh()
    assert page.groups == []


async def test_an_answer_that_does_not_decode_leaves_the_groups_as_they_were(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.commit("a", 5)
    page = world.groups()
    await page.refresh()

    async def garbled(*_: object, **__: object) -> bytes:
        return b'{"groups":[[1]],"omitted":0}\n'

    monkeypatch.setattr(world.peers, "command", garbled)
    await page.refresh()
    assert [it.group_id for it in page.groups] == ["a"]


@pytest.mark.parametrize("is_cut", [False, True])
async def test_without_a_controller_the_other_nodes_are_asked_whether_they_are_there(
    world: World, is_cut: bool
) -> None:
    has_controller = False
    probe = NodeProbe(world.control, image=world.image, has_controller=lambda: has_controller)
    world.peers.is_cut = is_cut
    await probe.look()
    assert probe.answers == {NODE: not is_cut}
    has_controller = True
    await probe.look()
    assert probe.answers == {}


class Coordinators:
    """What ``AllTransactions`` asks by."""

    def __init__(self) -> None:
        self.asked = 0
        self.found: list[KnownTransaction] = []

    @property
    def transactions(self) -> "Coordinators":
        return self

    async def all(self) -> tuple[list[KnownTransaction], list[NodeId]]:
        self.asked += 1
        await asyncio.sleep(0)
        return list(self.found), []

    def node_of(self, transactional_id: str) -> NodeId | None:
        return NodeId(3) if transactional_id == "a" else None


async def test_transactions_that_have_been_open_for_longest_come_first() -> None:
    coordinators = Coordinators()
    idle = new_transaction(1, 60_000, 0)
    began = {"a": 30, "c": 10, "d": 20}
    coordinators.found = [
        KnownTransaction(
            name,
            idle._replace(state=TransactionState.ONGOING, start_ms=began[name])
            if name in began
            else idle,
        )
        for name in "abcde"
    ]
    page = AllTransactions(cast("Any", coordinators))
    assert page.known == []
    await asyncio.gather(page.look(), page.look())
    assert [it.transactional_id for it in page.known] == ["c", "d", "a", "b", "e"]
    assert [it.coordinator for it in page.known] == [None, None, 3, None, None]
    await page.look()
    assert coordinators.asked == 1, "many who look at them at once cost one question"
