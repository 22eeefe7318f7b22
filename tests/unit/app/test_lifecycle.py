"""Parts start in order and stop in theirs; what has not begun is not stopped."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from streamlog.app.node import Lifecycle, LifecycleStep
from streamlog.errors import StorageFailed


class Diary:
    """Notes each call; some fail or hang."""

    def __init__(self, *, failing: str = "", hanging: str = "") -> None:
        self.calls: list[str] = []
        self._failing = failing
        self._hanging = hanging

    def note(self, text: str) -> Callable[[], Awaitable[None]]:
        async def call() -> None:
            self.calls.append(text)
            if text == self._failing:
                raise StorageFailed("no disk")
            if text == self._hanging:
                await asyncio.Event().wait()

        return call

    def lifecycle(self) -> Lifecycle:
        return Lifecycle(
            start_order=[LifecycleStep(part, self.note(f"+{part}")) for part in "abc"],
            stop_order=[LifecycleStep(part, self.note(f"-{part}")) for part in "cab"],
        )


async def test_the_two_orders() -> None:
    diary = Diary()
    life = diary.lifecycle()
    assert life.starting is not None
    await life.start()
    assert life.starting is None
    assert await life.stop(1)
    assert diary.calls == ["+a", "+b", "+c", "-c", "-a", "-b"]


async def test_only_what_has_begun_is_stopped() -> None:
    diary = Diary(failing="+b")
    life = diary.lifecycle()
    with pytest.raises(StorageFailed):
        await life.start()
    assert life.starting == "b"
    assert await life.stop(1)
    assert diary.calls == ["+a", "+b", "-a", "-b"]


async def test_a_failing_stop_does_not_keep_the_others_up() -> None:
    diary = Diary(failing="-c")
    life = diary.lifecycle()
    await life.start()
    assert not await life.stop(1)
    assert diary.calls[3:] == ["-c", "-a", "-b"]


async def test_a_stop_has_a_deadline() -> None:
    diary = Diary(hanging="-a")
    life = diary.lifecycle()
    await life.start()
    assert not await life.stop(0.01)
    assert diary.calls[3:] == ["-c", "-a"]


async def test_nothing_is_stopped_twice() -> None:
    diary = Diary()
    life = diary.lifecycle()
    await life.start()
    await life.stop(1)
    await life.stop(1)
    assert diary.calls == ["+a", "+b", "+c", "-c", "-a", "-b"]
