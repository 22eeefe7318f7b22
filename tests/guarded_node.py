"""A node as a process that lets in only whom it knows, and the stock clients that come to it."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.certificate_authority import BY_NAME, CertificateAuthority, Issued
from tests.cluster_cli import Done
from tests.in_process import streamlog
from tests.sasl_clients import LogIn
from tests.sasl_clients import librdkafka as librdkafka_within_tls
from tests.secured_nats import KeyPair, user_key
from tests.signed_tokens import AUDIENCE, ISSUER, key_set
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import NatsServer

ADMIN: Final = "admin"
FAILURE_DELAY_MS: Final = 20
TOKEN: Final = "a-token-of-some-length"
"""Of HTTP."""
ORDERS, SECRET = "orders", "secret"
"""Streams of a node within TLS: ``alice`` may read and write the first alone."""
PATIENCE_S: Final = 20.0


class GuardedNode(NodeProcess):
    """SASL, a super user ``admin``, an audit file, rules in a file, a token for HTTP.

    Every user's password is his name and ``-secret``. With an authority the node is within TLS,
    and takes certificates, which count by common name, and tokens.
    """

    def __init__(
        self,
        directory: Path,
        nats_url: str,
        *,
        number: int = 1,
        authority: CertificateAuthority | None = None,
    ) -> None:
        super().__init__(number, directory)
        self.audit_file = directory / "audit.jsonl"
        self.rules_file = directory / "rules.toml"
        self.rules_file.write_text("")
        self.admin_key: KeyPair = user_key()
        self.alice_key: KeyPair = user_key()
        (directory / "tokens").write_text(TOKEN + "\n")
        (directory / "node-password").write_text("node-secret-of-this-cluster\n")
        self.authority = authority
        self.configure(self._settings(nats_url))
        if authority is not None:
            self._demand_tls(authority)
        self.cli("user", "add", ADMIN, "--bootstrap", str(directory / "first-users"),
                 "--new-password-file", str(self.password_file(ADMIN)))  # fmt: skip

    def _settings(self, nats_url: str) -> Settings:
        return {
            "nats": {"servers": [nats_url]},
            "log": {"sync": "os"},
            "http": {"token_file": str(self.directory / "tokens"), "basic_auth": True},
            "sasl": {
                "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
                "allow_plain_without_tls": True,
                "failure_delay_ms": FAILURE_DELAY_MS,
                "failures_per_address_max": 1000,
                "bootstrap_file": str(self.directory / "first-users"),
                "node_user": "node",
                "node_password_file": str(self.directory / "node-password"),
            },
            "authorization": {
                "super_users": [f"User:{ADMIN}"],
                "rules_file": str(self.rules_file),
                "audit_file": str(self.audit_file),
                "audit_lines_per_s": 1000,
                "nkeys": {self.admin_key.public: ADMIN},
            },
        }

    def _demand_tls(self, authority: CertificateAuthority) -> None:
        keys = self.directory / "keys.json"
        keys.write_text(json.dumps(key_set()))
        own, ca = authority.issue("node").settings(), str(authority.ca)
        self.add_settings(
            tls={**own, "client_ca": ca, "client_auth": "optional"},
            http={"tls": False},  # what waits for the node asks for /readyz in the clear
            sasl={
                **BY_NAME,
                "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
                "allow_plain_without_tls": False,
                "oauth_jwks_file": str(keys),
                "oauth_issuer": ISSUER,
                "oauth_audience": AUDIENCE,
            },
        )

    def join(self, voters: Sequence["GuardedNode"]) -> None:
        """Before the start: this node is one of several, all with the first one's users."""
        first = voters[0]
        self.add_settings(
            cluster={"id": "guarded", "voters": [it.voter for it in voters]},
            sasl={"bootstrap_file": str(first.directory / "first-users")},
            authorization={"nkeys": {first.admin_key.public: ADMIN}},
        )

    def password_file(self, user: str) -> Path:
        path = self.directory / f"password-of-{user}"
        path.write_text(f"{user}-secret\n")
        return path

    def cli(self, *words: str, user: str | None = None) -> Done:
        """``streamlog`` in this process."""
        environment = {}
        if user is not None:
            environment["STREAMLOG_CLIENT_USER"] = user
            environment["STREAMLOG_CLIENT_PASSWORD_FILE"] = str(self.password_file(user))
        done = streamlog(words, environment=environment)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def admin(self, *words: str) -> str:
        """A command of the super user's, at this node."""
        places = ["--bootstrap-server", self.kafka]
        if self.authority is not None:
            places += ["--tls-ca", str(self.authority.ca)]
        done = self.cli(*words, *places, user=ADMIN)
        assert done.code == 0, done
        return done.out

    def audited(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            return [json.loads(line) for line in self.audit_file.read_text().splitlines()]
        return []


class SealedNode(GuardedNode):
    """A guarded node within TLS, users and streams in it."""

    def __init__(self, directory: Path, nats_url: str) -> None:
        self.known = CertificateAuthority(directory / "ca")
        super().__init__(directory, nats_url, authority=self.known)
        self.ca = self.known.ca
        self.certificates: dict[str, Issued] = {
            name: self.known.issue(name) for name in ("alice", "mallory")
        }
        self.stranger = CertificateAuthority(directory / "stranger").issue("alice")
        """Who says to be Alice, and is vouched for by somebody else."""

    def furnish(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        for user in ("alice", "mallory"):
            self.admin("user", "add", user, "--new-password-file", str(self.password_file(user)))
        self.admin("acl", "add", "-p", "User:alice", "-o", "write", "-t", ORDERS)
        self.admin("acl", "add", "-p", "User:alice", "-o", "read", "-t", ORDERS, "-g", "alice-*")
        admin = AdminClient(librdkafka_within_tls(self.kafka, self.login(ADMIN)))
        made = admin.create_topics([NewTopic(name, 1, 1) for name in (ORDERS, SECRET)])
        for future in made.values():
            future.result(PATIENCE_S)

    def login(self, user: str, mechanism: str = "SCRAM-SHA-512") -> LogIn:
        return LogIn(mechanism, user, f"{user}-secret", str(self.ca))

    def high_watermark(self, stream: str) -> int:
        """The high watermark."""
        from confluent_kafka import Consumer, TopicPartition

        from tests.watermarks import watermarks

        login = self.login(ADMIN)
        settings: Any = librdkafka_within_tls(self.kafka, login, **{"group.id": "end"})
        consumer = Consumer(settings)
        try:
            return watermarks(consumer, TopicPartition(stream, 0), PATIENCE_S)[1]
        finally:
            consumer.close()


@contextmanager
def sealed_node(folder: Path) -> Iterator[SealedNode]:
    """It runs, and is furnished."""
    nats = NatsServer(folder)
    nats.start()
    node = SealedNode(folder / "node", nats.url)
    try:
        node.start()
        node.furnish()
        yield node
    finally:
        node.kill()
        nats.kill()


def librdkafka(node: NodeProcess, user: str | None, **more: object) -> dict[str, Any]:
    """Settings of confluent-kafka; ``user`` None: who says nothing."""
    settings: dict[str, Any] = {"bootstrap.servers": node.kafka, "socket.timeout.ms": 10_000}
    if user is not None:
        name, _, password = user.partition(":")
        settings |= {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": password or f"{name}-secret",
        }
    return settings | more


def kafka_python(node: NodeProcess, user: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    """Settings of kafka-python, and of aiokafka."""
    name, _, password = user.partition(":")
    return {
        "bootstrap_servers": node.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password or f"{name}-secret",
    }
