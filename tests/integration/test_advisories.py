"""Advisories, as a JetStream server gives them for the same changes."""

import asyncio
import json
from typing import Any

from nats.aio.msg import Msg

from tests.integration.jetstream_pair import Pair, Side
from tests.integration.raw_publisher import header_block

HEARD_S = 15.0


class Heard:
    """What one side says under a subject."""

    def __init__(self, side: Side) -> None:
        self._client = side.publisher.client
        self._queue: asyncio.Queue[Msg] = asyncio.Queue()

    async def listen(self, subject: str) -> "Heard":
        await self._client.subscribe(subject, cb=self._queue.put)
        await self._client.flush()
        return self

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The subject, and what is said but for what differs each time."""
        async with asyncio.timeout(HEARD_S):
            message = await self._queue.get()
        said: dict[str, Any] = json.loads(message.data)
        assert said.pop("id")
        assert said.pop("timestamp").endswith("Z")
        said.pop("domain", None)
        said.pop("account", None)
        return message.subject, said

    async def next_of(self, count: int, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
        """The next ``count`` of these kinds."""
        found: list[tuple[str, dict[str, Any]]] = []
        while len(found) < count:
            subject, said = await self.next()
            if said["type"].rpartition(".")[2] in kinds:
                found.append((subject, said))
        return found


async def test_the_life_of_a_stream(pair: Pair) -> None:
    told = []
    for side in pair.sides:
        heard = await Heard(side).listen("$JS.EVENT.ADVISORY.STREAM.*.orders")
        await side.create("orders")
        config = (await side.api("STREAM.INFO.orders"))["config"]
        await side.api("STREAM.UPDATE.orders", **{**config, "description": "d"})
        await side.api("STREAM.DELETE.orders")
        told.append(await heard.next_of(3, "stream_action"))
    theirs, ours = told
    assert [said["action"] for _, said in ours] == ["create", "modify", "delete"]
    assert ours == theirs


async def test_a_new_leader_is_told_of(pair: Pair) -> None:
    ours = pair.sides[1]
    heard = await Heard(ours).listen("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*")
    await ours.create("orders")
    subject, said = await heard.next()
    assert subject == "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.orders"
    assert said["type"] == "io.nats.jetstream.advisory.v1.stream_leader_elected"
    assert (said["stream"], said["leader"]) == ("orders", "node-1")
    assert [replica["name"] for replica in said["replicas"]] == ["node-1"]


async def test_requests_that_change_something_are_audited(pair: Pair) -> None:
    told = []
    for side in pair.sides:
        heard = await Heard(side).listen("$JS.EVENT.ADVISORY.API")
        await side.create("orders")
        await side.api("STREAM.PURGE.orders", keep=1)
        await side.api("STREAM.DELETE.nothing")
        said = [said for _, said in await heard.next_of(3, "api_audit")]
        for each in said:
            each["response"] = json.loads(each["response"]).get("error", "fine")
        shown = [{**each, "server": "", "client": {}} for each in said]
        told.append(
            sorted(shown, key=lambda it: str(it["subject"]))
        )  # nats-server's come in any order
    assert told[1] == told[0]


async def test_a_batch_that_is_given_up(pair: Pair) -> None:
    told = []
    for side in pair.sides:
        await side.create("orders", allow_atomic=True)
        heard = await Heard(side).listen("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.*")
        for number in (1, 3):
            block = header_block("Nats-Batch-Id: b", f"Nats-Batch-Sequence: {number}")
            await side.publisher.ask("orders", b"x", block)
        await side.publisher.ask(
            "orders", b"x", header_block("Nats-Batch-Id: idle", "Nats-Batch-Sequence: 1")
        )
        told.append([await heard.next() for _ in range(2)])
    theirs, ours = told
    assert [said["reason"] for _, said in ours] == ["incomplete", "timeout"]
    assert ours == theirs
