"""Message schedules beside a JetStream server."""

import asyncio
import re
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.integration.jetstream_pair import Message, Pair, Side
from tests.integration.raw_publisher import header_block

FUTURE = "@at 2099-01-01T00:00:00Z"
FIRED_S = 15
"""Until something must have fired that is due."""


def scheduled(subject: str, spec: str, target: str, *lines: str, payload: bytes = b"x") -> Message:
    wanted = (f"Nats-Schedule: {spec}", f"Nats-Schedule-Target: {target}")
    return subject, payload, header_block(*wanted, *lines)


def at(after_s: float) -> str:
    return "@at " + (datetime.now(UTC) + timedelta(seconds=after_s)).isoformat()


async def stored(side: Side, name: str) -> list[tuple[int, str, bytes, bytes]]:
    """Sequence, subject, headers, payload of all that is there."""
    state = await side.state(name)
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = await side.api(f"STREAM.MSG.GET.{name}", seq=seq)
        if "error" not in answer:
            message = answer["message"]
            data, headers = (b64decode(message.get(key, "")) for key in ("data", "hdrs"))
            found.append((seq, message["subject"], headers, data))
    return found


async def until(side: Side, name: str, subject: str, count: int) -> list[tuple[bytes, bytes]]:
    """The headers and payloads of the first messages on the subject, once there are so many."""
    async with asyncio.timeout(FIRED_S):
        while True:
            there = [it[2:] for it in await stored(side, name) if it[1] == subject]
            if len(there) >= count:
                return there[:count]
            await asyncio.sleep(0.1)


def without_times(headers: bytes) -> bytes:
    return re.sub(rb"(?<=Next: )\d[^\r]*", b"TIME", headers)


VALID = [
    FUTURE, "@at 2099-01-01T00:00:00+01:00", "@at 2099-01-01T5:00:00.5Z", "@every 1s", "@every 1h30m",
    "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "0 30 14 * * *",
    "0 0 0 1 1 ?", "*/5 * 10-12 1,15 jan-mar Mon", "@at 0001-01-01T00:00:00Z", "0 0 0 29 2 *",
]  # fmt: skip
INVALID = [
    "x", "@at", "@at ", "@at 2099", "@at 2099-13-01T00:00:00Z", "@at 2099-01-01t00:00:00Z", "@every", "@every 1",
    "@every 999ms", "@every -1s", "@every 1d", "@Hourly", "@never", "* * * * *", "* * * * * * *", "60 * * * * *",
    "* * 24 * * *", "* * * 0 * *", "* * * * 13 *", "* * * * * 7", "0 0 0 31 2 *", "*/0 * * * * *", "5-1 * * * * *",
    "1-2-3 * * * * *", "* * * * foo *",
]  # fmt: skip
ZONES = [
    "",
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Nowhere/Else",
    "../UTC",
    "/UTC",
    "europe",
]
TARGETS = [
    "",
    "{name}",
    "{name}.a",
    "{name}.*",
    "{name}.>",
    "elsewhere",
    "{name}..b",
    "{name}.b c",
    ".",
    "{name}.t",
]


def refusal_messages(name: str) -> list[Message]:
    """What is published one by one, in a stream that takes schedules and in one that does not."""
    subject, target = f"{name}.a", f"{name}.t"
    found = [scheduled(subject, spec, target) for spec in (*VALID, *INVALID, "")]
    for spec in (FUTURE, "@every 1h", "0 0 * * * *", "@hourly", "x", ""):
        found += [
            scheduled(subject, spec, target, f"Nats-Schedule-Time-Zone: {zone}") for zone in ZONES
        ]
    found += [scheduled(subject, FUTURE, it.format(name=name)) for it in TARGETS]
    found += [
        scheduled(subject, FUTURE, target, f"Nats-Schedule-Source: {it.format(name=name)}")
        for it in (*TARGETS, "{name}.s")
    ]
    for lines in (
        ("Nats-Schedule-TTL: 5s",), ("Nats-Schedule-TTL: 5",), ("Nats-Schedule-TTL: x",), ("Nats-Schedule-TTL: 0",),
        ("Nats-Schedule-TTL: 500ms",), ("Nats-Schedule-TTL: never",), ("Nats-Schedule-Rollup: sub",),
        ("Nats-Schedule-Rollup: all",), ("Nats-Schedule-Rollup: Sub",), ("Nats-Rollup: sub",), ("Nats-Rollup: SUB",),
        ("Nats-Rollup: all",), ("Nats-Rollup: x",), ("Nats-TTL: 100",), ("Nats-TTL: x",),
        ("Nats-Expected-Stream: x", "Nats-Rollup: all"), ("Nats-Msg-Id: i",), ("Nats-Msg-Id: i",),
        ("Nats-Schedule-Rollup: x", "Nats-Schedule-TTL: x"), ("Nats-Stream-Source: x",),
        ("Nats-Scheduler: x",), ("Nats-Schedule-Next: purge",), ("Nats-Schedule-Next: x",),
        ("Nats-Schedule-TTL: 5s", "Nats-Rollup: all"), ("Nats-Schedule-Source: q", "Nats-Rollup: all"),
    ):  # fmt: skip
        found.append(scheduled(subject, FUTURE, target, *lines))
    found += [
        (subject, b"x", header_block(f"Nats-Schedule: {FUTURE}")),
        (subject, b"x", header_block("Nats-Schedule-Time-Zone: nowhere")),
        (subject, b"x", header_block("Nats-Schedule-Time-Zone: UTC")),
        (subject, b"x", header_block("Nats-Schedule-Target: x", "Nats-Schedule-TTL: x")),
    ]
    plain, schedule, nothing = f"{name}.plain", f"{name}.schedule", f"{name}.nothing"
    found += [(plain, b"x", None), scheduled(schedule, FUTURE, target)]
    for next_, scheduler in (
        ("purge", ""), ("purge", subject), ("purge", plain), ("purge", nothing), ("purge", f"{name}.*"),
        ("purge", "else where"), ("x", schedule), ("", schedule), ("2099-01-01T00:00:00Z", schedule),
        ("purge", schedule), ("purge", schedule),
    ):  # fmt: skip
        lines = (f"Nats-Schedule-Next: {next_}", f"Nats-Scheduler: {scheduler}")
        found.append((subject, b"end", header_block(*lines)))
    return found


@pytest.mark.parametrize(
    "config",
    [
        {"allow_msg_schedules": True},
        {"allow_msg_schedules": True, "allow_msg_ttl": True},
        {},
        {"allow_rollup_hdrs": True, "allow_msg_ttl": True},
    ],
    ids=str,
)
async def test_answers(pair: Pair, config: dict[str, Any]) -> None:
    name = await pair.create(**config)
    differing: dict[object, object] = {}
    for message in refusal_messages(name):
        answers = [await side.publisher.ask(*message) for side in pair.sides]
        theirs, ours = [_without_sequence(answer) for answer in answers]
        if theirs != ours:
            differing[message] = theirs, ours
    assert differing == {}
    theirs_stored, ours_stored = [
        [it[1:] for it in await stored(side, name) if it[1] != f"{name}.t"] for side in pair.sides
    ]
    assert ours_stored == theirs_stored


def _without_sequence(answer: Any) -> Any:
    """An erasure takes a sequence here."""
    return {key: it for key, it in (answer or {}).items() if key not in ("domain", "seq")}


async def test_batches(pair: Pair) -> None:
    name = await pair.create(allow_msg_schedules=True, allow_atomic=True)
    commit = "Nats-Batch-Commit: 1"

    def part(number: int, subject: str, *lines: str) -> Message:
        named = ("Nats-Batch-Id: b", f"Nats-Batch-Sequence: {number}")
        return f"{name}.{subject}", b"x", header_block(*named, *lines)

    wanted = (f"Nats-Schedule: {FUTURE}", f"Nats-Schedule-Target: {name}.t")
    end = "Nats-Schedule-Next: purge"
    stories = [
        [part(1, "a", *wanted), part(2, "b", *wanted, commit)],
        [part(1, "c", *wanted), part(2, "d", "Nats-Batch-Commit: eob")],
        [part(1, "a", *wanted), part(2, "a", *wanted, commit)],
        [part(1, "a", "Nats-Schedule: x"), part(2, "b", commit)],
        [part(1, "a", *wanted), part(2, "x", end, f"Nats-Scheduler: {name}.a", commit)],
        [part(1, "p"), part(2, "x", end, f"Nats-Scheduler: {name}.p", commit)],
        [part(1, "b", end, f"Nats-Scheduler: {name}.c"), part(2, "e", *wanted, commit)],
    ]
    for story in stories:
        for message in story:
            theirs, ours = [
                _without_sequence(await side.publisher.ask(*message)) for side in pair.sides
            ]
            assert ours == theirs, message
    theirs_stored, ours_stored = [
        [it[1:] for it in await stored(side, name)] for side in pair.sides
    ]
    assert ours_stored == theirs_stored


async def test_what_is_fired_once(pair: Pair) -> None:
    name = await pair.create(allow_msg_schedules=True, allow_msg_ttl=True)
    subject, target = f"{name}.a", f"{name}.t"
    lines = (
        "Nats-Schedule-TTL: 60s", "Nats-Schedule-Rollup: sub", "Nats-Msg-Id: i", "Nats-TTL: 90",
        "Nats-Expected-Last-Subject-Sequence: 0", "A: b", "Nats-Other: c", "Nats-Schedule-Other: d", "A: e",
    )  # fmt: skip
    found = []
    for side in pair.sides:
        await side.publisher.ask(target, b"before", None)
        await side.publisher.ask(*scheduled(subject, at(0.5), target, *lines, payload=b"later"))
        assert [it[1] for it in await stored(side, name)] == [target, subject]
        await until(side, name, target, 1)
        async with asyncio.timeout(FIRED_S):
            # It is read message by message, and what is fired may come meanwhile.
            there = await stored(side, name)
            while [it[3] for it in there] != [b"later"]:
                await asyncio.sleep(0.1)
                there = await stored(side, name)
        found.append([it[1:] for it in there])
    theirs, ours = found
    assert ours == theirs


@pytest.mark.parametrize("spec", ["@every 1s", "@every 1500ms", "* * * * * *"])
async def test_what_is_fired_again_and_again(pair: Pair, spec: str) -> None:
    name = await pair.create(allow_msg_schedules=True)
    subject, target = f"{name}.a", f"{name}.t"
    zone = ("Nats-Schedule-Time-Zone: Asia/Kathmandu",) if spec.startswith("*") else ()
    for side in pair.sides:
        answer = await side.publisher.ask(
            *scheduled(subject, spec, target, *zone, payload=b"again")
        )
        assert answer is not None
        assert "error" not in answer
    theirs, ours = await asyncio.gather(*(until(side, name, target, 3) for side in pair.sides))
    assert [(without_times(headers), data) for headers, data in ours] == [
        (without_times(headers), data) for headers, data in theirs
    ]
    for there in (theirs, ours):
        times = [re.search(rb"Next: ([^\r]*)", headers) for headers, _ in there]
        told = [datetime.fromisoformat(it[1].decode()) for it in times if it is not None]
        steps = {(b - a).total_seconds() for a, b in pairwise(told)}
        assert steps <= ({2.0, 1.5, 2.5} if spec == "@every 1500ms" else {1.0})
        assert all(it.utcoffset() == timedelta(minutes=345 if zone else 0) for it in told)


async def test_the_source_has_its_newest_message_published(pair: Pair) -> None:
    name = await pair.create(allow_msg_schedules=True)
    found = []
    for side in pair.sides:
        for number in (1, 2):
            await side.publisher.ask(f"{name}.s", b"%d" % number, header_block(f"N: {number}"))
        for target, source in (("t", "s"), ("u", "none")):
            line = f"Nats-Schedule-Source: {name}.{source}"
            await side.publisher.ask(
                *scheduled(f"{name}.of{target}", at(0), f"{name}.{target}", line, "Own: 1")
            )
        found.append([await until(side, name, f"{name}.{it}", 1) for it in ("t", "u")])
    theirs, ours = found
    assert ours == theirs


async def test_a_schedule_that_is_replaced_deleted_or_purged_does_not_fire(pair: Pair) -> None:
    name = await pair.create(allow_msg_schedules=True)
    found = []
    for side in pair.sides:
        spec = at(2)
        for subject in ("replaced", "plain", "deleted", "purged", "ended", "kept", "fired-onto"):
            target = f"{name}.t.{subject}"
            answer = await side.publisher.ask(*scheduled(f"{name}.{subject}", spec, target))
            assert answer is not None
            if subject == "deleted":
                deleted = await side.api(f"STREAM.MSG.DELETE.{name}", seq=answer["seq"])
                assert "error" not in deleted
        await side.publisher.ask(*scheduled(f"{name}.replaced", FUTURE, f"{name}.t.x"))
        await side.publisher.ask(f"{name}.plain", b"", None)
        await side.api(f"STREAM.PURGE.{name}", filter=f"{name}.purged")
        end = header_block("Nats-Schedule-Next: purge", f"Nats-Scheduler: {name}.ended")
        await side.publisher.ask(f"{name}.end", b"", end)
        onto = scheduled(f"{name}.onto", at(0), f"{name}.fired-onto")
        await side.publisher.ask(*onto)
        await until(side, name, f"{name}.t.kept", 1)
        await until(side, name, f"{name}.t.fired-onto", 1)
        async with asyncio.timeout(FIRED_S):
            while any(  # noqa: ASYNC110
                it[1].endswith(".kept") and ".t." not in it[1] for it in await stored(side, name)
            ):
                await asyncio.sleep(0.1)
        there = await stored(side, name)
        found.append(sorted(subject for _, subject, *_ in there))
    theirs, ours = found
    assert ours == theirs


CONFIGS: list[dict[str, Any]] = [
    {}, {"allow_rollup_hdrs": False}, {"deny_purge": True}, {"discard": "new"}, {"pedantic": True},
    {"pedantic": True, "allow_rollup_hdrs": True},
    {"allow_msg_counter": True}, {"storage": "memory"}, {"mirror": {"name": "o"}, "subjects": []},
    {"sources": [{"name": "o"}]}, {"sources": [{"name": "o"}, {"name": "o"}]}, {"deny_purge": True, "pedantic": True},
    {"allow_atomic": True}, {"max_msgs_per_subject": 1}, {"sealed": True},
]  # fmt: skip


@pytest.mark.parametrize("more", CONFIGS, ids=str)
async def test_what_a_stream_with_schedules_goes_with(pair: Pair, more: dict[str, Any]) -> None:
    name = pair.new_name()
    wanted = {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True, **more}
    theirs, ours = [
        _config(await side.api(f"STREAM.CREATE.{name}", **wanted)) for side in pair.sides
    ]
    assert ours == theirs
    if "allow_msg_schedules" in theirs:
        for change in (
            {"allow_msg_schedules": False},
            {"allow_rollup_hdrs": False},
            {"deny_purge": True},
        ):
            changed = {**wanted, **change}
            theirs, ours = [
                _config(await side.api(f"STREAM.UPDATE.{name}", **changed)) for side in pair.sides
            ]
            assert ours == theirs, change


async def test_schedules_are_taken_from_an_update_on(pair: Pair) -> None:
    name = await pair.create()
    subject, target = f"{name}.a", f"{name}.t"
    found = []
    for side in pair.sides:
        answers = [await side.publisher.ask(*scheduled(subject, at(0), target))]
        changed = {"name": name, "subjects": [name, f"{name}.>"], "allow_msg_schedules": True}
        reply = await side.api(f"STREAM.UPDATE.{name}", **changed)
        assert "error" not in reply
        answers.append(await side.publisher.ask(*scheduled(subject, at(0), target)))
        found.append(
            ([_without_sequence(it) for it in answers], await until(side, name, target, 1))
        )
    theirs, ours = found
    assert ours == theirs


def _config(reply: dict[str, Any]) -> Any:
    kept = ("allow_msg_schedules", "allow_rollup_hdrs", "deny_purge", "allow_direct")
    config = reply.get("config", {})
    return reply.get("error") or {name: config.get(name) for name in kept}
