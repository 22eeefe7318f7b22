import json
from collections.abc import Callable
from typing import Any

import pytest

from streamlog.ingest.frames import IngestEndpoint, RecordCollector
from streamlog.ingest.partitioned_stream import PartitionedStream, Refuser
from streamlog.metadata.image.metadata_image import PartitionImage, StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.router import Router
from streamlog.record.compiled.keys import murmur2
from tests import enveloped
from tests.ingest_way import Way
from tests.nats_frames import SID, FrameParser, msg

ME, OTHER = NodeId(1), NodeId(2)


class Node:
    """One of two, with ingests for what it leads."""

    def __init__(self, *leaders: NodeId, **settings: Any) -> None:
        self.config = StreamConfig.of(
            name="orders",
            subjects=("o.>",),
            partitions=len(leaders),
            partition_by="tokens:2",
            **settings,
        )
        self.way = Way(message_bytes_max=1000)
        self.way.ingest.opened = True
        self.mark: Callable[[], int] = lambda: 0
        """Of the router."""
        self.spreading = PartitionedStream("orders", node_id=ME, answers=self.way.answers)
        self.ingests = {
            TopicPartition("orders", number): self.way.ingest
            for number, leader in enumerate(leaders)
            if leader == ME
        }
        self.lead(*leaders)
        self.parser = FrameParser()
        self.parser.bind(SID, self.spreading.target)

    def lead(self, *leaders: NodeId, may_store: bool = True) -> None:
        partitions = tuple(_partition(leader) for leader in leaders)
        image = StreamImage(self.config, None, 0, partitions)  # type: ignore[arg-type]
        self.spreading.follow(image, self.mark)
        self.spreading.share(self.ingests, may_store=may_store)

    def told(self) -> list[str]:
        """What happened to a message for each partition: stored, refused, or left to others."""
        outcomes = []
        for number in range(self.config.partitions):
            touched = self.take(self.subject(number))
            self.way.partition.commit()
            answers = self.way.answered()
            if not touched:
                assert answers == []
                outcomes.append("left")
            elif isinstance(touched[0].owner, Refuser):
                assert [json.loads(answer)["error"]["err_code"] for _, answer in answers] == [10008]
                outcomes.append("refused")
            else:
                assert ["seq" in json.loads(answer) for _, answer in answers] == [True]
                outcomes.append("stored")
        return outcomes

    def take(
        self, subject: bytes, payload: bytes = b"v", reply: bytes = b"a"
    ) -> list[RecordCollector]:
        touched = self.parser.feed(msg(payload, subject, reply))
        for inflow in touched:
            inflow.owner.take()
        return touched

    def subject(self, number: int) -> bytes:
        """One whose messages go to this partition."""
        tokens = map(str, range(100))
        count = self.config.partitions
        return next(
            b"o." + token.encode()
            for token in tokens
            if (murmur2(token.encode()) & 0x7FFFFFFF) % count == number
        )


def _partition(leader: NodeId) -> PartitionImage:
    nodes = (ME, OTHER)
    return PartitionImage(
        replicas=nodes, isr=nodes, leader=leader, leader_epoch=0, partition_epoch=0
    )


async def test_each_takes_its_own_and_one_refuses_what_nobody_leads() -> None:
    node = Node(ME, OTHER, NO_LEADER)
    assert node.told() == ["stored", "left", "refused"]
    node = Node(OTHER, ME, NO_LEADER)
    assert node.told() == ["left", "stored", "left"]
    node = Node(NO_LEADER, ME, OTHER)
    assert node.told() == ["refused", "stored", "left"]


async def test_a_leader_that_may_not_store_says_so_itself() -> None:
    node = Node(ME, OTHER)
    node.way.ingest.opened = False
    node.lead(ME, OTHER)
    assert node.told() == ["refused", "left"]
    node.way.ingest.opened = True
    node.lead(ME, OTHER, may_store=False)
    assert node.told() == ["refused", "left"]
    node.way.ingest.closed = True
    node.lead(ME, OTHER)
    assert node.told() == ["refused", "left"]


async def test_what_is_refused_needs_no_room_and_asks_for_nothing() -> None:
    node = Node(ME, NO_LEADER)
    node.take(node.subject(1), b"v" * 5000)
    ((reply, answer),) = node.way.told()
    assert (reply, answer["error"]["err_code"]) == ("a", 10008)
    assert len(node.way.ingest.deduplicator) == 0


async def test_an_envelope_is_refused_with_an_ack() -> None:
    node = Node(ME, NO_LEADER)
    data = enveloped.envelope(enveloped.message(b"v", inbox=b"acks", policy=enveloped.ALL))
    node.take(node.subject(1), data, b"")
    ((inbox, ack),) = node.way.answered()
    assert (inbox, enveloped.read_ack(ack)["error"]) == ("acks", 1)


async def test_a_stream_that_does_not_answer_refuses_in_silence() -> None:
    node = Node(ME, NO_LEADER, no_ack=True)
    node.take(node.subject(1))
    assert node.way.answered() == []
    assert node.way.count("publish_rejected", reason="not_leader") == 1


@pytest.mark.parametrize("leaders", [(ME, OTHER), (ME, NO_LEADER), (OTHER, ME, NO_LEADER)])
async def test_client_is_refused_what_only_a_node_without_a_link_could_take(
    leaders: tuple[NodeId, ...],
) -> None:
    """Nobody else hears it; what came over a link, its own node answers for."""
    node, router = Node(*leaders), Router()
    IngestEndpoint(router).subscribe(b"o.>", node.spreading.target)
    link = LeafConnection(router)
    last = node.subject(len(leaders) - 1)

    def refused(linked: frozenset[NodeId], *, over_link: bool = False) -> bool:
        before = node.way.count("publish_rejected", reason="not_leader")
        node.spreading.share(node.ingests, may_store=True, linked=linked)
        if over_link:
            link.feed(b"LMSG %b a 1\r\nx\r\n" % last)
        else:
            router.publish(last, b"x", reply=b"a")
        router.end_turn()
        return node.way.count("publish_rejected", reason="not_leader") > before

    is_refused_anyhow = leaders == (ME, NO_LEADER)
    assert refused(frozenset())
    assert refused(frozenset(), over_link=True) == is_refused_anyhow
    assert refused(frozenset({OTHER})) == is_refused_anyhow


@pytest.mark.parametrize("is_opened", [True, False])
async def test_copy_from_before_the_mark_of_its_leader_is_left_out_in_silence(
    is_opened: bool,
) -> None:
    """The former leader may have stored and acknowledged it."""
    node, router = Node(ME, OTHER), Router()
    left_out: list[None] = []
    endpoint = IngestEndpoint(router, left_out=lambda: left_out.append(None))
    endpoint.subscribe(b"o.>", node.spreading.target)
    link = LeafConnection(router)
    link.open()
    node.mark = router.mark
    node.way.ingest.opened = is_opened
    node.lead(OTHER, ME)
    node.ingests = {TopicPartition("orders", 1): node.way.ingest}
    node.lead(OTHER, ME)
    node.way.ingest.inflow.from_mark = router.marks
    assert link.take_output() == b"LS+ o.>\r\nPING\r\n"
    late = b"LMSG %b a 1\r\nx\r\n" % node.subject(1)
    head = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
    identified = b"HMSG %b a 28 29\r\n%bx\r\n" % (node.subject(1), head)

    first = node.way.partition.log_end_offset

    def taken() -> int:
        """So many are stored, or refused."""
        router.end_turn()
        refused = int(node.way.count("publish_rejected", reason="not_leader"))
        return refused + node.way.partition.log_end_offset - first

    link.feed(late)
    assert (taken(), len(left_out)) == (0, 1)
    link.feed(identified)
    assert (taken(), len(left_out)) == (1, 1)  # a repetition would be recognised
    router.publish(node.subject(1), b"x", reply=b"a")
    assert taken() == 2
    link.feed(b"PONG\r\n" + late)
    assert (taken(), len(left_out)) == (3, 1)
    assert node.way.partition.log_end_offset - first == (3 if is_opened else 0)
    node.lead(OTHER, ME)
    assert link.take_output() == b"", "it answers for no other partition than before"


async def test_id_in_an_envelope_is_one() -> None:
    router = Router()
    collector = RecordCollector(message_bytes_max=1000)
    collector.from_mark = router.mark() + 1
    IngestEndpoint(router).subscribe(b"o", collector)
    link = LeafConnection(router)
    for headers, count in (({}, 0), ({b"Nats-Msg-Id": b"1"}, 1)):
        data = enveloped.envelope(enveloped.message(b"v", headers=headers))
        link.feed(b"LMSG o %d\r\n%b\r\n" % (len(data), data))
        assert collector.run.count == count
