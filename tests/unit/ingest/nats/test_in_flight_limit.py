import asyncio

import pytest

from streamlog.ingest.backpressure import InFlightBytes
from streamlog.metrics import NodeMetrics


def new_room(backpressure_timeout_ms: int = 10_000) -> tuple[InFlightBytes, NodeMetrics]:
    metrics = NodeMetrics()
    return InFlightBytes(
        in_flight_bytes_max=100, backpressure_timeout_ms=backpressure_timeout_ms, metrics=metrics
    ), metrics


def paused_s(metrics: NodeMetrics) -> float:
    return metrics.registry.get_sample_value("streamlog_ingest_paused_seconds_total") or 0.0


async def test_below_the_limit_nobody_waits() -> None:
    room, metrics = new_room()
    room.take(100)
    await room.wait()
    assert paused_s(metrics) == 0
    assert metrics.registry.get_sample_value("streamlog_in_flight_bytes") == 100


async def test_above_it_reading_waits_for_room() -> None:
    room, metrics = new_room()
    room.take(150)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        room.give_back(50)
    assert not room.refusing
    assert paused_s(metrics) > 0


async def test_a_stall_too_long_turns_into_refusals_until_there_is_room() -> None:
    room, _ = new_room(backpressure_timeout_ms=1)
    room.take(150)
    await room.wait()
    assert room.refusing
    with pytest.raises(StopIteration):
        room.wait().send(None)  # it returns at once
    room.take(1)
    room.give_back(50)
    assert room.refusing
    room.give_back(1)
    assert not room.refusing


async def test_wait_empty() -> None:
    room, _ = new_room()
    assert await room.wait_empty(0)
    room.take(1)
    assert not await room.wait_empty(0.001)
    room.give_back(1)
    assert await room.wait_empty(0.001)


async def test_more_given_back_than_taken_is_a_bug() -> None:
    room, _ = new_room()
    with pytest.raises(AssertionError):
        room.give_back(1)
