"""Fast batches beside a JetStream server (ADR-50)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.jetstream_pair import Pair, Side
from tests.integration.raw_publisher import RawPublisher, header_block
from tests.leaf_hub import Hub, node_of, published

START, APPEND, COMMIT, EOB, PING = range(5)
QUIET_S: Final = 0.25
"""After the last answer: nothing more is told."""
ANSWER_S: Final = 5.0

Step = tuple[Any, ...]


class FastPublisher:
    """Messages of one batch or several, on one side."""

    def __init__(self, side: Side, name: str, inbox: str) -> None:
        self._side, self._name, self._inbox = side, name, inbox
        self.heard: asyncio.Queue[Any] = asyncio.Queue()

    async def send(
        self,
        number: object,
        operation: object,
        *lines: str,
        batch: str = "b",
        flow: object = 0,
        gap: str = "fail",
        payload: bytes = b"x",
        subject: str = "",
        tail: str | None = None,
    ) -> None:
        reply = f"{self._inbox}.{batch}.{flow}.{gap}.{number}.{operation}.$FI"
        if tail is not None:
            reply = f"{self._inbox}.{tail}"
        block = header_block(*lines) if lines else None
        subject = f"{self._name}{subject}"
        await self._side.publisher.send(subject, payload, block, reply)

    async def answers(self, count: int) -> list[Any]:
        """So many of them, and none more."""
        found = []
        for _ in range(count):
            async with asyncio.timeout(ANSWER_S):
                found.append(await self.heard.get())
        return found

    async def all_answers(self) -> list[Any]:
        """Until it is quiet."""
        found = []
        try:
            while True:
                async with asyncio.timeout(QUIET_S):
                    found.append(await self.heard.get())
        except TimeoutError:
            return found


@asynccontextmanager
async def publishing(side: Side, name: str) -> AsyncIterator[FastPublisher]:
    client = side.publisher.client
    inbox = client.new_inbox()
    publisher = FastPublisher(side, name, inbox)

    async def hear(message: Any) -> None:
        answer = json.loads(message.data)
        answer.pop("domain", None)
        await publisher.heard.put(answer)

    subscription = await client.subscribe(f"{inbox}.>", cb=hear)
    await client.flush()
    yield publisher
    await subscription.unsubscribe()


async def played(side: Side, name: str, steps: list[Step]) -> list[list[Any]]:
    """What is answered to each step, one after the other."""
    answers = []
    async with publishing(side, name) as publisher:
        for step in steps:
            more = step[-1] if isinstance(step[-1], dict) else {}
            await publisher.send(*(it for it in step if it is not more), **more)
            answers.append(await publisher.all_answers())
    return answers


async def played_on_both(pair: Pair, name: str, steps: list[Step]) -> list[list[Any]]:
    theirs, ours = await asyncio.gather(*(played(side, name, steps) for side in pair.sides))
    assert ours == theirs
    states = [await side.state(name) for side in pair.sides]
    assert states[1] == states[0]
    return ours


def kinds(answers: list[list[Any]]) -> list[Any]:
    """``ack 3``, ``gap 2-4``, ``err 2 10071``, the err_code, or the count of the batch."""
    found: list[Any] = []
    for answer in (it for step in answers for it in step):
        match answer:
            case {"type": "ack", "seq": seq}:
                found.append(f"ack {seq}")
            case {"type": "gap", "last_seq": last, "seq": seq}:
                found.append(f"gap {last}-{seq}")
            case {"type": "err", "seq": seq, "error": error}:
                found.append(f"err {seq} {error['err_code']}")
            case {"error": error}:
                found.append(error["err_code"])
            case _:
                found.append((answer["seq"], answer["count"]))
    return found


OK: Final = {"gap": "ok"}
STORIES: Final[dict[str, tuple[list[Step], list[Any]]]] = {
    "whole": (
        [(1, START), (2, APPEND), (3, APPEND), (4, COMMIT), (5, APPEND)],
        ["ack 0", (4, 4), 10208],
    ),
    "one message": ([(1, COMMIT), (1, START), (2, EOB)], [(1, 1), "ack 0", (2, 1)]),
    "flow": (
        [(1, START, {"flow": 2}), *((n, APPEND, {"flow": 2}) for n in range(2, 8)), (8, EOB)],
        ["ack 0", "ack 2", "ack 4", "ack 6", (7, 7)],
    ),
    "gap": (
        [(1, START), (3, APPEND), (4, APPEND)],
        ["ack 0", "gap 2-3", (1, 1), 10208],
    ),
    "gap is ok": (
        [(1, START, OK), (3, APPEND, OK), (7, APPEND, OK), (9, EOB, OK)],
        ["ack 0", "gap 2-3", "gap 4-7", "gap 8-9", (3, 8)],
    ),
    "gap at the commit": ([(1, START, OK), (5, COMMIT, OK)], ["ack 0", "gap 2-5", (2, 5)]),
    "backwards": ([(1, START, OK), (2, APPEND, OK), (2, APPEND, OK)], ["ack 0", "gap 3-2", (2, 2)]),
    "begun again": ([(1, START), (2, APPEND), (1, START)], ["ack 0", "gap 3-1", (2, 2)]),
    "pings": (
        [(1, PING), (1, START, {"flow": 2}), (1, PING), (2, APPEND), (2, PING), (3, PING)],
        [10208, "ack 0", "ack 0", "ack 2", "ack 2", "gap 3-4", (2, 2)],
    ),
    "ping over a gap": (
        [(1, START, {**OK, "flow": 2}), (4, PING, OK), (5, APPEND, OK), (6, EOB, OK)],
        ["ack 0", "gap 2-5", "ack 4", (2, 5)],
    ),
    "header": (
        [(1, START), (2, APPEND, "Nats-Expected-Last-Sequence: 100"), (3, APPEND)],
        ["ack 0", "err 2 10071", (1, 1), 10208],
    ),
    "header, gap is ok": (
        [(1, START, {**OK, "flow": 2}), (2, APPEND, "Nats-Expected-Stream: other", OK), (3, APPEND, OK), (4, EOB, OK)],
        ["ack 0", "err 2 10060", "ack 2", (2, 3)],
    ),
    "header at the commit": (
        [(1, START, OK), (2, COMMIT, "Nats-Expected-Last-Sequence: 100", OK)],
        ["ack 0", "err 2 10071", (1, 1)],
    ),
    "header of the first": (
        [(1, START, "Nats-Expected-Last-Sequence: 9"), (2, APPEND)], ["ack 0", 10071, 10208],
    ),
    "header of the first, gap is ok": (
        [(1, START, "Nats-Expected-Last-Sequence: 9", OK), (2, APPEND, OK), (3, COMMIT, OK)],
        ["ack 0", "err 1 10071", (2, 3)],
    ),
    "header that holds": (
        [(1, START, "Nats-Expected-Last-Sequence: 0"), (2, COMMIT, "Nats-Expected-Last-Sequence: 1")],
        ["ack 0", (2, 2)],
    ),
    "ids": (
        [
            (1, START, "Nats-Msg-Id: i", {"flow": 2}), (2, APPEND, "Nats-Msg-Id: i"),
            (3, APPEND, "Nats-Msg-Id: i"), (4, APPEND, "Nats-Msg-Id: j"), (5, COMMIT, "Nats-Msg-Id: i"),
            (1, COMMIT, "Nats-Msg-Id: j"), (1, START, "Nats-Msg-Id: j"), (2, EOB),
        ],
        ["ack 0", "ack 2", "ack 4", (2, 5), (2, 1), "ack 0", (0, 1)],
    ),
    "ids, then an error": (
        [
            (1, COMMIT, "Nats-Msg-Id: i"), (1, START, "Nats-Msg-Id: i"),
            (2, APPEND, "Nats-Expected-Last-Sequence: 100"),
        ],
        [(1, 1), "ack 0", "err 2 10071", (0, 1)],
    ),
    "too large": (
        [(1, START), (2, APPEND, {"payload": bytes(2_000)}), (3, APPEND)],
        ["ack 0", 10054, "gap 2-3", (1, 1)],
    ),
    "odd replies": (
        [
            (0, START), ("x", START), (2, START), (1, APPEND), (1, EOB), (1, 5), (1, "-1"), (1, ""),
            (2**64 - 1, APPEND), (2**64, APPEND), (1, START, {"gap": "unknown"}), (1, START, {"gap": "OK"}),
            (1, START, {"tail": "$FI"}), (1, START, {"tail": "1.0.$FI"}),
            (1, START, {"batch": "i" * 65}), (2, APPEND), (2, COMMIT), (2, EOB), (2**64 - 2, APPEND),
            ("01", "00", {"flow": "x"}), ("002", "02"),
        ],
        [10206] * 13 + [10207, 10208, 10208, 10208, 10208, "ack 0", (2, 2)],
    ),
    "level": (
        [(1, START, "Nats-Required-Api-Level: 99"), (1, START), (2, APPEND, "Nats-Required-Api-Level: x"), (3, PING)],
        [10185, "ack 0", 10185, 10208],
    ),
    "a batch beside": (
        [
            (1, START, {"batch": "a", "flow": 9}), (1, START, {"batch": "b", "flow": 9}),
            (2, APPEND, {"batch": "b"}), (2, APPEND, {"batch": "a"}), (3, APPEND, {"batch": "b"}),
            (3, EOB, {"batch": "a"}), (4, COMMIT, {"batch": "b"}),
        ],
        ["ack 0", "ack 0", "ack 1", "ack 3", (4, 2), (6, 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
async def test_the_same_is_told(pair: Pair, story: str) -> None:
    steps, expected = STORIES[story]
    name = await pair.create(allow_batched=True, max_msg_size=1_000, allow_rollup_hdrs=True)
    found = kinds(await played_on_both(pair, name, steps))
    assert [it for it in found if not (isinstance(it, str) and it == "ack 1")] == [
        it for it in expected if it != "ack 1"
    ]


@pytest.mark.parametrize(
    "config", [{"allow_msg_counter": True}, {"discard": "new", "max_msgs": 2}, {"sealed": True}, {}]
)
async def test_streams_that_are_set_otherwise(pair: Pair, config: dict[str, Any]) -> None:
    sealed = config.get("sealed")
    settings = {"allow_batched": bool(config), **config}
    settings.pop("sealed", None)
    name = await pair.create(**settings)
    if sealed:
        for side in pair.sides:
            body = {"name": name, "subjects": [name, f"{name}.>"], **settings, "sealed": True}
            assert "error" not in await side.api(f"STREAM.UPDATE.{name}", **body)
    lines = ("Nats-Incr: 2",) if "allow_msg_counter" in config else ()
    more = {"payload": b""} if lines else {}
    steps = [
        (1, START, *lines, more),
        (2, APPEND, *lines, more),
        (3, APPEND, *lines, more),
        (4, EOB),
    ]
    for gap in ({}, OK):
        for side in pair.sides:
            if settings["allow_batched"] and not sealed:
                assert (await side.api(f"STREAM.PURGE.{name}"))["success"]
        await played_on_both(
            pair,
            name,
            [(*it[:-1], it[-1] | gap) if isinstance(it[-1], dict) else (*it, gap) for it in steps],
        )


async def test_rollups(pair: Pair) -> None:
    """Their erasures take offsets here."""
    name = await pair.create(allow_batched=True, allow_rollup_hdrs=True)
    steps: list[Step] = [
        (1, START), (2, APPEND, "Nats-Rollup: sub", {"subject": ".a"}), (3, APPEND, {"subject": ".a"}),
        (4, APPEND, "Nats-Rollup: x"), (1, START), (2, COMMIT, "Nats-Rollup: all", {"subject": ".b"}),
    ]  # fmt: skip
    theirs, ours = [await played(side, name, steps) for side in pair.sides]
    assert kinds(ours)[:2] == kinds(theirs)[:2] == ["ack 0", "err 4 10111"]
    counts = [
        [it["count"] for step in side for it in step if "count" in it] for side in (theirs, ours)
    ]
    assert counts == [[3, 2], [3, 2]]
    for side in pair.sides:
        assert (await side.state(name))["messages"] == 1


async def test_config(pair: Pair) -> None:
    for config in ({"mirror": {"name": "o"}, "subjects": []}, {}):
        name = pair.new_name()
        body = {"name": name, "subjects": [name], "allow_batched": True, **config}
        theirs, ours = [await side.api(f"STREAM.CREATE.{name}", **body) for side in pair.sides]
        assert ours.get("error") == theirs.get("error")
    for on in (False, True):
        for side in pair.sides:
            body = {"name": name, "subjects": [name], "allow_batched": on}
            info = await side.api(f"STREAM.UPDATE.{name}", **body)
            assert info["config"].get("allow_batched", False) is on


async def test_batches_end_where_they_are_allowed_no_more(pair: Pair) -> None:
    name = await pair.create(allow_batched=True)
    told = []
    for side in pair.sides:
        async with publishing(side, name) as publisher:
            await publisher.send(1, START)
            answers = await publisher.answers(1)
            for on in (False, True):
                body = {"name": name, "subjects": [name, f"{name}.>"], "allow_batched": on}
                assert "error" not in await side.api(f"STREAM.UPDATE.{name}", **body)
                await publisher.send(2, APPEND)
                answers += await publisher.answers(1)
            told.append(answers)
    assert told[1] == told[0]
    assert kinds([told[1]]) == ["ack 0", 10205, 10208]


async def test_ten_thousand_messages(pair: Pair) -> None:
    """In a few reads: nearly all of them are the next one."""
    name = await pair.create(allow_batched=True)
    count = 10_000
    for side in pair.sides:
        async with publishing(side, name) as publisher:
            for number in range(1, count + 1):
                operation = COMMIT if number == count else APPEND if number > 1 else START
                await publisher.send(number, operation, flow=1_000, payload=b"%d" % number)
            answers: list[Any] = []
            while not answers or "count" not in answers[-1]:
                answers += await publisher.answers(1)
            acked = [it["seq"] for it in answers[:-1]]
            assert acked == sorted(set(acked)) and all(it % 500 == 0 for it in acked)
            assert answers[-1]["seq"] == answers[-1]["count"] == count
        state = await side.state(name)
        assert (state["messages"], state["last_seq"]) == (count, count)
        last = await side.api(f"STREAM.MSG.GET.{name}", seq=count)
        assert "hdrs" not in last["message"]


async def test_through_a_leafnode_and_at_the_port(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    node = node_of(hub, tmp_path / "node")
    steps: list[Step] = [
        (1, START, {"flow": 3}), *((number, APPEND) for number in range(2, 6)), (7, APPEND), (8, APPEND),
    ]  # fmt: skip
    hub.start()
    node.start()
    try:
        async with RawPublisher(node.port_url) as at_port, RawPublisher(hub.url) as at_hub:
            body = {"name": "orders", "subjects": ["orders"], "allow_batched": True}
            request = json.dumps(body).encode()
            await at_port.client.request("$JS.streamlog.API.STREAM.CREATE.orders", request)
            await published(at_hub.client, "orders", b"x")
            for publisher, last in ((at_hub, 6), (at_port, 11)):
                answers = kinds(await played(Side(publisher), "orders", steps))
                assert answers == ["ack 0", "ack 3", "gap 6-7", (last, 5), 10208]
    finally:
        node.kill()
        hub.kill()
