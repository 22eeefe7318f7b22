"""What NATS knows of what is listened to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from streamlog.config import NatsSection
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.frames import RecordCollector
from streamlog.ingest.nats import subscriber as listening_module
from streamlog.ingest.nats.connection_state import ConnectionState
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.subscriber import Subscriber
from streamlog.ingest.nats.subscription_list import SubjectFilter
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from tests.local_node import until
from tests.unit.ingest.nats.fake_nats import FakeNats


@pytest.fixture
def nats() -> FakeNats:
    return FakeNats()


@pytest.fixture
async def listening(nats: FakeNats, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Subscriber]:
    monkeypatch.setattr(listening_module, "ROUND_TRIP_TIMEOUT_S", 0.05)
    metrics = NodeMetrics()
    router = Router()
    sockets = Sockets(router, write_timeout_ms=1000)
    room = InFlightBytes(in_flight_bytes_max=1000, backpressure_timeout_ms=1000, metrics=metrics)
    sockets.begin(room)
    async with nats.serving() as url:
        listening = Subscriber(
            access=NatsOptions(NatsSection(servers=[url], reconnect_backoff_ms=1)),
            router=router,
            sockets=sockets,
            name="test",
            outage=ConnectionState(metrics),
        )
        listening.replace((), [SubjectFilter("a", "")], RecordCollector(message_bytes_max=1000))
        running = asyncio.create_task(listening.run())
        yield listening
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await listening.close()
    sockets.close()


async def heard_by(nats: FakeNats, connection: int) -> None:
    await until(lambda: nats.connections == connection and b"SUB a 1" in nats.heard)


async def test_nats_knows_of_it_once_it_has_answered(nats: FakeNats, listening: Subscriber) -> None:
    """Written is not known: whoever publishes meanwhile is told that nobody listens."""
    for connection in (1, 2):
        nats.mute = True
        if nats.writer is not None:
            nats.writer.close()
        await heard_by(nats, connection)
        pings = nats.pings
        await until(lambda n=pings: nats.pings > n + 1)  # type: ignore[misc]  # asks until there is an answer
        assert (listening.is_known, listening.is_heard) == (False, False)
        nats.mute = False
        await until(lambda: listening.is_known and listening.is_heard)


async def test_what_is_new_is_not_known_at_once(nats: FakeNats, listening: Subscriber) -> None:
    await until(lambda: listening.is_known and listening.is_heard)
    nats.mute = True
    listening.replace((), [SubjectFilter("b", "")], RecordCollector(message_bytes_max=1000))
    await until(lambda: b"SUB b 2" in nats.heard)
    assert (listening.is_known, listening.is_heard) == (True, False)
    nats.mute = False
    await until(lambda: listening.is_heard)


async def test_nobody_is_waited_for_who_is_not_there(nats: FakeNats, listening: Subscriber) -> None:
    nats.greeting = refuse
    await until(lambda: nats.connections > 2)
    assert (listening.is_known, listening.is_heard) == (False, True)
    nats.greeting = None
    await until(lambda: listening.is_known)


async def refuse(_: asyncio.StreamWriter) -> bool:
    return False


async def test_who_waits_for_nats_to_hear_waits_for_one_round_trip_at_most(
    nats: FakeNats, listening: Subscriber
) -> None:
    await heard_by(nats, 1)
    await until(lambda: listening.is_heard)
    await listening.wait_heard()
    nats.mute = True
    listening.replace((), [SubjectFilter("b", "")], RecordCollector(message_bytes_max=1000))
    waiting = [asyncio.create_task(listening.wait_heard()) for _ in range(3)]
    await asyncio.wait(waiting)  # it does not answer, and is not waited for any longer
    assert not listening.is_heard
    nats.mute = False
    await until(lambda: listening.is_heard)
    pings = nats.pings
    await listening.wait_heard()
    assert nats.pings == pings, "nothing was said since"


async def test_nobody_waits_for_nats_after_the_end(nats: FakeNats, listening: Subscriber) -> None:
    await heard_by(nats, 1)
    nats.taking.clear()
    listening.replace((), [SubjectFilter("b", "")], RecordCollector(message_bytes_max=1000))
    waiting = asyncio.create_task(listening.wait_heard())
    await asyncio.sleep(0)
    await listening.close()
    await waiting
