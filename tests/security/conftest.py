"""One guarded node for all tests of this folder: streams ``orders`` and ``secret``, and users."""

from collections.abc import Iterator

import pytest

from tests.guarded_node import GuardedNode
from tests.integration.conftest import _as_installed
from tools.nodes.server_process import NatsServer

__all__ = ["_as_installed"]


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    directory = tmp_path_factory.mktemp("guarded")
    nats = NatsServer(directory)
    nats.start()
    node = GuardedNode(directory / "node", nats.url)
    try:
        node.start()
        furnish(node)
        yield node
    finally:
        code = node.stop() if node.is_running() else 1
        nats.kill()
    assert code == 0, node.log_text()


def furnish(node: GuardedNode) -> None:
    """``reader`` reads orders, ``remover`` deletes groups, ``nobody`` may do nothing.

    Ten records are in each stream.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    from tests.guarded_node import ADMIN, librdkafka

    for user in ("reader", "nobody", "remover"):
        node.admin("user", "add", user, "--new-password-file", str(node.password_file(user)))
    node.admin("acl", "add", "-p", "User:reader", "-o", "read", "-t", "orders", "-g", "reader-*")
    node.admin("acl", "add", "-p", "User:remover", "-o", "delete", "-g", "reader-*")
    admin = AdminClient(librdkafka(node, ADMIN))
    made = admin.create_topics([NewTopic("orders", 1), NewTopic("secret", 1)])
    for future in made.values():
        future.result(20)
    producer = Producer(librdkafka(node, ADMIN))
    for name in ("orders", "secret"):
        for number in range(10):
            producer.produce(name, f"{name} {number}".encode())
    assert producer.flush(20) == 0
