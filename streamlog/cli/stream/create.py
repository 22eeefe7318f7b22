"""A stream made through the socket API, with its TLS and logins: Kafka's CreateTopics."""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from streamlog.cli.options.connection_options import chosen_security

if TYPE_CHECKING:
    from streamlog.metadata.stream.config import StreamConfig

TIMEOUT_MS: Final = 30_000


def create_at_nodes(servers: str, config: "StreamConfig", given: Collection[str]) -> None:
    """``given``: the settings that were named. Raises what the node answers."""
    from streamlog.client.cluster import Cluster
    from streamlog.wire import registry
    from streamlog.wire.errors import check

    request = {
        "topics": [_topic(config, given)],
        "timeout_ms": TIMEOUT_MS,
        "validate_only": False,
    }

    async def made() -> dict[str, Any]:
        async with Cluster.at(servers, security=chosen_security()) as cluster:
            return await cluster.ask_any(registry.CREATE_TOPICS, request)

    (topic,) = asyncio.run(made())["topics"]
    check(topic["error_code"], topic["error_message"] or f"stream {config.name!r}")


def _topic(config: "StreamConfig", given: Collection[str]) -> dict[str, Any]:
    """Only what was named: for all else the nodes have defaults."""
    from streamlog.metadata.stream.settings_table import SETTINGS

    configs = [
        {"name": it.kafka, "value": it.to_text(getattr(config, it.name))}
        for it in SETTINGS
        if it.kafka is not None and it.name in given
    ]
    return {
        "name": config.name,
        "num_partitions": config.partitions,
        "replication_factor": config.replicas,
        "assignments": [],
        "configs": configs,
    }
