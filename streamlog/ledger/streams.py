"""The stream of a new channel: one that is made for it, or one that is there."""

from typing import Any, Final

from streamlog.client.cluster import Cluster
from streamlog.errors import InvalidRequest, StreamExists
from streamlog.wire import registry
from streamlog.wire.errors import check, error_of

REPLICAS_MAX: Final = 3
TOPIC: Final = 2
"""Of what the configuration is asked for, in Kafka's numbers."""
TIMEOUT_MS: Final = 30_000
_KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


async def create_stream(cluster: Cluster, name: str) -> None:
    """One partition, subject and name the same, kept for ever, on up to three nodes.

    One that is there by now is as good. Raises what the controller answers, Unavailable.
    """
    nodes = (await cluster.topology([])).nodes
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": max(1, min(REPLICAS_MAX, len(nodes))),
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in _KEPT_FOR_EVER.items()],
    }
    values = {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}
    answer = await cluster.ask_any(registry.CREATE_TOPICS, values)
    (found,) = answer["topics"]
    if found["error_code"]:
        error = error_of(found["error_code"], _about(name, found))
        if not isinstance(error, StreamExists):
            raise error


async def check_uncompacted(cluster: Cluster, name: str) -> None:
    """What compaction takes out would be missing for ordering nodes that come later.

    Raises InvalidRequest, what the node answers, Unavailable.
    """
    asked = {
        "resource_type": TOPIC,
        "resource_name": name,
        "configuration_keys": ["cleanup.policy"],
    }
    values = {"resources": [asked], "include_synonyms": False, "include_documentation": False}
    answer = await cluster.ask_any(registry.DESCRIBE_CONFIGS, values)
    (found,) = answer["results"]
    check(found["error_code"], _about(name, found))
    if any("compact" in (config["value"] or "") for config in found["configs"]):
        raise InvalidRequest(
            f"stream {name!r} is compacted, so that ordering nodes that come later would miss"
            " records; a channel wants one with cleanup.policy=delete"
        )


def _about(name: str, found: dict[str, Any]) -> str:
    message = found.get("error_message")
    return f"stream {name!r}: {message}" if message else f"stream {name!r}"
