from uuid import UUID

import pytest

from streamlog.errors import InvalidStreamConfig, StreamExists, StreamNotFound
from streamlog.metadata import controller
from streamlog.metadata.controller import Decision
from streamlog.metadata.image import Image
from streamlog.metadata.records import NodeRegistered, PartitionChanged, StreamDeleted
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId

ID = UUID(int=1)


def applied(image: Image, decision: Decision) -> Image:
    return image.apply_all(decision.records, offset=image.offset, epoch=image.epoch)


def registered(image: Image, node: int, run: int = 1) -> Image:
    decision = controller.register_node(
        image, node_id=NodeId(node), incarnation=UUID(int=run), host="h", port=1, rack=None
    )
    return applied(image, decision)


@pytest.fixture
def image() -> Image:
    return registered(Image("cluster"), 1)


def created(image: Image, config: StreamConfig) -> Image:
    return applied(image, controller.create_stream(image, config, new_id=ID, now_ms=9))


def test_create_leads_every_partition_at_once(image: Image) -> None:
    stream = created(image, StreamConfig.of(name="s", partitions=3)).stream("s")
    assert stream.stream_id == ID
    assert stream.created_ms == 9
    assert [(p.leader, p.leader_epoch, p.isr) for p in stream.partitions] == [(1, 0, (1,))] * 3


def test_the_same_again_is_a_success_without_records(image: Image) -> None:
    image = created(image, StreamConfig.of(name="s"))
    again = controller.create_stream(
        image, StreamConfig.of(name="s"), new_id=UUID(int=2), now_ms=10
    )
    assert not again.changes


def test_a_taken_name_is_refused(image: Image) -> None:
    image = created(image, StreamConfig.of(name="s"))
    with pytest.raises(StreamExists):
        created(image, StreamConfig.of(name="s", retention_ms=1_000))


def test_more_replicas_than_nodes_are_refused(image: Image) -> None:
    with pytest.raises(InvalidStreamConfig, match="replicas"):
        created(image, StreamConfig.of(name="s", replicas=2))


def test_replicas_go_round_the_nodes(image: Image) -> None:
    for node in (2, 3):
        image = registered(image, node)
    stream = created(image, StreamConfig.of(name="s", partitions=3, replicas=2)).stream("s")
    assert [p.replicas for p in stream.partitions] == [(1, 2), (2, 3), (3, 1)]
    assert [p.leader for p in stream.partitions] == [1, 2, 3]


def test_update(image: Image) -> None:
    image = created(image, StreamConfig.of(name="s"))
    wider = StreamConfig.of(name="s", subjects=("s", "t"))
    assert applied(image, controller.update_stream(image, wider)).stream("s").config == wider
    assert not controller.update_stream(image, StreamConfig.of(name="s")).changes


def test_update_refuses_what_cannot_change(image: Image) -> None:
    image = created(image, StreamConfig.of(name="s"))
    with pytest.raises(InvalidStreamConfig, match="partitions"):
        controller.update_stream(image, StreamConfig.of(name="s", partitions=2))
    with pytest.raises(StreamNotFound):
        controller.update_stream(image, StreamConfig.of(name="t"))


def test_delete_names_the_id(image: Image) -> None:
    image = created(image, StreamConfig.of(name="s"))
    decision = controller.delete_stream(image, "s")
    assert decision.records == (StreamDeleted(name="s", stream_id=ID),)
    gone = applied(image, decision)
    assert "s" not in gone.streams
    with pytest.raises(StreamNotFound):
        controller.delete_stream(gone, "s")


def test_a_restarted_node_leads_in_new_epochs(image: Image) -> None:
    image = registered(image, 2)
    image = created(image, StreamConfig.of(name="s", partitions=2))
    decision = controller.register_node(
        image, node_id=NodeId(1), incarnation=UUID(int=5), host="h2", port=2, rack="r"
    )
    node, *rest = decision.records
    assert isinstance(node, NodeRegistered)
    led = [p for p in image.stream("s").partitions if p.leader == 1]
    assert len(rest) == len(led) == 1
    assert isinstance(rest[0], PartitionChanged)
    assert rest[0].leader_epoch == led[0].leader_epoch + 1
    assert rest[0].partition_epoch == led[0].partition_epoch + 1
    after = applied(image, decision)
    assert after.nodes[NodeId(1)].host == "h2"


def test_the_same_incarnation_changes_nothing(image: Image) -> None:
    image = created(image, StreamConfig.of(name="s"))
    assert registered(image, 1) == image
