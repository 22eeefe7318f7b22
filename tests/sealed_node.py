"""One node behind TLS that takes every proof of who comes: passwords, tokens, certificates."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tests.authority import BY_NAME, Authority, Issued
from tests.cluster import Cluster, ClusterNode
from tests.cluster_cli import Cli
from tests.sasl_clients import LogIn, librdkafka
from tests.signed_tokens import AUDIENCE, ISSUER, key_set

ADMIN: Final = "admin"
ORDERS, SECRET = "orders", "secret"
"""Streams: ``alice`` may read and write the first, and knows nothing of the second."""
PATIENCE_S: Final = 20.0


class SealedNode:
    """Every user's password is the name and ``-secret``; certificates count by common name."""

    def __init__(self, folder: Path, node: ClusterNode, nats: str, authority: Authority) -> None:
        self.folder = folder
        self.node = node
        self.nats = nats
        """Its URL, which asks nobody who they are."""
        self.authority = authority
        self.ca = authority.ca
        self.certificates: dict[str, Issued] = {
            name: authority.issue(name) for name in ("alice", "mallory")
        }
        self.stranger = Authority(folder / "stranger").issue("alice")
        """Who says to be Alice, and is vouched for by somebody else."""

    @property
    def servers(self) -> str:
        return self.node.kafka

    def password_file(self, user: str) -> Path:
        path = self.folder / f"password-of-{user}"
        path.write_text(f"{user}-secret\n")
        return path

    def cli(self, *words: str) -> str:
        """``streamlog`` as the super user."""
        known = ("--user", ADMIN, "--password-file", str(self.password_file(ADMIN)))
        places = ("--bootstrap-server", self.servers, "--tls-ca", str(self.ca))
        cli = Cli(SimpleNamespace(nats="", addresses={"nodes": [{"kafka": self.servers}]}))
        done = cli.run(" ".join(words[:2]), *words[2:], *known, *places)
        assert done.code == 0, done
        return done.out

    def furnish(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        for user in ("alice", "mallory"):
            self.cli("user", "add", user, "--new-password-file", str(self.password_file(user)))
        self.cli("acl", "add", "-p", "User:alice", "-o", "write", "-t", ORDERS)
        self.cli("acl", "add", "-p", "User:alice", "-o", "read", "-t", ORDERS, "-g", "alice-*")
        admin = AdminClient(librdkafka(self.servers, self.login(ADMIN)))
        made = admin.create_topics([NewTopic(name, 1, 1) for name in (ORDERS, SECRET)])
        for future in made.values():
            future.result(PATIENCE_S)

    def login(self, user: str, mechanism: str = "SCRAM-SHA-512") -> LogIn:
        return LogIn(mechanism, user, f"{user}-secret", str(self.ca))

    def end(self, stream: str) -> int:
        """The high watermark."""
        from confluent_kafka import Consumer, TopicPartition

        settings: Any = librdkafka(self.servers, self.login(ADMIN), **{"group.id": "end"})
        consumer = Consumer(settings)
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(stream, 0), PATIENCE_S)[1])
        finally:
            consumer.close()

    def audited(self) -> list[dict[str, Any]]:
        lines = (self.folder / "audit.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def sealed_node(folder: Path) -> Iterator[SealedNode]:
    """It runs, and is furnished."""
    authority = Authority(folder / "ca")
    (folder / "keys.json").write_text(json.dumps(key_set()))
    (folder / "node-password").write_text("node-secret-of-this-cluster\n")
    first = folder / "first-users"
    settings: dict[str, dict[str, object]] = {
        "tls": {
            **authority.issue("node").settings(),
            "client_ca": str(authority.ca),
            "client_auth": "optional",
        },
        "http": {"tls": False},  # what waits for the node asks for /readyz in the clear
        "sasl": {
            **BY_NAME,
            "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
            "failure_delay_ms": 20,
            "failures_per_address_max": 1_000,
            "node_user": "node",
            "node_password_file": str(folder / "node-password"),
            "bootstrap_file": str(first),
            "oauth_jwks_file": str(folder / "keys.json"),
            "oauth_issuer": ISSUER,
            "oauth_audience": AUDIENCE,
        },
        "authorization": {
            "super_users": [f"User:{ADMIN}"],
            "audit_file": str(folder / "audit.jsonl"),
            "audit_lines_per_s": 1_000,
        },
    }
    cluster = Cluster(folder / "cluster", nodes=1, settings=settings)
    node = SealedNode(folder, cluster[1], cluster.nats.url, authority)
    made = cluster.command_without_servers(
        "user", "add", ADMIN, "--bootstrap", str(first),
        "--new-password-file", str(node.password_file(ADMIN)),
    )  # fmt: skip
    assert first.exists(), made
    with cluster:
        node.furnish()
        yield node
