"""The event loop's lag is measured."""

import asyncio
import time

from prometheus_client import CollectorRegistry, Gauge

from streamlog.app.loop_lag import PERIOD_S, LoopLag


async def test_a_blocked_loop_shows() -> None:
    registry = CollectorRegistry()
    lag = LoopLag(Gauge("lag", "", registry=registry))
    task = asyncio.ensure_future(lag.run())
    await asyncio.sleep(0)
    time.sleep(PERIOD_S + 0.1)  # noqa: ASYNC251 - the loop is to be blocked
    await asyncio.sleep(0.01)
    task.cancel()
    assert lag.seconds > 0.05
    assert registry.get_sample_value("lag") == lag.seconds
