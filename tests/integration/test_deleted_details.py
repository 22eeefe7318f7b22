"""What STREAM.INFO counts and lists of deleted messages, compared with nats-server: as long as no message follows."""

import asyncio
from typing import Any

import pytest

from tests.integration.jetstream_pair import Pair, Side

NO_MESSAGE_FOUND = 10037
TOLD = ("messages", "first_seq", "last_seq", "num_deleted", "deleted")


async def told(side: Side, name: str) -> dict[str, Any]:
    state = (await side.api(f"STREAM.INFO.{name}", deleted_details=True))["state"]
    return {key: state.get(key) for key in TOLD}


async def test_only_messages_are_counted(pair: Pair) -> None:
    """An erasure behind the last message is no sequence that a user has seen."""
    name = await pair.create()
    await pair.tell(name, [(f"{name}.{at % 3}", b"%d" % at, None) for at in range(12)])
    requests: list[tuple[str, dict[str, Any]]] = [
        ("STREAM.MSG.DELETE", {"seq": 5}),
        ("STREAM.MSG.DELETE", {"seq": 12}),
        ("STREAM.MSG.DELETE", {"seq": 1}),
        ("STREAM.PURGE", {"filter": f"{name}.1"}),
        ("STREAM.PURGE", {"filter": f"{name}.2", "keep": 1}),
    ]
    for verb, request in requests:
        for side in pair.sides:
            answer = await side.api(f"{verb}.{name}", **request)
            assert answer.get("success"), answer
        theirs, ours = [await told(side, name) for side in pair.sides]
        assert ours == theirs, request


async def test_a_message_has_come_since(pair: Pair) -> None:
    """Then the erasure is a sequence like that of a deleted message: numbers and sequences always fit together."""
    name = await pair.create()
    ours = pair.sides[1]
    await pair.tell(name, [(name, b"%d" % at, None) for at in range(3)])
    await ours.api(f"STREAM.MSG.DELETE.{name}", seq=2)
    assert (await ours.publisher.ask(name, b"", None) or {})["seq"] == 5
    assert await told(ours, name) == {
        "messages": 3, "first_seq": 1, "last_seq": 5, "num_deleted": 2, "deleted": [2, 4],
    }  # fmt: skip


def headers(line: str) -> bytes:
    return f"NATS/1.0\r\n{line}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("config", "messages", "erases"),
    [
        ({}, [("a", None)] * 3, ("STREAM.MSG.DELETE", {"seq": 2})),
        ({}, [("a", None), ("b", None), ("a", None)], ("STREAM.PURGE", {"filter": "b"})),
        ({"storage": "memory"}, [("a", None)] * 3, ("STREAM.MSG.DELETE", {"seq": 2})),
        ({"max_msgs_per_subject": 1}, [("a", None), ("b", None), ("b", None)], None),
        (
            {"allow_msg_ttl": True},
            [("a", None), ("b", headers("Nats-TTL: 1s")), ("a", None)],
            None,
        ),
        (
            {"allow_rollup_hdrs": True},
            [("a", None), ("b", None), ("b", headers("Nats-Rollup: sub"))],
            None,
        ),
    ],
    ids=["delete", "purge", "memory", "max-per-subject", "ttl", "rollup"],
)
async def test_erasure_is_a_sequence_once_a_message_follows(
    pair: Pair,
    config: dict[str, Any],
    messages: list[tuple[str, bytes | None]],
    erases: tuple[str, dict[str, Any]] | None,
) -> None:
    """Whatever erases: until then both tell the same, and afterwards this is all that differs."""
    name = await pair.create(**config)
    removed = [2]
    for side in pair.sides:
        for token, block in messages:
            await side.publisher.ask(f"{name}.{token}", token.encode(), block)
        if erases is not None:
            verb, asked = erases
            if "filter" in asked:
                asked = {"filter": f"{name}.{asked['filter']}"}
            assert (await side.api(f"{verb}.{name}", **asked))["success"]
        async with asyncio.timeout(10):
            while (await told(side, name))["deleted"] != removed:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    theirs, ours = [await told(side, name) for side in pair.sides]
    assert ours == theirs
    await asyncio.sleep(1)  # what a rule removes is in an erasure half a second later
    for side in pair.sides:
        await side.publisher.ask(f"{name}.c", b"c", None)
    theirs, ours = [await told(side, name) for side in pair.sides]
    assert (theirs["last_seq"], theirs["num_deleted"], theirs["deleted"]) == (4, 1, removed)
    assert ours == {
        **theirs,
        "last_seq": 5,
        "num_deleted": 2,
        "deleted": [*removed, 4],
    }
    none = await pair.sides[1].api(f"STREAM.MSG.GET.{name}", seq=4)
    assert none["error"]["err_code"] == NO_MESSAGE_FOUND


async def test_stream_that_is_empty_begins_behind_its_erasures(pair: Pair) -> None:
    name = await pair.create()
    for side in pair.sides:
        for at in range(3):
            await side.publisher.ask(name, b"%d" % at, None)
        await side.api(f"STREAM.MSG.DELETE.{name}", seq=2)
        await side.api(f"STREAM.PURGE.{name}")
    theirs, ours = [await told(side, name) for side in pair.sides]
    assert theirs == {
        "messages": 0, "first_seq": 4, "last_seq": 3, "num_deleted": None, "deleted": None,
    }  # fmt: skip
    assert ours == {**theirs, "first_seq": 5, "last_seq": 4}


async def test_places_of_sources_are_sequences_too(pair: Pair) -> None:
    origin, name = await pair.create(), pair.new_name()
    for side in pair.sides:
        for at in range(3):
            await side.publisher.ask(origin, b"%d" % at, None)
        await side.create(name, subjects=[name], sources=[{"name": origin}])
        async with asyncio.timeout(20):
            while (await told(side, name))["messages"] != 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    theirs, ours = [await told(side, name) for side in pair.sides]
    assert ours == theirs
    for side in pair.sides:
        await side.publisher.ask(name, b"own", None)
    theirs, ours = [await told(side, name) for side in pair.sides]
    assert (theirs["num_deleted"], ours["messages"]) == (None, theirs["messages"])
    assert ours["deleted"] == [4]
    assert ours["last_seq"] == theirs["last_seq"] + 1
