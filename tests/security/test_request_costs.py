"""The script that tells what requests cost knows all requests, and large ones take turns."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.errors import MalformedFrame, StreamlogError
from streamlog.jetstream.dispatcher import RequestDispatcher
from streamlog.kafka import dispatch
from streamlog.kafka.handlers import configs, coordinators, metadata, replicas, topics
from streamlog.kafka.handlers.groups import classic_groups
from streamlog.wire import api_messages
from streamlog.wire.cursor import STEP_ITEMS
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import APIS, DESCRIBE_LOG_DIRS, FETCH, PRODUCE
from tests.kafka_node import KafkaNode
from tests.restricted import Asker
from tests.security.request_costs import (
    all_verbs,
    http_requests,
    http_site,
    kafka_requests,
    management_requests,
)

pytestmark = pytest.mark.filterwarnings("ignore:It is recommended to use web.RequestKey")

SPOKEN = {
    FETCH,
    PRODUCE,
    *dispatch._HANDLERS,
    *dispatch._WAITING_HANDLERS,
    *dispatch._LOGIN_HANDLERS,
}
SIZE = 1_000


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as node:
        yield node


def encoded(kind: str, size: int) -> bytes:
    api, version, body = kafka_requests(size)[kind]
    header = encode_request_header(api, version, 7, "costs")
    return header + api_messages.encode_request(api, version, body)


def has_lists(kind: str) -> bool:
    api, version, _ = kafka_requests(1)[kind]
    schema = api_messages._request_codec(api, version)
    return schema.read_steps is not None


def test_each_api_that_is_answered_has_a_row() -> None:
    kinds = kafka_requests(3)
    assert {api.key for api, _, _ in kinds.values()} == SPOKEN
    for kind in kinds:
        assert len(encoded(kind, 3)) <= len(encoded(kind, 300)), "it grows, or has nothing to grow"


def test_each_verb_has_a_row() -> None:
    nothing: Any = SimpleNamespace(leaders=None, metadata_for=lambda _: None)
    verbs = RequestDispatcher(nothing, domain="streamlog", now_ms=lambda: 0)
    asked = {verb for verb, _ in management_requests(verbs, 3).values()}
    assert asked >= set(all_verbs(verbs).values())
    assert all(verbs._routes.find(verb)[0] for verb in asked)


async def test_each_route_of_http_has_rows(node: KafkaNode) -> None:
    site, paths = await http_site(node)
    await site.start()
    runner = site._server._runner
    assert runner is not None
    served = {str(it.resource.canonical) for it in runner.app.router.routes() if it.resource}
    await site.stop()
    assert set(paths) >= served
    assert len(set(http_requests("/", 10).values())) == len(http_requests("/", 10))


class Turns:
    """Counts turns of the event loop, and the most that were ``done`` between two of them."""

    def __init__(self) -> None:
        self.count = self.done = self.longest = 0

    async def run(self) -> None:
        while True:
            before = self.done
            await asyncio.sleep(0)
            self.count += 1
            self.longest = max(self.longest, self.done - before)


@pytest.mark.parametrize(
    ("kind", "module", "name", "most"),
    [
        ("DeleteRecords", topics, "_check_trimmable", 2),
        ("DeleteGroups", classic_groups, "_delete_group", 2),
        ("ElectLeaders", replicas, "_elect_leader", 2),
        ("FindCoordinator", coordinators, "_find_coordinator", 2),
        ("DescribeConfigs", configs, "_described", 2),
        ("DescribeTopicPartitions", metadata, "_described_topic", 2),
        ("DescribeLogDirs", replicas, "_shown_log", 2),
        ("Metadata of all", metadata, "_topic", 2),
    ],
)
async def test_many_things_are_done_in_turns(
    kind: str,
    module: ModuleType,
    name: str,
    most: int,
    node: KafkaNode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(20):
        await node.add_stream(f"stream-{number}", partitions=10)
    monkeypatch.setattr("streamlog.fairness.TURN_S", 0.0)
    turns, do = Turns(), getattr(module, name)

    def counted(*args: Any) -> Any:
        turns.done += 1
        return do(*args)

    monkeypatch.setattr(module, name, counted)
    data, asker = encoded(kind, SIZE), Asker(node.context, enforced=False)
    if kind == "DescribeLogDirs":
        api = APIS[DESCRIBE_LOG_DIRS]
        data = encode_request_header(api, 4, 7, "costs")
        data += api_messages.encode_request(api, 4, {"topics": None})
    counting = asyncio.create_task(turns.run())
    await asyncio.create_task(asker.ask(data))
    counting.cancel()
    asker.close()
    assert turns.done >= 20
    assert turns.longest <= most


LARGE = [kind for kind in kafka_requests(1) if has_lists(kind)]


@pytest.mark.parametrize("kind", LARGE)
async def test_a_large_request_takes_turns(
    kind: str, node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With turns of no time each step is one, so that they can be counted."""
    monkeypatch.setattr("streamlog.fairness.TURN_S", 0.0)
    data, turns = encoded(kind, SIZE), 0
    if len(data) <= api_messages.AT_ONCE_BYTES:
        pytest.skip("it does not grow")
    asker = Asker(node.context)

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    with contextlib.suppress(StreamlogError):  # only nodes may ask
        await asyncio.create_task(asker.ask(data))
    counting.cancel()
    asker.close()
    assert turns >= SIZE // STEP_ITEMS


NODE = Session(Principal.user("node"), "10.0.0.2", "node-2", is_node=True)


@pytest.mark.parametrize("kind", ["Fetch", "Produce"])
async def test_only_a_node_may_name_very_many_partitions(
    kind: str, node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows the reading of a Fetch is not all done in turns."""
    monkeypatch.setattr(api_messages, "ELEMENTS_MAX", 100)
    data = encoded(kind, 101)
    client, other = Asker(node.context), Asker(node.context, session=NODE)
    with pytest.raises(MalformedFrame, match="elements"):
        await client.ask(data)
    assert await other.ask(data)
    client.close()
    other.close()
