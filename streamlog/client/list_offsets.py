"""Kafka's ListOffsets for many partitions of one leader: the request, and what the answer says."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from streamlog.model import TopicPartition
from streamlog.wire.control import Message

_CONSUMER = -1


class FoundOffsets(NamedTuple):
    """Of one partition."""

    error_code: int
    offset: int
    timestamp_ms: int


def request_for(epochs: Mapping[TopicPartition, int], timestamp: int) -> Message:
    """``epochs``: of the leader, as the asker knows it. ``timestamp``: or one of the markers."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, epoch in epochs.items():
        topics.setdefault(tp.stream, []).append(
            {
                "partition_index": tp.partition,
                "timestamp": timestamp,
                "current_leader_epoch": epoch,
            }
        )
    named = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"replica_id": _CONSUMER, "topics": named}


def found_in(answer: Message) -> dict[TopicPartition, FoundOffsets]:
    """What is known of each partition that was asked for."""
    return {
        TopicPartition(topic["name"], it["partition_index"]): FoundOffsets(
            it["error_code"], it["offset"], it["timestamp"]
        )
        for topic in answer["topics"]
        for it in topic["partitions"]
    }
