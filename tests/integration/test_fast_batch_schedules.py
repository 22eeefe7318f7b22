"""Schedules that come in fast batches, beside a JetStream server."""

from base64 import b64decode
from typing import Any

from tests.integration.jetstream_pair import Pair, Side
from tests.integration.test_fast_batches import APPEND, COMMIT, START, Step, kinds, played

TARGET = "Nats-Schedule-Target: {}.t"


async def told(pair: Pair, name: str, steps: list[Step]) -> list[Any]:
    """The same by both, but for sequences: an erasure takes one. Of a PubAck, the count."""
    found = []
    for side in pair.sides:
        answers = kinds(await played(side, name, steps))
        found.append([it[1] if isinstance(it, tuple) else it for it in answers])
    assert found[1] == found[0]
    return found[1]


async def plans(side: Side, name: str) -> tuple[int, str, bytes]:
    """How many messages the stream has; and headers and payload of the newest plan."""
    message = (await side.api(f"STREAM.MSG.GET.{name}", last_by_subj=f"{name}.plan"))["message"]
    headers = b64decode(message.get("hdrs", "")).decode()
    messages = (await side.api(f"STREAM.INFO.{name}"))["state"]["messages"]
    return messages, headers, b64decode(message.get("data", ""))


async def test_schedule_of_a_batch_takes_the_place_of_the_one_before(pair: Pair) -> None:
    name = await pair.create(allow_batched=True, allow_msg_schedules=True)
    every = ("Nats-Schedule: @every 1h", TARGET.format(name))
    plan = {"subject": ".plan"}
    steps = [
        (1, START),
        (2, APPEND, *every, {**plan, "payload": b"first"}),
        (3, APPEND, *every, {**plan, "payload": b"second"}),
        (4, APPEND, "Nats-Schedule: @every x", TARGET.format(name), plan),
    ]
    assert await told(pair, name, steps) == ["ack 0", "err 4 10189", 3]
    found = [await plans(side, name) for side in pair.sides]
    assert found[1] == found[0]
    assert "Nats-Rollup: sub" in found[1][1]


async def test_end_of_a_schedule_in_a_batch_removes_it(pair: Pair) -> None:
    name = await pair.create(allow_batched=True, allow_msg_schedules=True)
    every = ("Nats-Schedule: @every 1h", TARGET.format(name))
    end = ("Nats-Schedule-Next: purge", f"Nats-Scheduler: {name}.plan")
    steps = [
        (1, START, *every, {"subject": ".plan"}),
        (2, APPEND, *end, {"subject": ".end"}),
        (3, COMMIT),
    ]
    assert await told(pair, name, steps) == ["ack 0", 3]
    for side in pair.sides:
        reply = await side.api(f"STREAM.MSG.GET.{name}", last_by_subj=f"{name}.plan")
        assert reply["error"]["err_code"] == 10037
        assert (await side.api(f"STREAM.INFO.{name}"))["state"]["messages"] == 2
