"""``Nats-Rollup`` beside a JetStream server: what it leaves, and what is answered."""

import random
from typing import Any

import pytest

from tests.integration.jetstream_pair import Pair
from tests.integration.raw_publisher import header_block
from tests.integration.test_subject_limits import change, put, same

SUB, ALL = "Nats-Rollup: sub", "Nats-Rollup: all"
PERMITTED: dict[str, Any] = {"allow_rollup_hdrs": True}


async def test_of_a_subject_and_of_all(pair: Pair) -> None:
    name = await pair.create(**PERMITTED)
    for number in range(9):
        await put(pair, f"{name}.{number % 3}", b"%d" % number)
    await put(pair, f"{name}.1", b"sub", SUB)
    assert (await same(pair, name))["messages"] == 7
    await put(pair, f"{name}.9", b"the first of its subject", SUB)
    await put(pair, f"{name}.9", b"again", SUB, "Nats-Msg-Id: i")
    await put(pair, f"{name}.9", b"a duplicate", SUB, "Nats-Msg-Id: i")
    await same(pair, name)
    await put(pair, f"{name}.2", b"all", ALL)
    assert (await same(pair, name))["messages"] == 1
    await put(pair, f"{name}.2", b"all", ALL, "Nats-Expected-Last-Subject-Sequence: 1")
    for number in range(4):
        await put(pair, name, b"%d" % number, SUB)
    assert (await same(pair, name))["messages"] == 2


@pytest.mark.parametrize("limits", [{}, {"max_msgs_per_subject": 1}, {"max_msgs_per_subject": 3}])
async def test_of_subjects_that_wildcards_match(pair: Pair, limits: dict[str, Any]) -> None:
    name = await pair.create(allow_atomic=True, **PERMITTED, **limits)
    for pattern in ("a.*", "*.1", "a.>", "b.*.x", ">"):
        for number in range(3):
            for subject in ("a", "a.1", "b.1.x", "b.2"):
                await put(pair, f"{name}.{subject}", b"%d" % number)
        await put(pair, f"{name}.{pattern}", b"sub", SUB)
        await same(pair, name)
    await put(pair, f"{name}.a.1", b"1", "Nats-Batch-Id: b", "Nats-Batch-Sequence: 1")
    last = ("Nats-Batch-Id: b", "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1", SUB)
    await put(pair, f"{name}.a.*", b"2", *last)
    await same(pair, name)
    await put(pair, f"{name}.>", b"all of them", SUB)
    assert (await same(pair, name))["messages"] == 1


@pytest.mark.parametrize(
    "value", ["sub", "SUB", "All", "all ", "subject", 'x"y', "", "none", "sub,all"]
)
@pytest.mark.parametrize("allowed", [True, False])
async def test_values(pair: Pair, value: str, allowed: bool) -> None:
    name = await pair.create(allow_rollup_hdrs=allowed)
    await put(pair, name, b"before")
    message = (name, b"x", header_block(f"Nats-Rollup: {value}"))
    theirs, ours = [await side.publisher.ask(*message) for side in pair.sides]
    assert theirs is not None and ours is not None
    assert ours.get("error") == theirs.get("error")
    await same(pair, name)


async def test_order_of_the_checks(pair: Pair) -> None:
    for config in (PERMITTED, {}):
        name = await pair.create(**config)
        await put(pair, name, b"x", "Nats-Msg-Id: a")
        for lines in (
            ("Nats-Expected-Last-Msg-Id: z", ALL), ("Nats-Expected-Last-Sequence: 9", ALL),
            ("Nats-Msg-Id: a", "Nats-Rollup: x"), ("Nats-Rollup: x", "Nats-Expected-Stream: y"),
            ("Nats-Expected-Last-Msg-Id: a", SUB),
        ):  # fmt: skip
            await put(pair, name, b"y", *lines)
            await same(pair, name)


async def test_at_limits(pair: Pair) -> None:
    for config in (
        {"max_msgs": 3, "discard": "new"},
        {"max_msgs": 3, "discard": "new", "discard_new_per_subject": True,
         "max_msgs_per_subject": 1},
        {"max_msgs_per_subject": 2},
        {"max_msgs_per_subject": 1, "max_msgs": 3, "discard": "new"},
    ):  # fmt: skip
        name = await pair.create(**PERMITTED, **config)
        for number in range(3):
            await put(pair, f"{name}.{number}", b"%d" % number)
        for subject, line in (("1", SUB), ("7", SUB), ("2", ALL), ("1", ALL), ("1", SUB)):
            await put(pair, f"{name}.{subject}", b"x", line)
            await same(pair, name)


async def test_in_batches(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True, **PERMITTED)
    stories: list[list[tuple[str, tuple[str, ...]]]] = [
        [("a", (SUB,)), ("b", (SUB,))], [("a", (SUB,)), ("a", ())], [("a", ()), ("a", (SUB,))],
        [("a", ()), ("b", (SUB,))], [("a", (ALL,)), ("b", ())], [("b", ()), ("a", (ALL,))],
        [("a", (SUB,)), ("b", (ALL,))], [("a", (ALL,)), ("a", (SUB,))],
        [("b", ("Nats-Rollup: x",))],
        [("c", (ALL,))], [("a", ()), ("b", ()), ("c", (SUB,))],
    ]  # fmt: skip
    for number, story in enumerate(stories):
        for subject in "abc":
            await put(pair, f"{name}.{subject}", b"before %d" % number)
        for place, (subject, lines) in enumerate(story, 1):
            asked = [f"Nats-Batch-Id: {number}", f"Nats-Batch-Sequence: {place}", *lines]
            if place == len(story):
                asked.append("Nats-Batch-Commit: 1")
            await put(pair, f"{name}.{subject}", b"%d" % place, *asked)
        await same(pair, name)


async def test_config(pair: Pair) -> None:
    for config in (
        {"allow_rollup_hdrs": True, "deny_purge": True},
        {"allow_rollup_hdrs": "x"},
    ):
        told = [await side.api("STREAM.CREATE.no", name="no", **config) for side in pair.sides]
        assert told[0]["error"]["err_code"] == told[1]["error"]["err_code"]
    name = await pair.create()
    await change(pair, name, allow_rollup_hdrs=True)
    await put(pair, name, b"x", ALL)
    await change(pair, name, allow_rollup_hdrs=False)
    await put(pair, name, b"x", ALL)
    await same(pair, name)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_msgs_per_subject": 2},
        {"max_msgs": 5, "discard": "new"},
        {"max_msgs_per_subject": 2, "discard": "new", "discard_new_per_subject": True},
    ],
)
async def test_many_at_once(pair: Pair, limits: dict[str, Any]) -> None:
    """In one read of the socket, rollups among others, some of them refused."""
    name = await pair.create(**PERMITTED, **limits)
    chosen = random.Random(3)
    story = [
        (f"{name}.{chosen.choice('0123*')}", chosen.choice([(), (), (), (SUB,), (ALL,), ("N: 1",)]))
        for _ in range(200)
    ]
    told = []
    for side in pair.sides:
        inbox = side.publisher.client.new_inbox()
        heard = await side.publisher.client.subscribe(f"{inbox}.*")
        frames = []
        for number, (subject, lines) in enumerate(story):
            block = header_block(*lines, f"X: {number}")
            payload = b"%d" % number
            size = f"{len(block)} {len(block) + len(payload)}"
            frame = f"HPUB {subject} {inbox}.{number} {size}\r\n".encode()
            frames.append(frame + block + payload + b"\r\n")
        await side.publisher.client._send_command(b"".join(frames))
        await side.publisher.client._flush_pending()
        answers = {}
        for _ in story:
            answer = await heard.next_msg(timeout=10)
            assert b'"seq"' in answer.data
            answers[int(answer.subject.rsplit(".", 1)[1])] = b'"error"' in answer.data
        told.append([number for number, refused in sorted(answers.items()) if refused])
    if "max_msgs" not in limits:  # which counts what a rollup will have gone
        assert told[0] == told[1]
        await same(pair, name)
    else:
        assert told[0] and told[1]
