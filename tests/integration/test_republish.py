"""Messages that are published again once they are committed, beside a JetStream server."""

import asyncio
from typing import Any

import pytest
from nats.aio.msg import Msg

from tests.integration.jetstream_pair import Pair, Side
from tests.integration.raw_publisher import RawPublisher, header_block
from tests.local_node import LocalNode
from tools.nodes.server_process import NatsServer

HEARD_S = 10.0


async def listen(side: Side, subject: str) -> asyncio.Queue[Msg]:
    heard: asyncio.Queue[Msg] = asyncio.Queue()
    await side.publisher.client.subscribe(subject, cb=heard.put)
    await side.publisher.client.flush()
    return heard


async def heard_of(queue: asyncio.Queue[Msg], count: int) -> list[Any]:
    """Subject, payload, headers but for the time."""
    found = []
    for _ in range(count):
        async with asyncio.timeout(HEARD_S):
            message = await queue.get()
        headers = dict(message.headers or {})
        assert headers.pop("Nats-Time-Stamp").endswith("Z")
        found.append((message.subject, message.data, headers))
    return found


@pytest.mark.parametrize("headers_only", [False, True])
async def test_as_jetstream_does(pair: Pair, headers_only: bool) -> None:
    said = []
    for side in pair.sides:
        wanted = {"src": "s.a.>", "dest": "again.>", "headers_only": headers_only}
        await side.create("s", republish=wanted)
        queue = await listen(side, "again.>")
        for subject in ("s.a.x", "s.b", "s.a.y", "s.a.x"):
            await side.publisher.ask(subject, b"payload")
        await side.publisher.ask("s.a.z", b"", header_block("Colour: red"))
        said.append(await heard_of(queue, 4))
    assert said[1] == said[0]
    last = [headers["Nats-Last-Sequence"] for _, _, headers in said[1]]
    assert last == ["0", "0", "1", "0"]


async def test_one_streams_output_is_anothers_input(pair: Pair) -> None:
    for side in pair.sides:
        await side.create("copy", subjects=["copied.>"])
        await side.create("s", republish={"src": ">", "dest": "copied.>"})
        for number in range(20):
            await side.publisher.send("s.a", b"%d" % number)
        for _ in range(500):
            if (await side.state("copy"))["messages"] == 20:
                break
            await asyncio.sleep(0.02)
        message = (await side.api("STREAM.MSG.GET.copy", seq=20))["message"]
        assert message["subject"] == "copied.s.a"


async def test_it_begins_and_ends_with_the_setting(pair: Pair) -> None:
    ours = pair.sides[1]
    await ours.create("s")
    queue = await listen(ours, "again.>")
    config = (await ours.api("STREAM.INFO.s"))["config"]
    await ours.publisher.ask("s.a", b"before")
    wanted = {"src": ">", "dest": "again.>"}
    assert "error" not in await ours.api("STREAM.UPDATE.s", **config, republish=wanted)
    await ours.publisher.ask("s.b", b"while")
    assert [(each[0], each[1]) for each in await heard_of(queue, 1)] == [("again.s.b", b"while")]
    assert "error" not in await ours.api("STREAM.UPDATE.s", **config)
    await ours.publisher.ask("s.c", b"after")
    await ours.publisher.client.flush()
    assert queue.empty()


async def test_what_nats_would_not_take_does_not_cost_the_connection(
    node: LocalNode, nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What is added to a message may make it larger than the server takes, and its subject longer;
    the server ends a connection for that.
    """
    far = "again.from.a.very.long.way.off.and.back"
    await node.create("s", subjects=("s.>",), republish=f"> -> {far}.>")
    async with RawPublisher(nats_server.url) as publisher:
        heard: asyncio.Queue[Msg] = asyncio.Queue()
        await publisher.client.subscribe("again.>", cb=heard.put)
        await publisher.client.flush()
        large = header_block("Colour: " + "r" * 900_000)
        assert "seq" in (await publisher.ask("s.large", bytes(148_500), large) or {})
        assert "seq" in (await publisher.ask("s." + "x" * 4_040) or {})
        assert "seq" in (await publisher.ask("s.small") or {})
        async with asyncio.timeout(HEARD_S):
            assert (await heard.get()).subject == f"{far}.s.small"
    for reason in ("too large", "subject"):
        assert node.count("streamlog_republish_dropped_total", reason=reason) == 1
    told = [it for it in caplog.records if it.message == "messages not published again"]
    assert [(it.__dict__["reason"], it.__dict__["count"]) for it in told] == [
        ("too large", 1), ("subject", 1),
    ]  # fmt: skip
    assert not node.failures("closed", "maximum payload"), "the server has not cut it off"
