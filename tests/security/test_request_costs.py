"""The script that tells what requests cost knows all requests, and large ones take turns."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.admin.verbs import Verbs
from streamlog.errors import StreamlogError
from streamlog.server import dispatch
from streamlog.wire import control
from streamlog.wire.entity import STEP_ITEMS
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import FETCH, PRODUCE
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
    return header + control.encode_request(api, version, body)


def has_lists(kind: str) -> bool:
    api, version, _ = kafka_requests(1)[kind]
    schema = control._request_codec(api, version)
    return schema.read_steps is not None


def test_each_api_that_is_answered_has_a_row() -> None:
    kinds = kafka_requests(3)
    assert {api.key for api, _, _ in kinds.values()} == SPOKEN
    for kind in kinds:
        assert len(encoded(kind, 3)) <= len(encoded(kind, 300)), "it grows, or has nothing to grow"


def test_each_verb_has_a_row() -> None:
    nothing: Any = SimpleNamespace()
    verbs = Verbs(nothing, nothing, domain="streamlog", now_ms=lambda: 0)
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


LARGE = [kind for kind in kafka_requests(1) if has_lists(kind)]


@pytest.mark.parametrize("kind", LARGE)
async def test_a_large_request_takes_turns(
    kind: str, node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With turns of no time each step is one, so that they can be counted."""
    monkeypatch.setattr("streamlog.turns.TURN_S", 0.0)
    data, turns = encoded(kind, SIZE), 0
    by_hand = int.from_bytes(data[:2]) in (FETCH, PRODUCE)
    if by_hand or len(data) <= dispatch.AT_ONCE_BYTES:
        pytest.skip("it does not grow, or is read by hand")
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
