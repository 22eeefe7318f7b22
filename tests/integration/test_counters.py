"""Counters beside a JetStream server, and through failures of three nodes."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import pytest

from tests.integration.jetstream_pair import Message, Pair, Side
from tests.integration.raw_publisher import header_block

LARGE = "9" * 300


def add(subject: str, number: object, *lines: str, payload: bytes = b"") -> Message:
    return subject, payload, header_block(f"Nats-Incr: {number}", *lines)


def told(answers: list[Any]) -> list[object]:
    """The value of each counter, or the code of the refusal."""
    return [it["error"]["err_code"] if "error" in it else it.get("val") for it in answers]


async def stored(side: Side, name: str, last: int) -> list[tuple[str, bytes, bytes]]:
    """Subject, headers, payload."""
    found = []
    for seq in range(1, last + 1):
        message = (await side.api(f"STREAM.MSG.GET.{name}", seq=seq))["message"]
        data, headers = (b64decode(message.get(key, "")) for key in ("data", "hdrs"))
        found.append((message["subject"], headers, data))
    return found


async def assert_same(pair: Pair, name: str) -> None:
    last = (await pair.sides[0].state(name))["last_seq"]
    theirs, ours = [await stored(side, name, last) for side in pair.sides]
    assert ours == theirs


async def test_values(pair: Pair) -> None:
    name = await pair.create(allow_msg_counter=True)
    answers = await pair.tell(
        name,
        [
            add(f"{name}.a", number)
            for number in (1, "+2", "-10", 0, LARGE, f"-{LARGE}", "007", "-0", "+0")
        ],
    )
    assert told(answers) == [
        "1", "3", "-7", "-7", str(int(LARGE) - 7), "-7", "0", "0", "0",
    ]  # fmt: skip
    assert told(await pair.tell(name, [add(f"{name}.b", 5), add(name, 6)])) == ["5", "6"]
    await assert_same(pair, name)


async def newest(side: Side, name: str, subject: str) -> tuple[int, Any] | None:
    """A counter's value, and what its sources have brought."""
    reply = await side.api(f"STREAM.MSG.GET.{name}", last_by_subj=subject)
    if "error" in reply:
        return None
    message = reply["message"]
    value = int(json.loads(b64decode(message["data"]))["val"])
    lines = b64decode(message.get("hdrs", "")).decode().split("\r\n")
    told = dict(line.split(": ", 1) for line in lines if ": " in line)
    return value, json.loads(told.get("Nats-Counter-Sources", "null"))


async def until_newest(side: Side, name: str, subject: str, value: int) -> Any:
    """What the sources have brought then."""
    async with asyncio.timeout(20):
        while True:
            found = await newest(side, name, subject)
            if found is not None and found[0] == value:
                return found[1]
            await asyncio.sleep(0.02)


async def test_sources_are_added_up(pair: Pair) -> None:
    a, b = [await pair.create(allow_msg_counter=True) for _ in range(2)]
    name, chained = pair.new_name(), pair.new_name()
    for side in pair.sides:
        sources = [
            {"name": it, "subject_transforms": [{"src": f"{it}.>", "dest": f"{name}.>"}]}
            for it in (a, b)
        ]
        await side.create(name, allow_msg_counter=True, sources=sources)
        await side.create(chained, allow_msg_counter=True, sources=[{"name": name}], subjects=[])
    await pair.tell(a, [add(f"{a}.x", 5), add(f"{a}.x", 2), add(f"{a}.y", 1)])
    await pair.tell(b, [add(f"{b}.x", -3), add(f"{b}.x", LARGE), add(f"{b}.x", f"-{LARGE}")])
    x, y = f"{name}.x", f"{name}.y"
    for side in pair.sides:
        brought = await until_newest(side, name, x, 4)
        assert brought == {a: {f"{a}.x": "7"}, b: {f"{b}.x": "-3"}}
        assert await until_newest(side, name, y, 1) == {a: {f"{a}.y": "1"}}
        answer = await side.publisher.ask(*add(x, 10))
        assert answer is not None
        assert answer["val"] == "14"
        assert await newest(side, name, x) == (14, brought)
        assert await until_newest(side, chained, x, 14) == {name: {x: "14"}}
    await pair.tell(a, [add(f"{a}.x", 1), add(f"{a}.y", -1)])
    for side in pair.sides:
        assert (await until_newest(side, name, x, 15))[a] == {f"{a}.x": "8"}
        await until_newest(side, name, y, 0)
        await side.api(f"STREAM.PURGE.{name}")  # what was sourced is forgotten with it
    await pair.tell(a, [add(f"{a}.x", 1)])
    for side in pair.sides:
        assert await until_newest(side, name, x, 9) == {a: {f"{a}.x": "9"}}
        await until_newest(side, chained, x, 9)


async def test_source_that_is_no_counter_is_told(pair: Pair) -> None:
    ours = pair.sides[1]
    plain, name = pair.new_name(), pair.new_name()
    await ours.create(plain)
    await ours.publisher.ask(plain, b"x", None)
    await ours.create(name, allow_msg_counter=True, sources=[{"name": plain}])
    async with asyncio.timeout(20):
        while True:
            (source,) = (await ours.api(f"STREAM.INFO.{name}"))["sources"]
            if "error" in source:
                break
            await asyncio.sleep(0.05)
    told = f"message counter increment is missing: message 1 of {plain}"
    assert source["error"]["description"].endswith(told)
    assert (await ours.state(name))["messages"] == 0


REFUSED = [
    ("1", ()), ("x", ()), ("1.5", ()), ("1_0", ()), ("1 ", ()), ("", ()), ("--1", ()), ("+", ()),
    ("0x10", ()), ("1e3", ()), ("\u0661", ()),
    ("2", ("Nats-Rollup: sub",)), ("2", ("Nats-Expected-Stream: {name}",)),
    ("2", ("Nats-Expected-Last-Msg-Id: a",)), ("2", ("Nats-Expected-Last-Sequence: 1",)),
    ("2", ("Nats-Expected-Last-Subject-Sequence: 1",)),
    ("2", ("Nats-Expected-Last-Subject-Sequence-Subject: a",)),
    ("2", ("Nats-TTL: 1",)), ("x", ("Nats-TTL: 1",)), ("2", ("Nats-Msg-Id: i",)),
    ("2", ("Nats-Msg-Id: i",)), ("", ("Nats-Msg-Id: i",)), ("", ("Nats-Msg-Id: j",)),
    ("", ("Nats-Rollup: sub",)), ("", ("Nats-Rollup: x",)), ("", ("Nats-Expected-Last-Msg-Id: q",)),
    ("", ("Nats-Expected-Last-Sequence: 77",)), ("2", ("Nats-Schedule: x",)),
    ("2", ("Nats-Stream-Source: x",)), ("2", ("Nats-Expected-Stream: other",)),
    ("x", ("Nats-Rollup: sub",)), ("2", ("Nats-Other: 1",)),
]  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"allow_rollup_hdrs": True}, {"off": True}])
async def test_refusals(pair: Pair, settings: dict[str, Any]) -> None:
    config = {} if settings.pop("off", False) else {"allow_msg_counter": True, **settings}
    name = await pair.create(**config)
    differing: dict[object, object] = {}
    for text, lines in REFUSED:
        for payload in (b"", b"x"):
            filled = [line.replace("{name}", name) for line in lines]
            message = add(name, text, *filled, payload=payload)
            theirs, ours = [await side.publisher.ask(*message) for side in pair.sides]
            for answer in (theirs, ours):
                assert answer is not None
                answer.pop("domain", None)
            if theirs != ours:
                differing[text, lines, payload] = theirs, ours
    for message in ((name, b"", None), (name, b"x", None), (name, b"", header_block("a: 1"))):
        theirs, ours = [await side.publisher.ask(*message) for side in pair.sides]
        if (theirs or {}).get("error") != (ours or {}).get("error"):
            differing[message] = theirs, ours
    assert differing == {}
    await assert_same(pair, name)


async def test_batches(pair: Pair) -> None:
    name = await pair.create(allow_msg_counter=True, allow_atomic=True)

    def part(sequence: int, number: object, *lines: str, **more: Any) -> Message:
        named = ("Nats-Batch-Id: b", f"Nats-Batch-Sequence: {sequence}")
        return add(f"{name}.{sequence % 2}", number, *named, *lines, **more)

    await pair.tell(name, [add(f"{name}.0", 100), add(f"{name}.1", 1000)])
    commit = "Nats-Batch-Commit: 1"
    stories = [
        [part(1, 1), part(2, 2), part(3, 3, commit)],
        [part(1, 1), part(2, 2), part(3, 3, "Nats-Batch-Commit: eob")],
        [part(1, 1), part(2, "x", commit)],
        [part(1, 1), part(2, "", commit)],
        [part(1, 1, payload=b"x"), part(2, 1, commit)],
        [part(1, 1), part(2, 1, commit, payload=b"x")],
        [part(1, 1, "Nats-Msg-Id: i"), part(2, 1, commit)],
        [part(1, 1, "Nats-Msg-Id: i"), part(2, 1, commit)],
        [part(1, 1), part(2, 1, "Nats-Rollup: sub", commit)],
        [add(f"{name}.0", 1)],
    ]
    for story in stories:
        await pair.tell(name, story)
    await assert_same(pair, name)


async def test_what_is_deleted_counts_no_more(pair: Pair) -> None:
    name = await pair.create(allow_msg_counter=True, allow_direct=True)
    await pair.tell(name, [add(f"{name}.a", 1), add(f"{name}.a", 10), add(f"{name}.b", 100)])
    for side in pair.sides:
        assert (await side.api(f"STREAM.MSG.DELETE.{name}", seq=2))["success"]
    for side in pair.sides:
        answer = await side.publisher.ask(*add(f"{name}.a", 1000))
        assert answer is not None
        assert answer["val"] == "1001"
        assert (await side.api(f"STREAM.PURGE.{name}", filter=f"{name}.a"))["success"]
        answer = await side.publisher.ask(*add(f"{name}.a", 3))
        assert answer is not None
        assert answer["val"] == "3"


async def test_config(pair: Pair) -> None:
    for config in (
        {"discard": "new"}, {"allow_msg_ttl": True}, {"retention": "interest"},
        {"retention": "workqueue"}, {"mirror": {"name": "o"}, "subjects": []}, {},
    ):  # fmt: skip
        name = pair.new_name()
        body = {"name": name, "subjects": [name], "allow_msg_counter": True, **config}
        theirs, ours = [await side.api(f"STREAM.CREATE.{name}", **body) for side in pair.sides]
        assert ours.get("error") == theirs.get("error")
    for side in pair.sides:
        info = await side.api(f"STREAM.INFO.{name}")
        assert info["config"]["allow_msg_counter"] is True
    for change in ({"allow_msg_counter": False}, {"allow_msg_counter": True, "discard": "new"}):
        body = {"name": name, "subjects": [name], **change}
        theirs, ours = [await side.api(f"STREAM.UPDATE.{name}", **body) for side in pair.sides]
        assert ours.get("error") == theirs.get("error") is not None
    plain = await pair.create()
    body = {"name": plain, "subjects": [plain, f"{plain}.>"], "allow_msg_counter": True}
    theirs, ours = [await side.api(f"STREAM.UPDATE.{plain}", **body) for side in pair.sides]
    assert ours.get("error") == theirs.get("error") is not None


async def test_many_publishers_at_once(pair: Pair) -> None:
    """A value is told once, and the last one is the sum."""
    name = await pair.create(allow_msg_counter=True)
    side = pair.sides[1]
    values: list[int] = []

    async def publish(number: int) -> None:
        for _ in range(50):
            answer = await side.publisher.client.request(
                f"{name}.{number % 3}", b"", headers={"Nats-Incr": "1"}, timeout=10
            )
            values.append(int(json.loads(answer.data)["val"]))

    await asyncio.gather(*(publish(number) for number in range(30)))
    assert sorted(values) == sorted(3 * list(range(1, 501)))
