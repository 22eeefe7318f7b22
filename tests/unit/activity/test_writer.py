import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest

from streamlog.activity import service as publishing
from streamlog.activity.service import ActivityWriter
from streamlog.errors import CorruptData, StorageFull
from streamlog.metadata.stream.stream_config import ACTIVITY_STREAM
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from tests.local_node import until
from tests.offsets_partition import OffsetsPartition
from tests.unit.activity.activity_world import LoggedWorld

Start = Callable[..., ActivityWriter]


@pytest.fixture
def world() -> LoggedWorld:
    return LoggedWorld(2)


@pytest.fixture
def partition() -> OffsetsPartition:
    return OffsetsPartition(stream=ACTIVITY_STREAM)


@pytest.fixture
async def start(
    world: LoggedWorld, partition: OffsetsPartition, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Start]:
    """``start()``: the partition is led, by a publisher of its own."""
    monkeypatch.setattr(publishing, "RETRY_S", 0.001)
    tasks: list[asyncio.Task[None]] = []

    def begin() -> ActivityWriter:
        publisher = ActivityWriter(partition, partition.leader_epoch, world)  # type: ignore[arg-type]
        tasks.append(asyncio.create_task(publisher.run()))
        return publisher

    yield begin
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert [task.exception() for task in tasks if not task.cancelled()] == [
        None for task in tasks if not task.cancelled()
    ]


def said(partition: OffsetsPartition) -> list[dict[str, Any]]:
    return [
        json.loads(record.value or b"")
        for _, batch in batches(partition.data)
        for record in iter_records(batch)
    ]


def offsets(partition: OffsetsPartition) -> list[int]:
    return [it["metadata_offset"] for it in said(partition)]


async def all_told(world: LoggedWorld, publisher: ActivityWriter) -> None:
    publisher.look()
    await until(lambda: publisher.told_offset == world.image.offset)


async def test_every_record_is_told_once_and_in_order(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    publisher = start()
    await all_told(world, publisher)
    world.create("orders", partitions=5)
    await all_told(world, publisher)
    world.update("orders", readonly=True)
    await all_told(world, publisher)
    assert offsets(partition) == list(range(world.image.offset))
    (_, batch), *_ = batches(partition.data)
    record = next(iter(iter_records(batch)))
    assert record.headers[0] == ("subject", b"activity.node_registered.1")


async def test_it_waits_without_reading(world: LoggedWorld, start: Start) -> None:
    publisher = start()
    await all_told(world, publisher)
    await until(lambda: len(asyncio.all_tasks()) == 2)
    reads = world.reads
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.reads == reads


async def test_the_next_leader_goes_on(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    await all_told(world, start())
    partition.resign()
    world.create("orders")
    partition.high_watermark_known = False
    partition.lead()
    publisher = start()
    for _ in range(10):
        await asyncio.sleep(0)
    assert publisher.told_offset == 0, "what is committed is not known yet"
    partition.high_watermark_known = True
    partition.changed()
    await all_told(world, publisher)
    assert offsets(partition) == list(range(world.image.offset))


async def test_it_goes_on_in_the_middle_of_a_batch(
    world: LoggedWorld, partition: OffsetsPartition, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "RUN_BYTES", 1)
    world.create("orders", partitions=4)
    partition.commits = False
    first = start()
    while partition.high_watermark < 6:
        await until(lambda: bool(partition.waiting))
        partition.commit()
    await until(lambda: bool(partition.waiting))
    partition.resign()
    partition.commits = True
    partition.lead()  # and finds in its log what was not committed before
    assert first.told_offset == 6
    await all_told(world, start())
    assert offsets(partition) == list(range(world.image.offset))


async def test_a_node_that_knows_less_than_the_last_leader_repeats_nothing(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    await all_told(world, start())
    partition.resign()
    partition.lead()
    full, world.log, world.image = world.log, world.log[:-1], world.images[-2]
    publisher = start()
    await until(lambda: publisher.told_offset > 0)
    world.log, world.image = full, world.images[-1]
    world.create("orders")
    await all_told(world, publisher)
    assert offsets(partition) == list(range(world.image.offset))


async def test_what_was_let_go_is_told_as_a_gap(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    await all_told(world, start())
    partition.resign()
    world.create("orders")
    world.create("missed", partitions=3)
    told, end = len(said(partition)), world.image.offset
    world.let_go()
    world.create("seen")
    partition.lead()
    await all_told(world, start())
    gap, *rest = said(partition)[told:]
    assert (gap["kind"], gap["first_metadata_offset"], gap["metadata_offset"]) == (
        "gap", told, end - 1,
    )  # fmt: skip
    assert [it["metadata_offset"] for it in rest] == list(range(end, world.image.offset))


async def test_another_metadata_log_begins_with_a_gap_however_short_it_is(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    """Its cluster was restored from a backup; its offsets are below those that were told."""
    world.begin_log(1)
    world.create("before", partitions=50)
    await all_told(world, start())
    partition.resign()
    before, last = len(said(partition)), world.image.offset - 1
    other = LoggedWorld(1)
    other.let_go()
    other.begin_log(2)
    other.create("after")
    assert other.image.offset < last
    world.log, world.image, world.images = other.log, other.image, other.images
    world.start_offset = other.start_offset
    partition.lead()
    await all_told(world, start())
    gap, *rest = said(partition)[before:]
    assert (gap["kind"], gap["log_id"]) == ("gap", str(UUID(int=2)))
    assert (gap["previous_log_id"], gap["previous_metadata_offset"]) == (str(UUID(int=1)), last)
    assert [it["metadata_offset"] for it in rest] == list(
        range(other.start_offset, other.image.offset)
    )
    assert {it["log_id"] for it in rest} == {str(UUID(int=2))}


async def test_a_log_that_begins_while_it_is_told_is_told_as_another(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    """The quorum was forced on another node, and this one follows it."""
    world.begin_log(1)
    publisher = start()
    await all_told(world, publisher)
    world.begin_log(2)
    world.create("after")
    publisher.look()
    await until(lambda: said(partition)[-1]["log_id"] == str(UUID(int=2)))
    await all_told(world, publisher)
    kinds = [it["kind"] for it in said(partition) if it["log_id"] == str(UUID(int=2))]
    assert (kinds[0], kinds[-2:]) == ("gap", ["stream_created", "partition_created"])


async def test_what_is_let_go_behind_its_back_is_a_gap_too(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    publisher = start()
    await all_told(world, publisher)
    end = world.image.offset
    world.create("missed")
    world.let_go()
    world.create("seen")
    await all_told(world, publisher)
    kinds = [it["kind"] for it in said(partition)[end:]]
    assert kinds == ["gap", "stream_created", "partition_created"]


async def test_it_waits_for_replicas(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    partition.below_min_isr = True
    publisher = start()
    await until(lambda: world.reads > 0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert partition.data == b""
    partition.below_min_isr = False
    partition.changed()
    await all_told(world, publisher)
    assert offsets(partition) == list(range(world.image.offset))


async def test_failures_are_tried_again(
    world: LoggedWorld, partition: OffsetsPartition, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    partition.fault = StorageFull("the disk is full")
    publisher = start()
    await until(lambda: caplog.text.count("activity is not told") >= 3)
    partition.fault = None
    await all_told(world, publisher)
    partition.resign()
    partition.lead()
    partition.read_faults = [CorruptData("cannot be read"), CorruptData("nor this")]
    world.create("orders")
    await all_told(world, start())
    assert offsets(partition) == list(range(world.image.offset))


async def test_a_last_record_that_is_none_of_ours_has_all_told_again(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    from streamlog.record.codec import RecordRun

    run = RecordRun()
    run.append(None, b"{}")
    partition.append(run, _Nobody())
    partition.commit()
    publisher = start()
    await all_told(world, publisher)
    assert [it.get("metadata_offset") for it in said(partition)] == [
        None, *range(world.image.offset)
    ]  # fmt: skip


class _Nobody:
    def committed(self, base_offset: int) -> None: ...
    def failed(self, error: object) -> None: ...


async def test_an_empty_log_whose_records_are_gone_begins_anew(
    world: LoggedWorld, partition: OffsetsPartition, start: Start
) -> None:
    await all_told(world, start())
    partition.resign()
    partition.lead()
    partition.log_start_offset = partition.high_watermark
    before = len(said(partition))
    await all_told(world, start())
    assert offsets(partition)[before:] == list(range(world.image.offset))
