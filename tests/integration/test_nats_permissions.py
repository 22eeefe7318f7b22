"""streamlog with the permissions of config/nats-permissions.conf, and with one of them missing."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import ServiceUnavailableError

from tests.local_node import LocalNode, until
from tests.secured_nats import ConfiguredNats

FILE = Path(__file__).parents[2] / "config" / "nats-permissions.conf"
LOGIN = {"user": "streamlog", "password": "s1"}

StartNats = Callable[..., ConfiguredNats]
Connect = Callable[[str], Awaitable[Client]]


def permissions(without: str = "") -> str:
    """Of the file, but for the line that begins with this."""
    text = FILE.read_text().replace("$STREAMLOG_PASSWORD", "s1").replace("$APP_PASSWORD", "a1")
    text = re.sub(r"^listen:.*$", "", text, flags=re.MULTILINE)
    if not without:
        return text
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if not line.strip().startswith(without)]
    assert len(kept) == len(lines) - 1, f"{without} is not one line of {FILE}"
    return "".join(kept)


@pytest.fixture
def start_nats(tmp_path: Path) -> Iterator[StartNats]:
    servers: list[ConfiguredNats] = []

    def start(without: str = "") -> ConfiguredNats:
        servers.append(ConfiguredNats(tmp_path, permissions(without)))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Client] = []

    async def connect_app(url: str) -> Client:
        clients.append(await nats.connect(url, user="app", password="a1"))
        return clients[-1]

    yield connect_app
    for client in clients:
        await client.close()


def forbidden(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was told not to be permitted, and the remedy."""
    return [
        (record.error, record.remedy)  # type: ignore[attr-defined]
        for record in caplog.records
        if record.getMessage() == "NATS does not permit what streamlog needs"
    ]


def local(tmp_path: Path, server: ConfiguredNats) -> LocalNode:
    return LocalNode(tmp_path / "data", server.url, default_api_prefix=False, nats=LOGIN)


async def test_all_of_them_are_enough(
    tmp_path: Path, start_nats: StartNats, connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    server = start_nats()
    async with local(tmp_path, server) as node:
        nc: Client = await connect(server.url)
        js = nc.jetstream(domain="streamlog")
        config = StreamConfig(name="orders", subjects=["orders", "orders.>"])
        await js.add_stream(config)
        assert (await js.publish("orders.a", b"1")).seq == 1
        futures = [await js.publish_async("orders", b"x") for _ in range(1000)]
        assert [(await future).seq for future in futures] == list(range(2, 1002))
        await nc.publish("orders", b"silent")
        own = await nc.subscribe("desk.7")
        await nc.publish("orders", b"x", reply="desk.7")
        assert json.loads((await own.next_msg(2)).data)["seq"] == 1003
        assert (await js.get_msg("orders", 1)).data == b"1"
        assert (await js.stream_info("orders")).state.messages == 1003
        await js.purge_stream("orders")
        await js.delete_stream("orders")
        assert node.api.complaint is None
    assert forbidden(caplog) == []


async def test_two_streams_of_one_subject_answer_each(
    tmp_path: Path, start_nats: StartNats, connect: Connect
) -> None:
    server = start_nats()
    async with local(tmp_path, server) as node:
        await node.create("one", subjects=("orders.>",))
        await node.create("two", subjects=("orders.*",))
        nc: Client = await connect(server.url)
        replies = await nc.subscribe("desk.7")
        await nc.publish("orders.x", b"both", reply="desk.7")
        acks = [json.loads((await replies.next_msg(2)).data) for _ in range(2)]
        assert sorted(ack["stream"] for ack in acks) == ["one", "two"]


async def test_without_the_subject_of_a_stream(
    tmp_path: Path, start_nats: StartNats, connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    server = start_nats('"orders.>"')
    async with local(tmp_path, server) as node:
        await node.create("orders", subjects=("orders", "orders.>"))
        nc: Client = await connect(server.url)
        await until(lambda: bool(forbidden(caplog)))
        with pytest.raises(NoRespondersError):
            await nc.request("orders.a", b"x", timeout=5)
        assert json.loads((await nc.request("orders", b"x")).data)["seq"] == 1
        server.kill()
        server.start()
        counted = "streamlog_nats_permission_violations_total"
        await until(lambda: node.count(counted, operation="subscribe") == 2)
        (told,) = forbidden(caplog)
        assert 'Subscription to "orders.>"' in told[0]
        assert "docs/nats.md" in told[1]


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ('"$JS.streamlog.API.>', "$JS.streamlog.API.>"),
    ],
)
async def test_without_what_the_management_api_listens_to(
    tmp_path: Path, start_nats: StartNats, connect: Connect,
    caplog: pytest.LogCaptureFixture, line: str, subject: str,
) -> None:  # fmt: skip
    server = start_nats(line)
    async with local(tmp_path, server) as node:
        await until(lambda: node.api.complaint is not None)
        (told,) = forbidden(caplog)
        assert f'Subscription to "{subject}"' in told[0]
        assert str(node.api.complaint) == f"{told[0]}: {told[1]}"
        await node.create("orders")
        nc: Client = await connect(server.url)
        assert json.loads((await nc.request("orders", b"x")).data)["seq"] == 1
        server.kill()
        server.write(permissions())
        server.start()
        await until(lambda: node.api.complaint is None)
        await answered(nc.jetstream(domain="streamlog"))


async def answered(js: JetStreamContext) -> None:
    """As soon as node and client are both back at NATS: a complaint ends with the connection."""
    async with asyncio.timeout(30):
        while True:
            try:
                await js.stream_info("orders")
            except (nats.errors.Error, ServiceUnavailableError):
                await asyncio.sleep(0.05)
            else:
                return


async def test_without_answers(
    tmp_path: Path, start_nats: StartNats, connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Nobody can be told anything: it is stored, the node says why the publisher hears nothing."""
    server = start_nats("allow_responses")
    async with local(tmp_path, server) as node:
        await node.create("orders")
        nc: Client = await connect(server.url)
        with pytest.raises(nats.errors.TimeoutError):
            await nc.request("orders", b"x", timeout=0.3)
        assert [record.value for record in await node.records("orders")] == [b"x"]
        await until(lambda: bool(forbidden(caplog)))
        ((error, _),) = forbidden(caplog)
        assert 'Publish to "_INBOX.' in error
        counted = "streamlog_nats_permission_violations_total"
        assert node.count(counted, operation="publish") == 1
