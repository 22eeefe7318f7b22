"""A command at a NATS server of somebody else's: whatever that answers, the error is a line."""

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamlog.errors import CorruptData, StreamlogError
from streamlog.jetstream import client as requests
from streamlog.jetstream.client import ManagementClient, stream_details
from streamlog.jetstream.verbs.stream_info import stream_info
from tests.unit.jetstream.verbs.test_stream_info import IMAGE, STREAM

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)
RIGHT = json.loads(json.dumps(stream_info(STREAM, [], image=IMAGE, domain="d", now_ms=9)))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of all that is within."""
    if not isinstance(value, dict):
        return [path]
    inner = [it for key, each in value.items() for it in places(each, (*path, key))]
    return [path, *inner] if path else inner


PLACES = st.sampled_from(places(RIGHT))


def client(*answers: bytes) -> ManagementClient:
    """Of a server that gives these answers, the last one again and again."""
    waiting = list(answers)

    async def request(*_: object, **__: object) -> Any:
        return SimpleNamespace(data=waiting.pop(0) if len(waiting) > 1 else waiting[0])

    found = ManagementClient("nats://127.0.0.1:4222")
    found._client = SimpleNamespace(request=request, new_inbox=str)  # type: ignore[assignment]
    return found


@given(place=PLACES, value=JSON)
@example(place=("cluster",), value=[1])
@example(place=("config",), value="text")
@example(place=("state", "messages"), value="\x1b[2J")
@example(place=("state", "messages"), value=float("inf"))
def test_a_description_of_any_shape(place: tuple[Any, ...], value: Any) -> None:
    info = copy.deepcopy(RIGHT)
    within = info
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    try:
        found = stream_details(info)
    except StreamlogError:
        return
    assert isinstance(found.messages, int)
    assert isinstance(found.leader, str | None)


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"[]", b"7", b"null", b'"error"', b"\xff", b"[" * 100_000, b'{"error":7}', b"{}",
        b'{"error":{"code":[],"err_code":[]}}', b'{"error":{"err_code":{},"description":{}}}',
        b'{"streams":7,"total":1}', b'{"streams":[7],"total":1}', b'{"streams":[],"total":"x"}',
        b'{"purged":[]}', b'{"purged":1e999}', b'{"config":[],"state":[],"created":[]}',
    ],
)  # fmt: skip
async def test_an_answer_of_any_shape(answer: bytes) -> None:
    asks: list[Callable[[Any], Any]] = [
        lambda it: it.list(),
        lambda it: it.info("s"),
        lambda it: it.purge("s"),
    ]
    for ask in asks:
        with pytest.raises(StreamlogError):
            await ask(client(answer))


async def test_a_list_without_an_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LISTED_MAX", 10)
    page = json.dumps({"streams": [RIGHT] * 4, "total": 10**18}).encode()
    with pytest.raises(CorruptData, match="more than 10"):
        await client(page).list()
    whole = json.dumps({"streams": [RIGHT] * 4, "total": 8}).encode()
    assert len(await client(whole).list()) == 8
