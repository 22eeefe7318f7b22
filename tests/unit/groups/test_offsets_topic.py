import asyncio
import gc
from typing import Any

import pytest

from streamlog.config import GroupsSection
from streamlog.coordination import loader
from streamlog.coordination.effects import NONE, Now
from streamlog.coordination.loader import CoordinatorLoader
from streamlog.coordination.reply import DelayedReply
from streamlog.coordination.shard import code_of_failure
from streamlog.errors import (
    CorruptBatch,
    NotEnoughReplicas,
    NotLeader,
    Overloaded,
    RecordTooLarge,
    StorageFailed,
    StorageFull,
    StreamlogError,
)
from streamlog.groups.offsets_topic import GroupShard, config_of
from streamlog.groups.replay import GroupReplay, KeptGroups
from streamlog.groups.requests import (
    CommitRequest,
    GroupCaller,
    Joined,
    JoinRequest,
    OffsetToCommit,
    SyncedMember,
    SyncRequest,
)
from streamlog.groups.service import GROUPS_NOT_READ
from streamlog.wire.error_codes import ErrorCode
from tests.fake_lease import FakeLease
from tests.group_world import TOPIC_ID, subscription
from tests.offsets_partition import OffsetsPartition

STREAMS = {"t": TOPIC_ID}
SETTINGS = GroupsSection(initial_rebalance_delay_ms=0)


def new_loader() -> CoordinatorLoader[KeptGroups]:
    return CoordinatorLoader(GroupReplay, "groups", GROUPS_NOT_READ)


class Clock:
    ms = 0

    def __call__(self) -> Now:
        return Now(self.ms, 1_000_000 + self.ms)


class World:
    """A partition, and who leads it."""

    def __init__(self, settings: GroupsSection = SETTINGS) -> None:
        self.partition = OffsetsPartition()
        self.lease, self.clock = FakeLease(), Clock()
        self.settings = settings
        self.shard = self.new_shard()

    def new_shard(self) -> GroupShard:
        partition = self.partition
        return GroupShard(
            partition,  # type: ignore[arg-type]
            partition.leader_epoch,
            self.settings,
            self.lease,
            now=self.clock,
        )

    async def load(self) -> None:
        loaded = await new_loader().load(self.shard)
        assert loaded is not None
        self.shard.begin(loaded, STREAMS)

    def commit(self, offset: int, group: str = "g") -> DelayedReply:
        wanted = {("t", 0): OffsetToCommit(offset, -1, "", TOPIC_ID)}
        request = CommitRequest(group, GroupCaller(""), wanted)
        return self.shard.call(
            lambda coordinator, token, now: coordinator.commit(request, token, now)
        )

    def join(self, session_ms: int = 6_000) -> DelayedReply:
        request = JoinRequest(
            "g", GroupCaller(""), "client", "/host", session_ms, 60_000, "consumer",
            (("range", subscription("t")),), needs_known_id=False,
        )  # fmt: skip
        return self.shard.call(
            lambda coordinator, token, now: coordinator.join(request, token, now)
        )

    def committed(self) -> int | None:
        assert self.shard.coordinator is not None
        found = self.shard.coordinator.fetch("g", [("t", 0)])["t", 0].committed
        return None if found is None else found.offset


async def given(reply: DelayedReply) -> Any:
    """The result, when there is one."""
    there = asyncio.Event()
    reply.watch(there.set)
    if not reply.is_there:
        async with asyncio.timeout(10):
            await there.wait()
    return reply.result


async def loaded(settings: GroupsSection = SETTINGS) -> World:
    world = World(settings)
    await world.load()
    return world


async def test_a_commit_is_answered_when_it_is_committed() -> None:
    world = await loaded()
    world.partition.commits = False
    reply = world.commit(5)
    await asyncio.sleep(0)
    assert not reply.is_there
    world.partition.commit()
    assert await given(reply) == {("t", 0): NONE}
    assert world.committed() == 5


async def test_until_the_log_is_read_everybody_waits() -> None:
    world = World()
    assert world.shard.why_not is ErrorCode.coordinator_load_in_progress
    world.partition.high_watermark_known = False
    loading = asyncio.create_task(world.load())
    await asyncio.sleep(0)
    assert not loading.done()
    world.partition.high_watermark_known = True
    world.partition.changed()
    await loading
    assert world.shard.why_not is NONE


async def test_the_next_leader_knows_what_was_committed() -> None:
    world = await loaded()
    for offset in range(3):
        await given(world.commit(offset))
    world.partition.resign()
    world.shard.close()
    world.partition.lead()
    world.shard = world.new_shard()
    await world.load()
    assert world.committed() == 2


async def test_who_led_before_neither_answers_nor_writes() -> None:
    world = await loaded()
    world.partition.commits = False
    commit, barrier = world.commit(5), world.shard.confirm()
    await asyncio.sleep(0)
    world.partition.resign()
    assert world.shard.why_not is ErrorCode.not_coordinator
    assert await given(commit) == {("t", 0): ErrorCode.not_coordinator}
    assert await given(barrier) is ErrorCode.not_coordinator
    world.partition.lead()
    assert world.shard.why_not is ErrorCode.not_coordinator
    data = world.partition.data
    late = world.commit(6)
    assert await given(late) == {("t", 0): ErrorCode.not_coordinator}
    assert world.partition.data == data


async def test_who_waits_when_it_closes_is_told() -> None:
    world = await loaded()
    world.partition.commits = False
    commit, barrier = world.commit(5), world.shard.confirm()
    done = world.commit(4, "other")
    world.shard.close()
    assert commit.result is ErrorCode.not_coordinator
    assert barrier.result is ErrorCode.not_coordinator
    assert done.result is ErrorCode.not_coordinator
    await asyncio.sleep(0)


async def test_a_request_that_nobody_waits_for_any_more_is_let_go() -> None:
    world = await loaded()
    joined: Joined = await given(world.join())
    for _ in range(3):  # another member, whose connection breaks each time before it is answered
        world.join()
    gc.collect()
    assert len(world.shard._unanswered) == 3  # they are members: the core would answer them
    again = JoinRequest(
        "g", GroupCaller(joined.member_id), "client", "/host", 6_000, 60_000, "consumer",
        (("range", subscription("t")),),
    )  # fmt: skip
    for _ in range(3):
        world.shard.call(lambda it, token, now: it.join(again, token, now))
    gc.collect()
    assert len(world.shard._unanswered) <= 4
    world.shard.close()


async def test_without_the_lease_nothing_is_answered_and_no_session_ends() -> None:
    world = await loaded()
    joined: Joined = await given(world.join())
    assert joined.error is NONE
    world.lease.lapse()
    assert world.shard.why_not is ErrorCode.not_coordinator
    world.clock.ms = 100_000
    world.shard._tick()
    world.lease.turn(True)
    world.clock.ms = 101_000
    world.shard._tick()
    caller = GroupCaller(joined.member_id, None, joined.generation)
    assert world.shard.beat(lambda it, now: it.heartbeat("g", caller, now)) is NONE
    world.shard.close()


async def test_a_session_that_ends_is_noticed_by_itself() -> None:
    settings = SETTINGS.model_copy(update={"session_timeout_ms_min": 1})
    world = World(settings)
    world.shard = GroupShard(world.partition, 1, settings, world.lease)  # type: ignore[arg-type]
    await world.load()
    joined: Joined = await given(world.join(session_ms=20))
    caller = GroupCaller(joined.member_id, None, joined.generation)
    ended = asyncio.Event()
    syncing = SyncRequest("g", caller, None, None, {})
    reply = world.shard.call(lambda it, token, now: it.sync(syncing, token, now))
    assert await given(reply) == SyncedMember(NONE, "consumer", "range", b"")
    reply = world.join(session_ms=20)  # it waits until the other one is gone
    reply.watch(ended.set)
    async with asyncio.timeout(10):
        await ended.wait()
    assert [it.member_id for it in reply.result.members] == [reply.result.member_id]
    world.shard.close()


async def test_an_offset_is_told_after_a_record_that_was_appended_later() -> None:
    world = await loaded()
    world.partition.commits = False
    first, second = world.shard.confirm(), world.shard.confirm()
    assert first is second
    await asyncio.sleep(0)
    assert len(world.partition.waiting) == 1
    third = world.shard.confirm()
    assert third is not first
    told: list[str] = []
    first.watch(lambda: told.append("one"))
    first.watch(lambda: told.append("another"))
    world.partition.commit()
    assert await given(first) is NONE
    assert told == ["one", "another"]
    world.partition.commit()
    assert await given(third) is NONE


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (StorageFull("full"), NONE),
        (NotLeader("gone"), ErrorCode.not_coordinator),
        (StorageFailed("broken"), ErrorCode.not_coordinator),
    ],
)
async def test_where_nothing_can_be_appended(fault: StreamlogError, code: ErrorCode) -> None:
    """A full disk leaves what was committed to be read."""
    world = await loaded()
    world.partition.fault = fault
    assert await given(world.shard.confirm()) is code
    told = ErrorCode.coordinator_not_available if code is NONE else code
    assert await given(world.commit(5)) == {("t", 0): told}


async def test_too_few_replicas_refuse_at_once() -> None:
    world = await loaded()
    world.partition.below_min_isr = True
    assert await given(world.commit(5)) == {("t", 0): ErrorCode.coordinator_not_available}
    assert await given(world.shard.confirm()) is ErrorCode.coordinator_not_available


async def test_only_so_much_waits_for_its_commit() -> None:
    world = await loaded(SETTINGS.model_copy(update={"pending_writes_max": 2}))
    world.partition.commits = False
    first = [world.commit(offset) for offset in range(2)]
    busy = ErrorCode.coordinator_load_in_progress
    assert await given(world.commit(2)) == {("t", 0): busy}
    world.partition.commit()
    assert [await given(it) for it in first] == [{("t", 0): NONE}] * 2
    again = world.commit(3)
    world.partition.commit()
    assert await given(again) == {("t", 0): NONE}


async def test_a_log_that_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "RETRY_S", 0.0)
    world = await loaded()
    await given(world.commit(5))
    world.shard.close()
    world.shard = world.new_shard()
    world.partition.read_faults = [CorruptBatch("damaged"), StorageFailed("for now")]
    await world.load()
    assert world.committed() == 5


async def test_what_was_compacted_away_meanwhile_is_not_missed() -> None:
    world = await loaded()
    for offset in range(3):
        await given(world.commit(offset))
    world.shard.close()
    world.shard = world.new_shard()
    world.partition.log_start_offset = 2
    await world.load()
    assert world.committed() == 2


async def test_one_that_is_led_elsewhere_is_not_loaded() -> None:
    world = World()
    world.partition.high_watermark_known = False
    loading = asyncio.create_task(new_loader().load(world.shard))
    await asyncio.sleep(0)
    world.partition.resign()
    assert await loading is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotLeader("x"), ErrorCode.not_coordinator),
        (StorageFailed("x"), ErrorCode.not_coordinator),
        (Overloaded("x"), ErrorCode.coordinator_load_in_progress),
        (RecordTooLarge("x"), ErrorCode.unknown_server_error),
        (NotEnoughReplicas("x"), ErrorCode.coordinator_not_available),
    ],
)
def test_failures_have_kafkas_codes(error: StreamlogError, code: ErrorCode) -> None:
    assert code_of_failure(error) is code


@pytest.mark.parametrize(
    ("nodes", "replicas", "min_isr"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (9, 3, 2)]
)
def test_one_node_may_be_lost(nodes: int, replicas: int, min_isr: int) -> None:
    config = config_of(GroupsSection(offsets_partitions=2), nodes)
    assert (config.replicas, config.min_isr, config.subjects) == (replicas, min_isr, ())
    assert (config.partitions, config.sync, config.is_compacted) == (2, "commit", True)
