"""Transactions in the partitions that this node leads: their coordinator ends them, and clients look at them."""

import asyncio
from typing import Any

from streamlog.acl.rules import Operation
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_topic, led_partition
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import PartitionLookup
from streamlog.kafka.refusal import told
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of


async def write_txn_markers(request: Message, _version: int, context: Context) -> Message:
    """WriteTxnMarkers (27), versions 1 and 2: between nodes. Each marker is answered when all in-sync replicas
    have it; one that is there already is a success.

        v2  the version of the transaction is told (KIP-1228): a marker of version 2 has the producer's next epoch
    """
    return {
        "markers": [
            {
                "producer_id": marker["producer_id"],
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": await asyncio.gather(
                            *(
                                _write(TopicPartition(topic["name"], index), marker, context)
                                for index in topic["partition_indexes"]
                            )
                        ),
                    }
                    async for topic in cooperatively(marker["topics"])
                ],
            }
            async for marker in cooperatively(request["markers"])
        ]
    }


async def _write(tp: TopicPartition, asked: Message, context: Context) -> dict[str, Any]:
    marker = TransactionMarker(
        asked["producer_id"],
        asked["producer_epoch"],
        asked["transaction_result"],
        asked["coordinator_epoch"],
        asked.get("transaction_version", 0),
    )
    try:
        partition = led_partition(tp, NO_EPOCH, context)
        if tp.stream == OFFSETS_STREAM:
            await context.groups.end_transaction(tp, marker)
        else:
            await partition.end_transaction(marker)
    except StreamlogError as error:
        return {"partition_index": tp.partition, "error_code": code_of(error)}
    return {"partition_index": tp.partition, "error_code": ErrorCode.none}


async def describe_producers(request: Message, _version: int, context: Context) -> Message:
    """DescribeProducers (61), version 0: who writes to a partition in numbered batches, and since where in a
    transaction (KIP-664).
    """
    lookup = PartitionLookup(context)
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    await _described(TopicPartition(topic["name"], index), lookup, context)
                    async for index in cooperatively(topic["partition_indexes"])
                ],
            }
            async for topic in cooperatively(request["topics"])
        ]
    }


async def _described(
    tp: TopicPartition, lookup: PartitionLookup, context: Context
) -> dict[str, Any]:
    try:
        partition = await lookup.partition(tp)
        check_topic(Operation.READ, tp.stream, context)
        await partition.know_producers()
    except StreamlogError as error:
        return {"partition_index": tp.partition, **told(error)}
    return {
        "partition_index": tp.partition,
        "error_code": ErrorCode.none,
        "active_producers": [
            {
                "producer_id": it.producer_id,
                "producer_epoch": it.producer_epoch,
                "last_sequence": it.last_sequence,
                "last_timestamp": it.last_ms,
                "coordinator_epoch": it.coordinator_epoch,
                "current_txn_start_offset": it.first_offset,
            }
            for it in partition.active_producers()
        ],
    }
