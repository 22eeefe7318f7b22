"""Quotas over a socket: answered at once, told to wait, and not read from for so long (KIP-219)."""

import asyncio
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

import pytest
from immutables import Map

from streamlog.kafka import quotas as quotas_module
from streamlog.kafka.quotas import ClientQuotas
from streamlog.metadata.commands import AlterQuota
from streamlog.metadata.image.quota import NO_QUOTA, Quota, QuotaKey
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId
from streamlog.wire import api_messages
from streamlog.wire.fetch import FetchRequest
from streamlog.wire.framing import frame
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    APIS,
    DESCRIBE_CLIENT_QUOTAS,
    ENVELOPE,
    METADATA,
    PRODUCE,
)
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at, wanted
from tests.record_batches import HandRecord, hand_batch

IN: Final = "producer_byte_rate"
OUT: Final = "consumer_byte_rate"
REQUESTS: Final = "request_rate"
NO_TOPICS: dict[str, Any] = {"topics": []}
BATCH = hand_batch([HandRecord(bytes(1_000))], max_timestamp_ms=1_000)
FOLLOWER, NODE_EPOCH = NodeId(8), 40


class QuotaClock:
    """The time of quotas. It passes when a test says so, so that throttle times are exact."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> QuotaClock:
    clock = QuotaClock()
    monkeypatch.setattr(quotas_module, "asyncio", SimpleNamespace(get_running_loop=lambda: clock))
    return clock


async def limit(
    node: KafkaNode, values: Mapping[QuotaKey, float], client_id: str | None = "raw"
) -> None:
    await node.metadata.request(AlterQuota(client_id=client_id, values=dict(values)))


def produce(acks: int = -1) -> dict[str, Any]:
    partition = {"index": 0, "records": BATCH}
    topic = {"name": "flights", "partition_data": [partition]}
    return {"acks": acks, "timeout": 5_000, "topic_data": [topic]}


async def until_served(client: RawClient) -> float:
    """Seconds until another request is answered; it is sent at once."""
    began = time.monotonic()
    await client.ask(API_VERSIONS, 0, {})
    return time.monotonic() - began


async def test_without_a_quota_nobody_waits(node: KafkaNode) -> None:
    await node.add_stream("flights")
    async with RawClient(node.port) as client:
        for _ in range(20):
            assert (await client.ask(PRODUCE, 9, produce()))["throttle_time"] == 0
    assert len(node.listener._context.throttles) == 0


async def test_a_producer_that_sends_too_much_is_answered_and_not_read(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    await limit(node, {IN: 200})
    async with RawClient(node.port) as client:
        answers = [await client.ask(PRODUCE, 9, produce())]
        while not answers[-1]["throttle_time"]:
            answers.append(await client.ask(PRODUCE, 9, produce()))
        assert len(answers) == 2, "2000 bytes are saved up at first"
        told_s = answers[-1]["throttle_time"] / 1000
        assert 0 < told_s <= (2 * (len(BATCH) + 100) - 2_000) / 200
        assert partition.log_end_offset == 2, "what went over is stored all the same"
        assert await until_served(client) >= told_s * 0.9
    assert node.metric("streamlog_throttled_requests_total", quota="produce") == 1
    seconds = node.metric("streamlog_throttle_seconds_total", quota="produce")
    assert told_s - 0.002 <= seconds <= told_s


async def test_a_producer_that_wants_no_answer_is_not_read_either(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    await limit(node, {IN: 1_000})
    async with RawClient(node.port) as client:
        for _ in range(10):
            client.send(PRODUCE, 9, produce(acks=0))
        waited_s = await until_served(client)
    assert partition.log_end_offset == 10
    assert waited_s >= 0.25, "10 kB are saved up, and so much more was sent"


async def test_late_answers_are_sent_while_nothing_is_read(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.commits = False
    await limit(node, {IN: 50})
    async with RawClient(node.port) as client:
        sent = client.send(PRODUCE, 9, produce())
        await until(lambda: bool(partition.waiting))
        later = client.send(API_VERSIONS, 0, {})
        partition.commit_produced()
        cursor = await client.answer(sent)
        answer = api_messages.read_response(cursor, APIS[PRODUCE], 9)
        assert answer["throttle_time"] > 5_000
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.answer(later)


@pytest.mark.usefixtures("clock")
async def test_a_fetch_is_never_larger_than_what_may_be_saved_up(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    for _ in range(8):
        partition.append([bytes(1_000)])
    size = partition.batches[0].length
    await limit(node, {OUT: size / 5})
    async with RawClient(node.port) as client, RawClient(node.port) as other:
        answer = await client.fetch(wanted(at(0)))
        assert (len(answer.partitions[0].records), answer.throttle_ms) == (2 * size, 0)
        answer = await client.fetch(wanted(at(2)))
        assert len(answer.partitions[0].records) == 2 * size
        assert answer.throttle_ms == 10_000
        answer = await other.fetch(wanted(at(4)))
        assert (answer.partitions, answer.error_code) == ([], 0)
        assert answer.throttle_ms == 10_000, "told at once, on any connection"
        assert node.metric("streamlog_throttled_requests_total", quota="fetch") == 2


async def test_a_session_loses_nothing_while_its_client_waits(clock: QuotaClock) -> None:
    async with KafkaNode(quota_burst_ms=100) as node, RawClient(node.port) as client:
        partition = await node.add_stream("flights", 2)
        partition.append([bytes(1_000)])
        size = partition.batches[0].length
        first = await client.fetch(wanted(at(0), session_epoch=0))
        session: dict[str, Any] = {"session_id": first.session_id}
        await limit(node, {OUT: size * 2})
        partition.append([bytes(1_000)])
        request = wanted(at(1), session_epoch=1, **session)
        answer = await client.fetch(request)
        assert len(answer.partitions[0].records) == size
        assert answer.throttle_ms == 400
        partition.append([bytes(1_000)])
        async with RawClient(node.port) as other:
            request = wanted(at(2), at(0, partition=1), session_epoch=2, **session)
            answer = await other.fetch(request)
            assert (answer.partitions, answer.session_id) == ([], first.session_id)
            assert answer.throttle_ms == 400
            clock.now_s += 0.5
            nothing = FetchRequest([], 0, 1, 2**20, session_epoch=3, **session)
            answer = await other.fetch(nothing)
            assert [it.fetched.partition for it in answer.partitions] == [0, 1]
            assert len(answer.partitions[0].records) == size


async def test_replicas_are_not_counted(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.node_epochs = {FOLLOWER: NODE_EPOCH}
    partition.append([bytes(10_000)])
    await limit(node, {OUT: 1, REQUESTS: 0.01}, None)
    replica: dict[str, Any] = {"replica_id": FOLLOWER, "replica_epoch": NODE_EPOCH}
    async with RawClient(node.port) as client:
        for _ in range(5):
            answer = await client.fetch(wanted(at(0), **replica))
            assert len(answer.partitions[0].records) > 10_000
            assert answer.throttle_ms == 0
            envelope = {"request_data": b"", "request_principal": None, "client_host_address": b""}
            await client.ask(ENVELOPE, 0, envelope)
            await client.ask(API_VERSIONS, 0, {})
    assert len(node.listener._context.throttles) == 0


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("version", range(1, 14))
async def test_requests_are_counted(node: KafkaNode, version: int) -> None:
    await limit(node, {REQUESTS: 0.5})
    async with RawClient(node.port) as client:
        told = [
            (await client.ask(METADATA, version, NO_TOPICS)).get("throttle_time", 0)
            for _ in range(5 if version >= 3 else 6)
        ]
        assert told == [0] * len(told), "five in the window of ten seconds"
        if version >= 3:
            told_ms = (await client.ask(METADATA, version, NO_TOPICS))["throttle_time"]
            assert told_ms == 2_000
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await until_served(client)


async def test_each_client_has_what_is_its_own(node: KafkaNode) -> None:
    """The default is not shared, and a limit of one's own goes before it."""
    await limit(node, {REQUESTS: 0.1}, None)
    await limit(node, {REQUESTS: 1_000}, "rich")
    await limit(node, {REQUESTS: 0.1, IN: 5}, "poor")

    async def throttled(client_id: str | None, count: int) -> list[bool]:
        async with RawClient(node.port) as client:
            found = []
            for _ in range(count):
                head = encode_request_header(APIS[METADATA], 12, 7, client_id)  # type: ignore[arg-type]
                client.write(
                    frame(head, api_messages.encode_request(APIS[METADATA], 12, NO_TOPICS))
                )
                cursor_bytes = await client.frame()
                found.append(int.from_bytes(cursor_bytes[5:9], "big") > 0)
            return found

    assert await throttled("rich", 20) == [False] * 20
    assert await throttled("poor", 2) == [False, True]
    assert await throttled("another", 2) == [False, True]
    assert await throttled(None, 2) == [False, True]
    assert await throttled("", 1) == [True], "who has no name is called nothing"


async def test_a_quota_that_ends_is_not_kept_to(node: KafkaNode) -> None:
    await limit(node, {REQUESTS: 0.1})
    async with RawClient(node.port) as client:
        for _ in range(2):
            await client.ask(METADATA, 12, NO_TOPICS)
    await node.metadata.request(AlterQuota(client_id="raw", values={REQUESTS: None}))
    async with RawClient(node.port) as client:
        for _ in range(3):
            assert (await client.ask(METADATA, 12, NO_TOPICS))["throttle_time"] == 0


async def test_who_has_to_wait_does_not_hold_up_the_end(node: KafkaNode) -> None:
    await limit(node, {REQUESTS: 0.1})
    async with RawClient(node.port) as client:
        for _ in range(2):
            told = await client.ask(METADATA, 12, NO_TOPICS)
        assert told["throttle_time"] > 9_000
        async with asyncio.timeout(told["throttle_time"] / 1000):  # before it would be served
            await node.listener.stop()
        assert await client.closed()


async def test_waiting_is_not_idleness() -> None:
    async with KafkaNode(idle_timeout_ms=1_000) as node, RawClient(node.port) as client:
        await limit(node, {REQUESTS: 0.1})
        await client.ask(METADATA, 12, NO_TOPICS)
        await client.ask(METADATA, 12, NO_TOPICS)
        await asyncio.sleep(1.5)
        assert node.metric("streamlog_connections") == 1


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "BUCKETS_MAX", 3)
    throttles = ClientQuotas()
    for number in range(10):
        throttles.bucket(str(number), "request", 1.0, window_s=1, now_s=0)
        throttles.bucket("0", "request", 1.0, window_s=1, now_s=0).take(1, 0)
    assert len(throttles) == 3
    assert throttles.bucket("0", "request", 1.0, window_s=1, now_s=0).take(0, 0) > 8
    quotas = Map[str | None, Quota]({None: Quota(request_rate=1)})
    for number in range(10):
        assert throttles.charge(str(number), quotas, 1_000, NodeMetrics()) is not None
    assert len(throttles._found) <= 3
    quotas = Map[str | None, Quota]({"a": NO_QUOTA, "b": Quota(request_rate=1)})
    assert throttles.charge("a", quotas, 1_000, NodeMetrics()) is None


def entry(client_id: str | None, *ops: tuple[str, float | None], kind: str = "client-id") -> Any:
    return {
        "entity": [{"entity_type": kind, "entity_name": client_id}],
        "ops": [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in ops],
    }


async def alter(node: KafkaNode, *entries: Any, version: int = 1, **more: Any) -> list[int]:
    async with RawClient(node.port) as client:
        request = {"entries": list(entries), "validate_only": False, **more}
        answer = await client.ask(ALTER_CLIENT_QUOTAS, version, request)
    assert [it["entity"] for it in answer["entries"]] == [it["entity"] for it in entries]
    for it in answer["entries"]:
        assert (it["error_code"] == 0) == (it["error_message"] is None)
    return [it["error_code"] for it in answer["entries"]]


async def described(
    node: KafkaNode,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int = 1,
) -> Any:
    asked = [{"entity_type": t, "match_type": m, "match": name} for t, m, name in components]
    async with RawClient(node.port) as client:
        answer = await client.ask(
            DESCRIBE_CLIENT_QUOTAS, version, {"components": asked, "strict": strict}
        )
    if answer["error_code"]:
        assert answer["entries"] is None
        return answer["error_code"]
    found = {}
    for it in answer["entries"]:
        (entity,) = it["entity"]
        assert entity["entity_type"] == "client-id"
        found[entity["entity_name"]] = {value["key"]: value["value"] for value in it["values"]}
    return found


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_altered_and_described(node: KafkaNode, version: int) -> None:
    entries = entry("a", (IN, 1_000.0), (REQUESTS, 0.25)), entry(None, (OUT, 5e9))
    assert await alter(node, *entries, version=version) == [0, 0]
    both = {"a": {IN: 1_000.0, REQUESTS: 0.25}, None: {OUT: 5e9}}
    assert await described(node, version=version) == both
    assert await alter(node, entry("a", (IN, None)), entry(None, (OUT, None))) == [0, 0]
    assert await described(node, version=version) == {"a": {REQUESTS: 0.25}}


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {"a", "b", None}),
        ([], True, set()),
        ([("client-id", 2, None)], True, {"a", "b", None}),
        ([("client-id", 0, "a")], True, {"a"}),
        ([("client-id", 0, "c")], False, set()),
        ([("client-id", 1, None)], False, {None}),
        ([("user", 2, None)], False, set()),
        ([("client-id", 2, None), ("user", 1, None)], False, set()),
        ([("client-id", 2, None), ("client-id", 1, None)], False, 42),
        ([("client-id", 3, None)], False, 42),
        ([("client-id", 0, None)], False, 42),
        ([("client-id", 1, "a")], False, 42),
        ([("planet", 2, None)], False, 35),
    ],
)
async def test_what_is_asked_for_is_described(
    node: KafkaNode, components: Any, strict: bool, found: Any
) -> None:
    for client_id in ("b", "a", None):
        await limit(node, {IN: 1}, client_id)
    answer = await described(node, *components, strict=strict)
    assert (answer if isinstance(answer, int) else set(answer)) == found


@pytest.mark.parametrize(
    "wrong",
    [
        entry("a", ("request_percentage", 5.0)),
        entry("a", ("controller_mutation_rate", 5.0)),
        entry("a", ("nonsense", 5.0)),
        entry("a", (IN, 5.0), (IN, 6.0)),
        entry("a", (IN, -1.0)),
        entry("a", (IN, 0.0001), (OUT, float("nan"))),
        entry("a", (OUT, float("inf"))),
        entry("a" * 1_001, (IN, 1.0)),
        entry("a", (IN, 1.0), kind="user"),
        entry(None, (IN, 1.0), kind="ip"),
        {**entry("a", (IN, 1.0)), "entity": []},
    ],
)
async def test_what_cannot_be_is_refused_by_itself(node: KafkaNode, wrong: Any) -> None:
    assert await alter(node, wrong, entry("good", (IN, 1.0))) == [42, 0]
    assert await described(node) == {"good": {IN: 1.0}}


async def test_named_twice_or_only_validated_nothing_is_done(node: KafkaNode) -> None:
    twice = entry("a", (IN, 1.0)), entry("a", (OUT, 1.0))
    assert await alter(node, *twice) == [42, 42]
    assert await alter(node, entry("a", (IN, 1.0)), validate_only=True) == [0]
    assert await alter(node, entry("a", (IN, -1.0)), validate_only=True) == [42]
    assert await described(node) == {}
