from typing import Any
from uuid import UUID

import pytest

from streamlog.errors import CorruptData
from streamlog.metadata.image.image_types import StreamImage
from streamlog.metadata.image.metadata_image import MetadataImage, NodeLoad
from streamlog.metadata.image.records import (
    MetadataRecord,
    NodeDraining,
    NodeFenced,
    NodeFull,
    NodeRegistered,
    NodeRemoved,
    NodeStamped,
    NodeUnfit,
    PartitionChanged,
    QuorumLeader,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
    VotersChanged,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from streamlog.raft.voters import Voter, VoterSet
from tests.controller_world import ids

ONE, TWO = ids(1, 2)
CREATED = StreamCreated(stream_id=UUID(int=1), config=StreamConfig.of(name="s"), created_ms=0)
REGISTERED = NodeRegistered(
    node_id=ONE, incarnation=UUID(int=3), host="h", port=1, directory_id=UUID(int=4), fenced=True
)


def changed(
    number: int, *replicas: NodeId, leader: NodeId = ONE, epoch: int = 0
) -> PartitionChanged:
    return PartitionChanged(
        stream="s", partition=number, replicas=replicas, leader=leader, leader_epoch=0,
        isr=replicas, partition_epoch=epoch,
    )  # fmt: skip


def of(*records: MetadataRecord) -> MetadataImage:
    return MetadataImage("c").apply_all(records, offset=0, epoch=1)


def test_a_registration_gets_the_epoch_of_its_offset() -> None:
    node = of(QuorumLeader(node_id=ONE), REGISTERED).nodes[ONE]
    assert node.epoch == 1
    assert node.directory_id == UUID(int=4)
    assert node.fenced
    told = of(REGISTERED.model_copy(update={"epoch": 77})).nodes[ONE]
    assert told.epoch == 77


def test_what_is_noted_of_a_node() -> None:
    image = of(
        REGISTERED,
        NodeFenced(node_id=ONE, fenced=False),
        NodeDraining(node_id=ONE, draining=True),
    )
    assert not image.nodes[ONE].fenced
    assert image.nodes[ONE].draining
    again = image.apply(REGISTERED, offset=3, epoch=1)
    assert again.nodes[ONE].fenced
    assert again.nodes[ONE].draining  # also of the process after this one
    stopped = again.apply(NodeFenced(node_id=ONE, fenced=True, stopping=True), offset=4, epoch=1)
    assert stopped.nodes[ONE].stopping
    assert not stopped.apply(REGISTERED, offset=5, epoch=1).nodes[ONE].stopping
    assert not stopped.apply(NodeRemoved(node_id=ONE), offset=5, epoch=1).nodes


def test_a_folder_is_stamped_by_each_start_and_in_between() -> None:
    image = of(REGISTERED)
    assert image.nodes[ONE].stamp == REGISTERED.incarnation
    stamped = image.apply(NodeStamped(node_id=ONE, stamp=UUID(int=5)), offset=1, epoch=1)
    assert stamped.nodes[ONE].stamp == UUID(int=5)
    restored = MetadataImage("c").restored(
        stamped.records(), offset=stamped.offset, epoch=stamped.epoch
    )
    assert restored == stamped
    again = stamped.apply(REGISTERED, offset=2, epoch=1)
    assert again.nodes[ONE].stamp == REGISTERED.incarnation


@pytest.mark.parametrize(
    "record",
    [
        NodeFenced(node_id=TWO, fenced=True),
        NodeDraining(node_id=TWO, draining=True),
        NodeFull(node_id=TWO, full=True),
        NodeUnfit(node_id=TWO, unfit=("clock",)),
        NodeStamped(node_id=TWO, stamp=UUID(int=5)),
        NodeRemoved(node_id=TWO),
    ],
    ids=lambda record: type(record).__name__,
)
def test_nothing_is_noted_of_unknown_nodes(record: MetadataRecord) -> None:
    with pytest.raises(CorruptData, match="unknown node 2"):
        of(REGISTERED, record)


def test_voters_are_those_last_named() -> None:
    voters = VoterSet.of([Voter(ONE, "h", 1, UUID(int=1)), Voter(TWO, "h", 2)])
    image = of(VotersChanged.of(VoterSet()), VotersChanged.of(voters))
    assert image.voters == voters
    restored = MetadataImage("c").restored(image.records(), offset=image.offset, epoch=image.epoch)
    assert restored == image


def test_a_new_controller_changes_nothing_but_the_offset() -> None:
    image = of(REGISTERED)
    after = image.apply(QuorumLeader(node_id=ONE), offset=1, epoch=2)
    assert (after.offset, after.epoch) == (2, 2)
    assert after.nodes == image.nodes
    assert list(after.changes(image)) == []


def test_loads_follow_the_partitions() -> None:
    image = of(CREATED, changed(0, ONE, TWO), changed(1, TWO, leader=TWO))
    assert dict(image.loads) == {ONE: NodeLoad(1, 1), TWO: NodeLoad(2, 1)}
    assert image.load(NodeId(9)) == NodeLoad(0, 0)
    after = image.apply_all(
        [changed(0, TWO, leader=NO_LEADER, epoch=1)], offset=image.offset, epoch=1
    )
    assert dict(after.loads) == {TWO: NodeLoad(2, 1)}
    assert after.leaderless == 1
    gone = after.apply(StreamDeleted(name="s", stream_id=UUID(int=1)), offset=9, epoch=1)
    assert not gone.loads
    assert gone.leaderless == 0


def test_a_stream_may_go_in_the_batch_that_changes_it() -> None:
    image = of(CREATED, changed(0, ONE), StreamDeleted(name="s", stream_id=UUID(int=1)))
    assert not image.streams
    assert not image.loads
    again = of(
        CREATED, changed(0, ONE), StreamDeleted(name="s", stream_id=UUID(int=1)), CREATED,
        changed(0, TWO, leader=TWO),
    )  # fmt: skip
    assert dict(again.loads) == {TWO: NodeLoad(1, 1)}


def test_a_configuration_may_change_in_the_batch_that_adds_partitions() -> None:
    config = StreamConfig.of(name="s", partitions=2)
    image = of(CREATED, changed(0, ONE), StreamUpdated(config=config), changed(1, ONE))
    assert len(image.stream("s").partitions) == 2
    assert image.stream("s").config == config


def test_partition_epochs_do_not_go_back() -> None:
    with pytest.raises(CorruptData, match="takes back a partition epoch"):
        of(CREATED, changed(0, ONE, epoch=2), changed(0, ONE, epoch=1))


def test_a_batch_costs_its_length_whatever_the_size_of_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream is not copied for each record: that would take half a minute."""
    made, init = 0, StreamImage.__init__

    def counted(self: StreamImage, *args: Any, **named: Any) -> None:
        nonlocal made
        made += 1
        init(self, *args, **named)

    monkeypatch.setattr(StreamImage, "__init__", counted)
    image = of(CREATED, *(changed(number, ONE) for number in range(20_000)))
    assert len(image.stream("s").partitions) == 20_000
    assert 1 <= made <= 2
