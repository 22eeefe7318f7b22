"""DescribeQuorum (55), versions 0 to 2: who votes, and how far each copy of the metadata log is.

The controller knows, whichever node is asked.

    v1  when each replica has fetched last
    v2  the folders of the replicas, errors with a text, where the nodes listen
"""

from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from streamlog.clock import wall_ms
from streamlog.errors import StreamlogError
from streamlog.kafka.context import Context
from streamlog.metadata.commands import DescribeCluster
from streamlog.metadata.quorum.store import METADATA_LOG
from streamlog.model import NO_LEADER
from streamlog.wire.control import Message
from streamlog.wire.errors import code_of

UNKNOWN: Final = -1
LISTENER: Final = "PLAINTEXT"


async def handle(request: Message, _version: int, context: Context) -> Message:
    try:
        granted = await context.metadata.take(DescribeCluster(), forwarded=False)
    except StreamlogError as error:
        return {"error_code": code_of(error), "error_message": str(error), "topics": []}
    asked = [(topic["topic_name"], topic["partitions"]) for topic in request["topics"]]
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "topic_name": name,
                "partitions": [
                    _partition(name, it["partition_index"], granted.result) for it in partitions
                ],
            }
            for name, partitions in asked
        ],
        "nodes": [
            {
                "node_id": node["node_id"],
                "listeners": [{"name": LISTENER, "host": node["host"], "port": node["port"]}],
            }
            for node in granted.result["voters"]
        ],
    }


def _partition(name: str, index: int, known: Message) -> dict[str, Any]:
    if (name, index) != METADATA_LOG:
        return {
            "partition_index": index,
            "error_code": ErrorCode.unknown_topic_or_partition,
            "error_message": "only the metadata log has a quorum",
        }
    folders = {voter["node_id"]: voter["directory_id"] for voter in known["voters"]}
    replicas = {it["node_id"]: _replica(it, folders) for it in known["replicas"]}
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "leader_id": NO_LEADER if known["controller"] is None else known["controller"],
        "leader_epoch": known["epoch"],
        "high_watermark": known["high_watermark"],
        "current_voters": [
            replicas.get(node_id, {"replica_id": node_id, "log_end_offset": UNKNOWN})
            for node_id in folders
        ],
        "observers": [it for node_id, it in replicas.items() if node_id not in folders],
    }


def _replica(known: Message, folders: Message) -> dict[str, Any]:
    folder, age_ms = folders.get(known["node_id"]), known["last_fetch_ms"]
    fetched_ms = UNKNOWN if age_ms is None else wall_ms() - age_ms
    return {
        "replica_id": known["node_id"],
        "replica_directory_id": folder and UUID(folder),
        "log_end_offset": known["end_offset"],
        "last_fetch_timestamp": fetched_ms,
        "last_caught_up_timestamp": fetched_ms if known["lag"] == 0 else UNKNOWN,
    }
