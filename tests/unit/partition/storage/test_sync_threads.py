"""Syncs by compiled threads: real files, real failures."""

import asyncio
import errno
import gc
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streamlog.partition.storage.sync_threads import SyncThreads

COUNT = 3


@pytest.fixture(autouse=True)
def _none_of_before() -> None:
    """Threads of an earlier test close their ends of the pipes after it has ended."""
    end_all()


def end_all() -> None:
    """Wait for the end of all threads that are closed, or forgotten."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("fdatasync-"):
            thread.join(10)


@asynccontextmanager
async def opened() -> AsyncIterator[SyncThreads]:
    threads = SyncThreads(COUNT)
    try:
        yield threads
    finally:
        threads.close()


async def synced(threads: SyncThreads, fd: int) -> OSError | None:
    ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    threads.sync(fd, ended.set_result)
    async with asyncio.timeout(10):
        return await ended


def serving() -> int:
    return sum(it.name.startswith("fdatasync-") for it in threading.enumerate())


def open_descriptors() -> set[str]:
    return {it.name for it in Path("/proc/self/fd").iterdir()}


async def test_each_sync_is_told_its_own_end(tmp_path: Path) -> None:
    async with opened() as threads:
        fds = [os.open(tmp_path / str(i), os.O_RDWR | os.O_CREAT) for i in range(200)]
        assert await synced(threads, fds[0]) is None  # the threads' pipes are open from now on
        gone = fds[::7]
        for fd in gone:
            os.close(fd)
        found = await asyncio.gather(*(synced(threads, fd) for fd in fds))
        for fd, error in zip(fds, found, strict=True):
            assert (error and error.errno) == (errno.EBADF if fd in gone else None)
            if fd not in gone:
                os.close(fd)


async def test_a_failure_says_what_went_wrong() -> None:
    taken, given = os.pipe()
    async with opened() as threads:
        error = await synced(threads, taken)
    os.close(taken)
    os.close(given)
    assert error is not None
    assert error.errno == errno.EINVAL
    assert error.strerror == os.strerror(errno.EINVAL)


async def test_the_interpreter_goes_on_while_a_sync_waits(tmp_path: Path) -> None:
    """A file of many dirty pages: its sync takes far longer than a turn of the event loop."""
    async with opened() as threads:
        with (tmp_path / "large").open("wb") as file:
            file.write(bytes(32 << 20))
            file.flush()
            sync = asyncio.ensure_future(synced(threads, file.fileno()))
            turns = 0
            while not sync.done():
                await asyncio.sleep(0)
                turns += 1
            assert await sync is None
            assert turns > 100


async def test_threads_end_when_they_are_closed(tmp_path: Path) -> None:
    before = serving()
    async with opened() as threads:
        assert serving() == before
        with (tmp_path / "one").open("wb") as file:
            assert await synced(threads, file.fileno()) is None
        assert serving() == before + COUNT
        mine = [it for it in threading.enumerate() if it.name.startswith("fdatasync-")]
    threads.close()  # again
    for thread in mine[before:]:
        thread.join(10)
    assert serving() == before


async def test_nothing_is_written_once_they_are_closed(tmp_path: Path) -> None:
    """The number of the pipe's end may be that of a log's file by then."""
    with (tmp_path / "one").open("wb") as file:
        async with opened() as threads:
            assert await synced(threads, file.fileno()) is None
            requests = threads._requests
        other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        os.dup2(other, requests)
        try:
            with pytest.raises(RuntimeError, match="closed"):
                threads.sync(file.fileno(), lambda _: None)
            assert os.fstat(requests).st_size == 0
        finally:
            os.close(other)
            if requests != other:
                os.close(requests)


async def test_nobody_hears_of_a_sync_that_ends_after_the_close(tmp_path: Path) -> None:
    heard: list[object] = []
    with (tmp_path / "one").open("wb") as file:
        async with opened() as threads:
            threads.sync(file.fileno(), heard.append)
        mine = [it for it in threading.enumerate() if it.name.startswith("fdatasync-")]
        for thread in mine:
            thread.join(10)
        await asyncio.sleep(0)
    assert heard == []


def test_threads_that_are_forgotten_end(tmp_path: Path) -> None:
    """As where a node is dropped without being closed."""
    before, serving_before = open_descriptors(), serving()

    async def use() -> None:
        with (tmp_path / "one").open("wb") as file:
            assert await synced(SyncThreads(COUNT), file.fileno()) is None

    asyncio.run(use())
    end_all()
    assert serving() == serving_before
    assert open_descriptors() == before


@pytest.mark.parametrize("descriptors", [0, 1, 2, 3])
async def test_too_few_descriptors_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptors: int
) -> None:
    """They end at the first pipe, the second one, or what the threads get. The next try succeeds."""
    real_pipe, real_dup, left = os.pipe, os.dup, descriptors

    def take() -> None:
        nonlocal left
        if not left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        left -= 1

    def pipe() -> tuple[int, int]:
        take()
        return real_pipe()

    def dup(fd: int) -> int:
        take()
        return real_dup(fd)

    async with opened() as threads:
        with (tmp_path / "one").open("wb") as file:
            before, serving_before = open_descriptors(), serving()
            monkeypatch.setattr(os, "pipe", pipe)
            monkeypatch.setattr(os, "dup", dup)
            with pytest.raises(OSError, match="Too many open files"):
                threads.sync(file.fileno(), lambda _: None)
            monkeypatch.undo()
            assert open_descriptors() == before
            assert serving() == serving_before
            assert await synced(threads, file.fileno()) is None
