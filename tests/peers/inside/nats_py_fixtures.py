"""Our servers in place of the nats-server with JetStream that nats-py's tests would start."""

import asyncio
import unittest.mock  # noqa: F401  # a test takes it for imported
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from order import order

TEST_TIMEOUT_S = 30
"""Theirs is 5 s, which is short for 300 streams where much else is going on."""

FILES = ("pyproject.toml", "README.md")
"""Of the repository; tests put them into object stores."""

connect = Client.connect


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Before its test modules take the names."""
    from tests import utils

    def set_up(case: Any) -> None:
        case.server_pool = []
        case.loop = asyncio.new_event_loop()
        asyncio.run(remove_streams())

    async def connecting(self: Client, _: object = None, **options: Any) -> None:
        await connect(self, order().servers, **options)

    for name in FILES:
        Path(name).write_text(f"{name}\n" * 1_000)
    utils.async_test.__defaults__ = (TEST_TIMEOUT_S,)
    utils.SingleJetStreamServerTestCase.setUp = set_up
    Client.connect = connecting


async def remove_streams() -> None:
    """Each test takes for granted that its server is new."""
    client = Client()
    await client.connect()
    manager = client.jsm()
    while streams := await manager.streams_info():
        await asyncio.gather(*(manager.delete_stream(each.config.name) for each in streams))
    await client.close()
