import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from streamlog.config import ClusterSection
from streamlog.errors import NoController, NodeIdTaken, StaleNode, StreamlogError
from streamlog.metadata.commands import (
    Command,
    Granted,
    Heartbeat,
    RegisterNode,
    StampFolder,
    StopNode,
    encode_command,
)
from streamlog.metadata.nodes.node_heartbeats import NodeHeartbeats
from streamlog.model import NodeId, TopicPartition

ONE = NodeId(1)
WANTED = RegisterNode(
    node_id=ONE, incarnation=UUID(int=1), directory_id=UUID(int=2), host="h", port=1
)


class Controller:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.errors: list[StreamlogError] = []
        self.refusal: StreamlogError | None = None
        self.silent = False
        self.unconfirmed_ms = 0
        self.offset_wanted = 0
        self._heard = asyncio.Event()

    async def grant(self, command: Command) -> Granted:
        self.asked.append(command)
        self._heard.set()
        if self.silent:
            await asyncio.Event().wait()
        if self.errors:
            raise self.errors.pop(0)
        if self.refusal is not None:
            raise self.refusal
        told = {
            "node_epoch": 7,
            "unconfirmed_ms": self.unconfirmed_ms,
            "offset_wanted": self.offset_wanted,
            "time_ms": time.time_ns() // 1_000_000,
            "agreed_ahead_ms": None,
        }
        return Granted(8, told)

    async def asked_for(self, count: int) -> None:
        while len(self.asked) < count:
            self._heard.clear()
            await self._heard.wait()


class Applied:
    """How far the node has applied the metadata."""

    def __init__(self, offset: int = 42) -> None:
        self.offset = offset
        self.asked = asyncio.Event()
        self._moved = asyncio.Event()

    def move_to(self, offset: int) -> None:
        self.offset = offset
        self._moved.set()

    async def wait(self, offset: int) -> None:
        self.asked.set()
        while self.offset < offset:
            self._moved.clear()
            await self._moved.wait()


def membership(
    controller: Controller,
    *,
    alone: bool = False,
    session_timeout_ms: int = 300,
    heartbeat_ms: int = 10,
    applied: Applied | None = None,
) -> NodeHeartbeats:
    applied = applied or Applied()
    settings = ClusterSection(
        heartbeat_interval_ms=heartbeat_ms,
        leader_lease_ms=session_timeout_ms // 2,
        session_timeout_ms=session_timeout_ms,
        stamp_ms=100,
    )
    return NodeHeartbeats(
        node_id=ONE,
        incarnation=UUID(int=1),
        settings=settings,
        grant=controller.grant,
        applied_offset=lambda: applied.offset,
        applied=applied.wait,
        needs_no_lease=lambda: alone,
    )


@asynccontextmanager
async def running(member: NodeHeartbeats) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(member.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def changed(member: NodeHeartbeats) -> bool:
    """What the lease's listeners hear next."""
    heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def listener(held: bool) -> None:
        if not heard.done():
            heard.set_result(held)

    member.lease.add_listener(listener)
    async with asyncio.timeout(5):
        return await heard


async def test_a_registration_is_asked_for_until_it_is_granted() -> None:
    controller = Controller()
    controller.errors = [NoController("none"), NodeIdTaken("taken")]
    member = membership(controller)
    assert not member.lease.held
    await member.register(WANTED)
    assert controller.asked == [WANTED] * 3
    assert member.node_epoch == 7
    assert member.lease.held


async def test_a_node_is_registered_when_it_knows_what_was_decided_before() -> None:
    applied = Applied(7)
    member = membership(Controller(), applied=applied)
    registering = asyncio.create_task(member.register(WANTED))
    await applied.asked.wait()
    assert not registering.done()
    assert not member.lease.held
    applied.move_to(8)
    await registering
    assert member.lease.held


async def test_a_node_that_does_not_know_of_a_deletion_gets_no_lease() -> None:
    """The controller tells with each answer how far the metadata have to be applied."""
    controller, applied = Controller(), Applied(42)
    controller.offset_wanted = 43
    member = membership(controller, applied=applied)
    async with running(member):
        await controller.asked_for(3)
        assert not member.lease.held
        applied.move_to(43)
        assert await changed(member)


async def test_the_controller_hears_at_once_that_a_deletion_is_known() -> None:
    controller, applied = Controller(), Applied(42)
    controller.offset_wanted = 43
    member = membership(controller, applied=applied, session_timeout_ms=60_000, heartbeat_ms=20_000)
    async with running(member), asyncio.timeout(5):
        await controller.asked_for(1)
        applied.move_to(43)
        await controller.asked_for(2)
        assert isinstance(controller.asked[1], Heartbeat)
        assert controller.asked[1].offset == 43


async def test_another_node_of_this_id_is_not_waited_for_for_ever() -> None:
    controller = Controller()
    controller.refusal = NodeIdTaken("taken")
    with pytest.raises(NodeIdTaken):
        await membership(controller, session_timeout_ms=200).register(WANTED)


@pytest.mark.parametrize("seconds", [[0.0, 100.0, 0.1, 0.1], [100.0, 0.1, 0.1, 100.0]])
async def test_only_refusals_count_against_the_process_before_it(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float]
) -> None:
    """Not the time without a controller, nor a time in which this process stood still."""
    now_s, waits = 0.0, iter(seconds)

    class SlowController(Controller):
        async def grant(self, command: Command) -> Granted:
            nonlocal now_s
            now_s += next(waits, 0.1)
            return await super().grant(command)

    controller = SlowController()
    controller.errors = [NoController("none"), *(NodeIdTaken("taken") for _ in seconds[1:])]
    monkeypatch.setattr("streamlog.metadata.nodes.node_heartbeats.clock_s", lambda: now_s)
    member = membership(controller)
    await member.register(WANTED)
    assert member.node_epoch == 7


async def test_heartbeats_tell_how_far_the_node_is_and_what_it_cannot_write() -> None:
    controller = Controller()
    member = membership(controller)
    member.node_epoch = 7
    member.offline = frozenset({TopicPartition("s", 1)})
    member.full = True
    async with running(member):
        await controller.asked_for(3)
    beat = Heartbeat(node_id=ONE, node_epoch=7, offset=42, offline=(("s", 1),), full=True)
    knows_clocks = [it.model_copy(update={"clock_ahead_ms": None}) for it in controller.asked[:3]]
    assert knows_clocks == [beat] * 3


async def test_the_lease_ends_with_the_controller_s_answers_and_comes_back() -> None:
    controller = Controller()
    member = membership(controller)
    async with running(member):
        assert await changed(member) is True
        controller.refusal = NoController("gone")
        assert await changed(member) is False
        controller.refusal = None
        assert await changed(member) is True


async def test_a_controller_that_says_nothing_lends_nothing() -> None:
    controller = Controller()
    member = membership(controller)
    async with running(member):
        assert await changed(member) is True
        controller.silent = True
        assert await changed(member) is False


async def test_a_controller_that_was_perhaps_replaced_lends_nothing() -> None:
    controller = Controller()
    member = membership(controller)
    async with running(member):
        assert await changed(member) is True
        controller.unconfirmed_ms = 60_000
        assert await changed(member) is False


async def test_a_node_by_itself_keeps_its_lease() -> None:
    controller = Controller()
    member = membership(controller, alone=True)
    await member.register(WANTED)
    assert member.lease.left_s == float("inf")


async def test_a_stale_node_ends_and_has_no_lease() -> None:
    controller = Controller()
    member = membership(controller)
    async with running(member) as task:
        assert await changed(member) is True
        controller.refusal = StaleNode("another")
        with pytest.raises(StaleNode):
            await task
        assert not member.lease.held


async def test_news_need_not_wait_for_the_next_heartbeat() -> None:
    controller = Controller()
    settings = ClusterSection(
        heartbeat_interval_ms=50_000, leader_lease_ms=60_000, session_timeout_ms=70_000
    )
    applied = Applied()
    member = NodeHeartbeats(
        node_id=ONE,
        incarnation=UUID(int=1),
        settings=settings,
        grant=controller.grant,
        applied_offset=lambda: applied.offset,
        applied=applied.wait,
        needs_no_lease=lambda: False,
    )
    async with running(member), asyncio.timeout(5):
        await controller.asked_for(1)
        member.hurry()
        await controller.asked_for(2)


@pytest.mark.parametrize(("epoch", "asked"), [(-1, 0), (7, 1)])
async def test_who_has_registered_says_goodbye(epoch: int, asked: int) -> None:
    controller = Controller()
    member = membership(controller)
    member.node_epoch = epoch
    await member.stop()
    assert controller.asked == [StopNode(node_id=ONE, node_epoch=7)] * asked


async def test_a_node_says_what_its_controller_says_of_its_folder(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def grant(_: Command) -> Granted:
        told = {"older_copy": True, "tail_lost": [["s", 0]], "data_lost": [["t", 1]]}
        return Granted(8, {"node_epoch": 7, **told})

    controller = Controller()
    controller.grant = grant  # type: ignore[assignment, method-assign]
    await membership(controller).register(WANTED)
    told = [(it.message, getattr(it, "stream", None)) for it in caplog.records]
    assert told == [
        ("data folder is an older copy", None),
        ("last in-sync replica may lack records", "s"),
        ("last in-sync replica is lost", "t"),
    ]


async def test_one_stamp_is_told_until_the_controller_knows_it() -> None:
    controller = Controller()
    member = membership(controller)
    member.node_epoch = 7
    stamps: list[UUID] = []

    async def stamp() -> tuple[UUID, ...] | None:
        stamps.append(UUID(int=len(stamps)))
        return None if len(stamps) == 1 else tuple(stamps)  # the first cannot be noted

    def told() -> list[Command]:
        return [it for it in controller.asked if isinstance(it, StampFolder)]

    controller.refusal = NoController("gone")
    task = asyncio.create_task(member.run(stamp))
    async with asyncio.timeout(20):
        while len(told()) < 2:
            await controller.asked_for(len(controller.asked) + 1)
        controller.refusal = None
        while len(told()) < 4:
            await controller.asked_for(len(controller.asked) + 1)
    first = StampFolder(node_id=ONE, node_epoch=7, stamps=(UUID(int=0), UUID(int=1)))
    assert told()[:2] == [first, first]
    assert told()[-1] == first.model_copy(update={"stamps": tuple(stamps)})
    controller.refusal = StaleNode("an older copy")
    with pytest.raises(StaleNode):
        await task


async def test_an_answer_of_the_controller_before_is_not_waited_for() -> None:
    """It may be frozen, and the lease would run out meanwhile."""
    controller = Controller()
    controller.silent = True
    member = membership(controller, session_timeout_ms=60_000, heartbeat_ms=20_000)
    async with running(member), asyncio.timeout(5):
        await controller.asked_for(1)
        controller.silent = False
        member.controller_changed()
        assert await changed(member)
        assert len(controller.asked) == 2


async def test_a_node_whose_disk_hangs_counts_its_lease_from_then() -> None:
    controller = Controller()
    member = membership(controller, session_timeout_ms=10_000)
    async with running(member), asyncio.timeout(5):
        assert await changed(member)
        member.stall_ms = lambda: 20_000
        assert not await changed(member)
        (*_, beat) = controller.asked
        assert isinstance(beat, Heartbeat)
        assert beat.stall_ms == 20_000
        member.stall_ms = lambda: 0
        assert await changed(member)


def test_an_earlier_build_understands_the_heartbeat_of_a_node_that_is_well() -> None:
    beat = Heartbeat(node_id=ONE, node_epoch=1, offset=1)
    assert b"stall_ms" not in encode_command(beat)
