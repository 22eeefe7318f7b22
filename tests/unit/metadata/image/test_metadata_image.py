from uuid import UUID

import pytest

from streamlog.errors import CorruptData, PartitionNotFound, StreamNotFound
from streamlog.metadata.image.metadata_image import MetadataImage, StreamChange, leader_of
from streamlog.metadata.image.records import (
    MetadataRecord,
    NodeRegistered,
    PartitionChanged,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from tests.node_registration import started

ONE = NodeId(1)
TWO = NodeId(2)
CONFIG = StreamConfig.of(name="s")
CREATED = StreamCreated(stream_id=UUID(int=1), config=CONFIG, created_ms=0)


def changed(partition: int = 0, leader_epoch: int = 0, leader: int = 1) -> PartitionChanged:
    return PartitionChanged(
        stream="s",
        partition=partition,
        replicas=(ONE,),
        leader=NodeId(leader),
        leader_epoch=leader_epoch,
        isr=(ONE,),
        partition_epoch=0,
    )


def of(*records: MetadataRecord, epoch: int = 1) -> MetadataImage:
    return MetadataImage("c").apply_all(records, offset=0, epoch=epoch)


def test_offset_and_epoch_are_those_of_the_log() -> None:
    image = of(CREATED, changed(), epoch=4)
    assert (image.offset, image.epoch) == (2, 4)
    later = image.apply(StreamUpdated(config=CONFIG), offset=7, epoch=5)
    assert (later.offset, later.epoch) == (8, 5)


def test_records_do_not_come_twice_nor_from_an_older_epoch() -> None:
    image = of(CREATED, epoch=4)
    with pytest.raises(CorruptData, match="too late"):
        image.apply(changed(), offset=0, epoch=4)
    with pytest.raises(CorruptData, match="too late"):
        image.apply(changed(), offset=1, epoch=3)


@pytest.mark.parametrize(
    "records",
    [
        [CREATED, CREATED],
        [StreamUpdated(config=CONFIG)],
        [StreamDeleted(name="s", stream_id=UUID(int=1))],
        [CREATED, StreamDeleted(name="s", stream_id=UUID(int=2))],
        [changed()],
        [CREATED, changed(1)],
        [CREATED, changed(-1)],
        [CREATED, changed(0, 2), changed(0, 1)],
    ],
)
def test_records_that_cannot_be_are_refused(records: list[MetadataRecord]) -> None:
    with pytest.raises(CorruptData):
        of(*records)


def test_lookups() -> None:
    image = of(CREATED, changed(), changed(1, leader=NO_LEADER))
    node = NodeRegistered(node_id=ONE, incarnation=UUID(int=3), host="h", port=1)
    image = image.apply(node, offset=3, epoch=1)
    assert leader_of(image, "s", 0) == image.nodes[ONE]
    assert leader_of(image, "s", 1) is None
    with pytest.raises(PartitionNotFound):
        image.stream("s").partition(2)
    with pytest.raises(PartitionNotFound):
        image.stream("s").partition(-1)
    with pytest.raises(StreamNotFound):
        image.stream("t")


def test_who_is_to_catch_up() -> None:
    image = of(
        CREATED,
        changed().model_copy(update={"replicas": (ONE, TWO)}),
        changed(1, leader=NO_LEADER).model_copy(update={"replicas": (ONE, TWO)}),
    )
    assert [image.out_of_sync(it) for it in (ONE, TWO, NodeId(3))] == [0, 1, 0]


def test_an_image_never_changes() -> None:
    before = of(CREATED)
    before.apply(StreamDeleted(name="s", stream_id=UUID(int=1)), offset=1, epoch=1)
    assert "s" in before.streams


def test_changes_of_one_step_and_of_many() -> None:
    empty = MetadataImage("c")
    one = empty.apply_all([CREATED, changed()], offset=0, epoch=1)
    two = one.apply_all([changed(0, 1)], offset=2, epoch=1)
    three = two.apply_all([StreamDeleted(name="s", stream_id=UUID(int=1))], offset=3, epoch=1)
    s1, s2 = one.stream("s"), two.stream("s")
    assert list(one.changes(empty)) == [StreamChange(None, s1)]
    assert list(two.changes(one)) == [StreamChange(s1, s2)]
    assert list(two.changes(empty)) == [StreamChange(None, s2)]
    assert list(three.changes(two)) == [StreamChange(s2, None)]
    assert list(three.changes(empty)) == []
    assert list(one.changes(one)) == []


def test_a_stream_created_anew_is_first_gone() -> None:
    old = of(CREATED)
    records = (
        StreamDeleted(name="s", stream_id=UUID(int=1)),
        StreamCreated(stream_id=UUID(int=2), config=CONFIG, created_ms=0),
    )
    new = old.apply_all(records, offset=1, epoch=1)
    assert list(new.changes(old)) == [
        StreamChange(old.stream("s"), None),
        StreamChange(None, new.stream("s")),
    ]


def test_a_node_alone_touches_no_stream() -> None:
    image = of(CREATED)
    decision = started(image, NodeId(2), UUID(int=9))
    after = image.apply_all(decision.records, offset=1, epoch=1)
    assert list(after.changes(image)) == []
