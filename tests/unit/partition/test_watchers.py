import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamlog.errors import BrokenInvariant, StorageFailed, StreamlogError
from streamlog.model import NodeId
from streamlog.partition.internal_partition import until
from streamlog.partition.partition import Partition
from streamlog.partition.state import Step
from tests.partition_world import ONE, World, publish, run_of, tp

COMMITTED = Step(high_watermark_moved=True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def partition(world: World) -> AsyncIterator[Partition]:
    async with world.node() as registry:
        await world.create("s", sync="os")
        yield registry.partition(tp("s"))


def hearing(story: list[str], name: str) -> Callable[[], None]:
    return lambda: story.append(name)


async def test_each_hears_of_its_own_end(world: World, partition: Partition) -> None:
    story = list[str]()
    consumer, follower = hearing(story, "consumer"), hearing(story, "follower")
    partition.add_watcher(consumer)
    partition.add_watcher(follower, end=True)
    partition.carry_out(COMMITTED)
    partition.grown()
    assert story == ["consumer", "follower"]
    partition.begin_at(0)
    assert story[2:] == ["consumer", "follower"]
    image = world.image.streams["s"].partitions[0]
    partition.hear(replace(image, replicas=(ONE, NodeId(2))), 1)
    assert story.pop() == "consumer"
    partition.remove_watcher(consumer)
    partition.remove_watcher(follower)
    partition.remove_watcher(follower)
    partition.begin_at(0)
    assert len(story) == 4


async def test_one_may_leave_or_bring_another_while_it_is_told(partition: Partition) -> None:
    story = list[str]()
    last = hearing(story, "last")

    def once() -> None:
        story.append("once")
        partition.remove_watcher(once)
        partition.add_watcher(last)

    partition.add_watcher(once)
    partition.carry_out(COMMITTED)
    partition.carry_out(COMMITTED)
    assert story == ["once", "last"]


async def test_a_delayed_fetch_is_let_go_of_when_it_is_woken(partition: Partition) -> None:
    story = list[str]()

    def raises() -> None:
        raise StorageFailed("the watcher before")

    consumer, follower = hearing(story, "consumer"), hearing(story, "follower")
    partition.add_watcher(raises, once=True)
    partition.add_watcher(consumer, once=True)
    partition.add_watcher(follower, end=True, once=True)
    with pytest.raises(StorageFailed):
        partition.carry_out(COMMITTED)
    for _ in range(2):
        partition.carry_out(COMMITTED)
        partition.grown()
    partition.begin_at(0)
    assert story == ["consumer", "follower"]


async def test_who_waits_looks_at_each_change_and_leaves_then(partition: Partition) -> None:
    answers, looks = [False, False, True], list[bool]()

    def condition() -> bool:
        looks.append(answers.pop(0))
        return looks[-1]

    waiting = asyncio.create_task(until(partition, condition))
    for count in (1, 2, 3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(looks) == count
        partition.carry_out(COMMITTED)
    await waiting
    assert not partition._commit_watchers
    await until(partition, lambda: True)


class Meddler:
    """An acknowledgement that does what none may do while it is told."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        self._meddle = meddle

    def committed(self, base_offset: int) -> None:
        self._meddle()

    def failed(self, error: StreamlogError) -> None:
        self._meddle()


async def test_a_step_within_a_step_is_refused(partition: Partition) -> None:
    def disturb() -> None:
        partition.carry_out(partition.state.settle())

    partition.append(run_of(b"x"), Meddler(disturb))
    with pytest.raises(BrokenInvariant, match="a step within a step"):
        partition.carry_out(partition.state.settle())
    assert await publish(partition, b"y") == 1  # the next one is carried out as ever
    partition.append(run_of(b"z"), Meddler(disturb))
    with pytest.raises(BrokenInvariant, match="a step within a step"):
        partition.carry_out(partition.state.disk_failed(StorageFailed("the disk")))
    partition.add_watcher(disturb)
    with pytest.raises(BrokenInvariant, match="a step within a step"):
        partition.carry_out(COMMITTED)
    partition.remove_watcher(disturb)
