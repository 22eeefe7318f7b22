"""The APIs of transactional producers in every version, over a log in memory."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from streamlog.config import TransactionsSection
from streamlog.coordination.keys import partition_of
from streamlog.errors import (
    CoordinatorLoading,
    InvalidRequest,
    NoOpenTransaction,
    NotLeader,
    TransactionalIdForbidden,
)
from streamlog.metadata.commands import Granted
from streamlog.metadata.image.feature_level import TRANSACTIONS_LEVEL
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig
from streamlog.model import TopicPartition
from streamlog.record.batch import batches
from streamlog.record.transaction_marker import TransactionMarker, marker_of
from streamlog.wire import registry as r
from streamlog.wire.error_codes import ErrorCode
from tests.fake_metadata import CLUSTER_ID
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient
from tests.restricted import Asker

ID = "transfers"
SETTINGS = TransactionsSection(state_partitions=2)
INIT = {"transactional_id": ID, "transaction_timeout": 60_000}


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    """A node that leads all of ``__transaction_state``, and has read it."""
    async with KafkaNode(transactions=SETTINGS) as node:
        tasks = [asyncio.create_task(it.run()) for it in (node.transactions, node.markers)]
        node.metadata.image = replace(node.metadata.image, level=TRANSACTIONS_LEVEL)
        node.metadata.result = Granted(0, {"first": 100, "end": 1_000})
        await node.metadata.create_stream(StreamConfig.of(name="flights", partitions=2))
        assert (await node.transactions.find(ID)).node is not None
        node.transactions.apply(MetadataImage(CLUSTER_ID), node.metadata.image)
        await until(lambda: not node.transactions.statistics(0).loading)
        yield node
        await node.transactions.stop()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def ask(node: KafkaNode, key: int, version: int, asked: dict[str, Any]) -> Any:
    async with RawClient(node.port) as client:
        return await client.ask(key, version, asked)


async def initialised(node: KafkaNode, version: int = 5) -> dict[str, Any]:
    answer = await ask(node, r.INIT_PRODUCER_ID, version, INIT)
    assert answer["error_code"] == 0
    return {
        "transactional_id": ID,
        "producer_id": answer["producer_id"],
        "producer_epoch": answer["producer_epoch"],
    }


async def add(
    node: KafkaNode, producer: dict[str, Any], *topics: tuple[str, list[int]], version: int = 3
) -> dict[tuple[str, int], int]:
    request = {
        "v3_and_below_transactional_id": producer["transactional_id"],
        "v3_and_below_producer_id": producer["producer_id"],
        "v3_and_below_producer_epoch": producer["producer_epoch"],
        "v3_and_below_topics": [{"name": name, "partitions": it} for name, it in topics],
    }
    answer = await ask(node, r.ADD_PARTITIONS_TO_TXN, version, request)
    return {
        (topic["name"], it["partition_index"]): it["partition_error_code"]
        for topic in answer["results_by_topic_v3_and_below"]
        for it in topic["results_by_partition"]
    }


async def end(
    node: KafkaNode, producer: dict[str, Any], *, commit: bool, version: int = 5
) -> tuple[int, int]:
    """The error, and the next epoch."""
    request = {**producer, "committed": commit}
    answer = await ask(node, r.END_TXN, version, request)
    return answer["error_code"], answer.get("producer_epoch", -1)


async def markers(node: KafkaNode, number: int) -> list[TransactionMarker | None]:
    with await node.local[TopicPartition("flights", number)].read(0, 10_000) as part:
        data = part.read()
    return [marker_of(batch, header) for header, batch in batches(data)]


@pytest.mark.parametrize("version", range(7))
async def test_init_producer_id(node: KafkaNode, version: int) -> None:
    first = await initialised(node, version)
    second = await initialised(node, version)
    assert (second["producer_id"], second["producer_epoch"]) == (first["producer_id"], 1)
    asked = {**INIT, "transaction_timeout": 900_001}
    assert (await ask(node, r.INIT_PRODUCER_ID, version, asked))["error_code"] == 50
    asked = {**INIT, "transactional_id": ""}
    assert (await ask(node, r.INIT_PRODUCER_ID, version, asked))["error_code"] == 42
    if version >= 3:
        answer = await ask(node, r.INIT_PRODUCER_ID, version, {**INIT, **first})
        assert answer["error_code"] == (90 if version >= 4 else 47)
        answer = await ask(node, r.INIT_PRODUCER_ID, version, {**INIT, **second})
        assert (answer["error_code"], answer["producer_epoch"]) == (0, 2)


async def test_two_phase_commits_are_refused(node: KafkaNode) -> None:
    for wish in ("enable2_pc", "keep_prepared_txn"):
        answer = await ask(node, r.INIT_PRODUCER_ID, 6, {**INIT, wish: True})
        assert answer["error_code"] == 53


@pytest.mark.parametrize("version", range(4))
async def test_add_partitions_to_txn(node: KafkaNode, version: int) -> None:
    producer = await initialised(node)
    found = await add(node, producer, ("flights", [0, 7]), ("nowhere", [0]), version=version)
    assert found == {("flights", 0): 55, ("flights", 7): 3, ("nowhere", 0): 3}
    found = await add(node, producer, ("flights", [0, 1]), version=version)
    assert found == {("flights", 0): 0, ("flights", 1): 0}
    zombie = {**producer, "producer_epoch": -1}
    found = await add(node, zombie, ("flights", [0]), version=version)
    assert found == {("flights", 0): 90 if version >= 2 else 47}
    stranger = {**producer, "producer_id": 999}
    assert await add(node, stranger, ("flights", [0]), version=version) == {("flights", 0): 49}


async def test_internal_streams_are_not_written_to(node: KafkaNode) -> None:
    await node.groups.find("g")
    producer = await initialised(node)
    assert await add(node, producer, (OFFSETS_STREAM, [0])) == {(OFFSETS_STREAM, 0): 29}


@pytest.mark.parametrize("version", range(5))
async def test_add_offsets_to_txn(node: KafkaNode, version: int) -> None:
    producer = await initialised(node)
    asked = {**producer, "group_id": "g"}
    assert (await ask(node, r.ADD_OFFSETS_TO_TXN, version, asked))["error_code"] == 0
    (place,) = node.transactions.known()[0].transaction.partitions  # type: ignore[index]
    assert place[0] == OFFSETS_STREAM
    asked = {**asked, "producer_epoch": -1}
    answer = await ask(node, r.ADD_OFFSETS_TO_TXN, version, asked)
    assert answer["error_code"] == (90 if version >= 2 else 47)
    asked = {**asked, "group_id": ""}
    assert (await ask(node, r.ADD_OFFSETS_TO_TXN, version, asked))["error_code"] == 24


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
async def test_end_txn(node: KafkaNode, version: int, commit: bool) -> None:
    producer = await initialised(node)
    await add(node, producer, ("flights", [0, 1]))
    ended = await end(node, producer, commit=commit, version=version)
    assert ended == (0, 1 if version >= 5 else -1)
    await until(lambda: not node.markers.unsent)
    epoch = 1 if version >= 5 else 0
    marker = TransactionMarker(producer["producer_id"], epoch, commit, 0)
    assert [await markers(node, 0), await markers(node, 1)] == [[marker], [marker]]
    again = await end(node, producer, commit=commit, version=version)
    assert again == ended
    zombie = {**producer, "producer_epoch": -1}
    code, _ = await end(node, zombie, commit=commit, version=version)
    assert code == (90 if version >= 2 else 47)


async def test_the_next_transaction_waits_for_the_markers(node: KafkaNode) -> None:
    producer = await initialised(node)
    await add(node, producer, ("flights", [0]))
    partition = node.local[TopicPartition("flights", 0)]
    partition.producing_fails = NotLeader("led by another node")
    assert await end(node, producer, commit=True) == (0, 1)
    following = {**producer, "producer_epoch": 1}
    assert await add(node, following, ("flights", [0])) == {("flights", 0): 51}
    assert node.markers.unsent == 1
    partition.producing_fails = None
    await until(lambda: not node.markers.unsent)
    assert await add(node, following, ("flights", [0])) == {("flights", 0): 0}


async def test_a_stream_that_is_deleted_holds_up_no_transaction(node: KafkaNode) -> None:
    producer = await initialised(node)
    await add(node, producer, ("flights", [0, 1]))
    await node.metadata.delete_stream("flights")
    assert await end(node, producer, commit=True) == (0, 1)
    await until(lambda: not node.markers.unsent)
    answer = await ask(node, r.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [ID]})
    assert answer["transaction_states"][0]["transaction_state"] == "CompleteCommit"


@pytest.mark.parametrize("version", range(3))
async def test_list_transactions(node: KafkaNode, version: int) -> None:
    producer = await initialised(node)
    await add(node, producer, ("flights", [0]))

    async def listed(**wanted: Any) -> Any:
        request = {"state_filters": [], "producer_id_filters": [], **wanted}
        return await ask(node, r.LIST_TRANSACTIONS, version, request)

    answer = await listed()
    assert answer["transaction_states"] == [
        {
            "transactional_id": ID,
            "producer_id": producer["producer_id"],
            "transaction_state": "Ongoing",
        }
    ]
    answer = await listed(state_filters=["Empty", "Strange"])
    assert (answer["unknown_state_filters"], answer["transaction_states"]) == (["Strange"], [])
    assert not (await listed(producer_id_filters=[999]))["transaction_states"]
    if version >= 1:
        assert not (await listed(duration_filter=3_600_000))["transaction_states"]
        assert (await listed(duration_filter=0))["transaction_states"]
    if version >= 2:
        assert (await listed(transactional_id_pattern="trans.*"))["transaction_states"]
        assert not (await listed(transactional_id_pattern="ransf"))["transaction_states"]
        assert (await listed(transactional_id_pattern="("))["error_code"] == 128


async def test_describe_transactions(node: KafkaNode) -> None:
    producer = await initialised(node)
    await add(node, producer, ("flights", [0, 1]))
    answer = await ask(node, r.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [ID, "other", ""]})
    known, other, none = answer["transaction_states"]
    assert known["transaction_start_time"] > 0
    assert {**known, "transaction_start_time": 0} == {
        "error_code": 0,
        "transactional_id": ID,
        "transaction_state": "Ongoing",
        "transaction_timeout": 60_000,
        "transaction_start_time": 0,
        "producer_id": producer["producer_id"],
        "producer_epoch": 0,
        "topics": [{"topic": "flights", "partitions": [0, 1]}],
    }
    assert (other["error_code"], none["error_code"]) == (105, 42)


@pytest.mark.parametrize("version", range(1, 6))
async def test_find_coordinator(node: KafkaNode, version: int) -> None:
    asked = {"key": ID, "key_type": 1, "coordinator_keys": [ID]}
    answer = await ask(node, r.FIND_COORDINATOR, version, asked)
    found = answer["coordinators"][0] if version >= 4 else answer
    assert (found["error_code"], found["port"]) == (0, node.port)


async def test_until_all_nodes_can_have_them_transactions_are_refused(node: KafkaNode) -> None:
    producer = await initialised(node)
    node.metadata.image = replace(node.metadata.image, level=TRANSACTIONS_LEVEL - 1)
    asked = {"key": ID, "key_type": 1, "coordinator_keys": [ID]}
    answer = await ask(node, r.FIND_COORDINATOR, 4, asked)
    assert answer["coordinators"][0]["error_code"] == 53
    assert (await ask(node, r.INIT_PRODUCER_ID, 5, INIT))["error_code"] == 53
    assert await add(node, producer, ("flights", [0])) == {("flights", 0): 53}
    assert (await end(node, producer, commit=True))[0] == 53


@pytest.fixture
async def grouped(node: KafkaNode) -> AsyncIterator[KafkaNode]:
    """It leads all of ``__consumer_offsets``, too."""
    running = asyncio.create_task(node.groups.run())
    await node.groups.find("g")
    node.groups.apply(MetadataImage(CLUSTER_ID), node.metadata.image)
    await until(lambda: not node.groups.statistics().loading)
    yield node
    await node.groups.stop()
    running.cancel()
    await asyncio.wait([running])


async def commit_offset(
    node: KafkaNode, producer: dict[str, Any], offset: int, version: int, **fields: Any
) -> list[int]:
    one = {
        "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 4,
        "committed_metadata": "note",
    }  # fmt: skip
    request = {
        **producer,
        "group_id": "g",
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "flights", "partitions": [one, {**one, "partition_index": 9}]}],
        **fields,
    }
    answer = await ask(node, r.TXN_OFFSET_COMMIT, version, request)
    return [it["error_code"] for topic in answer["topics"] for it in topic["partitions"]]


async def fetched(node: KafkaNode) -> tuple[int, int]:
    """The offset and the error."""
    asked = [{"group_id": "g", "topics": [{"name": "flights", "partition_indexes": [0]}]}]
    request = {"groups": asked, "require_stable": True}
    answer = await ask(node, r.OFFSET_FETCH, 8, request)
    (found,) = answer["groups"][0]["topics"][0]["partitions"]
    return found["committed_offset"], found["error_code"]


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
async def test_txn_offset_commit(grouped: KafkaNode, version: int, commit: bool) -> None:
    producer = await initialised(grouped)
    if version < 5:
        unknown = 120 if version >= 4 else 48
        assert await commit_offset(grouped, producer, 7, version) == [unknown, 3]
        asked = {**producer, "group_id": "g"}
        assert (await ask(grouped, r.ADD_OFFSETS_TO_TXN, 3, asked))["error_code"] == 0
    assert await commit_offset(grouped, producer, 7, version) == [0, 3]
    assert await fetched(grouped) == (-1, 88)
    assert (await end(grouped, producer, commit=commit, version=version))[0] == 0
    await until(lambda: not grouped.markers.unsent)
    assert await fetched(grouped) == (7 if commit else -1, 0)
    zombie = {**producer, "producer_epoch": -1}
    assert await commit_offset(grouped, zombie, 7, version) == [47, 3]
    if version >= 3:
        codes = await commit_offset(grouped, producer, 8, version, generation_id=4, member_id="x")
        assert codes[0] != 0


async def test_offsets_of_a_transaction_whose_coordinator_is_not_known(grouped: KafkaNode) -> None:
    producer = await initialised(grouped)
    await grouped.transactions.stop()
    assert await commit_offset(grouped, producer, 7, 5) == [14, 3]


async def test_while_offsets_are_read_no_marker_is_taken(grouped: KafkaNode) -> None:
    """It would stand behind what is read."""
    number = partition_of("g", len(grouped.metadata.image.stream(OFFSETS_STREAM).partitions))
    shard = grouped.groups.shard("g")
    assert not isinstance(shard, ErrorCode)
    coordinator, shard.coordinator = shard.coordinator, None
    marker = TransactionMarker(1, 0, True, 0)
    with pytest.raises(CoordinatorLoading):
        await grouped.groups.end_transaction(TopicPartition(OFFSETS_STREAM, number), marker)
    shard.coordinator = coordinator
    await grouped.groups.end_transaction(TopicPartition(OFFSETS_STREAM, number), marker)
    with pytest.raises(NotLeader):
        await grouped.groups.end_transaction(TopicPartition(OFFSETS_STREAM, 999), marker)


async def test_operations_need_the_rights_of_kafkas_requests(node: KafkaNode) -> None:
    producer = await initialised(node)
    await add(node, producer, ("flights", [0, 1]))
    stranger, reader = Asker(node.context), Asker(node.context, f"describe transactional_id {ID}")
    owner = Asker(node.context, f"write transactional_id {ID}", "read topic flights")
    assert (await stranger.context.control.transactions.list()).total == 0
    page = await reader.context.control.transactions.list(state="ongoing")
    assert [it.transactional_id for it in page.transactions] == [ID]
    assert (await reader.context.control.transactions.list(state="Empty")).total == 0
    with pytest.raises(InvalidRequest):
        await reader.context.control.transactions.list(limit=-1)
    with pytest.raises(TransactionalIdForbidden):
        await stranger.context.control.transactions.describe(ID)
    described = await reader.context.control.transactions.describe(ID)
    assert (described.state, described.partitions) == (
        "Ongoing",
        (),
    )  # it may not know of the topic
    described = await owner.context.control.transactions.describe(ID)
    assert [it.partition for it in described.partitions] == [0, 1]
    with pytest.raises(TransactionalIdForbidden):
        await reader.context.control.transactions.abort(ID)
    await owner.context.control.transactions.abort(ID)
    with pytest.raises(NoOpenTransaction):
        await owner.context.control.transactions.abort(ID)
    assert (await end(node, producer, commit=True))[0] == 90
    for it in (stranger, reader, owner):
        it.close()
