"""Names of any length: refused at the wire, or kept nowhere (names that nothing can have)."""

import gc
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from streamlog.authz.audit import Audit
from streamlog.errors import MalformedFrame
from streamlog.wire import api_messages, fetch, produce
from streamlog.wire.cursor import STRING_BYTES_MAX, TOPIC_NAME_BYTES_MAX, Cursor
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from streamlog.wire.header import CLIENT_ID_CHARS_MAX, encode_request_header
from streamlog.wire.registry import (
    APIS,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
)
from tests.kafka_node import KafkaNode
from tests.restricted import ALICE, Asker

KIB = 1024
KEPT_MAX = 2 * KIB * KIB
"""What a few hundred requests may leave behind, whatever they name."""


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    made = KafkaNode()
    made.listener.open()
    made.metadata.register(9092)
    await made.add_stream("flights")
    yield made
    await made.listener.stop()
    made.close()


def request(key: int, version: int, body: api_messages.Message, client_id: str = "raw") -> bytes:
    api = APIS[key]
    header = encode_request_header(api, version, 7, client_id)
    return header + api_messages.encode_request(api, version, body)


def about(key: int, name: str) -> api_messages.Message:
    """A request that names it."""
    match key:
        case _ if key == METADATA:
            return {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        case _ if key == DELETE_TOPICS:
            return {"topics": [{"name": name, "topic_id": None}], "timeout": 1_000}
        case _ if key == DESCRIBE_GROUPS:
            return {"groups": [name]}
        case _ if key == DELETE_GROUPS:
            return {"groups_names": [name]}
        case _ if key == FIND_COORDINATOR:
            return {"key_type": 0, "coordinator_keys": [name]}
        case _:
            return {"transactional_id": name, "transaction_timeout": 1_000}


NAMING = (
    (METADATA, 12), (DELETE_TOPICS, 6), (DESCRIBE_GROUPS, 5), (DELETE_GROUPS, 2),
    (FIND_COORDINATOR, 4), (INIT_PRODUCER_ID, 4),
)  # fmt: skip


@pytest.mark.parametrize(("key", "version"), NAMING, ids=[APIS[it].name for it, _ in NAMING])
async def test_a_text_longer_than_kafkas_is_refused(
    node: KafkaNode, key: int, version: int
) -> None:
    alice = Asker(node.context)
    await alice.ask(request(key, version, about(key, "x" * STRING_BYTES_MAX)))
    with pytest.raises(MalformedFrame, match="text of 32768 bytes"):
        await alice.ask(request(key, version, about(key, "x" * (STRING_BYTES_MAX + 1))))
    alice.close()


@pytest.mark.parametrize(("key", "version"), NAMING, ids=[APIS[it].name for it, _ in NAMING])
async def test_who_has_no_rights_leaves_no_long_names_behind(
    node: KafkaNode, key: int, version: int
) -> None:
    alice = Asker(node.context, audit=Audit())
    await alice.ask(request(key, version, about(key, "warm")))
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(300):
        await alice.ask(request(key, version, about(key, f"{number}-" + "x" * 32_000)))
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < KEPT_MAX, f"{(after - before) // KIB} KiB are kept"
    alice.close()


async def test_topics_that_nobody_can_have_are_neither_fetched_nor_produced_to() -> None:
    name = "x" * TOPIC_NAME_BYTES_MAX
    for version in (4, 12):
        for text, is_good in ((name, True), (name + "x", False)):
            asked = FetchRequest([FetchTopic(text, [FetchPartition(0, 0, 1)])], 0, 0, 1)
            data = fetch.encode_request(asked, version)
            if is_good:
                assert fetch.read_request(Cursor(data), version).topics[0].name == text
            else:
                with pytest.raises(MalformedFrame, match="name of a topic"):
                    fetch.read_request(Cursor(data), version)
    for version in (3, 9):
        for text, is_good in ((name, True), (name + "x", False)):
            topics = [{"name": text, "partition_data": []}]
            body = {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": topics}
            data = api_messages.encode_request(APIS[PRODUCE], version, body)
            if is_good:
                assert produce.read_request(Cursor(data), version).topics[0][0] == text
            else:
                with pytest.raises(MalformedFrame, match="name of a topic"):
                    produce.read_request(Cursor(data), version)


async def test_a_client_id_that_nobody_has_is_refused(node: KafkaNode) -> None:
    alice = Asker(node.context, session=ALICE._replace(client_id=""))
    body = about(METADATA, "flights")
    assert await alice.ask(request(METADATA, 12, body, "x" * CLIENT_ID_CHARS_MAX))
    with pytest.raises(MalformedFrame, match="client id"):
        await alice.ask(request(METADATA, 12, body, "x" * (CLIENT_ID_CHARS_MAX + 1)))
    alice.close()
