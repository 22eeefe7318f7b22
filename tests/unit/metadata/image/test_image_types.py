import pytest

from streamlog.errors import PartitionNotFound
from streamlog.metadata.image.image_types import PartitionImage, partition_changed
from streamlog.metadata.image.metadata_image import MetadataImage
from tests.controller_world import World, ids


def test_a_partition_that_moves_knows_where_it_comes_from_and_goes_to() -> None:
    still = PartitionImage(ids(1, 2), ids(1)[0], 0, ids(1, 2), 0)
    assert not still.is_moving
    assert still.target == still.former == (1, 2)
    moving = PartitionImage(ids(3, 2, 1), ids(1)[0], 0, ids(1, 2), 0, ids(3), ids(1))
    assert moving.is_moving
    assert moving.target == (3, 2)
    assert moving.former == (2, 1)


def test_no_more_in_sync_are_asked_for_than_were_there_before_a_stream_grew() -> None:
    world = World(3)
    world.create(min_isr=1)
    stream = world.image.stream("s")
    assert stream.min_isr(0) == 1
    world.update(replicas=3)
    assert world.image.stream("s").config.min_isr == 2
    assert world.image.stream("s").min_isr(0) == 1
    world.alter_isr(1, 2, 3)
    assert world.image.stream("s").min_isr(0) == 2
    with pytest.raises(PartitionNotFound):
        stream.min_isr(1)


def test_more_than_the_replicas_of_a_stream_are_never_there() -> None:
    world = World(3)
    world.create(min_isr=4, replicas=3)
    assert world.image.stream("s").min_isr(0) == 4
    world.update(min_isr=2**31 - 1)
    assert world.image.stream("s").min_isr(0) == 2**31 - 1
    world.update(min_isr=3)
    assert world.image.stream("s").min_isr(0) == 3


def test_a_move_asks_for_as_many_in_sync_as_before() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.move(4, 2, 3)
    assert world.image.stream("s").min_isr(0) == 2


def test_the_record_of_a_partition_makes_it_again() -> None:
    world = World(2)
    world.place(1)
    world.move(2)
    moving = world.partition()
    assert moving.is_moving
    stream = world.image.stream("s")
    restored = MetadataImage("c").restored(world.image.records(), offset=1, epoch=1)
    assert restored.stream("s") == stream
    assert partition_changed("s", 0, moving).adding == (2,)
