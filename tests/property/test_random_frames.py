"""Whole frames of any kind through a real listener: nothing breaks, hangs, or grows.

An input is a function of its seed; a failure names the seed.
"""

import asyncio
import contextlib
import time
import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest
import uvloop

from streamlog.wire import api_messages, cursor
from streamlog.wire.cursor import encode_array_length
from streamlog.wire.framing import frame
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import APIS, FETCH, PRODUCE, Api
from tests.property.frame_fuzzer import FrameFuzzer

INPUTS = 6_000
INPUTS_SLOW = 300_000
INPUTS_OF_A_NODE = 125
"""Inputs create and delete streams, so that another node is needed then."""
INPUTS_OF_A_TEST = 10_000
"""Where there are many; their nodes run side by side."""
STANDSTILL_S = 1.1
"""Longer than a connection of the node may be idle."""
STANDSTILLS = 5
"""An input and what follows it take fewer turns of the event loop."""
PATIENCE_TRACED_S = 600.0
"""A request is some seconds of work under ``tracemalloc``, and the tests may have a hundredth of a
processor.
"""
IDLE_TRACED_MS = 2_000 * int(PATIENCE_TRACED_S)
TURN_S_MAX = 1.0
"""Of a processor, not of a clock; the longest turns take half of that. While one lasts, the node
answers nobody.
"""
ENDS = [
    (api, version)
    for api in APIS.values()
    for version in sorted({api.version_min, api.version_max})
]


async def play(seeds: range) -> None:
    async with FrameFuzzer() as node:
        for seed in seeds:
            data = node.input(seed)
            try:
                await node.check(data)
            except Exception as error:
                raise AssertionError(f"seed {seed} of {seeds}: {data!r}") from error
        assert node.node.metric("streamlog_connections_closed_total", reason="failure") == 0


def parts(seeds: range, size: int) -> list[range]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


async def play_side_by_side(seeds: range) -> None:
    """Some inputs wait until a connection has been idle for too long: other nodes run meanwhile."""
    async with asyncio.TaskGroup() as tasks:
        for some in parts(seeds, INPUTS_OF_A_NODE):
            tasks.create_task(play(some))


def test_every_frame_is_answered_or_ends_its_connection() -> None:
    uvloop.run(play_side_by_side(range(INPUTS)))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(range(INPUTS, INPUTS_SLOW), INPUTS_OF_A_TEST), ids=str)
def test_every_frame_is_answered_or_ends_its_connection_for_longer(seeds: range) -> None:
    uvloop.run(play_side_by_side(seeds))


async def test_a_process_that_stood_still_blames_no_client() -> None:
    """Whatever the node and its client were about: seed 237726 was one of those it happened to."""

    async def stand_still(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        time.sleep(STANDSTILL_S)  # noqa: ASYNC251

    async with FrameFuzzer() as node, asyncio.TaskGroup() as tasks:
        for turns in range(STANDSTILLS):
            standstill = tasks.create_task(stand_still(turns))
            while not standstill.done():
                await node.check(node.input(237_726))
            await node.check(node.input(237_726))


@pytest.mark.parametrize("spoken", ENDS, ids=lambda it: f"{it[0].name}-{it[1]}")
async def test_a_frame_of_too_many_tiny_things_is_refused(spoken: tuple[Api, int]) -> None:
    """An element of two bytes takes hundreds in memory."""
    await swell(spoken, 2 * cursor.ELEMENTS_MAX, 4 * cursor.ELEMENTS_MAX)


@pytest.mark.slow
@pytest.mark.parametrize("spoken", ENDS, ids=lambda it: f"{it[0].name}-{it[1]}")
async def test_as_many_as_are_allowed_cost_no_more_than_a_large_frame(
    spoken: tuple[Api, int],
) -> None:
    by_hand = spoken[0].key in (FETCH, PRODUCE)
    count = cursor.ELEMENTS_MAX if by_hand else api_messages.ELEMENTS_MAX
    await swell(spoken, count, 2 * count)
    await swell(spoken, count, 18 * count)


@pytest.mark.slow
@pytest.mark.parametrize("spoken", ENDS, ids=lambda it: f"{it[0].name}-{it[1]}")
async def test_as_many_as_are_allowed_do_not_hold_the_event_loop(spoken: tuple[Api, int]) -> None:
    by_hand = spoken[0].key in (FETCH, PRODUCE)
    count = cursor.ELEMENTS_MAX if by_hand else api_messages.ELEMENTS_MAX
    async with FrameFuzzer(idle_timeout_ms=IDLE_TRACED_MS) as node:
        for size in (2 * count, 18 * count):
            for data in swollen(node, spoken, count, size):
                turns = asyncio.create_task(longest_turn_s())
                await node.check(data)
                turns.cancel()
                assert await turns <= TURN_S_MAX


async def longest_turn_s() -> float:
    """Until it is cancelled; in time of the processor."""
    longest = 0.0
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)
    return longest


async def swell(spoken: tuple[Api, int], count: int, size: int) -> None:
    async with FrameFuzzer(idle_timeout_ms=IDLE_TRACED_MS, patience_s=PATIENCE_TRACED_S) as node:
        for data in swollen(node, spoken, count, size):
            tracemalloc.start()
            try:
                await node.check(data)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak <= node.node.settings.request_bytes_max


def swollen(node: FrameFuzzer, spoken: tuple[Api, int], count: int, size: int) -> Iterator[bytes]:
    """An array of so many in so many bytes, first where most requests have one, then anywhere."""
    api, version = spoken
    requests = node.requests(Random(count))
    length = encode_array_length(count, api.is_flexible(version))
    whole = requests.body(api, version) or b""
    for body in (length + bytes(size), requests.swollen(whole, size)):
        yield frame(encode_request_header(api, version, 7, "raw"), body)
