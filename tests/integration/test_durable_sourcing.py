"""Mirrors and sources that read by a durable consumer, which acknowledges by its answers to flow control: nats-server
of nats-server, which shows how it is meant, nats-server of ours, ours of nats-server, and ours of ours.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from tests.integration.test_mirrors import (
    HUB,
    OURS,
    Api,
    api_of,
    has_all,
    has_sourced,
    hub_in,
    leaf_settings,
    until,
)
from tests.leaf_hub import Hub
from tools.nodes.node_process import NodeProcess

SECOND: Final = 10**9

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
"""nats-py leaves them behind where a server is killed in the midst of a handshake."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    hub = hub_in(tmp_path_factory.mktemp("hub"))
    hub.start()
    yield hub
    hub.kill()


@pytest.fixture(scope="module")
def node(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(1, tmp_path_factory.mktemp("node"), settings=leaf_settings(hub))
    node.start()
    yield node
    assert "Traceback" not in node.log_text()
    node.kill()


class Sides:
    """The API of nats-server and that of the node, and the way from the one to the other."""

    def __init__(self, theirs: Api, ours: Api) -> None:
        self._apis = {"theirs": theirs, "ours": ours}
        self._prefixes = {"theirs": HUB, "ours": OURS}

    def __getitem__(self, side: str) -> Api:
        return self._apis[side]

    def place(self, name: str, at: str, reader: str) -> dict[str, Any]:
        """Of a stream, as the reader names it."""
        if at == reader:
            return {"name": name}
        return {"name": name, "external": {"api": self._prefixes[at], "deliver": ""}}


@pytest.fixture
async def sides(hub: Hub, node: NodeProcess) -> AsyncIterator[Sides]:
    async with api_of(hub.url, "$JS.API") as theirs, api_of(node.port_url, OURS) as ours:
        yield Sides(theirs, ours)


async def add_durable(api: Api, stream: str, name: str, **more: Any) -> dict[str, Any]:
    config = {"durable_name": name, "deliver_subject": f"deliver.{stream}.{name}",
              "ack_policy": "flow_control", "deliver_policy": "all", "replay_policy": "instant", **more}  # fmt: skip
    reply = await api.ask(
        f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}
    )
    assert "error" not in reply, reply
    return reply


def by_durable(place: dict[str, Any], consumer: str) -> dict[str, Any]:
    stream = place["name"]
    return {**place, "consumer": {"name": consumer, "deliver_subject": f"deliver.{stream}.{consumer}"}}  # fmt: skip


async def consumer_state(api: Api, stream: str, name: str) -> dict[str, Any]:
    info = await api.ask(f"CONSUMER.INFO.{stream}.{name}")
    return {
        "delivered": info["delivered"]["stream_seq"],
        "floor": info["ack_floor"]["stream_seq"],
        "pending": info["num_pending"],
        "unacknowledged": info["num_ack_pending"],
    }


async def is_settled(api: Api, stream: str, name: str, last: int) -> None:
    """All is delivered, and acknowledged."""

    async def settled() -> bool:
        return await consumer_state(api, stream, name) == {
            "delivered": last, "floor": last, "pending": 0, "unacknowledged": 0,
        }  # fmt: skip

    await until(settled, f"{name} of {stream} comes to {last}")


async def publish_many(api: Api, subject: str, start: int, stop: int) -> None:
    js = api.client.jetstream()
    for first in range(start, stop, 200):
        numbers = range(first, min(first + 200, stop))
        await asyncio.gather(*(js.publish(subject, b"%d" % it, timeout=20) for it in numbers))


async def numbers_of(api: Api, stream: str) -> list[int]:
    """In the order of the stream."""
    state = await api.state(stream)
    found = []
    for sequence in range(state["first_seq"], state["last_seq"] + 1):
        message = await api.message(stream, sequence)
        if message is not None:
            found.append(int(message[1]))
    return found


WAYS: Final = [("theirs", "theirs"), ("ours", "theirs"), ("theirs", "ours"), ("ours", "ours")]
"""Where the origin is, and who reads it."""


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
@pytest.mark.parametrize(("at", "reader"), WAYS)
async def test_durable_consumer_feeds_a_stream(
    sides: Sides, at: str, reader: str, retention: str
) -> None:
    origin, name = f"o-{at}-{reader}-{retention}", f"d-{at}-{reader}-{retention}"
    await sides[at].create(origin, subjects=[origin], retention=retention)
    made = await add_durable(sides[at], origin, "feed")
    config = made["config"]
    assert config["flow_control"] and config["idle_heartbeat"] == SECOND
    assert config["max_ack_pending"] == 1_000 and "ack_wait" not in config
    await publish_many(sides[at], origin, 0, 30)
    place = by_durable(sides.place(origin, at, reader), "feed")
    await sides[reader].create(name, sources=[place])
    await has_sourced(sides[reader], name, 30)
    await is_settled(sides[at], origin, "feed", 30)
    await publish_many(sides[at], origin, 30, 40)
    await has_sourced(sides[reader], name, 40)
    await is_settled(sides[at], origin, "feed", 40)
    assert sorted(await numbers_of(sides[reader], name)) == list(range(40))
    told = (await sides[reader].info(name))["sources"][0]
    assert "error" not in told, told
    left = 0 if retention != "limits" else 40

    async def is_let_go() -> bool:
        return (await sides[at].state(origin))["messages"] == left

    await until(is_let_go, f"{left} messages stay")


@pytest.mark.parametrize(("at", "reader"), WAYS)
async def test_durable_consumer_feeds_a_mirror(sides: Sides, at: str, reader: str) -> None:
    origin, name = f"mo-{at}-{reader}", f"md-{at}-{reader}"
    await sides[at].create(origin, subjects=[f"{origin}.>"])
    await add_durable(sides[at], origin, "feed", max_ack_pending=7)
    for number in range(20):
        await sides[at].publish(f"{origin}.{number % 3}", b"%d" % number)
    for sequence in (4, 9):
        await sides[at].ask(f"STREAM.MSG.DELETE.{origin}", {"seq": sequence})
    place = by_durable(sides.place(origin, at, reader), "feed")
    await sides[reader].create(name, mirror=place)
    last = (await sides[at].state(origin))["last_seq"]
    await has_all(sides[reader], name, 20)
    await sides[at].publish(f"{origin}.late", b"90")
    last = (await sides[at].state(origin))["last_seq"]
    await has_all(sides[reader], name, last)
    await is_settled(sides[at], origin, "feed", last)
    found = [await sides[reader].message(name, it) for it in range(1, last + 1)]
    assert found == [await sides[at].message(origin, it) for it in range(1, last + 1)]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("at", ["theirs", "ours"])
async def test_source_without_a_consumer_of_its_own_gets_one_that_acknowledges(
    sides: Sides, at: str, retention: str
) -> None:
    """Where acknowledgements remove messages."""
    origin, name = f"up-{at}-{retention}", f"ud-{at}-{retention}"
    await sides[at].create(origin, subjects=[origin], retention=retention)
    worker = {"durable_name": "worker", "ack_policy": "explicit"}
    asked = {"stream_name": origin, "config": worker}
    expected = []
    if retention == "interest":  # of a work queue of ours each message is for one consumer
        assert "error" not in await sides[at].ask(f"CONSUMER.CREATE.{origin}.worker", asked)
        expected.append("worker")
    await publish_many(sides[at], origin, 0, 20)
    await sides["theirs"].create(name, sources=[sides.place(origin, at, "theirs")])
    await has_sourced(sides["theirs"], name, 20)
    names = (await sides[at].ask(f"CONSUMER.NAMES.{origin}"))["consumers"]
    (feed,) = [it for it in names if it != "worker"]
    assert feed.startswith("JS_SRC_")
    await is_settled(sides[at], origin, feed, 20)
    info = await sides[at].ask(f"CONSUMER.INFO.{origin}.{feed}")
    config = info["config"]
    assert (config["ack_policy"], config["durable_name"]) == ("flow_control", feed)
    left = 0 if retention == "workqueue" else 20

    async def is_let_go() -> bool:
        return (await sides[at].state(origin))["messages"] == left

    await until(is_let_go, f"{left} messages stay")
    await sides["theirs"].ask(f"STREAM.DELETE.{name}")

    async def is_deleted() -> bool:
        return bool((await sides[at].ask(f"CONSUMER.NAMES.{origin}"))["consumers"] == expected)

    await until(is_deleted, "the consumer goes with its stream")


async def test_acknowledgements_of_another_kind_do_nothing(sides: Sides) -> None:
    for at in ("theirs", "ours"):
        origin = f"acks-{at}"
        await sides[at].create(origin, subjects=[origin], retention="workqueue")
        heard = await sides[at].client.subscribe(f"deliver.{origin}.feed")
        await sides[at].client.flush()
        await add_durable(sides[at], origin, "feed", max_ack_pending=2)
        await publish_many(sides[at], origin, 0, 3)
        messages = [await heard.next_msg(timeout=10) for _ in range(3)]
        asked = messages[2]
        assert asked.headers and asked.headers["Status"] == "100" and "$JS.FC." in asked.reply
        for message in messages[:2]:
            await message.respond(b"+ACK")
        await sides[at].client.publish(asked.reply, b"")
        beat = await heard.next_msg(timeout=10)
        assert beat.headers and beat.headers["Nats-Last-Stream"] == "2"
        again = await heard.next_msg(timeout=10)
        assert "$JS.FC." in again.reply
        state = await consumer_state(sides[at], origin, "feed")
        assert (state["floor"], state["unacknowledged"]) == (0, 2)
        await sides[at].client.publish(
            again.reply, b"", headers={"Nats-Last-Consumer": "1", "Nats-Last-Stream": "1"}
        )
        (third,) = [await heard.next_msg(timeout=10)]
        assert third.data == b"2"
        state = await consumer_state(sides[at], origin, "feed")
        assert (state["floor"], state["unacknowledged"]) == (1, 2)
        await heard.unsubscribe()


async def test_several_partitions_are_refused(sides: Sides, node: NodeProcess) -> None:
    await sides["ours"].create("wide", metadata={"streamlog.partitions": "2"})
    config = {"durable_name": "c", "deliver_subject": "d.wide", "ack_policy": "flow_control"}
    refused = await sides["ours"].refusal(
        "CONSUMER.CREATE.wide.c", {"stream_name": "wide", "config": config}
    )
    assert refused[0] == 10012 and "must have one partition, not 2" in refused[1]
    await sides["ours"].create("grows", subjects=["grows"])
    heard = await sides["ours"].client.subscribe("deliver.grows.feed")
    await add_durable(sides["ours"], "grows", "feed")
    metadata = {"streamlog.partitions": "2"}
    reply = await sides["ours"].ask(
        "STREAM.UPDATE.grows", {"name": "grows", "subjects": ["grows"], "metadata": metadata}
    )
    assert "error" not in reply, reply
    await until(lambda: "SL-0517" in node.log_text(), "the log says that it waits")
    await sides["ours"].publish("grows", b"1")
    assert (await heard.next_msg(timeout=10)).headers, "a heartbeat, and no message"


@pytest.mark.parametrize("consumer", ["", "feed"])
@pytest.mark.parametrize("at", ["theirs", "ours"])
async def test_source_begins_anew_with_an_origin_that_was_made_again(
    sides: Sides, node: NodeProcess, at: str, consumer: str
) -> None:
    """As nats-server since 2.15: the sequences of the old one say nothing of the new one."""
    origin, name = f"again-{at}-{consumer}", f"anew-{at}-{consumer}"
    place = sides.place(origin, at, "ours")
    if consumer:
        place = by_durable(place, consumer)

    async def make() -> None:
        await sides[at].create(origin, subjects=[origin])
        if consumer:
            await add_durable(sides[at], origin, consumer)

    await make()
    await publish_many(sides[at], origin, 0, 10)
    await sides["ours"].create(name, sources=[place])
    await has_sourced(sides["ours"], name, 10)
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)

    await sides[at].ask(f"STREAM.DELETE.{origin}")
    await make()
    for payloads in ([b"100", b"101", b"102"], [b"%d" % it for it in range(103, 120)]):
        await sides[at].publish(origin, *payloads)
        await has_sourced(sides["ours"], name, 10 + int(payloads[-1]) - 99)
    found = await numbers_of(sides["ours"], name)
    assert found == [*sorted(found[:10]), *range(100, 120)]
    assert set(found[:10]) == set(range(10))
