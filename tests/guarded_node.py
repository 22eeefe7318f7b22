"""A node as a process that lets in only whom it knows, and the stock clients that come to it."""

import contextlib
import json
from pathlib import Path
from typing import Any, Final

from tests.cluster_cli import Done
from tests.in_process import streamlog
from tests.integration.conftest import Node
from tests.secured_nats import KeyPair, user_key

ADMIN: Final = "admin"
FAILURE_DELAY_MS: Final = 20
TOKEN: Final = "a-token-of-some-length"
"""Of HTTP."""


class GuardedNode(Node):
    """SASL, a super user ``admin``, an audit file, rules in a file, a token for HTTP.

    Every user's password is his name and ``-secret``.
    """

    def __init__(self, directory: Path, nats_url: str, **log_settings: Any) -> None:
        super().__init__(directory, nats_url, **log_settings)
        self.directory = directory
        self.audit_file = directory / "audit.jsonl"
        self.rules_file = directory / "rules.toml"
        self.rules_file.write_text("")
        self.admin_key: KeyPair = user_key()
        self.alice_key: KeyPair = user_key()
        (directory / "tokens").write_text(TOKEN + "\n")
        (directory / "node-password").write_text("node-secret-of-this-cluster\n")
        self.cli("user", "add", ADMIN, "--bootstrap", str(directory / "first-users"),
                 "--new-password-file", str(self.password_file(ADMIN)))  # fmt: skip
        config = Path(self.command[-1])
        text = config.read_text().replace(
            "[http]\n", f'[http]\ntoken_file = "{directory / "tokens"}"\nbasic_auth = true\n'
        )
        config.write_text(
            f"{text}[sasl]\n"
            'mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]\nallow_plain_without_tls = true\n'
            f"failure_delay_ms = {FAILURE_DELAY_MS}\n"
            f'bootstrap_file = "{directory / "first-users"}"\n'
            "failures_per_address_max = 1000\n"
            f'node_user = "node"\nnode_password_file = "{directory / "node-password"}"\n'
            f'[authorization]\nsuper_users = ["User:{ADMIN}"]\nrules_file = "{self.rules_file}"\n'
            f'audit_file = "{self.audit_file}"\naudit_lines_per_s = 1000\n'
            f'nkeys = {{ {self.admin_key.public} = "{ADMIN}" }}\n'
        )

    def join(self, number: int, voters: list["GuardedNode"]) -> None:
        """Before the start: this node is one of several, all with the first one's users."""
        config = Path(self.command[-1])
        quorum = [f"{n}@{it.kafka}" for n, it in enumerate(voters, 1)]
        text = config.read_text().replace("[node]\nid = 1\n", f"[node]\nid = {number}\n")
        text = text.replace(
            str(self.directory / "first-users"), str(voters[0].directory / "first-users")
        )
        text = text.replace(self.admin_key.public, voters[0].admin_key.public)
        config.write_text(f'{text}[cluster]\nid = "guarded"\nvoters = {json.dumps(quorum)}\n')

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
        done = self.cli(*words, "--bootstrap-server", self.kafka, user=ADMIN)
        assert done.code == 0, done
        return done.out

    def audited(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            return [json.loads(line) for line in self.audit_file.read_text().splitlines()]
        return []


def librdkafka(node: Node, user: str | None, **more: object) -> dict[str, Any]:
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


def kafka_python(node: Node, user: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    """Settings of kafka-python, and of aiokafka."""
    name, _, password = user.partition(":")
    return {
        "bootstrap_servers": node.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password or f"{name}-secret",
    }
