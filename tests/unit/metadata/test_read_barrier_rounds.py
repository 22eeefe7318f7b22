"""Who hears of what has been decided, and how often the controller is asked."""

import asyncio

import pytest

from streamlog.errors import NoController
from streamlog.metadata.commands import AwaitApplied, Command, Granted
from streamlog.metadata.read_barrier import ReadBarrier


class FakeMetadata:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.decided = 0
        self.seen: list[int] = []
        """What the node had to act on, for each question."""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.has_controller = True
        self.is_current = False

    async def request(self, command: Command) -> Granted:
        if not self.has_controller:
            raise NoController("lost")
        decided = self.decided
        await self.may_answer.wait()
        return Granted(0, {"high_watermark": decided})

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        assert isinstance(command, AwaitApplied) and forwarded
        self.seen.append(command.offset)
        return Granted(command.offset, {})


async def turns(count: int = 10) -> None:
    """Of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_those_that_come_together_ask_once() -> None:
    metadata = FakeMetadata()
    freshness = ReadBarrier(metadata)
    await asyncio.gather(*(freshness.catch_up() for _ in range(30)))
    await freshness.catch_up()
    assert metadata.seen == [0, 0]


async def test_a_question_that_is_on_its_way_is_too_old_for_who_comes_now() -> None:
    metadata = FakeMetadata()
    freshness = ReadBarrier(metadata)
    metadata.may_answer.clear()
    first = asyncio.create_task(freshness.catch_up())
    await turns()
    metadata.decided = 7
    later = [asyncio.create_task(freshness.catch_up()) for _ in range(3)]
    await turns()
    metadata.may_answer.set()
    await first
    assert metadata.seen == [0] and not any(task.done() for task in later)
    await asyncio.gather(*later)
    assert metadata.seen == [0, 7]


async def test_nobody_waits_where_all_that_was_decided_is_known() -> None:
    metadata = FakeMetadata()
    freshness = ReadBarrier(metadata)
    metadata.is_current = True
    waiting = freshness.catch_up()
    with pytest.raises(StopIteration):
        waiting.send(None)
    assert metadata.seen == []
    metadata.is_current = False
    await freshness.catch_up()
    assert metadata.seen == [0]


async def test_without_a_controller_what_there_is_will_do() -> None:
    metadata = FakeMetadata()
    metadata.has_controller = False
    freshness = ReadBarrier(metadata)
    await asyncio.gather(*(freshness.catch_up() for _ in range(3)))
    assert metadata.seen == []


@pytest.mark.parametrize("waited", [0, 1, 5])
async def test_nobody_waits_for_one_that_was_cancelled(waited: int) -> None:
    metadata = FakeMetadata()
    freshness = ReadBarrier(metadata)
    metadata.may_answer.clear()
    asking = [asyncio.create_task(freshness.catch_up()) for _ in range(2)]
    await turns(waited)
    asking[0].cancel()
    await turns()
    metadata.may_answer.set()
    async with asyncio.timeout(5):
        await asyncio.wait(asking)
        await freshness.catch_up()
    assert asking[0].cancelled() and not asking[1].cancelled()


async def test_all_are_told_whether_it_is_the_newest() -> None:
    metadata = FakeMetadata()
    freshness = ReadBarrier(metadata)
    assert await asyncio.gather(*(freshness.catch_up() for _ in range(3))) == [True] * 3
    metadata.has_controller = False
    assert await asyncio.gather(*(freshness.catch_up() for _ in range(3))) == [False] * 3
    metadata.is_current = True
    assert await freshness.catch_up()
