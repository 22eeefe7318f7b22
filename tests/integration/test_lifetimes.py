"""``Nats-TTL`` beside a JetStream server."""

import asyncio
from typing import Any

import pytest

from tests.integration.jetstream_pair import Pair
from tests.integration.raw_publisher import header_block
from tests.integration.test_subject_limits import held, put, same

VALUES = [
    "1", "60", "1s", "1.5s", "1h30m", "never", "NEVER", "Never ", "0", "00", "0s", "999ms", "-1",
    "-5s", "x", "1.5", "1d", "1 s", "+3s", "99999999999999999999", "9223372036854775807",
    "1000000000000h", "", "1m0.5s", ".5m", "1_0",
]  # fmt: skip


@pytest.mark.parametrize("allowed", [True, False])
async def test_values(pair: Pair, allowed: bool) -> None:
    name = await pair.create(allow_msg_ttl=allowed)
    differing = {}
    for value in VALUES:
        block = header_block(f"Nats-TTL: {value}")
        theirs, ours = [await side.publisher.ask(name, b"x", block) for side in pair.sides]
        assert theirs is not None and ours is not None
        if theirs.get("error") != ours.get("error"):
            differing[value] = theirs.get("error"), ours.get("error")
    assert differing == {}


async def test_order_of_the_checks(pair: Pair) -> None:
    configs: list[dict[str, Any]] = [{"allow_msg_ttl": True}, {}]
    for config in configs:
        name = await pair.create(allow_atomic=True, **config)
        await put(pair, name, b"x", "Nats-Msg-Id: a")
        for lines in (
            ("Nats-TTL: x", "Nats-Expected-Stream: y"), ("Nats-TTL: x", "Nats-Msg-Id: a"),
            ("Nats-TTL: x", "Nats-Expected-Last-Sequence: 9"), ("Nats-TTL: x", "Nats-Incr: 1"),
            ("Nats-TTL: x", "Nats-Rollup: x"), ("Nats-TTL: x", "Nats-Expected-Last-Msg-Id: z"),
            ("Nats-TTL: 5", "Nats-Expected-Last-Msg-Id: z"), ("Nats-TTL: 5", "Nats-Incr: 1"),
            ("Nats-TTL: 5", "Nats-Expected-Last-Sequence: 9"), ("Nats-TTL: 5", "Nats-Msg-Id: a"),
            ("Nats-Batch-Id: b", "Nats-Batch-Sequence: 1", "Nats-TTL: x"),
            ("Nats-Batch-Id: b", "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1"),
        ):  # fmt: skip
            await put(pair, name, b"y", *lines)
        await same(pair, name)


async def test_messages_go(pair: Pair) -> None:
    name = await pair.create(allow_msg_ttl=True, allow_atomic=True)
    for number in range(6):
        await put(pair, f"{name}.{number % 3}", b"%d" % number, "Nats-TTL: 1")
        await put(pair, f"{name}.{number % 2}", b"kept %d" % number)
    await put(pair, f"{name}.1", b"kept", "Nats-TTL: 1h")
    await put(pair, f"{name}.2", b"kept", "Nats-TTL: never")
    for number, commit in ((1, ()), (2, ("Nats-Batch-Commit: 1",))):
        lines = ("Nats-Batch-Id: b", f"Nats-Batch-Sequence: {number}", "Nats-TTL: 1", *commit)
        await put(pair, f"{name}.b", b"x", *lines)
    assert (await same(pair, name))["messages"] == 16

    async def left() -> list[int]:
        return [(await side.state(name))["messages"] for side in pair.sides]

    async with asyncio.timeout(20):
        while await left() != [8, 8]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    found: dict[str, Any] = await same(pair, name)
    assert found["subjects"] == {f"{name}.0": 3, f"{name}.1": 4, f"{name}.2": 1}
    await put(pair, f"{name}.b", b"after", "Nats-Expected-Last-Subject-Sequence: 0")
    await same(pair, name)


async def test_config(pair: Pair) -> None:
    for config in ({"allow_msg_ttl": True}, {"allow_msg_ttl": False}):
        told = [await side.api("STREAM.CREATE.c", name="c", **config) for side in pair.sides]
        assert told[0].get("error") == told[1].get("error")
    for side in pair.sides:
        assert (await side.api("STREAM.INFO.c"))["config"]["allow_msg_ttl"] is True
    replies = []
    for side in pair.sides:
        config = (await side.api("STREAM.INFO.c"))["config"]
        replies.append(
            (await side.api("STREAM.UPDATE.c", **{**config, "allow_msg_ttl": False})).get("error")
        )
    assert replies[0] == replies[1]


async def test_for_ever_is_not_longer_than_a_max_age(pair: Pair) -> None:
    """Whole segments go by their age; JetStream keeps such a message."""
    name = await pair.create(allow_msg_ttl=True, max_age=3_600_000_000_000)
    block = header_block("Nats-TTL: never")
    theirs, ours = [await side.publisher.ask(name, b"x", block) for side in pair.sides]
    assert theirs is not None and "error" not in theirs
    assert ours is not None and ours["error"]["err_code"] == 10165
    assert (await held(pair.sides[1], name))["messages"] == 0
