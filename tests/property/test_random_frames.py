"""Whole frames of any kind through a real listener: nothing breaks, hangs, or grows.

An input is a function of its seed; a failure names the seed.
"""

import tracemalloc
from random import Random

import pytest
import uvloop

from streamlog.wire import control, cursor
from streamlog.wire.cursor import encode_array_length
from streamlog.wire.framing import frame
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import APIS, FETCH, PRODUCE, Api
from tests.fuzzed_node import FuzzedNode

INPUTS = 6_000
INPUTS_SLOW = 300_000
RESTORED_EVERY = 500
"""Inputs create and delete streams."""
ENDS = [
    (api, version)
    for api in APIS.values()
    for version in sorted({api.version_min, api.version_max})
]


async def play(seeds: range) -> None:
    async with FuzzedNode() as node:
        for number, seed in enumerate(seeds):
            if number and number % RESTORED_EVERY == 0:
                await node.restore()
            data = node.input(seed)
            try:
                await node.check(data)
            except Exception as error:
                raise AssertionError(f"seed {seed} of {seeds}: {data!r}") from error
        assert node.node.metric("streamlog_connections_closed_total", reason="failure") == 0


def test_every_frame_is_answered_or_ends_its_connection() -> None:
    uvloop.run(play(range(INPUTS)))


@pytest.mark.slow
def test_every_frame_is_answered_or_ends_its_connection_for_longer() -> None:
    for start in range(INPUTS, INPUTS_SLOW, 10_000):
        uvloop.run(play(range(start, min(start + 10_000, INPUTS_SLOW))))


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
    count = cursor.ELEMENTS_MAX if by_hand else control.ELEMENTS_MAX
    await swell(spoken, count, 2 * count)
    await swell(spoken, count, 18 * count)


async def swell(spoken: tuple[Api, int], count: int, size: int) -> None:
    """An array of so many in so many bytes, first where most requests have one, then anywhere."""
    api, version = spoken
    async with FuzzedNode(idle_timeout_ms=600_000) as node:
        requests = node.requests(Random(count))
        length = encode_array_length(count, api.is_flexible(version))
        whole = requests.body(api, version) or b""
        for body in (length + bytes(size), requests.swollen(whole, size)):
            data = frame(encode_request_header(api, version, 7, "raw"), body)
            tracemalloc.start()
            try:
                await node.check(data)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak <= node.node.settings.frame_bytes_max
