"""Our servers in place of those that kafka-python's fixtures would start."""

from typing import Any

import pytest
from order import order

PARTITIONS = 4
REPLICAS_MAX = 3


class Broker:
    """What its tests know of a broker, and where they reach it."""

    zookeeper = None
    partitions = PARTITIONS

    def __init__(self) -> None:
        self.servers = order().servers
        host, _, port = self.servers[0].rpartition(":")
        self.host, self.port = host, int(port)
        self.replicas = min(REPLICAS_MAX, len(self.servers))

    def bootstrap_server(self) -> str:
        return self.servers[0]

    def close(self) -> None:
        """The servers are not ours to stop."""

    def _enrich_client_params(self, params: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        """The version is what the server says, not what the environment does."""
        wanted = {**defaults, **params, "api_version": None}
        wanted.setdefault("bootstrap_servers", self.servers)
        return wanted


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Before its conftest takes the names."""
    from kafka import KafkaProducer
    from test.integration import fixtures

    fixtures.KafkaFixture.instance = classmethod(lambda cls, *_, **__: Broker())
    send = KafkaProducer.send
    known: set[str] = set()

    def creating(self: Any, topic: str, *arguments: Any, **options: Any) -> Any:
        """Its Kafka creates a topic that somebody writes to. streamlog does not: so we do."""
        if topic not in known:
            known.add(topic)
            create_missing(fixtures, topic)
        return send(self, topic, *arguments, **options)

    KafkaProducer.send = creating


def create_missing(fixtures: Any, topic: str) -> None:
    from kafka import KafkaAdminClient

    broker = Broker()
    with KafkaAdminClient(**broker._enrich_client_params({})) as admin:
        if topic not in admin.list_topics():
            fixtures.create_topics(broker, [topic])
