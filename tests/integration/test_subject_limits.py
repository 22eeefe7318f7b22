"""``max_msgs_per_subject`` beside a JetStream server: what is there after the same publishes."""

import asyncio
import base64
import random
from typing import Any, Final

import pytest

from tests.integration.jetstream_pair import Pair, Side
from tests.integration.raw_publisher import header_block

AGREED_S: Final = 10.0


async def held(side: Side, name: str) -> dict[str, Any]:
    """All that a stream tells of its messages, but for their sequences; in the end its parts agree."""
    async with asyncio.timeout(AGREED_S):
        while True:
            info = await side.api(f"STREAM.INFO.{name}", subjects_filter=">")
            found = await held_since(side, name, info["state"])
            if found is not None:
                return found


async def held_since(side: Side, name: str, state: dict[str, Any]) -> dict[str, Any] | None:
    """None: STREAM.INFO gave another first message, or another number of them, in ``state``, as while one expires."""
    found, sequence = [], state["first_seq"]
    while True:
        reply = await side.api(f"STREAM.MSG.GET.{name}", seq=sequence, next_by_subj=">")
        if "error" in reply:
            break
        message = reply["message"]
        data = base64.b64decode(message.get("data", ""))
        hdrs = base64.b64decode(message.get("hdrs", ""))
        found.append((message["subject"], data, hdrs))
        if len(found) == 1 and message["seq"] != sequence:
            return None
        sequence = message["seq"] + 1
    if len(found) != state["messages"]:
        return None
    last = {}
    for subject in {subject for subject, _, _ in found}:
        reply = await side.api(f"STREAM.MSG.GET.{name}", last_by_subj=subject)
        gone_by_now = "error" in reply  # as a message may that expires
        last[subject] = None if gone_by_now else base64.b64decode(reply["message"].get("data", ""))
    return {
        "found": found,
        "last": last,
        "messages": state["messages"],
        "num_subjects": state.get("num_subjects", 0),
        "subjects": state.get("subjects"),
    }


async def same(pair: Pair, name: str) -> dict[str, Any]:
    theirs, ours = [await held(side, name) for side in pair.sides]
    assert ours == theirs
    return ours


async def put(pair: Pair, subject: str, payload: bytes, *lines: str) -> None:
    """Both answer the same, but for sequences."""
    answers = []
    for side in pair.sides:
        block = header_block(*lines) if lines else None
        answer = await side.publisher.ask(subject, payload, block)
        assert answer is not None
        told = answer.get("error", {})
        answers.append({**told, "description": told.get("description", "").rstrip("0123456789")})
    assert answers[0] == answers[1]


async def change(pair: Pair, name: str, **fields: Any) -> None:
    for side in pair.sides:
        config = (await side.api(f"STREAM.INFO.{name}"))["config"]
        reply = await side.api(f"STREAM.UPDATE.{name}", **{**config, **fields})
        assert "error" not in reply, reply
        assert {key: reply["config"][key] for key in fields} == fields


@pytest.mark.parametrize("kept", [1, 3])
async def test_the_newest_of_each_subject(pair: Pair, kept: int) -> None:
    name = await pair.create(max_msgs_per_subject=kept)
    chosen = random.Random(kept)
    for number in range(60):
        await put(pair, f"{name}.{chosen.randrange(8)}", b"%d" % number)
        if number % 13 == 0:
            await same(pair, name)
    found = await same(pair, name)
    assert found["num_subjects"] == 8
    assert found["messages"] <= 8 * kept


async def test_another_limit(pair: Pair) -> None:
    name = await pair.create()
    for number in range(20):
        await put(pair, f"{name}.{number % 3}", b"%d" % number)
    assert (await same(pair, name))["messages"] == 20
    for limit in (5, 2, 4, 1):
        await change(pair, name, max_msgs_per_subject=limit)
        await same(pair, name)
        for number in range(3):
            await put(pair, f"{name}.1", b"%d of %d" % (number, limit))
        await same(pair, name)
    await change(pair, name, max_msgs_per_subject=-1)
    await put(pair, f"{name}.1", b"more")
    assert (await same(pair, name))["messages"] == 4


async def test_beside_other_limits(pair: Pair) -> None:
    """As a bucket of keys has it, which refuses what is new when it is full."""
    name = await pair.create(max_msgs_per_subject=1, max_msgs=4, discard="new")
    for number in range(12):
        await put(pair, f"{name}.{number % 6}", b"%d" % number)
        await put(pair, f"{name}.1", b"%d" % number)
    await same(pair, name)


async def test_what_a_publisher_expects(pair: Pair) -> None:
    name = await pair.create(max_msgs_per_subject=1)
    for subject in ("a", "a", "b", "a"):
        await put(pair, f"{name}.{subject}", b"x")
    await same(pair, name)
    for side in pair.sides:
        last = (await side.api(f"STREAM.INFO.{name}"))["state"]["last_seq"]
        for expected in (last, last + 1):
            block = header_block(f"Nats-Expected-Last-Sequence: {expected}")
            answer = await side.publisher.ask(f"{name}.a", b"x", block)
            assert answer is not None and answer.get("seq") == expected + 1, answer
    await same(pair, name)


async def test_purges(pair: Pair) -> None:
    name = await pair.create(max_msgs_per_subject=2)
    for number in range(12):
        await put(pair, f"{name}.{number % 3}", b"%d" % number)
    for fields in ({"filter": f"{name}.1", "keep": 1}, {"filter": f"{name}.2"}, {"keep": 1}):
        purged = [
            (await side.api(f"STREAM.PURGE.{name}", **fields))["purged"] for side in pair.sides
        ]
        assert purged[0] == purged[1]
        await same(pair, name)


async def test_a_bad_limit(pair: Pair) -> None:
    for limit in (0, -5, "x", 2.5, True):
        replies = []
        for number, side in enumerate(pair.sides):
            body = {"name": f"bad{number}", "max_msgs_per_subject": limit}
            reply = await side.api(f"STREAM.CREATE.bad{number}", **body)
            await side.api(f"STREAM.DELETE.bad{number}")
            told = reply.get("error", {}).get("err_code")
            replies.append((told, reply.get("config", {}).get("max_msgs_per_subject")))
        assert replies[0] == replies[1]


async def test_what_is_too_much_is_not_found_right_after_the_message_that_made_it_so(
    pair: Pair,
) -> None:
    """By sequence, and as the next of its subject."""
    await pair.create("s", subjects=["s.*"], max_msgs_per_subject=2, allow_direct=True)
    for side in pair.sides:
        sequences = list[int]()
        for number in range(40):
            answer = await side.publisher.ask("s.a", b"%d" % number)
            assert answer is not None
            sequences.append(answer["seq"])
            for gone in sequences[-4:-2]:
                reply = await side.api("STREAM.MSG.GET.s", seq=gone)
                assert reply.get("error", {}).get("err_code") == 10037, (side, number, reply)
            if number:
                reply = await side.api("STREAM.MSG.GET.s", seq=1, next_by_subj="s.a")
                assert reply["message"]["seq"] == sequences[-2]
