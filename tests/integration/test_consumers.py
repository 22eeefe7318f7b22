"""JetStream consumers as an unmodified nats-py uses them. Each test runs beside a real nats-server with JetStream, so
that it says what JetStream does.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from tests.integration.jetstream_pair import JetStreamServer
from tests.integration.test_port import port_node


class Stand(NamedTuple):
    """A server, and a client of it."""

    name: str
    client: Client
    js: JetStreamContext
    prefix: str

    async def stream(self, *messages: tuple[str, bytes], **config: Any) -> str:
        """A new one, which takes ``<name>.>``; messages are published to ``<name>.<subject>``."""
        name = f"s{time.monotonic_ns()}"
        await self.js.add_stream(name=name, subjects=[f"{name}.>"], **config)
        for subject, data in messages:
            await self.js.publish(f"{name}.{subject}", data)
        return name

    async def request(self, verb: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        return json.loads(
            (await self.client.request(f"{self.prefix}.{verb}", data, timeout=5)).data
        )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("consumers")
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


ORDERS = [("eu", b"one"), ("us", b"two"), ("eu", b"three")]


async def test_fetch_acknowledges_each_message_once(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS)
    subscription = await stand.js.pull_subscribe(f"{stream}.>", "worker")
    fetched = await subscription.fetch(3, timeout=5)
    assert [(it.subject, it.data) for it in fetched] == [
        (f"{stream}.{subject}", data) for subject, data in ORDERS
    ]
    metadata = [it.metadata for it in fetched]
    assert [(it.sequence.stream, it.sequence.consumer) for it in metadata] == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]
    assert [it.num_pending for it in metadata] == [2, 1, 0]
    assert [it.num_delivered for it in metadata] == [1, 1, 1]
    assert {(it.stream, it.consumer) for it in metadata} == {(stream, "worker")}
    for it in fetched:
        await it.ack_sync(timeout=5)
    info = await subscription.consumer_info()
    assert (info.num_ack_pending, info.num_pending, info.num_waiting) == (0, 0, 0)
    for position in (info.delivered, info.ack_floor):
        assert position is not None
        assert (position.consumer_seq, position.stream_seq) == (3, 3)
    with pytest.raises(NatsTimeoutError):
        await subscription.fetch(1, timeout=0.3)


@pytest.mark.parametrize(
    "config",
    [
        {"ack_policy": "none"},
        {
            "ack_policy": "flow_control",
            "flow_control": True,
            "idle_heartbeat": 1_000_000_000,
            "max_ack_pending": 100,
        },
    ],
    ids=lambda it: it["ack_policy"],
)
async def test_acknowledgement_that_no_consumer_takes_has_no_responders(
    stand: Stand, config: dict[str, Any]
) -> None:
    stream = await stand.stream(*ORDERS)
    inbox = stand.client.new_inbox()
    subscription = await stand.client.subscribe(inbox)
    asked = {"durable_name": "worker", "deliver_subject": inbox, **config}
    told = await stand.request(
        f"CONSUMER.CREATE.{stream}.worker", {"stream_name": stream, "config": asked}
    )
    assert "error" not in told
    first = await subscription.next_msg(timeout=5)
    assert first.reply.startswith(f"$JS.ACK.{stream}.worker.")
    for payload in (b"", b"-NAK", b"+WPI", b"+NXT", b"+TERM"):
        with pytest.raises(NoRespondersError):
            await stand.client.request(first.reply, payload, timeout=5)


async def test_message_that_is_refused_comes_again(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS)
    subscription = await stand.js.pull_subscribe(f"{stream}.>", "worker")
    first, second, third = await subscription.fetch(3, timeout=5)
    await second.nak()
    await first.term()
    await third.nak(delay=0.3)
    (again,) = await subscription.fetch(1, timeout=5)
    assert again.data == b"two"
    assert (again.metadata.num_delivered, again.metadata.sequence.consumer) == (2, 4)
    await again.ack()
    began = time.monotonic()
    (last,) = await subscription.fetch(1, timeout=5)
    assert last.data == b"three"
    assert time.monotonic() - began > 0.15
    await last.ack_sync()
    info = await subscription.consumer_info()
    assert (info.num_ack_pending, info.num_redelivered) == (0, 0)


async def test_message_that_is_not_acknowledged_comes_again(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS[:1])
    config = api.ConsumerConfig(ack_wait=0.3, max_deliver=3)
    subscription = await stand.js.pull_subscribe(f"{stream}.>", "worker", config=config)
    advisories = await stand.client.subscribe(
        f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.worker"
    )
    counts = []
    for _ in range(3):
        (message,) = await subscription.fetch(1, timeout=5)
        counts.append(message.metadata.num_delivered)
    assert counts == [1, 2, 3]
    with pytest.raises(NatsTimeoutError):
        await subscription.fetch(1, timeout=1)
    told = json.loads((await advisories.next_msg(timeout=5)).data)
    assert (told["type"], told["stream_seq"], told["deliveries"]) == (
        "io.nats.jetstream.advisory.v1.max_deliver",
        1,
        3,
    )


async def test_progress_keeps_a_message(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS[:1])
    config = api.ConsumerConfig(ack_wait=0.5)
    subscription = await stand.js.pull_subscribe(f"{stream}.>", "worker", config=config)
    (message,) = await subscription.fetch(1, timeout=5)
    for _ in range(4):
        await asyncio.sleep(0.2)
        await message.in_progress()
    with pytest.raises(NatsTimeoutError):
        await subscription.fetch(1, timeout=0.2)
    await message.ack_sync()
    assert (await subscription.consumer_info()).num_ack_pending == 0


async def test_filters_choose_subjects(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS, ("asia.jp", b"four"))
    subscription = await stand.js.pull_subscribe(f"{stream}.eu", "eu")
    fetched = await subscription.fetch(2, timeout=5)
    assert [it.data for it in fetched] == [b"one", b"three"]
    assert [it.metadata.num_pending for it in fetched] == [1, 0]
    config = api.ConsumerConfig(filter_subjects=[f"{stream}.us", f"{stream}.asia.>"])
    await stand.js.add_consumer(stream, config, durable_name="several")
    several = await stand.js.pull_subscribe_bind("several", stream)
    assert [it.data for it in await several.fetch(2, timeout=5)] == [b"two", b"four"]


@pytest.mark.parametrize(
    ("policy", "more", "expected"),
    [
        ("all", {}, [b"one", b"two", b"three"]),
        ("last", {}, [b"three"]),
        ("last_per_subject", {"filter_subject": ">"}, [b"two", b"three"]),
        ("by_start_sequence", {"opt_start_seq": 2}, [b"two", b"three"]),
        ("new", {}, []),
    ],
)
async def test_deliver_policy_chooses_the_first_message(
    stand: Stand, policy: str, more: dict[str, Any], expected: list[bytes]
) -> None:
    stream = await stand.stream(*ORDERS)
    body = {"deliver_policy": policy, "ack_policy": "explicit", "durable_name": "c", **more}
    reply = await stand.request(
        f"CONSUMER.CREATE.{stream}.c", {"stream_name": stream, "config": {**body, "name": "c"}}
    )
    assert "error" not in reply, reply
    assert reply["num_pending"] == len(expected)
    await stand.js.publish(f"{stream}.later", b"later")
    subscription = await stand.js.pull_subscribe_bind("c", stream)
    fetched = await subscription.fetch(len(expected) + 1, timeout=5)
    assert [it.data for it in fetched] == [*expected, b"later"]


async def test_push_consumer_delivers_what_comes(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS)
    heard = asyncio.Queue[Msg]()
    await stand.js.subscribe(f"{stream}.>", durable="pushed", cb=heard.put, manual_ack=True)
    async with asyncio.timeout(10):
        found = [await heard.get() for _ in range(3)]
        assert [it.data for it in found] == [b"one", b"two", b"three"]
        for it in found:
            await it.ack_sync()
        await stand.js.publish(f"{stream}.eu", b"four")
        assert (await heard.get()).data == b"four"
    info = await stand.js.consumer_info(stream, "pushed")
    assert info.ack_floor is not None
    assert (info.push_bound, info.num_ack_pending, info.ack_floor.stream_seq) == (True, 1, 3)


async def test_members_of_a_deliver_group_share_messages(stand: Stand) -> None:
    stream = await stand.stream()
    heard: list[list[bytes]] = [[], []]
    all_heard = asyncio.Event()
    for mine in heard:

        async def take(message: Msg, mine: list[bytes] = mine) -> None:
            mine.append(message.data)
            if len(heard[0]) + len(heard[1]) == 40:
                all_heard.set()

        await stand.js.subscribe(f"{stream}.>", queue="group", cb=take)
    for number in range(40):
        await stand.js.publish(f"{stream}.x", b"%d" % number)
    async with asyncio.timeout(10):
        await all_heard.wait()
    assert sorted(map(int, heard[0] + heard[1])) == list(range(40))
    assert all(heard)


async def test_ordered_consumer_reads_all_in_order(stand: Stand) -> None:
    stream = await stand.stream()
    for number in range(300):
        await stand.js.publish(f"{stream}.{number % 3}", b"%d" % number * 100)
    subscription = await stand.js.subscribe(f"{stream}.>", ordered_consumer=True)
    found = [(await subscription.next_msg(timeout=5)).data for _ in range(300)]
    assert found == [b"%d" % number * 100 for number in range(300)]
    await subscription.unsubscribe()


async def test_acknowledgement_of_all_acknowledges_those_before(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS)
    config = api.ConsumerConfig(ack_policy=api.AckPolicy.ALL)
    subscription = await stand.js.pull_subscribe(f"{stream}.>", "worker", config=config)
    fetched = await subscription.fetch(3, timeout=5)
    await fetched[1].ack_sync()
    info = await subscription.consumer_info()
    assert info.ack_floor is not None
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (1, 2)


async def test_no_more_are_pending_than_allowed(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS)
    config = api.ConsumerConfig(max_ack_pending=2)
    subscription = await stand.js.pull_subscribe(f"{stream}.>", "worker", config=config)
    fetched = await subscription.fetch(3, timeout=1)
    assert len(fetched) == 2
    await fetched[0].ack_sync()
    (third,) = await subscription.fetch(1, timeout=5)
    assert third.data == b"three"


async def test_consumers_are_listed_and_deleted(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS)
    for name in ("b", "a"):
        await stand.js.add_consumer(stream, durable_name=name, ack_policy=api.AckPolicy.EXPLICIT)
    assert sorted(it.name for it in await stand.js.consumers_info(stream)) == ["a", "b"]
    names = await stand.request(f"CONSUMER.NAMES.{stream}")
    assert sorted(names["consumers"]) == ["a", "b"]
    assert (await stand.js.stream_info(stream)).state.consumer_count == 2
    assert await stand.js.delete_consumer(stream, "a")
    with pytest.raises(NotFoundError):
        await stand.js.consumer_info(stream, "a")
    with pytest.raises(NoRespondersError):
        await stand.client.request(f"{stand.prefix}.CONSUMER.MSG.NEXT.{stream}.a", b"", timeout=5)
    subscription = await stand.js.pull_subscribe_bind("b", stream)
    waiting = asyncio.create_task(subscription.fetch(5, timeout=10))
    await asyncio.sleep(0.2)
    await waiting
    await stand.js.delete_stream(stream)
    with pytest.raises(NotFoundError):
        await stand.js.consumer_info(stream, "b")


async def create(stand: Stand, stream: str, consumer: str, **config: Any) -> Any:
    """The error number, or what the consumer is set to."""
    body = {"stream_name": stream, "config": {"name": consumer, "ack_policy": "explicit", **config}}
    told = await stand.request(f"CONSUMER.CREATE.{stream}.{consumer}", body)
    return told["error"]["err_code"] if "error" in told else told["config"]


async def listed_count(stand: Stand, stream: str) -> int:
    told = await stand.request("STREAM.LIST")
    counts = {it["config"]["name"]: it["state"]["consumer_count"] for it in told["streams"]}
    return int(counts[stream])


async def test_stream_has_no_more_consumers_than_allowed(stand: Stand) -> None:
    stream = await stand.stream(max_consumers=3)
    for number in range(2):
        assert (await create(stand, stream, f"c{number}", durable_name=f"c{number}"))["name"]
    racing = [create(stand, stream, f"racer{number}") for number in range(8)]
    told = [it for it in await asyncio.gather(*racing) if it == 10026]
    assert len(told) == 7
    assert (await create(stand, stream, "c1", durable_name="c1", description="changed"))["name"]
    assert await create(stand, stream, "c9", durable_name="c9") == 10026
    assert await create(stand, stream, "c9", deliver_subject="x", max_waiting=2) == 10080
    direct = {"deliver_subject": f"{stream}-direct", "direct": True, "ack_policy": "none"}
    assert (await create(stand, stream, "d", **direct))["direct"], "as a mirror has it"
    config = (await stand.request(f"STREAM.INFO.{stream}"))["config"]
    assert config["max_consumers"] == 3
    await stand.js.delete_consumer(stream, "c0")
    assert (await create(stand, stream, "c9", durable_name="c9"))["name"]
    told = await stand.request(f"STREAM.UPDATE.{stream}", {**config, "max_consumers": 4})
    assert told["config"]["max_consumers"] == 4
    assert (await create(stand, stream, "c10", durable_name="c10"))["name"]
    told = await stand.request(f"STREAM.UPDATE.{stream}", {**config, "max_consumers": 1})
    assert told["config"]["max_consumers"] == 1, "consumers that are there stay"
    assert await create(stand, stream, "c11", durable_name="c11") == 10026


async def test_list_of_streams_counts_their_consumers(stand: Stand) -> None:
    streams = [await stand.stream() for _ in range(3)]
    for count, stream in enumerate(streams):
        for number in range(count):
            await create(stand, stream, f"c{number}", durable_name=f"c{number}")
    assert [await listed_count(stand, it) for it in streams] == [0, 1, 2]
    await stand.js.delete_consumer(streams[2], "c0")
    assert await listed_count(stand, streams[2]) == 1


async def test_consumers_keep_the_limits_of_their_stream(stand: Stand) -> None:
    second = 1_000_000_000
    limits = {"inactive_threshold": 10 * second, "max_ack_pending": 5}
    stream = await stand.stream()
    config = (await stand.request(f"STREAM.INFO.{stream}"))["config"]
    assert config["consumer_limits"] == {}

    async def limit(limits: Any) -> Any:
        told = await stand.request(f"STREAM.UPDATE.{stream}", {**config, "consumer_limits": limits})
        return told["error"] if "error" in told else told["config"]["consumer_limits"]

    assert await limit(limits) == limits
    made = await create(stand, stream, "c", durable_name="c")
    assert (made["max_ack_pending"], made["inactive_threshold"]) == (5, 10 * second)
    assert await create(stand, stream, "c2", max_ack_pending=6) == 10121
    assert await create(stand, stream, "c2", inactive_threshold=11 * second) == 10153
    for lower in ({"max_ack_pending": 4}, {"inactive_threshold": second}):
        assert await limit({**limits, **lower}) == {
            "code": 500,
            "err_code": 10069,
            "description": "change to limits violates consumers: c",
        }
    assert await limit({**limits, "max_ack_pending": 6}) == {**limits, "max_ack_pending": 6}
    assert (await create(stand, stream, "c2", max_ack_pending=6))["max_ack_pending"] == 6
    assert await limit({}) == {}


async def statuses(stand: Stand, stream: str, consumer: str, body: Any) -> list[tuple[str, str]]:
    """What a request for the next messages is answered, until nothing more comes."""
    inbox = stand.client.new_inbox()
    subscription = await stand.client.subscribe(inbox)
    verb = f"{stand.prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
    await stand.client.publish(verb, json.dumps(body).encode(), reply=inbox)
    found = []
    try:
        while True:
            message = await subscription.next_msg(timeout=0.7)
            headers = message.headers or {}
            said = " ".join(f"{name}={headers[name]}" for name in sorted(headers))
            found.append((message.data.decode(), said))
    except NatsTimeoutError:
        return found
    finally:
        await subscription.unsubscribe()


async def test_requests_end_as_jetstream_says(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS)
    await stand.js.add_consumer(stream, durable_name="c", ack_policy=api.AckPolicy.EXPLICIT)
    none = await statuses(stand, stream, "c", {"batch": 5, "no_wait": True})
    assert [data for data, _ in none] == ["one", "two", "three", ""]
    assert "Status=404" in none[-1][1] and "No Messages" in none[-1][1]
    (empty,) = await statuses(stand, stream, "c", {"batch": 5, "no_wait": True})
    assert "Status=404" in empty[1] and "No Messages" in empty[1]
    (expired,) = await statuses(stand, stream, "c", {"batch": 5, "expires": 200_000_000})
    assert "Status=408" in expired[1] and "Nats-Pending-Messages=5" in expired[1]
    beats = await statuses(
        stand, stream, "c", {"batch": 1, "expires": 1_000_000_000, "idle_heartbeat": 300_000_000}
    )
    assert sum("Status=100" in said for _, said in beats) >= 2
    await stand.js.publish(f"{stream}.x", b"x" * 100)
    (large,) = await statuses(
        stand, stream, "c", {"batch": 1, "max_bytes": 50, "expires": 300_000_000}
    )
    assert "Status=409" in large[1] and "Message Size Exceeds MaxBytes" in large[1]


async def test_pause_holds_deliveries_back(stand: Stand) -> None:
    stream = await stand.stream(*ORDERS)
    await stand.js.add_consumer(stream, durable_name="c", ack_policy=api.AckPolicy.EXPLICIT)
    subscription = await stand.js.pull_subscribe_bind("c", stream)
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    told = await stand.request(f"CONSUMER.PAUSE.{stream}.c", {"pause_until": until})
    assert told["paused"] is True
    with pytest.raises(NatsTimeoutError):
        await subscription.fetch(1, timeout=0.4)
    told = await stand.request(f"CONSUMER.PAUSE.{stream}.c", {})
    assert told["paused"] is False
    assert len(await subscription.fetch(3, timeout=5)) == 3


async def test_key_value_bucket_is_watched(stand: Stand) -> None:
    bucket = f"b{time.monotonic_ns()}"
    kv = await stand.js.create_key_value(bucket=bucket, history=5)
    await kv.put("a.x", b"1")
    await kv.put("a.y", b"2")
    await kv.put("a.x", b"3")
    assert sorted(await kv.keys()) == ["a.x", "a.y"]
    assert [it.value for it in await kv.history("a.x")] == [b"1", b"3"]
    watcher: Any = await kv.watchall()
    found = []
    async with asyncio.timeout(10):
        while (entry := await watcher.updates(timeout=5)) is not None:
            found.append((entry.key, entry.value))
        assert sorted(found) == [("a.x", b"3"), ("a.y", b"2")]
        await kv.delete("a.y")
        entry = await watcher.updates(timeout=5)
        assert entry is not None and (entry.key, entry.operation) == ("a.y", "DEL")
    await watcher.stop()
    assert await kv.keys() == ["a.x"]


@pytest.mark.parametrize("ttl", [None, 2.0])
async def test_watcher_hears_that_keys_expire(stand: Stand, ttl: float | None) -> None:
    """By the bucket's age or by their own; of a key that was purged it hears nothing more."""
    bucket = f"b{time.monotonic_ns()}"
    kv = await stand.js.create_key_value(bucket=bucket, ttl=ttl, limit_marker_ttl=60.0)
    assert (await kv.status()).marker_ttl == 60.0
    own = None if ttl else 1.0
    watcher: Any = await kv.watchall()
    assert await watcher.updates(timeout=5) is None
    found = []

    async def heard() -> None:
        entry = await watcher.updates(timeout=10)
        found.append((entry.key, entry.operation))

    async with asyncio.timeout(20):
        for key in "abc":
            await kv.create(key, b"1", msg_ttl=own)
            await heard()
        await kv.purge("b", msg_ttl=1.0)
        for _ in range(3):
            await heard()
        assert found[:4] == [("a", None), ("b", None), ("c", None), ("b", "PURGE")]
        assert sorted(found[4:]) == [("a", "PURGE"), ("c", "PURGE")]
        await kv.put("a", b"2")
        entry = await watcher.updates(timeout=5)
        assert (entry.key, entry.value) == ("a", b"2")
    await watcher.stop()


async def test_object_is_put_and_got(stand: Stand) -> None:
    store = await stand.js.create_object_store(bucket=f"o{time.monotonic_ns()}")
    data = bytes(range(256)) * 2_000
    await store.put("large", data)
    got = await store.get("large")
    assert got.data == data
    assert [it.name for it in await store.list()] == ["large"]
    await store.delete("large")


async def test_durable_consumer_goes_on_after_kill_9(tmp_path: Path) -> None:
    node = port_node(tmp_path / "node")
    try:
        node.start()
        client = await nats.connect(node.url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
        js = client.jetstream(domain="streamlog")
        await js.add_stream(name="orders", subjects=["orders.>"])
        for number in range(10):
            await js.publish("orders.x", b"%d" % number)
        subscription = await js.pull_subscribe("orders.>", "worker")
        fetched = await subscription.fetch(6, timeout=5)
        for it in fetched[:4]:
            await it.ack_sync(timeout=5)
        node.kill()
        node.start()
        async with asyncio.timeout(20):
            while True:
                try:
                    info = await js.consumer_info("orders", "worker")
                    break
                except (NatsTimeoutError, NoRespondersError, nats.js.errors.APIError):
                    await asyncio.sleep(0.05)
        assert info.ack_floor.stream_seq == 4
        rest = await subscription.fetch(6, timeout=5)
        found = [int(it.data) for it in rest]
        while len(set(found)) < 6:  # 4 and 5 come again once their time is over, or at once
            found += [int(it.data) for it in await subscription.fetch(6, timeout=40)]
        assert sorted(set(found)) == list(range(4, 10))
        await client.close()
    finally:
        node.kill()


async def test_ephemeral_consumer_goes_on_after_kill_9_unless_it_is_in_memory(
    tmp_path: Path,
) -> None:
    node = port_node(tmp_path / "node")
    try:
        node.start()
        client = await nats.connect(node.url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
        js = client.jetstream(domain="streamlog")
        await js.add_stream(name="orders", subjects=["orders.>"])
        for number in range(10):
            await js.publish("orders.x", b"%d" % number)
        common: dict[str, Any] = {
            "ack_policy": api.AckPolicy.EXPLICIT,
            "inactive_threshold": 60.0,
            "ack_wait": 2.0,
        }
        for config in (
            api.ConsumerConfig(name="kept", **common),
            api.ConsumerConfig(name="lost", mem_storage=True, **common),
            api.ConsumerConfig(name="late", mem_storage=True, **common),
        ):
            await js.add_consumer("orders", config)
        subscription = await js.pull_subscribe_bind("kept", "orders")
        for it in (await subscription.fetch(6, timeout=5))[:4]:
            await it.ack_sync(timeout=5)
        late = api.ConsumerConfig(durable_name="late", name="late", mem_storage=True, **common)
        lately = await js.pull_subscribe_bind("late", "orders")
        for it in await lately.fetch(2, timeout=5):
            await it.ack_sync(timeout=5)
        await js.add_consumer("orders", late)  # from now on it is to outlive its coordinator
        node.kill()
        node.start()
        async with asyncio.timeout(20):
            while True:
                try:
                    info = await js.consumer_info("orders", "kept")
                    break
                except (NatsTimeoutError, NoRespondersError, nats.js.errors.APIError):
                    await asyncio.sleep(0.05)
        assert info.ack_floor.stream_seq == 4
        assert (await js.consumer_info("orders", "late")).ack_floor.stream_seq == 2
        with pytest.raises(NotFoundError):
            await js.consumer_info("orders", "lost")
        found = list[int]()
        while len(set(found)) < 6:
            found += [int(it.data) for it in await subscription.fetch(6, timeout=10)]
        assert sorted(set(found)) == list(range(4, 10))
        await client.close()
    finally:
        node.kill()


@pytest.mark.parametrize("kind", ["nats-server", "streamlog"])
async def test_client_that_waits_is_told_of_the_end_of_a_server_that_is_alone(
    tmp_path: Path, kind: str
) -> None:
    is_ours = kind == "streamlog"
    server: Any = port_node(tmp_path / "node") if is_ours else JetStreamServer(tmp_path)
    try:
        server.start()
        client = await nats.connect(server.url, allow_reconnect=False)
        js = client.jetstream(domain="streamlog") if is_ours else client.jetstream()
        await js.add_stream(name="s", subjects=["s"])
        await js.add_consumer("s", durable_name="c")
        inbox = await client.subscribe("_INBOX.waiting")
        prefix = "$JS.streamlog.API" if is_ours else "$JS.API"
        await client.publish(
            f"{prefix}.CONSUMER.MSG.NEXT.s.c", b'{"expires":30000000000}', reply="_INBOX.waiting"
        )
        await client.flush()  # it waits before the server hears of its end
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        told = await inbox.next_msg(timeout=10)
        assert status_of(told) == ("409", "Server Shutdown")
        await stopping
    finally:
        server.kill()


# Priority groups, samples, resets


async def add_consumer(stand: Stand, stream: str, **config: Any) -> None:
    body = {
        "stream_name": stream,
        "config": {"durable_name": "c", "ack_policy": "explicit", **config},
    }
    answer = await stand.request(f"CONSUMER.CREATE.{stream}.c", body)
    assert "error" not in answer, answer


class Puller:
    """Asks for messages at an inbox of its own."""

    def __init__(self, stand: Stand, stream: str) -> None:
        self._stand, self._stream = stand, stream
        self._inbox = stand.client.new_inbox()

    async def __aenter__(self) -> "Puller":
        self._subscription = await self._stand.client.subscribe(self._inbox)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._subscription.unsubscribe()

    async def ask(self, **body: Any) -> None:
        subject = f"{self._stand.prefix}.CONSUMER.MSG.NEXT.{self._stream}.c"
        body = {"batch": 10, "expires": 20_000_000_000, **body}
        await self._stand.client.publish(subject, json.dumps(body).encode(), reply=self._inbox)
        await self._stand.client.flush()

    async def next(self) -> Msg:
        return await self._subscription.next_msg(timeout=5)

    async def nothing(self) -> None:
        with pytest.raises(NatsTimeoutError):
            await self._subscription.next_msg(timeout=0.3)


def status_of(message: Msg) -> tuple[str | None, str | None]:
    headers = message.headers or {}
    return headers.get("Status"), headers.get("Description")


async def test_overflow_group_serves_a_request_once_enough_is_pending(stand: Stand) -> None:
    stream = await stand.stream()
    await add_consumer(stand, stream, priority_groups=["g"], priority_policy="overflow")
    async with Puller(stand, stream) as far, Puller(stand, stream) as near:
        await far.ask(group="g", min_pending=3)
        for number in range(2):
            await stand.js.publish(f"{stream}.a", b"%d" % number)
        await far.nothing()
        await stand.js.publish(f"{stream}.a", b"2")
        assert (await far.next()).data == b"0"
        await far.nothing()
        await near.ask(group="g", batch=2)
        assert [(await near.next()).data for _ in range(2)] == [b"1", b"2"]
        await stand.js.publish(f"{stream}.a", b"3")
        await far.nothing()
        await far.ask(group="g", min_ack_pending=3)
        assert (await far.next()).data == b"3"
        await far.ask()
        assert status_of(await far.next()) == ("400", "Bad Request - Priority Group missing")


async def test_pinned_group_serves_one_client(stand: Stand) -> None:
    stream = await stand.stream()
    events = await stand.client.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.*.{stream}.c")
    pinned = {"priority_groups": ["g"], "priority_policy": "pinned_client"}
    await add_consumer(stand, stream, **pinned, priority_timeout=60_000_000_000)
    (group,) = (await stand.request(f"CONSUMER.INFO.{stream}.c"))["priority_groups"]
    assert group == {"group": "g", "pinned_ts": "0001-01-01T00:00:00Z"}
    async with Puller(stand, stream) as first, Puller(stand, stream) as second:
        await first.ask(group="g", batch=2)
        await second.ask(group="g")
        for number in range(3):
            await stand.js.publish(f"{stream}.a", b"%d" % number)
        got = [await first.next() for _ in range(2)]
        (pin,) = {(it.headers or {})["Nats-Pin-Id"] for it in got}
        assert [it.data for it in got] == [b"0", b"1"]
        await second.nothing()
        (group,) = (await stand.request(f"CONSUMER.INFO.{stream}.c"))["priority_groups"]
        assert (group["group"], group["pinned_client_id"]) == ("g", pin)
        assert group["pinned_ts"][:2] == "20"
        await second.ask(group="g", id="another")
        assert status_of(await second.next()) == ("423", "Nats-Pin-Id mismatch")
        await first.ask(group="g", id=pin)
        assert (await first.next()).data == b"2"
        unpin = f"CONSUMER.UNPIN.{stream}.c"
        assert (await stand.request(unpin, {"group": "h"}))["error"]["err_code"] == 10160
        assert "error" in await stand.request(unpin, {"group": ""})
        answer = await stand.request(unpin, {"group": "g"})
        assert answer == {"type": "io.nats.jetstream.api.v1.consumer_unpin_response"}
        for number in (3, 4):
            await stand.js.publish(f"{stream}.a", b"%d" % number)
        assert status_of(await first.next()) == ("423", "Nats-Wrong-Pin-Id")
        last = [await second.next() for _ in range(2)]
        assert [it.data for it in last] == [b"3", b"4"]
        assert all((it.headers or {})["Nats-Pin-Id"] != pin for it in last)
    said = [json.loads((await events.next_msg(timeout=5)).data) for _ in range(4)]
    kinds = [it["type"].rpartition(".")[2] for it in said]
    assert kinds == [
        "consumer_action",
        "consumer_group_pinned",
        "consumer_group_unpinned",
        "consumer_group_pinned",
    ]
    assert (said[1]["group"], said[1]["pinned_id"]) == ("g", pin)
    assert (said[2]["group"], said[2]["reason"]) == ("g", "admin")


async def test_client_that_has_gone_is_not_pinned(stand: Stand) -> None:
    if stand.name == "nats-server":
        pytest.skip("2.15.1 pins a client that has gone, and serves none until the pin's timeout")
    stream = await stand.stream(("a", b"0"), ("a", b"1"))
    pinned = {"priority_groups": ["g"], "priority_policy": "pinned_client"}
    await add_consumer(stand, stream, **pinned, priority_timeout=60_000_000_000)
    async with Puller(stand, stream) as first, Puller(stand, stream) as last:
        await first.ask(group="g", batch=1)
        pin = ((await first.next()).headers or {})["Nats-Pin-Id"]
        async with Puller(stand, stream) as gone:
            await gone.ask(group="g")
        await stand.client.flush()
        await stand.request(f"CONSUMER.UNPIN.{stream}.c", {"group": "g"})
        await last.ask(group="g", batch=1)
        message = await last.next()
        assert message.data == b"1"
        assert (message.headers or {})["Nats-Pin-Id"] not in ("", pin)


async def test_pin_ends_after_its_timeout(stand: Stand) -> None:
    stream = await stand.stream()
    pinned = {"priority_groups": ["g"], "priority_policy": "pinned_client"}
    await add_consumer(stand, stream, **pinned, priority_timeout=500_000_000)
    async with Puller(stand, stream) as first, Puller(stand, stream) as second:
        await first.ask(group="g", batch=1)
        await second.ask(group="g")
        for number in range(2):
            await stand.js.publish(f"{stream}.a", b"%d" % number)
        assert (await first.next()).data == b"0"
        assert (await second.next()).data == b"1"


async def test_prioritized_group_serves_the_lowest_number_first(stand: Stand) -> None:
    stream = await stand.stream()
    await add_consumer(stand, stream, priority_groups=["g"], priority_policy="prioritized")
    async with Puller(stand, stream) as late, Puller(stand, stream) as early:
        await late.ask(group="g", priority=2)
        await early.ask(group="g", priority=1, batch=2)
        for number in range(3):
            await stand.js.publish(f"{stream}.a", b"%d" % number)
        assert [(await early.next()).data for _ in range(2)] == [b"0", b"1"]
        assert (await late.next()).data == b"2"


async def test_sampled_acknowledgements_are_told(stand: Stand) -> None:
    stream = await stand.stream(("a", b"0"))
    metrics = await stand.client.subscribe(f"$JS.EVENT.METRIC.CONSUMER.ACK.{stream}.c")
    await add_consumer(stand, stream, sample_freq="100%")
    async with Puller(stand, stream) as puller:
        await puller.ask(batch=1)
        await (await puller.next()).ack()
    said = json.loads((await metrics.next_msg(timeout=5)).data)
    assert said["type"] == "io.nats.jetstream.metric.v1.consumer_ack"
    told = {name: said[name] for name in ("stream", "consumer", "consumer_seq", "stream_seq")}
    assert told == {"stream": stream, "consumer": "c", "consumer_seq": 1, "stream_seq": 1}
    assert said["deliveries"] == 1
    assert 0 <= said["ack_time"] < 5_000_000_000


async def test_consumer_is_reset_to_its_floor_or_a_sequence(stand: Stand) -> None:
    stream = await stand.stream(*[("a", b"%d" % number) for number in range(5)])
    await add_consumer(stand, stream)
    reset = f"CONSUMER.RESET.{stream}.c"
    async with Puller(stand, stream) as puller:
        await puller.ask(batch=4)
        got = [await puller.next() for _ in range(4)]
        await got[0].ack_sync()
        answer = await stand.request(reset)
        assert answer["type"] == "io.nats.jetstream.api.v1.consumer_reset_response"
        assert (answer["reset_seq"], answer["num_ack_pending"], answer["num_pending"]) == (2, 0, 4)
        assert answer["delivered"]["consumer_seq"] == 0
        await puller.ask(batch=1)
        again = await puller.next()
        assert (again.data, again.metadata.sequence.consumer) == (b"1", 1)
        assert (await stand.request(reset, {"seq": 5}))["reset_seq"] == 5
        await puller.ask(batch=1)
        assert (await puller.next()).data == b"4"
        assert (await stand.request(reset, {"seq": 1}))["num_pending"] == 5


async def test_reset_is_refused_below_the_start(stand: Stand) -> None:
    stream = await stand.stream(*[("a", b"%d" % number) for number in range(5)])
    await add_consumer(stand, stream, deliver_policy="by_start_sequence", opt_start_seq=3)
    reset = f"CONSUMER.RESET.{stream}.c"
    error = (await stand.request(reset, {"seq": 2}))["error"]
    assert (error["err_code"], error["description"]) == (10204, "invalid reset: below start seq")
    assert (await stand.request(reset, {"seq": 4}))["reset_seq"] == 4
    await stand.request(f"CONSUMER.DELETE.{stream}.c")
    await add_consumer(stand, stream, deliver_policy="new")
    error = (await stand.request(reset, {"seq": 2}))["error"]
    assert (error["err_code"], error["description"]) == (10204, "invalid reset: not allowed")
