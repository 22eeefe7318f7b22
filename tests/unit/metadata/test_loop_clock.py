import asyncio
import time

from streamlog.metadata.loop_clock import STEP_MS_MAX, TICK_MS, LoopClock


class Clock:
    def __init__(self) -> None:
        self.now_ms = 5_000

    def __call__(self) -> int:
        return self.now_ms


def test_it_counts_what_passes() -> None:
    clock = Clock()
    it = LoopClock(clock)
    for _ in range(10):
        clock.now_ms += TICK_MS
        it.now_ms()
    assert it.now_ms() == 10 * TICK_MS
    assert it.lost_ms == 0


def test_a_pause_counts_as_one_step() -> None:
    clock = Clock()
    it = LoopClock(clock)
    clock.now_ms += 3_000
    assert it.now_ms() == STEP_MS_MAX
    assert it.lost_ms == 3_000 - STEP_MS_MAX
    clock.now_ms += 7
    assert it.now_ms() == STEP_MS_MAX + 7


def test_it_never_goes_back() -> None:
    clock = Clock()
    it = LoopClock(clock)
    clock.now_ms -= 1_000
    assert it.now_ms() == it.lost_ms == 0


async def test_a_blocked_loop_is_not_counted() -> None:
    it = LoopClock()
    running = asyncio.create_task(it.run())
    await asyncio.sleep(0.05)
    before_ms, lost_ms = it.now_ms(), it.lost_ms
    time.sleep(0.3)  # noqa: ASYNC251
    assert it.now_ms() - before_ms <= STEP_MS_MAX
    assert it.lost_ms - lost_ms >= 300 - STEP_MS_MAX - 1
    running.cancel()
    await asyncio.wait((running,))
