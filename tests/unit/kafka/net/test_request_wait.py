import asyncio
import contextlib
from collections.abc import Callable, Iterator

from streamlog.kafka.net.request_wait import RequestWait


@contextlib.contextmanager
def nobody_leaves(_gone: Callable[[], None], _more: Callable[[], None]) -> Iterator[None]:
    yield


async def test_a_wake_before_the_wait_is_not_lost() -> None:
    poll = RequestWait(nobody_leaves)
    poll.wake()
    await poll.wait()
    assert not poll.ended


async def test_each_wake_ends_one_wait() -> None:
    poll = RequestWait(nobody_leaves)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            waiting = tasks.create_task(poll.wait())
            await asyncio.sleep(0.001)
            assert not waiting.done()
            poll.wake()
            poll.wake()
            await waiting


async def test_the_end_ends_this_wait_and_all_others() -> None:
    poll = RequestWait(nobody_leaves)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(poll.wait())
        await asyncio.sleep(0)
        poll.end()
    assert poll.ended
    await poll.wait()
    await poll.wait()


async def test_the_peers_end_is_watched_for_only_while_waiting() -> None:
    log: list[str] = []

    @contextlib.contextmanager
    def watching(gone: Callable[[], None], _more: Callable[[], None]) -> Iterator[None]:
        log.append("watching")
        gone()
        yield
        log.append("done")

    poll = RequestWait(watching)
    assert log == []
    await poll.wait()
    assert log == ["watching", "done"]
    assert poll.ended


async def test_what_follows_ends_only_a_wait_that_yields() -> None:
    mores: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def watching(_gone: Callable[[], None], more: Callable[[], None]) -> Iterator[None]:
        mores.append(more)
        yield

    for yields in (False, True):
        poll = RequestWait(watching)
        poll.yields = yields
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(poll.wait())
            await asyncio.sleep(0)
            mores.pop()()
            await asyncio.sleep(0)
            assert poll.ended == waiting.done() == yields
            poll.end()


async def test_what_followed_before_the_wait_ends_it_too() -> None:
    poll = RequestWait(nobody_leaves, is_followed=True)
    poll.yields = True
    await poll.wait()
    assert poll.ended
