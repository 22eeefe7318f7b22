import asyncio
from collections.abc import Callable
from typing import Any

from streamlog.kafka.net.channel import RequestWait


class FakeChannel:
    """Its peer does what a test says."""

    def __init__(self) -> None:
        self.heard: Callable[[], None] | None = None
        self.listens = 0
        self.has_left: bool | None = None

    def listen(self) -> None:
        self.listens += 1

    def peer_has_left(self) -> bool | None:
        return self.has_left

    def arrive(self, *, has_left: bool | None) -> None:
        self.has_left = has_left
        if self.heard is not None:
            self.heard()


def request_wait(channel: FakeChannel | None = None, *, is_followed: bool = False) -> RequestWait:
    quiet: Any = channel or FakeChannel()
    return RequestWait(quiet, is_followed=is_followed)


async def test_a_wake_before_the_wait_is_not_lost() -> None:
    poll = request_wait()
    poll.wake()
    await poll.wait()
    assert not poll.ended


async def test_each_wake_ends_one_wait() -> None:
    poll = request_wait()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            waiting = tasks.create_task(poll.wait())
            await asyncio.sleep(0.001)
            assert not waiting.done()
            poll.wake()
            poll.wake()
            await waiting


async def test_the_end_ends_this_wait_and_all_others() -> None:
    poll = request_wait()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(poll.wait())
        await asyncio.sleep(0)
        poll.end()
    assert poll.ended
    await poll.wait()
    await poll.wait()


async def test_the_peers_end_is_watched_for_only_while_waiting() -> None:
    channel = FakeChannel()
    poll = request_wait(channel)
    assert not channel.listens
    assert channel.heard is None
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(poll.wait())
        await asyncio.sleep(0)
        channel.arrive(has_left=None)
        await asyncio.sleep(0)
        assert not waiting.done(), "nothing has come"
        channel.arrive(has_left=True)
    assert (channel.listens, channel.heard) == (1, None)
    assert poll.ended


async def test_what_follows_ends_only_a_wait_that_yields() -> None:
    for yields in (False, True):
        channel = FakeChannel()
        poll = request_wait(channel)
        poll.yields = yields
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(poll.wait())
            await asyncio.sleep(0)
            channel.arrive(has_left=False)
            assert channel.heard is None, "it is not told again and again"
            await asyncio.sleep(0)
            assert poll.ended == waiting.done() == yields
            poll.end()


async def test_what_followed_before_the_wait_ends_it_too() -> None:
    poll = request_wait(is_followed=True)
    poll.yields = True
    await poll.wait()
    assert poll.ended
