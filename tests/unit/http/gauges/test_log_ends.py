"""Ends of logs that are led here, and of those that are not."""

from streamlog.client.cluster import Cluster
from streamlog.errors import PartitionNotFound
from streamlog.http.gauges.log_ends import LogEnds
from streamlog.model import NO_LEADER, TopicPartition
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode

A0, A1, GONE = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("gone", 0)


class Elsewhere:
    """Another node's view: it shares the metadata, and keeps what ``kept`` names."""

    def __init__(self, leader: KafkaNode, *kept: TopicPartition) -> None:
        self.leader = leader
        self.kept = set(kept)
        self.wanted = {A0, A1, GONE}
        self.ends = LogEnds(
            wanted=self.wanted_now,
            local=self.local,  # type: ignore[arg-type]
            image=lambda: leader.metadata.image,
        )

    def local(self, tp: TopicPartition) -> FakePartition:
        if tp not in self.kept:
            raise PartitionNotFound(str(tp))
        return self.leader.local[tp]

    async def wanted_now(self) -> set[TopicPartition]:
        return self.wanted

    async def known(self) -> dict[TopicPartition, int]:
        return await self.ends.known(self.wanted)


async def leader_of_a(node: KafkaNode) -> None:
    await node.add_stream("a", 2)
    node.local[A0].append([b"x"] * 3)
    node.local[A1].append([b"x"] * 5)


async def test_a_replica_in_sync_is_enough() -> None:
    async with KafkaNode() as node, Cluster([]) as cluster:
        await leader_of_a(node)
        here = Elsewhere(node, A0, A1)
        assert await here.known() == {A0: 3, A1: 5}
        await here.ends.refresh(cluster)
        assert node.metric("streamlog_requests_total", api="ListOffsets") == 0


async def test_a_leader_is_asked_once_for_all_others() -> None:
    async with KafkaNode() as node, Cluster([]) as cluster:
        await leader_of_a(node)
        here = Elsewhere(node)
        assert await here.known() == {}
        await here.ends.refresh(cluster)
        assert await here.known() == {A0: 3, A1: 5}
        assert node.metric("streamlog_requests_total", api="ListOffsets") == 1
        node.local[A0].append([b"x"])
        await here.ends.refresh(cluster)
        assert await here.known() == {A0: 4, A1: 5}


async def test_a_new_leader_here_that_does_not_know_yet_is_not_believed() -> None:
    async with KafkaNode() as node:
        await leader_of_a(node)
        here = Elsewhere(node, A0)
        node.local[A0].high_watermark_known = False
        assert await here.known() == {}


async def test_what_cannot_be_asked_is_not_known() -> None:
    async with Cluster([]) as cluster:
        async with KafkaNode() as node:
            await leader_of_a(node)
            here = Elsewhere(node)
            await here.ends.refresh(cluster)
            node.metadata.change("a", 1, leader=NO_LEADER)
            await here.ends.refresh(cluster)
            assert await here.known() == {A0: 3}
            node.local[A0].leader_epoch = 7
            node.metadata.change("a", 0, leader_epoch=3)
            await here.ends.refresh(cluster)
            assert await here.known() == {}, "the leader has another epoch by now"
            node.metadata.change("a", 0, leader_epoch=7)
            await here.ends.refresh(cluster)
            assert await here.known() == {A0: 3}
        await here.ends.refresh(cluster)
        assert await here.known() == {}, "nobody answers"
