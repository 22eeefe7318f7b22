"""Retention by interest and work queues, as clients see them. Each test runs beside a real nats-server with JetStream,
so that it says what JetStream does.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import APIError

from tests.integration.jetstream_pair import JetStreamServer
from tests.integration.test_port import port_node

State = tuple[int, int]
"""Messages, and the first sequence."""


class Stand(NamedTuple):
    """A server, and a client of it."""

    name: str
    client: Client
    js: JetStreamContext
    prefix: str

    async def request(self, verb: str, **body: Any) -> dict[str, Any]:
        data = json.dumps(body).encode() if body else b""
        answer = await self.client.request(f"{self.prefix}.{verb}", data, timeout=8)
        reply: dict[str, Any] = json.loads(answer.data)
        return reply

    async def stream(self, retention: str, **config: Any) -> str:
        """A new one, which takes ``<name>.>``."""
        name = f"s{time.monotonic_ns()}"
        reply = await self.request(
            f"STREAM.CREATE.{name}", **self.config(name, retention, **config)
        )
        assert "error" not in reply, reply
        assert reply["config"]["retention"] == retention
        return name

    @staticmethod
    def config(name: str, retention: str, **config: Any) -> dict[str, Any]:
        return {
            "name": name, "subjects": [f"{name}.>"], "storage": "file", "retention": retention, **config,
        }  # fmt: skip

    async def update(self, name: str, retention: str, **config: Any) -> int:
        """The error's code; 0."""
        config = self.config(name, retention, **config)
        reply = await self.request(f"STREAM.UPDATE.{name}", **config)
        code: int = reply.get("error", {}).get("err_code", 0)
        return code

    async def consumer(self, stream: str, name: str, **config: Any) -> int:
        """The error's code; 0."""
        config = {"durable_name": name, "name": name, "ack_policy": "explicit", **config}
        config = {"deliver_policy": "all", **config}
        if not config["durable_name"]:
            del config["durable_name"]
        reply = await self.request(
            f"CONSUMER.CREATE.{stream}.{name}", stream_name=stream, config=config
        )
        code: int = reply.get("error", {}).get("err_code", 0)
        return code

    async def publish(self, stream: str, *subjects: str) -> None:
        for subject in subjects:
            await self.js.publish(f"{stream}.{subject}", subject.encode())

    async def pull(self, stream: str, consumer: str, count: int) -> list[Msg]:
        """As many of them as come in half a second."""
        inbox, found = self.client.new_inbox(), list[Msg]()
        subscription = await self.client.subscribe(inbox)
        request = json.dumps({"batch": count, "expires": 500_000_000}).encode()
        verb = f"{self.prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        await self.client.publish(verb, request, reply=inbox)
        while len(found) < count:
            message = await subscription.next_msg(timeout=2)
            if (message.headers or {}).get("Status"):
                break
            found.append(message)
        await subscription.unsubscribe()
        return found

    async def state(self, stream: str) -> State:
        state = (await self.request(f"STREAM.INFO.{stream}"))["state"]
        return state["messages"], state["first_seq"]

    async def becomes(self, stream: str, *expected: int) -> None:
        """The stream comes to that state, and stays so for a while."""
        await self._until(stream, lambda state: state == expected)
        await asyncio.sleep(0.1)
        assert await self.state(stream) == expected

    async def becomes_empty(self, stream: str) -> None:
        """Here an erasure has a sequence of its own."""
        await self._until(stream, lambda state: not state[0])

    async def _until(self, stream: str, is_so: Callable[[State], bool]) -> None:
        for _ in range(100):
            state = await self.state(stream)
            if is_so(state):
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"{state}")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("retention")
    server, node = JetStreamServer(folder), port_node(folder / "node")
    try:
        server.start()
        node.start()
        yield {"nats-server": server, "streamlog": node}
        assert "Traceback" not in node.log_text()
    finally:
        node.kill()
        server.kill()


@pytest.fixture(params=["nats-server", "streamlog"])
async def stand(servers: dict[str, Any], request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    client = await nats.connect(servers[request.param].url)
    domain = "streamlog" if request.param == "streamlog" else None
    js = client.jetstream(domain=domain) if domain else client.jetstream()
    yield Stand(request.param, client, js, "$JS.streamlog.API" if domain else "$JS.API")
    await client.close()


def sequences(messages: list[Msg]) -> list[int]:
    return [it.metadata.sequence.stream for it in messages]


async def acknowledge(*messages: Msg) -> None:
    for message in messages:
        await message.ack_sync(timeout=5)


# By interest


async def test_stream_without_consumers_keeps_nothing(stand: Stand) -> None:
    stream = await stand.stream("interest")
    await stand.publish(stream, "x", "x", "x")
    await stand.becomes(stream, 0, 4)
    ack = await stand.js.publish(f"{stream}.x", b"")
    assert ack.seq == 4
    assert await stand.consumer(stream, "late") == 0
    assert await stand.pull(stream, "late", 1) == []


async def test_consumer_has_what_is_published_right_after_it_was_made(stand: Stand) -> None:
    """Before that, the stream keeps nothing."""
    stream = await stand.stream("interest")
    await stand.publish(stream, "early")
    await stand.becomes(stream, 0, 2)
    for number in range(20):
        assert await stand.consumer(stream, f"c{number}", filter_subject=f"{stream}.{number}") == 0
        await stand.publish(stream, str(number))
    for number in range(20):
        (message,) = await stand.pull(stream, f"c{number}", 1)
        await acknowledge(message)
    await stand.becomes_empty(stream)


async def test_message_goes_when_all_have_acknowledged_it(stand: Stand) -> None:
    stream = await stand.stream("interest")
    assert [await stand.consumer(stream, it) for it in ("a", "b")] == [0, 0]
    await stand.publish(stream, "x", "x", "x")
    by_a, by_b = await stand.pull(stream, "a", 3), await stand.pull(stream, "b", 3)
    assert sequences(by_a) == sequences(by_b) == [1, 2, 3]
    await acknowledge(*by_a)
    assert await stand.state(stream) == (3, 1)
    await acknowledge(by_b[1])
    assert await stand.state(stream) == (2, 1), "a confirmed acknowledgement has removed it"
    reply = await stand.request(f"STREAM.MSG.GET.{stream}", seq=2)
    assert reply["error"]["err_code"] == 10037
    await acknowledge(by_b[0])
    assert await stand.state(stream) == (1, 3)
    await by_b[2].ack()
    await stand.becomes(stream, 0, 4)
    assert await stand.pull(stream, "a", 1) == []


async def test_message_that_no_filter_matches_goes(stand: Stand) -> None:
    stream = await stand.stream("interest")
    await stand.consumer(stream, "a", filter_subject=f"{stream}.x")
    await stand.consumer(stream, "b", filter_subjects=[f"{stream}.y", f"{stream}.z.*"])
    await stand.publish(stream, "x", "q", "y", "z", "z.1")
    await stand.becomes(stream, 3, 1)
    await acknowledge(*await stand.pull(stream, "a", 1))
    await stand.becomes(stream, 2, 3)
    await acknowledge(*await stand.pull(stream, "b", 2))
    await stand.becomes(stream, 0, 6)


async def test_consumer_that_is_deleted_lets_go(stand: Stand) -> None:
    stream = await stand.stream("interest")
    await stand.consumer(stream, "a")
    await stand.consumer(stream, "slow")
    await stand.publish(stream, "x", "x", "x")
    messages = await stand.pull(stream, "a", 3)
    await acknowledge(*messages[:2])
    await stand.becomes(stream, 3, 1)
    assert (await stand.request(f"CONSUMER.DELETE.{stream}.slow"))["success"]
    await stand.becomes(stream, 1, 3)
    assert (await stand.request(f"CONSUMER.DELETE.{stream}.a"))["success"]
    await stand.becomes(stream, 0, 4)


async def test_ephemeral_consumer_counts_while_it_lives(stand: Stand) -> None:
    stream = await stand.stream("interest")
    threshold_ns = 600_000_000
    await stand.consumer(stream, "e", durable_name="", inactive_threshold=threshold_ns)
    await stand.publish(stream, "x", "x")
    assert await stand.state(stream) == (2, 1)
    await acknowledge(*await stand.pull(stream, "e", 1))
    assert await stand.state(stream) == (1, 2)
    await stand.becomes(stream, 0, 3)


async def test_consumer_holds_what_comes_after_its_start(stand: Stand) -> None:
    stream = await stand.stream("interest")
    await stand.consumer(stream, "a")
    await stand.publish(stream, "x", "x")
    await stand.consumer(stream, "new", deliver_policy="new")
    await acknowledge(*await stand.pull(stream, "a", 2))
    await stand.becomes(stream, 0, 3)
    await stand.publish(stream, "x")
    await acknowledge(*await stand.pull(stream, "a", 1))
    await stand.becomes(stream, 1, 3)
    await acknowledge(*await stand.pull(stream, "new", 1))
    await stand.becomes(stream, 0, 4)


async def test_what_needs_no_acknowledgement_goes_when_it_is_delivered(stand: Stand) -> None:
    stream = await stand.stream("interest")
    await stand.consumer(stream, "a", ack_policy="none")
    await stand.publish(stream, "x", "x", "x")
    assert len(await stand.pull(stream, "a", 2)) == 2
    await stand.becomes(stream, 1, 3)


async def test_acknowledgement_of_all_before(stand: Stand) -> None:
    stream = await stand.stream("interest")
    await stand.consumer(stream, "a", ack_policy="all")
    await stand.publish(stream, "x", "x", "x", "x")
    messages = await stand.pull(stream, "a", 3)
    await acknowledge(messages[1])
    await stand.becomes(stream, 2, 3)


async def test_limits_and_interest_may_change_into_each_other(stand: Stand) -> None:
    stream = await stand.stream("limits")
    await stand.consumer(stream, "a", filter_subject=f"{stream}.x")
    await stand.publish(stream, "x", "x", "x")
    await acknowledge(*await stand.pull(stream, "a", 1))
    assert await stand.state(stream) == (3, 1)
    assert await stand.update(stream, "interest") == 0
    await stand.becomes(stream, 2, 2)
    assert await stand.update(stream, "limits") == 0
    await stand.publish(stream, "x")
    await acknowledge(*await stand.pull(stream, "a", 1))
    await stand.consumer(stream, "b")
    assert await stand.state(stream) == (3, 2)
    assert await stand.update(stream, "interest") == 0
    await acknowledge(*await stand.pull(stream, "a", 2))
    await stand.becomes(stream, 3, 2)
    await acknowledge(*await stand.pull(stream, "b", 3))
    await stand.becomes_empty(stream)
    for other in ("limits", "interest"):
        assert await stand.update(await stand.stream(other), "workqueue") == 10052
        assert await stand.update(await stand.stream("workqueue"), other) == 10052


# Work queues


async def test_work_queue_keeps_what_nobody_has_acknowledged(stand: Stand) -> None:
    stream = await stand.stream("workqueue")
    await stand.publish(stream, *["x"] * 5)
    assert await stand.state(stream) == (5, 1)
    await stand.consumer(stream, "a")
    messages = await stand.pull(stream, "a", 5)
    await acknowledge(messages[2], messages[0])
    assert await stand.state(stream) == (3, 2)
    assert (await stand.request(f"CONSUMER.DELETE.{stream}.a"))["success"]
    await stand.becomes(stream, 3, 2)
    await stand.consumer(stream, "b")
    messages = await stand.pull(stream, "b", 5)
    assert sequences(messages) == [2, 4, 5], "what was acknowledged does not come again"
    await messages[0].term()
    await acknowledge(*messages[1:])
    await stand.becomes_empty(stream)


async def test_work_queue_keeps_what_a_reset_skips(stand: Stand) -> None:
    stream = await stand.stream("workqueue")
    await stand.publish(stream, *["x"] * 6)
    await stand.consumer(stream, "a")
    await acknowledge(*await stand.pull(stream, "a", 1))
    assert (await stand.request(f"CONSUMER.RESET.{stream}.a", seq=5))["reset_seq"] == 5
    messages = await stand.pull(stream, "a", 2)
    assert sequences(messages) == [5, 6]
    await acknowledge(*messages)
    await stand.becomes(stream, 3, 2)
    assert (await stand.request(f"CONSUMER.RESET.{stream}.a", seq=1))["reset_seq"] == 1
    messages = await stand.pull(stream, "a", 3)
    assert sequences(messages) == [2, 3, 4]
    await acknowledge(*messages)
    await stand.becomes_empty(stream)


async def test_consumers_of_a_work_queue_share_nothing(stand: Stand) -> None:
    stream = await stand.stream("workqueue")

    async def made(name: str, *filters: str, **config: Any) -> int:
        names = [f"{stream}.{it}" for it in filters]
        return await stand.consumer(stream, name, filter_subjects=names, **config)

    assert await made("n", ack_policy="none") == 10084
    assert await made("p", ack_policy="none", deliver_subject="deliver.p") == 10098
    assert await made("l", ack_policy="all") == 10098
    for policy in ("new", "last", "last_per_subject"):
        assert await made("d", "x", deliver_policy=policy) == 10101
    assert await made("a", "x") == 0
    assert await made("a", "x") == 0, "it is the same"
    assert await made("b") == 10099
    assert await made("b", "x") == await made("b", "*") == await made("b", "y", "*.>", "x") == 10100
    assert await made("b", "y", "z.*") == 0
    assert await made("c", "z.q") == 10100
    assert await made("a", "y") == 10100
    assert await made("a", "q") == 0
    assert await made("c", "x") == 0
    assert await made("e", "w", durable_name="") == 0
    await stand.publish(stream, "x", "y", "q", "none")
    for name in "abc":
        await acknowledge(*await stand.pull(stream, name, 1))
    await stand.becomes(stream, 1, 4)


async def test_work_queue_whose_consumer_changes_its_filters(stand: Stand) -> None:
    stream = await stand.stream("workqueue")
    await stand.consumer(stream, "a", filter_subject=f"{stream}.x")
    await stand.publish(stream, "x", "x", "y", "x", "y")
    first, second = await stand.pull(stream, "a", 2)
    await acknowledge(second)
    assert await stand.consumer(stream, "a", filter_subject=f"{stream}.y") == 0
    await stand.becomes(stream, 4, 1)
    await acknowledge(first)
    await stand.becomes(stream, 3, 3)
    messages = await stand.pull(stream, "a", 5)
    assert sequences(messages) == [3, 5]
    await acknowledge(*messages)
    await stand.becomes(stream, 1, 4)
    await stand.consumer(stream, "b", filter_subject=f"{stream}.x")
    messages = await stand.pull(stream, "b", 5)
    assert sequences(messages) == [4]
    await acknowledge(*messages)
    assert (await stand.state(stream))[0] == 0


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
async def test_message_that_was_given_up_stays(stand: Stand, retention: str) -> None:
    stream = await stand.stream(retention)
    await stand.consumer(stream, "a", max_deliver=1, ack_wait=300_000_000)
    advisories = await stand.client.subscribe(
        f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.a"
    )
    await stand.publish(stream, "x", "x", "x")
    (given_up,) = await stand.pull(stream, "a", 1)
    await asyncio.sleep(0.5)
    await acknowledge(*await stand.pull(stream, "a", 2))
    told = json.loads((await advisories.next_msg(timeout=5)).data)
    assert told["stream_seq"] == 1
    await stand.becomes(stream, 1, 1)
    found = await stand.request(f"STREAM.MSG.GET.{stream}", seq=1)
    assert found["message"]["seq"] == 1, "who hears the advisory can look at it"
    assert await stand.pull(stream, "a", 1) == []
    await acknowledge(given_up)
    assert (await stand.state(stream))[0] == 0


async def test_what_is_acknowledged_makes_room(stand: Stand) -> None:
    stream = await stand.stream("workqueue", discard="new", max_msgs=2)
    await stand.consumer(stream, "a")
    await stand.publish(stream, "x", "x")
    with pytest.raises(APIError):
        await stand.publish(stream, "x")
    first, second = await stand.pull(stream, "a", 2)
    await acknowledge(second)
    await stand.publish(stream, "x")
    with pytest.raises(APIError):
        await stand.publish(stream, "x")
    await acknowledge(first, *await stand.pull(stream, "a", 1))
    assert (await stand.state(stream))[0] == 0


async def test_purge_and_deletion_go_on_as_ever(stand: Stand) -> None:
    stream = await stand.stream("interest")
    await stand.consumer(stream, "a")
    await stand.publish(stream, "x", "x", "x")
    assert (await stand.request(f"STREAM.MSG.DELETE.{stream}", seq=2))["success"]
    assert sequences(await stand.pull(stream, "a", 3)) == [1, 3]
    assert (await stand.request(f"STREAM.PURGE.{stream}"))["purged"] == 2
    await stand.publish(stream, "x")
    (message,) = await stand.pull(stream, "a", 1)
    await acknowledge(message)
    assert (await stand.state(stream))[0] == 0


async def test_push_consumer_empties_its_queue(stand: Stand) -> None:
    stream = await stand.stream("workqueue")
    heard = asyncio.Queue[Msg]()
    await stand.js.subscribe(f"{stream}.>", durable="push", cb=heard.put, manual_ack=True)
    await stand.publish(stream, *["x"] * 20)
    for _ in range(20):
        async with asyncio.timeout(5):
            await (await heard.get()).ack()
    await stand.becomes(stream, 0, 21)


async def test_consumer_that_is_reset_holds_what_it_goes_back_to(stand: Stand) -> None:
    stream = await stand.stream("interest")
    for name in ("a", "slow"):
        await stand.consumer(stream, name)
    await stand.publish(stream, *"xxxx")
    await acknowledge(*await stand.pull(stream, "a", 4))
    by_slow = await stand.pull(stream, "slow", 4)
    reply = await stand.request(f"CONSUMER.RESET.{stream}.a", seq=3)
    assert "error" not in reply, reply
    await acknowledge(*by_slow)
    await stand.becomes(stream, 2, 3)
    again = await stand.pull(stream, "a", 4)
    assert sequences(again) == [3, 4]
    await acknowledge(*again)
    await stand.becomes_empty(stream)
