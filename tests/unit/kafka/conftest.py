"""The tests of what reads and writes sockets run on both event loops; only one of them has a sendfile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from streamlog.kafka.net.channel import RequestWait
from tests.kafka_node import KafkaNode
from tests.unit.kafka.wait_timer import WaitTimer


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What handles a request runs on that of a node: it knows nothing of sockets."""
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    if "handlers" in item.path.parts:
        del loops["asyncio"]
    return loops


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as running:
        yield running


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> list[WaitTimer]:
    """Those of all requests that wait, in the order in which they were set."""
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    found: list[WaitTimer] = []

    def held(delay: float, callback: Callable[..., Any], *args: Any, **more: Any) -> Any:
        if isinstance(getattr(callback, "__self__", None), RequestWait):
            found.append(WaitTimer(delay, callback))
            return call_later(3_600, lambda: None)
        return call_later(delay, callback, *args, **more)

    monkeypatch.setattr(loop, "call_later", held)
    return found
