"""``subject_delete_marker_ttl`` beside a JetStream server: which messages leave a marker, and which do not."""

import asyncio
from typing import Any

import pytest

from tests.integration.jetstream_pair import Pair, Side
from tests.integration.test_subject_limits import change, held, put, same

SECOND = 10**9
WAIT_S = 20.0
SUB, TTL = "Nats-Rollup: sub", "Nats-TTL: 1"


async def both_hold(
    pair: Pair, name: str, count: int, *, markers: int | None = None
) -> dict[str, Any]:
    """Once each has so many messages, and so many of them are markers: they are the same, with the same headers."""

    async def are_there() -> bool:
        for side in pair.sides:
            found = (await held(side, name))["found"]
            if len(found) != count or markers not in (None, sum(map(is_marker, found))):
                return False
        return True

    async with asyncio.timeout(WAIT_S):
        while not await are_there():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return await same(pair, name)


async def first_marker(side: Side, name: str) -> tuple[str, bytes, bytes]:
    """The first marker that ``side`` shows, once it has one."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found: list[tuple[str, bytes, bytes]] = (await held(side, name))["found"]
            for message in found:
                if is_marker(message):
                    return message
            await asyncio.sleep(0.02)


def is_marker(found: tuple[str, bytes, bytes]) -> bool:
    return b"Nats-Marker-Reason: MaxAge" in found[2]


@pytest.mark.parametrize("by", ["max_age", "ttl"])
async def test_the_last_message_of_each_subject_leaves_one(pair: Pair, by: str) -> None:
    config: dict[str, Any] = (
        {"max_age": SECOND, "duplicate_window": SECOND} if by == "max_age" else {}
    )
    name = await pair.create(subject_delete_marker_ttl=3 * SECOND, **config)
    lines = ("Nats-TTL: 3",) if by == "ttl" else ()
    for number in range(7):
        await put(pair, f"{name}.{number % 3}", b"%d" % number, *lines)
    if by == "ttl":
        await put(pair, f"{name}.0", b"stays")
        found = (await both_hold(pair, name, 3, markers=2))["found"]
        assert (f"{name}.0", b"stays", b"") in found
    else:  # where a marker goes by max_age as well, both end with none
        await both_hold(pair, name, 0)
        assert [(await side.state(name))["last_seq"] >= 10 for side in pair.sides] == [True, True]


async def test_a_marker_has_headers_and_goes_without_a_marker(pair: Pair) -> None:
    name = await pair.create(subject_delete_marker_ttl=90 * SECOND)
    await put(pair, f"{name}.a", b"x", "Nats-TTL: 90", "Nats-Msg-Id: a")
    await change(pair, name, subject_delete_marker_ttl=SECOND)
    await put(pair, f"{name}.b", b"x", TTL)
    # It lives for a second: each side's is kept as it is first seen, since a later read may find none.
    markers = await asyncio.gather(*(first_marker(side, name) for side in pair.sides))
    assert markers[0] == markers[1]
    assert markers[1] == (
        f"{name}.b",
        b"",
        b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1s\r\nNats-Rollup: sub\r\n\r\n",
    )
    await both_hold(pair, name, 1)
    await asyncio.sleep(1.5)
    assert len((await same(pair, name))["found"]) == 1


async def test_what_others_remove_leaves_none(pair: Pair) -> None:
    name = await pair.create(subject_delete_marker_ttl=60 * SECOND, max_msgs_per_subject=2)
    for number in range(6):
        await put(pair, f"{name}.{number // 3}", b"%d" % number)
    await same(pair, name)
    await put(pair, f"{name}.r", b"before")
    await put(pair, f"{name}.r", b"rolled up", SUB)
    for side in pair.sides:
        reply = await side.api(f"STREAM.PURGE.{name}", filter=f"{name}.0")
        assert reply["purged"] == 2
    await same(pair, name)
    for side in pair.sides:
        state = (await side.api(f"STREAM.INFO.{name}"))["state"]
        for seq in range(state["first_seq"], state["last_seq"] + 1):
            await side.api(f"STREAM.MSG.DELETE.{name}", seq=seq)
    assert (await same(pair, name))["messages"] == 0


async def test_a_purge_of_a_key_leaves_none(pair: Pair) -> None:
    """It is a marker itself, of a key-value store."""
    name = await pair.create(subject_delete_marker_ttl=60 * SECOND, max_msgs_per_subject=1)
    await put(pair, f"{name}.a", b"1")
    await put(pair, f"{name}.a", b"", "KV-Operation: PURGE", SUB, TTL)
    await put(pair, f"{name}.b", b"1", TTL)
    await put(pair, f"{name}.c", b"", "KV-Operation: DEL", TTL)
    found = (await both_hold(pair, name, 2, markers=2))["found"]
    assert sorted(it[0] for it in found) == [f"{name}.b", f"{name}.c"]


@pytest.mark.parametrize("per_subject", [1, 2, -1])
async def test_a_lifetime_is_no_shorter_than_that_of_markers(pair: Pair, per_subject: int) -> None:
    """Unless a subject has one message alone: else a marker would be there when the next one is due."""
    name = await pair.create(subject_delete_marker_ttl=9 * SECOND, max_msgs_per_subject=per_subject)
    for lines in ((TTL,), (TTL, "X: y"), ("A: b", "Nats-TTL: 1s", "X: y"), ("Nats-TTL: 77",)):
        await put(pair, f"{name}.{len(lines)}", b"x", *lines)
    await same(pair, name)
    await asyncio.sleep(
        1.6
    )  # longer than the shortest lifetime, and much shorter than that of markers
    there = [(await side.state(name))["messages"] for side in pair.sides]
    assert there[0] == there[1]
    await both_hold(pair, name, 3 if per_subject == 1 else 4)


CONFIGS: list[dict[str, Any]] = [
    {"subject_delete_marker_ttl": ttl} for ttl in (-1, 1, SECOND - 1, SECOND, 0, 1_500_000_000)
] + [
    {"subject_delete_marker_ttl": SECOND, **more}
    for more in (
        {"pedantic": True},
        {"pedantic": True, "allow_msg_ttl": True},
        {"pedantic": True, "allow_msg_ttl": True, "allow_rollup_hdrs": True},
        {"deny_purge": True},
        {"deny_purge": True, "allow_rollup_hdrs": True},
        {"discard": "new", "max_msgs": 3},
    )
]


async def test_configs(pair: Pair) -> None:
    names = (
        "subject_delete_marker_ttl", "allow_msg_ttl", "allow_rollup_hdrs", "deny_purge", "max_age",
    )  # fmt: skip
    for config in CONFIGS:
        name = pair.new_name()
        told = [await side.api(f"STREAM.CREATE.{name}", name=name, **config) for side in pair.sides]
        assert told[0].get("error") == told[1].get("error"), config
        if "error" not in told[0]:
            theirs, ours = [{it: reply["config"].get(it) for it in names} for reply in told]
            assert theirs == ours, config


async def test_updates(pair: Pair) -> None:
    name = await pair.create()
    await change(pair, name, subject_delete_marker_ttl=SECOND)
    for side in pair.sides:
        config = (await side.api(f"STREAM.INFO.{name}"))["config"]
        assert config["allow_msg_ttl"] is config["allow_rollup_hdrs"] is True
    await change(pair, name, subject_delete_marker_ttl=5 * SECOND)
    for fields in (
        {"subject_delete_marker_ttl": 0, "allow_msg_ttl": False},
        {"subject_delete_marker_ttl": 1},
        {"allow_msg_ttl": False},
        {"subject_delete_marker_ttl": 0},
    ):
        replies = []
        for side in pair.sides:
            config = (await side.api(f"STREAM.INFO.{name}"))["config"]
            replies.append(await side.api(f"STREAM.UPDATE.{name}", **{**config, **fields}))
        assert replies[0].get("error") == replies[1].get("error"), fields
        told = [(it.get("config") or {}).get("allow_msg_ttl") for it in replies]
        assert told[0] == told[1], fields


async def test_a_mirror_has_none(pair: Pair) -> None:
    origin = await pair.create()
    name = pair.new_name()
    for ttl in (SECOND, 1):
        replies = [
            await side.api(
                f"STREAM.CREATE.{name}",
                name=name,
                mirror={"name": origin},
                subject_delete_marker_ttl=ttl,
            )
            for side in pair.sides
        ]
        assert replies[0]["error"] == replies[1]["error"]
