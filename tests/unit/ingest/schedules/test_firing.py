"""Schedules of one partition, by the clock of the test, through failures between any two writes."""

import asyncio
import logging
import time

import pytest

from streamlog.errors import StorageFailed
from streamlog.ingest.dedup_recovery.window_scan import look_at_recent
from streamlog.ingest.schedules.firing import PartitionSchedules
from streamlog.ingest.schedules.schedule_spec import rfc3339_nano
from streamlog.ingest.schedules.scheduling_rules import ScheduleRoom, SchedulingRules
from streamlog.partition.state import UNAWAITED
from streamlog.record.batch import read_header
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.compacted import emptied
from streamlog.record.offset_set import OffsetSet
from tests.ingest_way import Way, message
from tests.led_partition import FakePartition, FakeSubjects, as_partition

RULES = SchedulingRules((b"orders", b"orders.>"))
EVERY_MS = 10_000


class World(Way):
    """A leader, and its successors in the same log."""

    def __init__(self, partition: FakePartition | None = None, at_ms: int | None = None) -> None:
        super().__init__(
            schedules=RULES,
            rollups=True,
            batches=True,
            message_bytes_max=2_000,
            in_flight_bytes_max=1 << 20,
            partition=partition,
        )
        self.now_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
        self.ingest.opened = True
        self.schedules = PartitionSchedules(self.ingest, lambda: self.now_ms)

    def successor(self) -> "World":
        """It finds what is there."""
        self.ingest.close()
        return World(self.partition, self.now_ms)

    def schedule(self, spec: str, subject: str = "orders.plan", **headers: str) -> None:
        asked = {"Nats_Schedule_Target": "orders.target", "Nats_Schedule": spec, **headers}
        self.read(message("r", b"x", subject=subject, **asked))

    async def look_at(self, later_ms: int) -> int:
        """How many messages have come by it."""
        before = len(self.fired())
        self.now_ms += later_ms
        await self.schedules.look()
        return len(self.fired()) - before

    def fired(self) -> list[dict[str, bytes | None]]:
        """The headers of what schedules have published."""
        found = []
        for batch in self.partition.batches:
            if not read_header(batch).is_control:
                found += [dict(it.headers) for it in iter_records(batch)]
        return [it for it in found if "Nats-Scheduler" in it and "Own" not in it]

    def in_ms(self, later_ms: int) -> str:
        return "@at " + rfc3339_nano((self.now_ms + later_ms) * 1_000_000)


@pytest.fixture
async def world() -> World:
    return World()


async def test_it_fires_when_it_is_due(world: World) -> None:
    world.schedule(world.in_ms(5_000), Nats_Msg_Id="i", Nats_Schedule_TTL="", A="b")
    assert [await world.look_at(it) for it in (0, 4_000, 1_000, 60_000)] == [0, 0, 1, 0]
    (headers,) = world.fired()
    assert headers == {
        "subject": b"orders.target",
        "A": b"b",
        "Nats-Scheduler": b"orders.plan",
        "Nats-Schedule-Next": b"purge",
    }
    assert 10 in world.partition.erased, "its message has gone"


async def test_a_successor_goes_on(world: World) -> None:
    """Where the one before it has come to, committed or not."""
    world.schedule("@every 10s")
    assert await world.look_at(EVERY_MS + 1_000) == 1
    second = world.successor()
    assert [await second.look_at(it) for it in (0, EVERY_MS - 3_000, 3_000)] == [0, 0, 1]
    third = second.successor()
    assert await third.look_at(0) == 0


async def test_what_was_cut_off_is_fired_by_the_next_leader(world: World) -> None:
    world.schedule("@every 10s")
    assert await world.look_at(EVERY_MS + 1_000) == 1
    world.partition.batches.pop()
    world.partition.log_end_offset -= 1
    world.partition.subjects = FakeSubjects(world.partition)
    assert await world.successor().look_at(0) == 1


async def test_times_that_pass_without_a_leader_fire_once(world: World) -> None:
    world.schedule("@every 10s")
    second = world.successor()
    assert [await second.look_at(it) for it in (100 * EVERY_MS, 5_000, 6_000)] == [1, 0, 1]


async def test_a_leader_ends_between_a_last_message_and_its_erasure(world: World) -> None:
    """Its successor owes the erasure, and fires nothing before it."""
    world.schedule(world.in_ms(1_000))
    world.partition.erasing.fault = StorageFailed("full")
    assert await world.look_at(2_000) == 1
    assert 10 not in world.partition.erased
    assert await world.look_at(0) == 0
    second = world.successor()
    recent = await look_at_recent(as_partition(second.partition))
    rollups = [rollup for it in recent for rollup in it.rollups]
    assert (11, b"orders.plan") in rollups
    assert await second.look_at(1_000) == 0, "the log says that it has fired"
    second.partition.erasing.fault = None
    second.ingest.owe(rollups)
    second.ingest.erase_owed()
    assert 10 in second.partition.erased
    assert await second.look_at(1_000) == 0


def expunge(world: World, index: int) -> None:
    """The message was erased, and its segment written again without it."""
    batch = world.partition.batches[index]
    header = read_header(batch)
    world.partition.erased.update(OffsetSet.between_ends(header.base_offset, header.next_offset))
    world.partition.batches[index] = emptied(header)


async def test_a_time_that_may_have_fired_does_not_fire_again(world: World) -> None:
    """What it has fired is not in the files any more: a successor goes on from now."""
    world.schedule("@every 1s")
    world.now_ms -= world.now_ms % 1_000
    world.partition.batches[0] = stored_at(world.partition.batches[0], world.now_ms - 2_000)
    world.partition.subjects = FakeSubjects(world.partition)
    second = world.successor()
    assert await second.look_at(500) == 1
    expunge(second, 1)
    third = second.successor()
    assert await third.look_at(0) == 0
    assert [await third.look_at(it) for it in (600, 1_500)] == [0, 1]


async def test_a_time_after_all_that_is_gone_fires(world: World) -> None:
    world.schedule("@every 10s")
    world.read(message("r", subject="orders.other"))
    world.read(message("r", subject="orders.other"))
    expunge(world, 1)
    assert await world.successor().look_at(EVERY_MS + 1_000) == 1


def stored_at(batch: bytes, at_ms: int) -> bytes:
    (record,) = iter_records(batch)
    header = read_header(batch)
    run = RecordRun(attributes=header.attributes)
    run.append(record.key, record.value, [(name.encode(), value) for name, value in record.headers])
    return run.seal(base_offset=header.base_offset, leader_epoch=0, timestamp_ms=at_ms)


async def test_a_message_in_its_place_ends_it(world: World) -> None:
    world.schedule(world.in_ms(1_000))
    run = RecordRun()
    run.append(None, b"x", [(b"subject", b"orders.plan")])
    world.partition.append(run, UNAWAITED)  # as a Kafka producer does
    assert await world.look_at(2_000) == 0
    world.schedule(world.in_ms(1_000))
    assert await world.look_at(2_000) == 1


async def test_a_new_schedule_takes_the_place_of_the_old_one(world: World) -> None:
    world.schedule(world.in_ms(1_000))
    assert await world.look_at(0) == 0
    world.schedule(world.in_ms(50_000))
    assert [await world.look_at(it) for it in (2_000, 50_000)] == [0, 1]


async def test_what_another_schedule_fires_onto_it_does_not_end_it(world: World) -> None:
    world.schedule("@every 60s")
    world.schedule("@every 1s", "orders.other", Nats_Schedule_Target="orders.plan")
    assert await world.look_at(2_000) == 1
    assert await world.look_at(2_000) == 1
    assert await world.look_at(60_000) == 2
    assert await world.successor().look_at(60_000) == 2


async def test_many_that_are_due_at_once_fire_once(world: World) -> None:
    """In several batches; the next leader lacks the last one, and the erasure of the one before."""
    asked = {"Nats_Schedule": world.in_ms(1_000), "Nats_Schedule_Target": "orders.target"}
    schedules = [message("r", b"%d" % it, subject=f"orders.{it}", **asked) for it in range(1_200)]
    world.read(*schedules)
    assert await world.look_at(1_000_000) == 1_200
    batches = [read_header(it).record_count for it in world.partition.batches[1:]]
    assert batches == [500, 1, 500, 1, 200, 1], "an erasure follows each"
    for _ in range(3):
        world.partition.log_end_offset = read_header(world.partition.batches.pop()).base_offset
    world.partition.subjects = FakeSubjects(world.partition)
    second = world.successor()
    assert await second.look_at(0) == 200
    fired = [headers["Nats-Scheduler"] for headers in second.fired()]
    assert len(fired) == len(set(fired)) == 1_200


async def test_what_a_source_has_is_looked_at_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that comes while schedules are prepared is the newest one."""
    monkeypatch.setattr("streamlog.ingest.schedules.firing.PREPARED_AT_ONCE", 1)
    world.read(message("r", b"old", subject="orders.source"))
    world.schedule(world.in_ms(1_000), Nats_Schedule_Source="orders.source")
    world.schedule(world.in_ms(1_000), "orders.later", Nats_Schedule_Source="orders.none")
    assert await world.look_at(0) == 0
    world.now_ms += 1_000
    looking = asyncio.create_task(world.schedules.look())
    await asyncio.sleep(0)
    world.read(message("r", b"new", subject="orders.source"))
    world.read(message("r", b"first", subject="orders.none"))
    await looking
    assert len(world.fired()) == 2
    assert world.partition.values()[-2:] == [b"new", b"first"]


async def test_what_has_become_too_large_waits_for_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamlog.ingest.schedules.firing.PREPARED_AT_ONCE", 1)
    world.schedule(world.in_ms(1_000), Nats_Schedule_Source="orders.source")
    assert await world.look_at(0) == 0
    world.now_ms += 1_000
    looking = asyncio.create_task(world.schedules.look())
    await asyncio.sleep(0)
    run = RecordRun()
    run.append(None, b"x" * 2_001, [(b"subject", b"orders.source")])
    world.partition.append(run, UNAWAITED)
    await looking
    assert (world.fired(), caplog.text) == ([], "")
    assert await world.look_at(0) == 0
    assert "schedule has ended without its message" in caplog.text


async def test_nothing_fires_while_nothing_can_be_stored(world: World) -> None:
    world.schedule(world.in_ms(1_000))
    world.partition.below_min_isr = True
    assert await world.look_at(2_000) == 0
    world.partition.below_min_isr = False
    world.partition.fault = StorageFailed("broken")
    assert await world.look_at(0) == 0
    world.partition.fault = None
    world.ingest.opened = False
    assert await world.look_at(0) == 0
    world.ingest.opened = True
    assert await world.look_at(0) == 1


async def test_what_is_too_large_or_not_known_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.schedule(world.in_ms(0), Nats_Schedule_Source="orders.large")
    run = RecordRun()
    run.append(None, b"x" * 2_001, [(b"subject", b"orders.large")])
    world.partition.append(run, UNAWAITED)
    with caplog.at_level(logging.WARNING):
        assert await world.look_at(1_000) == 0
    assert "schedule has ended without its message" in caplog.text
    assert len(world.schedules) == 0


async def test_there_may_be_so_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlog.ingest.schedules.firing.SCHEDULES_MAX", 3)
    world.ingest.deduplicator.schedule_room = ScheduleRoom(3)
    for number in range(4):
        world.schedule("@every 1h", f"orders.{number}")
    world.partition.commit()
    refused = [told["error"]["err_code"] for _, told in world.told() if "error" in told]
    assert refused == [10167]
    await world.look_at(0)
    assert len(world.schedules) == 3
    assert world.ingest.deduplicator.schedule_room.left == 0
    index = world.partition.subjects.at_hand()
    index.erase(10)
    for _ in range(2):  # what is looked at is chosen a look before
        await world.look_at(0)
    assert world.ingest.deduplicator.schedule_room.left == 1
    world.schedule("@every 1h", "orders.5")
    world.partition.commit()
    assert "error" not in world.told()[0][1]


async def test_the_newest_message_is_looked_at_for_the_end_of_a_schedule(world: World) -> None:
    """Also one of the same read, which is not in the log yet."""
    end = {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "orders.plan", "Own": "1"}
    asked = {"Nats_Schedule": "@every 1h", "Nats_Schedule_Target": "orders.t"}
    world.read(
        message("a", subject="orders.plan"),
        message("b", b"x", subject="orders.end", **end),
        message("c", b"x", subject="orders.plan", **asked),
        message("d", b"x", subject="orders.end", **end),
        message("e", b"x", subject="orders.end", **end),
    )
    world.partition.commit()
    answers = {reply: told.get("error", {}).get("err_code") for reply, told in world.told()}
    assert answers == {"a": None, "b": 10212, "c": None, "d": None, "e": None}
    assert await world.look_at(10 * 3_600_000) == 0
