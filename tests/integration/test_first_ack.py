"""Programs that measure find out that a subject is stored twice, at the first message if they can.

Who answers is the test itself, so that the order of the answers is known.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from streamlog.errors import InvalidRequest
from streamlog.nats_tools import burst as bursting
from streamlog.nats_tools.burst import BurstLoad, burst
from streamlog.nats_tools.fixed_schedule import paced
from streamlog.nats_tools.publisher import Publisher
from tests.local_node import until

LOAD = BurstLoad("twice", size_bytes=10, count=50, in_flight=50)
Measure = Callable[[str], Any]
MEASURES: dict[str, Measure] = {
    "publish": lambda url: burst(url, LOAD),
    "latency": lambda url: paced(url, LOAD, 1_000),
}


class Streams:
    """Two of one subject; the second begins to listen at its ``second_from``-th message."""

    def __init__(self, client: Client, second_from: int) -> None:
        self._client = client
        self._second_from = second_from
        self.taken = 0

    async def take(self, message: Msg) -> None:
        self.taken += 1
        for stream in "ab" if self.taken >= self._second_from else "a":
            ack = b'{"stream":"%s","seq":%d}' % (stream.encode(), self.taken)
            await self._client.publish(message.reply, ack)


@pytest.fixture
async def streams(nc: Client, request: pytest.FixtureRequest) -> AsyncIterator[Streams]:
    streams = Streams(nc, request.param)
    await nc.subscribe("twice", cb=streams.take)
    await nc.flush()
    yield streams


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
@pytest.mark.parametrize("streams", [1], indirect=True)
async def test_nothing_more_is_written(
    nats_server: Any, streams: Streams, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bursting, "SECOND_ACK_S", 2.0)  # of a machine that is busy
    with pytest.raises(InvalidRequest, match="more than one stream stores 'twice'"):
        await measure(nats_server.url)
    assert streams.taken == 1


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
@pytest.mark.parametrize("streams", [2], indirect=True)
async def test_one_that_comes_later_is_noticed_in_the_end(
    nats_server: Any, streams: Streams, measure: Measure
) -> None:
    with pytest.raises(ExceptionGroup) as raised:  # out of the tasks of a connection
        await measure(nats_server.url)
    error: Exception = raised.value
    while isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, InvalidRequest)
    assert "more than one stream stores 'twice'" in str(error)
    await until(lambda: streams.taken == 1 + LOAD.count)  # as fast as they come to be taken


@pytest.mark.parametrize("streams", [1], indirect=True)
async def test_whoever_does_not_measure_takes_the_first(nats_server: Any, streams: Streams) -> None:
    async with Publisher(nats_server.url) as publisher:
        assert (await publisher.publish("twice", b"x")).stream == "a"
        async with asyncio.timeout(5):
            while publisher.second is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    assert b'"b"' in publisher.second
