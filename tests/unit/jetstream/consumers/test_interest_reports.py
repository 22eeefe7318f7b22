"""Which reports a leader takes, and what it removes by them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from streamlog.control.leaders.local_leader import LocalLeader
from streamlog.control.leaders.node_requests import NodeRequests
from streamlog.errors import NotLeader, StreamNotFound
from streamlog.jetstream.consumers.consumer_statistics import Holder
from streamlog.jetstream.consumers.interest import Interest, Interests, Version, key_of
from streamlog.jetstream.consumers.interest_reports import Report, StreamInterest
from streamlog.partition.partition import Partition
from streamlog.record.codec import RecordRun
from streamlog.record.offset_set import OffsetSet
from tests.local_node import until
from tests.partition_world import ONE, Told, World, tp


async def put(partition: Partition, *subjects: str) -> None:
    run, told = RecordRun(), Told()
    for subject in subjects:
        run.append(None, b"v", [(b"subject", subject.encode())])
    partition.append(run, told)
    await told.answer


def there(partition: Partition) -> list[int]:
    start, end = partition.log_start_offset, partition.high_watermark
    return [offset for offset in range(start, end) if offset not in partition.erased]


class Leader:
    """Of one partition, in a node of its own."""

    def __init__(self, world: World, partition: Partition, interest: StreamInterest) -> None:
        self.world = world
        self.partition = partition
        self.interest = interest
        self.number = 0

    async def report(self, *consumers: Interest, **other: Any) -> None:
        """As of now, by the coordinator of epoch 1, unless ``other`` says otherwise."""
        self.number += 1
        by_consumer = {key_of(f"c{place}", 0): it for place, it in enumerate(consumers)}
        told = Interests(
            other.pop("version", Version(1, self.number)), other.pop("is_queue", False), by_consumer
        )
        known = Report(tp("s"), self.stream_id, self.partition.leader_epoch, told)
        report = known._replace(**other)
        assert Report.of_fields(report.fields()) == report
        await self.interest.tell(report)

    @property
    def stream_id(self) -> UUID:
        return self.world.image.stream("s").stream_id


@asynccontextmanager
async def leading(tmp_path: Path, retention: str = "interest") -> AsyncIterator[Leader]:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", retention=retention)
        nodes = NodeRequests(None, lambda: world.image)  # type: ignore[arg-type]  # none is asked
        interest = StreamInterest(
            LocalLeader(registry, None, message_bytes_max=1 << 20),
            nodes,
            node_id=ONE,
            image=lambda: world.image,
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(interest.run())
            yield Leader(world, registry.partition(tp("s")), interest)
            running.cancel()


WANTS_ALL = Interest((), 0, OffsetSet())


async def test_nothing_goes_before_a_report(tmp_path: Path) -> None:
    async with leading(tmp_path) as leader:
        await put(leader.partition, "a", "b")
        await leader.interest.settle(leader.partition)
        assert there(leader.partition) == [0, 1]
        await leader.report(Interest(("b",), 0, OffsetSet()))
        assert there(leader.partition) == [1]


async def test_what_comes_after_a_report_goes_unless_it_is_wanted(tmp_path: Path) -> None:
    async with leading(tmp_path) as leader:
        await leader.report(Interest(("b",), 0, OffsetSet()))
        await put(leader.partition, "a", "b", "c", "b")
        await until(lambda: there(leader.partition) == [1, 3])
        assert leader.interest.holders(1) == [Holder("s", "c0", 2)]
        await leader.report(Interest(("b",), 4, OffsetSet((3,))))
        assert there(leader.partition) == [3]
        assert leader.interest.holders(1) == [Holder("s", "c0", 1)]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"leader_epoch": 99}, NotLeader),
        ({"version": Version(0, 99)}, NotLeader),
        ({"version": Version(1, 0)}, NotLeader),
        ({"is_queue": True}, NotLeader),
        ({"stream_id": uuid4()}, StreamNotFound),
    ],
)
async def test_report_of_another_time_is_not_taken(
    tmp_path: Path, wrong: dict[str, Any], error: type[Exception]
) -> None:
    async with leading(tmp_path) as leader:
        await leader.report(WANTS_ALL)
        await put(leader.partition, "a", "b")
        with pytest.raises(error):
            await leader.report(**wrong)
        await leader.interest.settle(leader.partition)
        assert there(leader.partition) == [0, 1]
        await leader.report()
        assert there(leader.partition) == []


async def test_final_report_is_answered_when_the_log_says_so(tmp_path: Path) -> None:
    async with leading(tmp_path, "workqueue") as leader:
        partition = leader.partition
        await put(partition, "a", "a", "a", "a", "a")
        done = Interest((), 5, OffsetSet((2, 3)))
        await leader.report(done, is_queue=True)
        assert (there(partition), partition.log_start_offset) == ([2, 3], 0)
        await leader.report(done, is_queue=True, is_final=True)
        assert (there(partition), partition.log_start_offset) == ([2, 3], 2)
        assert not partition.erasing.foresees


async def test_stream_that_went_back_to_limits_needs_a_new_report(tmp_path: Path) -> None:
    async with leading(tmp_path) as leader:
        await leader.report()
        await leader.world.update("s", retention="limits")
        leader.interest.forget(leader.stream_id)
        await put(leader.partition, "a")
        await leader.world.update("s", retention="interest")
        await put(leader.partition, "a")
        await leader.interest.settle(leader.partition)
        assert there(leader.partition) == [0, 1]
        await leader.report(WANTS_ALL)
        assert there(leader.partition) == [0, 1]
