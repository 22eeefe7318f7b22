"""What JetStream's consumers deliver in runs, at a node's own port: thousands of messages, and records that no NATS
client wrote.
"""

import time
from collections.abc import AsyncIterator, Iterator

import nats
import pytest
from confluent_kafka import Producer
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

from tests.integration.test_port import PortNode, port_node

COUNT = 12_000
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PortNode]:
    node = port_node(tmp_path_factory.mktemp("runs"))
    try:
        node.start()
        yield node
        assert "Traceback" not in node.log_text()
    finally:
        node.kill()


@pytest.fixture
async def client(node: PortNode) -> AsyncIterator[Client]:
    client = await nats.connect(node.url, pending_size=64 << 20)
    yield client
    await client.close()


@pytest.fixture
def js(client: Client) -> JetStreamContext:
    return client.jetstream(domain="streamlog")


async def stream(js: JetStreamContext) -> str:
    name = f"s{time.monotonic_ns()}"
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    return name


async def filled(client: Client, js: JetStreamContext, count: int) -> str:
    """Every third message on another subject, every seventh with headers."""
    name = await stream(js)
    for number in range(count):
        headers = {"N": str(number)} if number % 7 == 0 else None
        subject = f"{name}.{'b' if number % 3 == 0 else 'a'}"
        await client.publish(subject, b"%d" % number, headers=headers)
        if number % 1_000 == 0:
            await client.flush()
    await js.publish(f"{name}.end", b"")
    await js.purge_stream(name, subject=f"{name}.end")
    return name


def check(name: str, messages: list[Msg], numbers: list[int]) -> None:
    assert [int(it.data) for it in messages] == numbers
    for sequence, it in enumerate(messages, 1):
        number = int(it.data)
        assert it.subject == f"{name}.{'b' if number % 3 == 0 else 'a'}"
        assert it.headers == ({"N": str(number)} if number % 7 == 0 else None)
        assert it.metadata.sequence.stream == number + 1
        assert it.metadata.sequence.consumer == sequence
        assert it.metadata.num_delivered == 1
        assert it.metadata.num_pending == len(numbers) - sequence


@pytest.mark.parametrize("batch", [100, 5_000])
async def test_pulls_bring_each_message_once_and_in_order(
    client: Client, js: JetStreamContext, batch: int
) -> None:
    name = await filled(client, js, COUNT)
    config = api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, max_ack_pending=COUNT)
    subscription = await js.pull_subscribe(f"{name}.>", "worker", config=config)
    messages: list[Msg] = []
    while len(messages) < COUNT:
        messages += await subscription.fetch(min(batch, COUNT - len(messages)), timeout=PATIENCE_S)
    check(name, messages, list(range(COUNT)))
    for it in messages[:-1]:
        await it.ack()
    await messages[-1].ack_sync(timeout=PATIENCE_S)
    info = await subscription.consumer_info()
    assert info.ack_floor is not None
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, COUNT)


async def test_a_consumer_made_again_is_the_one_that_pulls_reach(
    client: Client, js: JetStreamContext
) -> None:
    """Also for a client that has pulled from the one before by the same subject, and where the stream is made again."""
    name = await filled(client, js, 20)
    for round_number in range(3):
        if round_number == 2:
            await js.delete_stream(name)
            await js.add_stream(name=name, subjects=[f"{name}.>"])
            for number in range(20):
                await js.publish(f"{name}.a", b"%d" % number)
        subscription = await js.pull_subscribe(f"{name}.>", "worker", stream=name)
        for first in (0, 5):
            messages = await subscription.fetch(5, timeout=PATIENCE_S)
            assert [int(it.data) for it in messages] == [*range(first, first + 5)]
            assert [it.metadata.sequence.consumer for it in messages] == [
                *range(first + 1, first + 6)
            ]
        if round_number != 1:
            await js.delete_consumer(name, "worker")
            with pytest.raises((nats.errors.Error, TimeoutError)):
                await subscription.fetch(5, timeout=1)


async def test_push_with_a_filter_and_flow_control_brings_each_message_once(
    client: Client, js: JetStreamContext
) -> None:
    name = await filled(client, js, COUNT)
    subscription = await js.subscribe(f"{name}.b", ordered_consumer=True)
    numbers = list(range(0, COUNT, 3))
    messages = [await subscription.next_msg(timeout=PATIENCE_S) for _ in numbers]
    check(name, messages, numbers)


async def test_messages_erased_and_purged_are_left_out(
    client: Client, js: JetStreamContext
) -> None:
    name = await filled(client, js, 300)
    for sequence in (151, 200, 300):
        await js.delete_msg(name, sequence)
    await js.purge_stream(name, seq=101)
    subscription = await js.pull_subscribe(f"{name}.>", "worker")
    messages = await subscription.fetch(300 - 100 - 3, timeout=PATIENCE_S)
    gone = (150, 199, 299)
    assert [int(it.data) for it in messages] == [it for it in range(100, 300) if it not in gone]


async def test_subscription_that_ends_within_a_run_loses_nothing(
    client: Client, js: JetStreamContext
) -> None:
    name = await filled(client, js, 30)
    config = api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, ack_wait=PATIENCE_S * 10)
    worker = await js.pull_subscribe(f"{name}.>", "worker", config=config)
    inbox = client.new_inbox()
    short = await client.subscribe(inbox)
    await short.unsubscribe(limit=3)
    next_subject = f"$JS.streamlog.API.CONSUMER.MSG.NEXT.{name}.worker"
    await client.publish(next_subject, b'{"batch": 20}', reply=inbox)
    first = [await short.next_msg(timeout=PATIENCE_S) for _ in range(3)]
    rest = await worker.fetch(27, timeout=PATIENCE_S)
    assert [int(it.data) for it in [*first, *rest]] == list(range(30))
    assert all(it.metadata.num_delivered == 1 for it in rest)


async def test_records_of_kafka_producers_have_subjects_that_clients_can_read(
    node: PortNode, client: Client, js: JetStreamContext
) -> None:
    name = await stream(js)
    producer = Producer({"bootstrap.servers": node.kafka})
    sent: list[list[tuple[str, str | bytes | None]]] = [
        [],
        [("subject", b"two words")],
        [("subject", b"line\r\nPUB x 0")],
        [("subject", b"a..b")],
        [("subject", f"{name}.ok".encode()), ("X", b"1")],
        [("other", b"line\r\nY: 2")],
    ]
    for number, headers in enumerate(sent):
        producer.produce(name, b"%d" % number, partition=0, headers=dict(headers), timestamp=1)
    producer.flush(PATIENCE_S)
    subscription = await js.pull_subscribe("", "worker", stream=name)
    messages = await subscription.fetch(len(sent), timeout=PATIENCE_S)
    assert [int(it.data) for it in messages] == list(range(len(sent)))
    assert [it.subject for it in messages] == [*[name] * 4, f"{name}.ok", name]
    assert [it.headers for it in messages] == [None] * 4 + [{"X": "1"}, {"other": "line  Y: 2"}]
    for it in messages:
        await it.nak()
    again = await subscription.fetch(len(sent), timeout=PATIENCE_S)
    assert [it.subject for it in again] == [it.subject for it in messages]
    for it in again:
        await it.ack_sync(timeout=PATIENCE_S)
    assert (await subscription.consumer_info()).num_ack_pending == 0
