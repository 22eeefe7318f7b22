"""WriteTxnMarkers, in every version offered."""

from typing import Any

import pytest

from streamlog.errors import CoordinatorFenced, InvalidTransactionState, StorageFull
from streamlog.record.batch import check_batch
from streamlog.record.transaction_marker import TransactionMarker, marker_of
from streamlog.wire.registry import WRITE_TXN_MARKERS
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient


def asked(*topics: tuple[str, list[int]], **more: Any) -> dict[str, Any]:
    return {
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_result": True,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
        "coordinator_epoch": 12,
        **more,
    }


async def write(node: KafkaNode, version: int, *markers: dict[str, Any]) -> list[Any]:
    async with RawClient(node.port) as client:
        answer = await client.ask(WRITE_TXN_MARKERS, version, {"markers": markers})
    return [
        (
            marker["producer_id"],
            topic["name"],
            {it["partition_index"]: it["error_code"] for it in topic["partitions"]},
        )
        for marker in answer["markers"]
        for topic in marker["topics"]
    ]


@pytest.mark.parametrize("version", [1, 2])
async def test_each_partition_gets_its_marker(node: KafkaNode, version: int) -> None:
    partition = await node.add_stream("flights", 2)
    found = await write(
        node,
        version,
        asked(("flights", [0, 1, 2]), ("nowhere", [0])),
        asked(("flights", [0]), producer_id=8, transaction_result=False),
    )
    assert found == [
        (7, "flights", {0: 0, 1: 0, 2: 3}),
        (7, "nowhere", {0: 3}),
        (8, "flights", {0: 0}),
    ]
    with await partition.read(0, 1_000) as part:
        first = part.read()
    header = check_batch(first)
    assert marker_of(first, header) == TransactionMarker(7, 3, True, 12)


@pytest.mark.parametrize(
    ("error", "code"),
    [(CoordinatorFenced("old"), 52), (InvalidTransactionState("none"), 48), (StorageFull("x"), 56)],
)
async def test_what_a_partition_refuses(node: KafkaNode, error: Any, code: int) -> None:
    partition = await node.add_stream("flights")
    partition.producing_fails = error
    assert await write(node, 2, asked(("flights", [0]))) == [(7, "flights", {0: code})]


async def test_another_node_leads(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.is_leader = False
    assert await write(node, 2, asked(("flights", [0]))) == [(7, "flights", {0: 6})]
