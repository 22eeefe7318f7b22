import asyncio
import errno
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import Overloaded, StorageFailed
from streamlog.metrics import NodeMetrics
from streamlog.partition.state import NOTHING, Step
from streamlog.partition.storage import flusher as module
from streamlog.partition.storage.flusher import THREADS, TOGETHER_MIN, Flusher


class Ticket:
    """A sync that ends when the test says so."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.error: BaseException | None = None
        self.files = [object()]
        self.needs_own_syncs = False
        self.has_epochs = self.is_placed = False
        self.steps: list[str] = []
        self.was_synced = self.were_placed = False
        self.has_begun = False
        self.descriptor: int | None = None

    def stage(self) -> None:
        self.steps.append("stage")

    def put_in_place(self) -> None:
        self.steps.append("put in place")
        self.is_placed = self.has_epochs

    def run(self, *, is_synced: bool = False, are_placed: bool = True) -> None:
        self.was_synced, self.were_placed, self.has_begun = is_synced, are_placed, True
        assert self.may_end.wait(10)
        if self.error is not None:
            raise self.error

    def ended(self, error: OSError | None) -> None:
        """The sync of ``descriptor``, which no thread in Python runs."""
        self.steps.append("ended")
        if error is not None:
            raise StorageFailed(str(error.strerror))

    def release(self) -> None:
        self.steps.append("release")


class Log:
    """A partition that notes what is done with it."""

    def __init__(self, *tickets: Ticket | Exception | None) -> None:
        self.to_sync = False
        self.to_settle = False
        self.sync = "commit"
        self.tickets = list(tickets)
        self.story: list[str] = []
        self.more = False
        self.flusher: Any = None
        self.changed = asyncio.Event()

    @property
    def state(self) -> Any:
        return self

    def carry_out(self, step: Step) -> None:
        if step.wants_sync:
            self.flusher.sync(self)

    def begin_sync(self) -> Ticket | Step:
        self.story.append("begin")
        ticket = self.tickets.pop(0)
        if isinstance(ticket, Exception):
            raise ticket
        return ticket or NOTHING

    def finish_sync(self) -> Step:
        self._note("finish")
        more, self.more = self.more, False
        return Step(wants_sync=more)

    def sync_failed(self, error: StorageFailed) -> Step:
        self._note(str(error))
        return NOTHING

    def settle(self) -> Step:
        self._note("settle")
        return NOTHING

    def _note(self, what: str) -> None:
        self.story.append(what)
        self.changed.set()

    async def until(self, *story: str) -> None:
        async with asyncio.timeout(10):
            while self.story != list(story):
                self.changed.clear()
                await self.changed.wait()


def opened() -> Flusher:
    flusher = Flusher(NodeMetrics())
    flusher.open()
    return flusher


def free() -> Ticket:
    ticket = Ticket()
    ticket.may_end.set()
    return ticket


async def test_calls_of_one_turn_are_one_sync() -> None:
    flusher, log = opened(), Log(free())
    for _ in range(5):
        flusher.sync(log)
    assert log.story == []
    await log.until("begin", "finish")
    flusher.close()


async def test_one_file_is_synced_without_a_thread_in_python(tmp_path: Path) -> None:
    ticket = Ticket()
    flusher, log = opened(), Log(ticket)
    with (tmp_path / "segment").open("wb") as file:
        ticket.descriptor = file.fileno()
        flusher.sync(log)
        await log.until("begin", "finish")
    assert ticket.steps == ["ended", "release"]
    assert not ticket.has_begun
    flusher.close()


async def test_a_failed_sync_of_one_file_fails_the_log() -> None:
    taken, given = os.pipe()  # which cannot be synced
    ticket = Ticket()
    ticket.descriptor = taken
    flusher, log = opened(), Log(ticket)
    flusher.sync(log)
    await log.until("begin", os.strerror(errno.EINVAL))
    flusher.close()
    os.close(taken)
    os.close(given)


async def test_without_descriptors_a_thread_in_python_syncs_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    ticket = free()
    flusher, log = opened(), Log(ticket)
    with (tmp_path / "segment").open("wb") as file:
        ticket.descriptor = file.fileno()
        monkeypatch.setattr(os, "pipe", no_pipe)
        flusher.sync(log)
        await log.until("begin", "finish")
    assert ticket.has_begun
    flusher.close()


async def test_syncs_of_one_file_have_their_limit(tmp_path: Path) -> None:
    """With those that a thread in Python runs, so that a slow disk is not asked for ever more."""
    slow = [Ticket() for _ in range(THREADS - 1)]
    direct = [Ticket() for _ in range(3)]
    flusher = opened()
    with (tmp_path / "segment").open("wb") as file:
        for ticket in direct:
            ticket.descriptor = file.fileno()
        logs = [Log(it) for it in (*slow, *direct)]
        for log in logs:
            flusher.sync(log)
        await asyncio.sleep(0)
        assert [log.story for log in logs] == [["begin"]] * THREADS + [[], []]
        for log in logs[THREADS - 1 :]:
            await log.until("begin", "finish")
        for ticket in slow:
            ticket.may_end.set()
        for log in logs[: THREADS - 1]:
            await log.until("begin", "finish")
    flusher.close()


async def test_a_lone_sync_begins_at_once_and_others_in_their_turn() -> None:
    slow = Ticket()
    flusher, first, second, third = opened(), Log(slow), Log(free()), Log(free())
    flusher.sync_at_once(first)
    assert first.story == ["begin"]
    flusher.sync_at_once(second)
    flusher.sync_at_once(second)
    assert second.story == [], "a sync runs"
    await second.until("begin", "finish")
    flusher.sync(third)
    slow.may_end.set()
    await first.until("begin", "finish")
    await third.until("begin", "finish")
    flusher.close()


async def test_a_lone_sync_that_cannot_begin_is_tried_again_or_not_needed() -> None:
    refused = Log(Overloaded("too many open files"), free())
    flusher = opened()
    flusher.sync_at_once(refused)
    assert refused.story == ["begin"]
    await refused.until("begin", "begin", "finish")
    needless = Log(None)
    flusher.sync_at_once(needless)
    await asyncio.sleep(0)
    assert needless.story == ["begin"]
    broken = Log(ValueError("a fault of ours"))
    flusher.sync_at_once(broken)
    with pytest.raises(ValueError, match="a fault of ours"):
        await flusher.run()
    flusher.close()


async def test_settling_needs_no_thread() -> None:
    flusher, log = opened(), Log()
    flusher.settle(log)
    flusher.settle(log)
    await asyncio.sleep(0)
    assert log.story == ["settle"]
    assert not log.to_settle
    flusher.close()


async def test_one_that_is_to_settle_can_be_synced_in_the_same_turn() -> None:
    flusher, log = opened(), Log(free())
    flusher.settle(log)
    flusher.sync(log)
    await log.until("settle", "begin", "finish")
    flusher.close()


async def test_what_comes_during_a_sync_gets_another_one() -> None:
    slow = Ticket()
    flusher, log = opened(), Log(slow, free())
    log.flusher = flusher
    flusher.sync(log)
    await asyncio.sleep(0)
    log.more = True
    slow.may_end.set()
    await log.until("begin", "finish", "begin", "finish")
    flusher.close()


async def test_no_more_syncs_than_threads_and_the_rest_in_order() -> None:
    flusher = opened()
    tickets = [Ticket() for _ in range(THREADS + 2)]
    logs = [Log(ticket) for ticket in tickets]
    for log in logs:
        flusher.sync(log)
    await asyncio.sleep(0)
    assert [log.story for log in logs] == [["begin"]] * THREADS + [[]] * 2
    tickets[0].may_end.set()
    await logs[0].until("begin", "finish")
    await asyncio.sleep(0)
    assert logs[THREADS].story == ["begin"]
    assert logs[THREADS + 1].story == []
    for ticket in tickets:
        ticket.may_end.set()
    await logs[-1].until("begin", "finish")
    flusher.close()


async def test_a_failed_sync_is_told_to_its_partition_alone() -> None:
    bad = free()
    bad.error = StorageFailed("broken")
    flusher, failing, other = opened(), Log(bad), Log(free())
    flusher.sync(failing)
    flusher.sync(other)
    await failing.until("begin", "broken")
    await other.until("begin", "finish")
    flusher.close()


async def test_one_that_is_refused_for_now_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    flusher, log = opened(), Log(Overloaded("too many open files"), free())
    flusher.sync(log)
    await log.until("begin", "begin", "finish")
    flusher.close()


async def test_nothing_to_sync_is_no_sync() -> None:
    flusher, log = opened(), Log(None)
    flusher.sync(log)
    await asyncio.sleep(0)
    assert log.story == ["begin"]
    flusher.close()


@pytest.mark.parametrize("where", ["thread", "loop"])
async def test_a_fault_of_ours_ends_run(where: str) -> None:
    flusher, log = opened(), Log(free())
    if where == "thread":
        ticket = free()
        ticket.error = LookupError("a fault")
        log.tickets = [ticket]
    else:
        log.tickets = []
    flusher.sync(log)
    with pytest.raises(LookupError):
        async with asyncio.timeout(10):
            await flusher.run()
    flusher.close()


class Shared:
    """A sync of the file system that does as the test says."""

    def __init__(self, *, works: bool = True, is_advisable: bool = True) -> None:
        self.is_advisable, self.is_usable = is_advisable, True
        self.works = works
        self.counts: list[int] = []

    def sync(self, files: Iterable[object] = ()) -> bool:
        self.counts.append(len(list(files)))
        return self.works

    def close(self) -> None:
        pass


@pytest.mark.parametrize("works", [True, False])
async def test_many_that_wait_are_synced_together(works: bool) -> None:
    flusher, shared = opened(), Shared(works=works)
    flusher.shared = shared  # type: ignore[assignment]
    tickets = [free() for _ in range(TOGETHER_MIN + 1)]
    tickets[3].error = StorageFailed("broken")
    tickets.append(free())
    tickets[-1].needs_own_syncs = True
    logs = [Log(ticket) for ticket in tickets]
    idle = Log(None)
    for log in (*logs, idle):
        flusher.sync(log)
    for log, ticket in zip(logs, tickets, strict=True):
        await log.until("begin", "broken" if ticket.error else "finish")
        assert ticket.was_synced is (works and not ticket.needs_own_syncs)
    assert shared.counts == [len(logs) - 1]
    assert idle.story == ["begin"]
    flusher.close()


async def test_what_comes_while_they_are_synced_waits_for_the_next_time() -> None:
    flusher, shared = opened(), Shared()
    flusher.shared = shared  # type: ignore[assignment]
    slow = Ticket()
    logs = [Log(slow), *(Log(free()) for _ in range(TOGETHER_MIN))]
    late = Log(free())
    for log in logs:
        flusher.sync(log)
    await asyncio.sleep(0)
    flusher.sync(late)
    await asyncio.sleep(0.01)
    assert late.story == []
    slow.may_end.set()
    await late.until("begin", "finish")
    assert shared.counts == [len(logs)]
    flusher.close()


@pytest.mark.parametrize(
    ("count", "is_advisable"), [(TOGETHER_MIN - 1, True), (TOGETHER_MIN + 1, False)]
)
async def test_few_or_where_it_is_not_advisable_each_by_itself(
    count: int, is_advisable: bool
) -> None:
    flusher, shared = opened(), Shared(is_advisable=is_advisable)
    flusher.shared = shared  # type: ignore[assignment]
    logs = [Log(free()) for _ in range(count)]
    for log in logs:
        flusher.sync(log)
    for log in logs:
        await log.until("begin", "finish")
    assert shared.counts == []
    flusher.close()


async def test_a_bug_in_a_shared_sync_ends_the_flusher() -> None:
    flusher = opened()
    flusher.shared = Shared()  # type: ignore[assignment]
    tickets = [free() for _ in range(TOGETHER_MIN)]
    tickets[0].error = ZeroDivisionError()
    for ticket in tickets:
        flusher.sync(Log(ticket))
    with pytest.raises(ZeroDivisionError):
        await flusher.run()
    flusher.close()


def test_a_process_that_ends_before_all_is_synced_says_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What runs ends unheard, what waits for a thread is not begun."""
    running = [Ticket() for _ in range(module.MANIFEST_THREADS)]
    waiting = Ticket()
    flusher = Flusher(NodeMetrics())

    async def begin() -> None:
        flusher.open()
        for ticket in (*running, waiting):  # as a shared sync leaves a thousand
            flusher._threads.submit(flusher._run, [(Log(), ticket)], None, 0.0)  # type: ignore[list-item]
        flusher.give_up()

    asyncio.run(begin())
    for ticket in (*running, waiting):
        ticket.may_end.set()
    flusher._threads.shutdown()
    assert caplog.records == []
    assert all(it.has_begun for it in running)
    assert not waiting.has_begun
