"""Three nodes that ask everybody who they are: stock clients, the command line, each other."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.certificate_authority import CertificateAuthority
from tests.cluster_cli import Cli, Done
from tests.sasl_clients import CLIENTS, REASONS, REFUSED, LogIn, Refused, librdkafka
from tests.signed_tokens import AUDIENCE, ISSUER, key_set, token
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import program, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

ADMIN_PASSWORD = "the first of all"
NODE_PASSWORD = "among ourselves"
PASSWORD = "correct horse, battery=staple"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
ACCESS: dict[str, object] = {
    "super_users": [f"User:{name}" for name in ("admin", "alice", "bob", "dora")]
}
"""What those who are let in may do is another test's affair."""
VALUES = [b"one", b"two", b"three"]


class Guarded(NamedTuple):
    """A cluster, and files of passwords."""

    cluster: Cluster
    folder: Path

    def run(self, text: str, *more: str, user: str = "admin") -> Done:
        """``streamlog`` as somebody whose password lies in a file of the name."""
        known = ("--user", user, "--password-file", str(self.folder / user)) if user else ()
        servers = [{"kafka": it.kafka} for it in self.cluster.nodes.values()]
        cli = Cli(SimpleNamespace(nats=self.cluster.nats.url, addresses={"nodes": servers}))
        return cli.run(text, *more, *known, "--bootstrap-server", self.cluster.servers)

    def ok(self, text: str, *more: str, user: str = "admin") -> str:
        done = self.run(text, *more, user=user)
        assert done.code == 0, done
        return done.out

    def may(self, user: str, *more: str) -> bool:
        """Log in, that is."""
        return self.run("user ls", *more, user=user).code == 0

    def add(self, name: str, password: str) -> None:
        (self.folder / name).write_text(password + "\n")
        self.ok("user add", name, "--new-password-file", str(self.folder / name))
        wait_until(lambda: self.may(name), f"{name} may log in")

    def login(self, mechanism: str, user: str, password: str) -> LogIn:
        secret = token(sub=user) if mechanism == "OAUTHBEARER" else password
        return LogIn(mechanism, user, secret)


def sasl_settings(folder: Path) -> dict[str, object]:
    """Writes the files that they name."""
    (folder / "node").write_text(NODE_PASSWORD + "\n")
    (folder / "admin").write_text(ADMIN_PASSWORD + "\n")
    (folder / "keys.json").write_text(json.dumps(key_set()))
    bootstrap = ("--new-password-file", str(folder / "admin"), "--bootstrap", str(folder / "first"))
    made = subprocess.run(
        [program("streamlog"), "user", "add", "admin", *bootstrap], capture_output=True, check=False
    )
    assert made.returncode == 0, made
    return {
        "mechanisms": list(MECHANISMS),
        "allow_plain_without_tls": True,
        "failure_delay_ms": 50,
        "failures_per_address_max": 1_000,
        "node_user": "node",
        "node_password_file": str(folder / "node"),
        "bootstrap_file": str(folder / "first"),
        "oauth_jwks_file": str(folder / "keys.json"),
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
    }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    settings = {"sasl": sasl_settings(folder), "authorization": ACCESS}
    with Cluster(folder / "cluster", settings=settings) as cluster:
        guarded = Guarded(cluster, folder)
        guarded.add("alice", PASSWORD)
        yield guarded


def create(guarded: Guarded, name: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    login = guarded.login("SCRAM-SHA-512", "admin", ADMIN_PASSWORD)
    admin = AdminClient(librdkafka(guarded.cluster.servers, login))
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(30)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stock_client_logs_in_writes_and_reads(
    guarded: Guarded, client: str, mechanism: str
) -> None:
    topic = f"{client}-{mechanism}"
    create(guarded, topic)
    login = guarded.login(mechanism, "alice", PASSWORD)
    assert CLIENTS[client](guarded.cluster.servers, topic, login, VALUES) == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stock_client_is_told_that_it_is_refused(
    guarded: Guarded, client: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    login = guarded.login(mechanism, "alice", "wrong")
    if mechanism == "OAUTHBEARER":
        login = login._replace(secret=token(aud="somebody else"))
    with pytest.raises(Refused) as refused:
        REFUSED[client](guarded.cluster.servers, "anything", login, VALUES)
    told = f"{refused.value} {caplog.text}"
    if (client, mechanism) != ("aiokafka", "OAUTHBEARER"):  # it takes any answer for a success
        assert any(reason in told for reason in REASONS), told


def test_the_command_line_logs_in(guarded: Guarded) -> None:
    assert "alice" in guarded.ok("user ls")
    assert "SCRAM-SHA-256, SCRAM-SHA-512" in guarded.ok("user ls", user="alice")
    assert guarded.ok("cluster info").count("127.0.0.1") >= 3
    nobody = guarded.run("user ls", user="")
    assert nobody.code == 1
    assert "closed the connection" in nobody.err
    (guarded.folder / "mallory").write_text("guessed")
    stranger = guarded.run("user ls", user="mallory")
    assert stranger.code == 1
    assert "wrong user or password" in stranger.err
    assert "guessed" not in stranger.err


def test_users_come_change_and_go(guarded: Guarded) -> None:
    guarded.add("bob", "first")
    again = guarded.run("user add bob --new-password-file", str(guarded.folder / "bob"))
    assert again.code == 1
    assert "streamlog user passwd bob" in again.err
    (guarded.folder / "new").write_text("second")
    guarded.ok("user passwd bob --new-password-file", str(guarded.folder / "new"))
    wait_until(lambda: not guarded.may("bob"), "the old password is no good")
    (guarded.folder / "bob").write_text("second")
    assert guarded.may("bob")
    guarded.ok("user rm bob --yes")
    wait_until(lambda: not guarded.may("bob"), "bob is gone")
    assert guarded.run("user rm bob --yes").code == 1
    nodes = guarded.run("user add node --new-password-file", str(guarded.folder / "new"))
    assert nodes.code == 1
    assert "sasl.node_password_file" in nodes.err
    terminal = guarded.run("user add carol")
    assert terminal.code == 2
    assert "--new-password-file" in terminal.err


def test_a_stock_client_manages_users(guarded: Guarded) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    login = guarded.login("SCRAM-SHA-512", "admin", ADMIN_PASSWORD)
    admin = AdminClient(librdkafka(guarded.cluster.servers, login))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    change: list[Any] = [UserScramCredentialUpsertion("dora", info, b"by Kafka", b"a salt")]
    admin.alter_user_scram_credentials(change)["dora"].result(30)
    (guarded.folder / "dora").write_text("by Kafka")
    known = ("--mechanism", "SCRAM-SHA-256")
    wait_until(lambda: guarded.may("dora", *known), "dora may log in")
    asked: Any = admin.describe_user_scram_credentials(["dora"])
    found = asked["dora"].result(30)
    assert [(it.mechanism, it.iterations) for it in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    everyone: Any = admin.describe_user_scram_credentials()
    assert {"alice", "dora"} <= set(everyone.result(30))
    change = [UserScramCredentialDeletion("dora", ScramMechanism.SCRAM_SHA_256)]
    admin.alter_user_scram_credentials(change)["dora"].result(30)
    wait_until(lambda: not guarded.may("dora", *known), "dora is gone")


def test_no_password_is_on_a_disk_or_in_a_log(guarded: Guarded) -> None:
    secrets = [it.encode() for it in (ADMIN_PASSWORD, NODE_PASSWORD, PASSWORD)]
    looked_at = 0
    for path in (guarded.folder / "cluster").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            looked_at += 1
            assert not any(secret in content for secret in secrets), path
    assert looked_at > 10


def test_a_node_without_the_password_is_not_let_in(guarded: Guarded) -> None:
    node = guarded.cluster[3]
    node.kill()
    wrong = guarded.folder / "wrong"
    wrong.write_text("not among ourselves\n")
    right = node.config.read_text()
    node.config.write_text(right.replace(str(guarded.folder / "node"), str(wrong)))
    try:
        node.spawn()
        wait_until(lambda: "this node is not let in" in node.log_text(), "it is told so")
        assert "this node is not let in" in node.http("/readyz")[1]
    finally:
        node.kill()
        node.config.write_text(right)
        guarded.cluster.start(3)


def test_nodes_change_their_password_while_they_run(guarded: Guarded) -> None:
    """First all let the new one in, then it is used, then the old one goes."""
    passwords = guarded.folder / "node"
    passwords.write_text(f"{NODE_PASSWORD}\nthe next\n")
    passwords.write_text(f"the next\n{NODE_PASSWORD}\n")
    guarded.cluster.restart(2)
    passwords.write_text("the next\n")
    guarded.cluster.restart(3)
    create(guarded, "afterwards")
    login = guarded.login("SCRAM-SHA-512", "alice", PASSWORD)
    found = CLIENTS["confluent"](guarded.cluster.servers, "afterwards", login, VALUES)
    assert found == VALUES


class Sealed(NamedTuple):
    """A node behind TLS, where a session is soon over."""

    node: NodeProcess
    servers: str
    ca: str


SESSION_MS = 2_000


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    folder = tmp_path_factory.mktemp("sealed")
    authority = CertificateAuthority(folder / "ca")
    settings: dict[str, dict[str, object]] = {
        "tls": {**authority.issue("node").settings(), "client_ca": str(authority.ca)},
        "http": {"tls": False},
        "authorization": ACCESS,
        "sasl": {
            **sasl_settings(folder),
            "allow_plain_without_tls": False,
            "session_lifetime_ms": SESSION_MS,
        },
    }
    with Cluster(folder / "cluster", nodes=1, settings=settings) as cluster:
        yield Sealed(cluster[1], cluster.servers, str(authority.ca))


@pytest.mark.parametrize("client", CLIENTS)
def test_behind_tls_a_password_may_be_said(sealed: Sealed, client: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    login = LogIn("PLAIN", "admin", ADMIN_PASSWORD, sealed.ca)
    admin = AdminClient(librdkafka(sealed.servers, login))
    admin.create_topics([NewTopic(client, 1, 1)])[client].result(30)
    assert CLIENTS[client](sealed.servers, client, login, VALUES) == VALUES


def test_a_stock_client_logs_in_again_before_its_session_ends(sealed: Sealed) -> None:
    from confluent_kafka.admin import AdminClient

    def logins() -> float:
        for line in sealed.node.http("/metrics")[1].splitlines():
            if line.startswith('streamlog_requests_total{api="SaslAuthenticate"}'):
                return float(line.split()[1])
        return 0.0

    errors: list[object] = []
    login = LogIn("PLAIN", "admin", ADMIN_PASSWORD, sealed.ca)
    admin = AdminClient(librdkafka(sealed.servers, login, error_cb=errors.append))
    admin.list_topics(timeout=10)
    before = logins()
    deadline = time.monotonic() + 2 * SESSION_MS / 1000
    while time.monotonic() < deadline:
        assert admin.list_topics(timeout=10).brokers
        time.sleep(0.05)
    assert logins() >= before + 2
    assert not errors
