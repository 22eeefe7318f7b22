import re

import pytest

from streamlog.errors import (
    CorruptData,
    InvalidRequest,
    InvalidStreamConfig,
    InvalidStreamName,
    StreamExists,
    StreamNotFound,
)
from streamlog.metadata import commands as c
from streamlog.metadata.controller import create_stream, delete_stream
from streamlog.metadata.image.records import LeaderEpochsReserved, StreamDeleted, StreamUpdated
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig
from streamlog.model import NO_LEADER, NodeId
from tests.controller_world import World


def test_create_leads_every_partition_at_once() -> None:
    world = World(1)
    world.create(partitions=3)
    stream = world.image.stream("s")
    assert stream.created_ms == 9
    assert [(p.leader, p.leader_epoch, p.isr) for p in stream.partitions] == [(1, 0, (1,))] * 3


def test_the_same_again_is_a_success_without_records() -> None:
    world = World(1)
    command = c.CreateStream(config=StreamConfig.of(name="s"))
    assert world.ask(command).result == {"created": True}
    again = world.ask(command)
    assert again.result == {"created": False}
    assert not again.changes


def test_leader_epochs_of_a_stream_begin_above_those_of_any_deleted_one() -> None:
    world = World(3)
    world.place(1, 2, 3)
    for leader in (2, 3, 1):
        world.elect(leader)
    last = world.partition().leader_epoch
    assert last > 2
    world.ask(c.DeleteStream(name="s"))
    world.image = decode_snapshot(encode_snapshot(world.image), "here")
    world.create(partitions=2)
    assert [world.partition(number).leader_epoch for number in (0, 1)] == [last + 1] * 2
    world.ask(c.DeleteStream(name="s"))
    world.ask(
        c.PlaceStream(config=StreamConfig.of(name="s", replicas=1), assignments=((NodeId(3),),))
    )
    assert world.partition().leader_epoch == last + 2
    world.update(partitions=2)
    assert world.partition(1).leader_epoch == last + 2


def test_reserved_leader_epochs_are_not_taken_back() -> None:
    world = World(1)
    world.write(LeaderEpochsReserved(end=7))
    with pytest.raises(CorruptData, match="leader epochs"):
        world.write(LeaderEpochsReserved(end=6))
    world.create()
    assert world.partition().leader_epoch == 7


def test_a_name_that_collides_with_another_in_kafkas_metrics_is_refused() -> None:
    world = World(1)
    world.ask(c.CreateStream(config=StreamConfig.of(name="a.b")))
    with pytest.raises(InvalidStreamName, match=r"'a_b' collides with existing topic: 'a\.b'"):
        world.ask(c.CreateStream(config=StreamConfig.of(name="a_b")))
    world.ask(c.DeleteStream(name="a.b"))
    world.ask(c.CreateStream(config=StreamConfig.of(name="a_b")))


def test_a_taken_name_is_refused() -> None:
    world = World(1)
    world.create()
    with pytest.raises(StreamExists):
        world.create(retention_ms=1_000)


def test_more_replicas_than_nodes_that_can_take_them_are_refused_with_both_numbers() -> None:
    world = World(3)
    world.fence(2)
    with pytest.raises(InvalidStreamConfig, match="3 asked for, and there are 2 nodes"):
        world.create(replicas=3)
    world.drain(3)
    with pytest.raises(InvalidStreamConfig, match="2 asked for, and there are 1 nodes"):
        world.create(replicas=2)
    world.live.clear()
    with pytest.raises(InvalidStreamConfig, match="1 asked for, and there are 0 nodes"):
        world.create()


def test_without_sessions_every_node_that_is_not_fenced_counts() -> None:
    world = World(2)
    world.live.clear()
    config = StreamConfig.of(name="s", replicas=2)
    world.apply(
        create_stream(
            world.image, config, new_id=world.image.nodes[NodeId(1)].incarnation, now_ms=0
        )
    )
    assert world.partition().replicas == (1, 2)


def test_a_stream_is_placed_where_it_is_wanted() -> None:
    world = World(3)
    config = StreamConfig.of(name="s", partitions=2, replicas=2)
    command = c.PlaceStream(
        config=config, assignments=((NodeId(3), NodeId(1)), (NodeId(2), NodeId(3)))
    )
    assert world.ask(command).result == {"created": True}
    partitions = world.image.stream("s").partitions
    assert [(it.leader, it.replicas, it.isr) for it in partitions] == [
        (3, (3, 1), (3, 1)),
        (2, (2, 3), (2, 3)),
    ]
    assert world.ask(command).result == {"created": False}
    wider = (SettingChange(setting="partitions", text="3"),)
    for wrong in (((1, 2), (1, 2)), ((1,),), ((1, 9),)):
        more = {"name": "s", "changes": wider, "assignments": wrong}
        with pytest.raises(InvalidRequest):
            world.ask(c.AlterStream.model_validate(more))
    more = {"name": "s", "changes": wider, "assignments": ((2, 1),)}
    world.ask(c.AlterStream.model_validate(more))
    after = world.image.stream("s").partitions
    assert after[:2] == partitions
    assert (after[2].leader, after[2].replicas) == (2, (2, 1))


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (((1, 2),), "for 1 new partitions, of 2"),
        (((1, 2), (2, 1), (1, 3)), "for 3 new partitions, of 2"),
        (((1, 2), (3,)), "partition 1: [3] are not 2 different"),
        (((1, 1), (1, 2)), "partition 0: [1, 1] are not 2 different"),
        (((1, 2), (1, 9)), "no node 9"),
        (((1, 2), (1, 3)), "node 3 is not alive"),
        (((1, 4), (1, 2)), "node 4 is not alive, or is being drained"),
    ],
)
def test_a_stream_that_cannot_be_placed_so(
    assignments: tuple[tuple[int, ...], ...], message: str
) -> None:
    world = World(4)
    world.fence(3)
    world.drain(4)
    config = StreamConfig.of(name="s", partitions=2, replicas=2)
    command = c.PlaceStream.model_validate({"config": config, "assignments": assignments})
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        world.ask(command)
    assert not world.image.streams


def test_update() -> None:
    world = World(1)
    world.create()
    world.update(subjects=("s", "t"))
    assert world.image.stream("s").config.subjects == ("s", "t")
    same = world.ask(c.UpdateStream(config=world.image.stream("s").config))
    assert not same.changes
    with pytest.raises(StreamNotFound):
        world.ask(c.UpdateStream(config=StreamConfig.of(name="t")))


def test_an_alteration_is_upon_the_newest_configuration() -> None:
    world = World(1)
    world.create()
    longer = SettingChange(setting="retention_ms", text="60000")
    wider = SettingChange(setting="partitions", text="3")
    world.ask(c.AlterStream(name="s", changes=(longer,)))
    world.ask(c.AlterStream(name="s", changes=(wider,)))
    stream = world.image.stream("s")
    assert (stream.config.retention_ms, len(stream.partitions)) == (60_000, 3)
    assert not world.ask(c.AlterStream(name="s", changes=(wider,))).changes
    fewer = SettingChange(setting="partitions", text="2")
    for name, change, error in (
        ("t", longer, StreamNotFound),
        ("s", fewer, InvalidStreamConfig),
        ("s", SettingChange(setting="name", text="t"), InvalidStreamConfig),
    ):
        with pytest.raises(error):
            world.ask(c.AlterStream(name=name, changes=(change,)))


def test_more_partitions_are_placed_and_fewer_are_refused() -> None:
    world = World(3)
    world.create(partitions=2, replicas=2)
    before = world.image.stream("s").partitions
    world.update(partitions=6)
    after = world.image.stream("s").partitions
    assert after[:2] == before
    assert len(after) == 6
    assert [load.leaders for load in world.image.loads.values()] == [2, 2, 2]
    with pytest.raises(InvalidStreamConfig, match="from 6 to 5"):
        world.update(partitions=5)


def test_more_replicas_are_added_and_waited_for() -> None:
    world = World(3)
    world.create(min_isr=1)
    world.update(replicas=3, min_isr=2)
    partition = world.partition()
    assert partition.replicas == (1, 2, 3)
    assert partition.adding == (2, 3)
    assert partition.isr == (1,)
    assert world.image.stream("s").min_isr(0) == 1  # nobody waits for those that are not there yet
    world.alter_isr(1, 2)
    assert world.partition().is_moving
    world.alter_isr(1, 2, 3)
    assert not world.partition().is_moving
    assert world.image.stream("s").min_isr(0) == 2


def test_fewer_replicas_stay_with_the_leader_and_those_in_sync() -> None:
    world = World(4)
    world.place(1, 2, 3, 4, min_isr=1)
    world.elect(3)
    world.alter_isr(3, 4)
    world.update(replicas=2)
    partition = world.partition()
    assert partition.replicas == partition.isr == (3, 4)
    assert partition.leader == 3


def test_replicas_that_were_to_go_are_taken_back_before_others() -> None:
    world = World(3)
    world.place(1, 2, min_isr=1)
    world.alter_isr(1)
    world.move(3, 1)
    assert world.partition().removing == (2,)
    world.update(replicas=3)
    assert world.partition().replicas == (3, 1, 2)
    assert not world.partition().removing


def test_to_allow_for_unclean_elections_has_leaderless_partitions_led() -> None:
    world = World(2)
    world.place(1, 2)
    world.alter_isr(1)
    world.fence(1)
    assert world.partition().leader == NO_LEADER
    world.update(unclean_election=True)
    assert world.partition().leader == 2
    assert world.partition().isr == (2,)


def test_the_configuration_comes_before_the_partitions_that_it_asks_for() -> None:
    world = World(1)
    world.create()
    config = world.image.stream("s").config.changed(partitions=2)
    records = world.ask(c.UpdateStream(config=config)).records
    assert isinstance(records[0], StreamUpdated)
    assert len(records) == 2


def test_delete_names_the_id() -> None:
    world = World(1)
    world.create()
    stream_id = world.image.stream("s").stream_id
    decision = world.ask(c.DeleteStream(name="s"))
    assert decision.records == (StreamDeleted(name="s", stream_id=stream_id),)
    assert not world.image.loads
    with pytest.raises(StreamNotFound):
        delete_stream(world.image, "s")


def test_an_internal_stream_keeps_its_partitions_and_stays() -> None:
    world = World(3)
    world.create(OFFSETS_STREAM)
    with pytest.raises(InvalidStreamName, match="internal"):
        world.ask(c.DeleteStream(name=OFFSETS_STREAM))
    more = SettingChange(setting="partitions", text="2")
    with pytest.raises(InvalidStreamConfig, match="partitions"):
        world.ask(c.AlterStream(name=OFFSETS_STREAM, changes=(more,)))
    replicas = SettingChange(setting="replicas", text="3")
    world.ask(c.AlterStream(name=OFFSETS_STREAM, changes=(replicas,)))
    assert world.image.stream(OFFSETS_STREAM).config.replicas == 3
