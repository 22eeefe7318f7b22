"""``max_msgs``, ``max_bytes`` and ``max_age`` beside a JetStream server: what is there after the same publishes."""

import asyncio
import random
import time
from typing import Any

import pytest

from tests.integration.jetstream_pair import Pair, Side
from tests.integration.test_subject_limits import change, held, put, same

SECOND = 10**9
LATE_S = 2.0
"""So much later than its age a message may go, on a machine that is busy."""


@pytest.mark.parametrize("limit", [1, 10, 37])
async def test_the_newest_messages_stay(pair: Pair, limit: int) -> None:
    name = await pair.create(max_msgs=limit)
    for number in range(60):
        await put(pair, f"{name}.{number % 3}", b"%d" % number)
        if number % 7 == 0:
            await same(pair, name)
    found = await same(pair, name)
    assert found["messages"] == limit
    first, last = [(await side.state(name)) for side in pair.sides]
    assert first == last


async def sequences(side: Side, name: str) -> list[int]:
    """Of all messages. Each server has its own: with us an erasure takes one, too."""
    found: list[int] = []
    while True:
        body = {"seq": found[-1] + 1 if found else 1, "next_by_subj": ">"}
        reply = await side.api(f"STREAM.MSG.GET.{name}", **body)
        if "error" in reply:
            return found
        found.append(reply["message"]["seq"])


async def test_what_was_deleted_counts_no_more(pair: Pair) -> None:
    """So more sequences are between the first message and the last one than there may be messages."""
    chosen = random.Random(5)
    name = await pair.create(max_msgs=10)
    for number in range(40):
        await put(pair, name, b"%d" % number)
        await same(pair, name)
        if number % 3 == 0:
            place = chosen.randrange(10)
            for side in pair.sides:
                there = await sequences(side, name)
                if place < len(there):
                    await side.api(f"STREAM.MSG.DELETE.{name}", seq=there[place])
        await same(pair, name)


async def test_a_limit_that_is_lowered_holds_at_once(pair: Pair) -> None:
    name = await pair.create()
    for number in range(20):
        await put(pair, name, b"%d" % number)
    await change(pair, name, max_msgs=7)
    assert (await same(pair, name))["messages"] == 7
    await change(pair, name, max_msgs=-1, max_age=SECOND, duplicate_window=SECOND)
    await all_gone(pair, name)


async def all_gone(pair: Pair, name: str) -> None:
    async with asyncio.timeout(20):
        for side in pair.sides:
            while (await side.state(name))["messages"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_messages_go_one_by_one_when_they_are_too_old(pair: Pair) -> None:
    """While others are written all the time, so that no whole segment is too old."""
    name = await pair.create(max_age=SECOND, duplicate_window=SECOND)
    written: list[float] = []
    ages: list[float] = []
    until = time.monotonic() + 4
    while time.monotonic() < until:
        written.append(time.monotonic())
        await put(pair, name, b"%d" % len(written))
        await asyncio.sleep(0.02)
        state = await pair.sides[1].state(name)
        age = time.monotonic() - written[state["first_seq"] - 1]
        ages.append(age)
        if state["first_seq"] > 1:  # the one before was too old
            assert time.monotonic() - written[state["first_seq"] - 2] > 1
    assert max(ages) < 1 + LATE_S
    await all_gone(pair, name)
    last = [(await side.state(name))["last_seq"] for side in pair.sides]
    assert last == [len(written), len(written)]


async def test_a_bucket_forgets_its_keys(pair: Pair) -> None:
    for side in pair.sides:
        await bucket(side)
    async with asyncio.timeout(20):
        for side in pair.sides:
            client = side.publisher.client
            js = client.jetstream()
            kv = await js.key_value("short")
            while True:
                await kv.put("other", b"y")  # the bucket is written to all the time
                try:
                    await kv.get("k")
                except Exception as error:
                    assert type(error).__name__ == "KeyNotFoundError"
                    break
                await asyncio.sleep(0.02)


async def bucket(side: Side) -> None:
    js = side.publisher.client.jetstream()
    kv = await js.create_key_value(bucket="short", ttl=1)
    await kv.put("k", b"x")
    assert (await kv.get("k")).value == b"x"


async def test_bytes(pair: Pair) -> None:
    """Not exactly JetStream's: each counts what a message takes of its own files."""
    name = await pair.create(max_bytes=20_000)
    for number in range(100):
        await put(pair, name, b"%04d" % number + bytes(1000))
    infos: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        for side in pair.sides:
            while True:
                info = (await side.api(f"STREAM.INFO.{name}"))["state"]
                if info["bytes"] <= 20_000 + 1_200:
                    break
                await asyncio.sleep(0.02)
            infos.append(info)
    assert all(16 <= info["messages"] <= 20 for info in infos), infos
    found = (await held(pair.sides[1], name))["found"]
    assert [int(data[:4]) for _, data, _ in found] == list(range(100 - len(found), 100))
