"""docs/runbooks/turn-on-security.md: TLS, logins and rights, node by node, and nothing is lost."""

import asyncio
import json
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import nats
import nats.errors
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from documentation.runbooks import FOLDER, Step, steps
from tests.certificate_authority import CertificateAuthority, Issued
from tests.runbook import Operator
from tests.sasl_clients import LogIn, librdkafka
from tests.watermarks import watermarks
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import program, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
PAGE: Final = FOLDER / "turn-on-security.md"
ETC: Final = "/etc/streamlog/"
PASSWORD: Final = "of the orders' app"
PATIENCE_S: Final = 20.0
DEMAND: Final = 'client_auth = "required"'
TOLERATED: Final = "streamlog_unauthenticated_connections"
PATIENT: Final[Settings] = {
    "http": {"tls": False},
    "cluster": {"pause_tolerance_ms": 90_000, "session_timeout_ms": 120_000},
}
"""What waits for the nodes asks for /readyz in the clear. Whoever waits for the end of a session
waits longer than the test does.
"""


class Security(Operator):
    """A node's ``/etc/streamlog`` is its folder; any machine has the first one's, and perhaps a
    certificate of its own.
    """

    def __init__(self, cluster: Cluster, backups: Path, shown: Issued | None, load: "Load") -> None:
        super().__init__(cluster, backups)
        self._load = load
        self._shown = f" --tls-cert {shown.cert} --tls-key {shown.key}" if shown else ""

    def _systemctl(self, number: int, command: str) -> None:
        super()._systemctl(number, command)
        self._load.go_on()

    def _translated(self, step: Step) -> str:
        node = self._cluster[step.node or 1]
        shown = self._shown if "--tls-ca" in step.command else ""
        return super()._translated(step).replace(ETC, f"{node.directory}/") + shown


def furnish(
    node: NodeProcess, authority: CertificateAuthority, first_users: bytes, *, certificates: bool
) -> None:
    """The files of step 1."""
    own = authority.issue(f"node-{node.number}")
    page = PAGE.read_text()
    settings = page.partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(settings)["security"] == {"permissive": True}
    if certificates:
        assert DEMAND in page
        settings = settings.replace("[tls]\n", f"[tls]\n{DEMAND}\n")
    for name, content in {
        "node.pem": own.cert.read_bytes(),
        "node-key.pem": own.key.read_bytes(),
        "ca.pem": authority.ca.read_bytes(),
        "node-password": b"among ourselves, for long\n",
        "admin-password": b"of the admin\n",
        "app-password": PASSWORD.encode() + b"\n",
        "first-users": first_users,
        "security.toml": settings.replace(ETC, f"{node.directory}/").encode(),
    }.items():
        (node.directory / name).write_bytes(content)


def first_users(folder: Path) -> bytes:
    password, made = folder / "admin-password", folder / "first-users"
    password.write_text("of the admin\n")
    command = ["user", "add", "admin", "--bootstrap", str(made), "--new-password-file"]
    subprocess.run([program("streamlog"), *command, str(password)], check=True, capture_output=True)
    return made.read_bytes()


class Load:
    """Somebody publishes; ``acked`` is what was said to be kept."""

    def __init__(self, url: str) -> None:
        self.acked: list[int] = []
        self._url = url
        self._stopping = threading.Event()

    async def _publish(self) -> None:
        client = await nats.connect(self._url)
        number = 0
        while not self._stopping.is_set():
            try:
                answer = await client.request("orders", b"%d" % number, timeout=2)
                if "error" not in json.loads(answer.data):
                    self.acked.append(number)
                    number += 1
            except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
                await asyncio.sleep(0.05)
        await client.close()

    def go_on(self) -> None:
        """Wait until something is acknowledged from now on; anything else is an outage."""
        before = len(self.acked)
        wait_until(lambda: len(self.acked) > before, "a message is acknowledged")

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=lambda: asyncio.run(self._publish()))
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()


def known(cluster: Cluster, shown: Issued | None) -> dict[str, Any]:
    ca = str(cluster[1].directory / "ca.pem")
    login = LogIn("SCRAM-SHA-512", "orders-app", PASSWORD, ca)
    settings = librdkafka(cluster.servers, login, **{"group.id": "orders-1"})
    if shown is not None:
        settings["ssl.certificate.location"] = str(shown.cert)
        settings["ssl.key.location"] = str(shown.key)
    return settings


def stored(settings: dict[str, object]) -> list[int]:
    """What a stock client reads, from the beginning to the end."""
    consumer = Consumer({**settings, "enable.partition.eof": False})
    try:
        place = TopicPartition("orders", 0, 0)
        _, end = watermarks(consumer, place, PATIENCE_S)
        consumer.assign([place])
        found: list[int] = []
        while not found or len(found) < end:
            (message,) = consumer.consume(1, timeout=PATIENCE_S)
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
        return found
    finally:
        consumer.close()


def parts() -> tuple[list[Step], list[Step], list[Step], list[Step]]:
    """The commands of steps 2, 3, 4 and 5."""
    titles = PAGE.read_text().split("\n## ")
    two, three, four, five = (list(steps(text)) for text in titles[2:6])
    return two, three, four, five


@pytest.mark.slow
@pytest.mark.parametrize("certificates", [False, True], ids=["logins", "certificates"])
def test_it_is_turned_on_node_by_node_under_load(tmp_path: Path, *, certificates: bool) -> None:
    authority, users = CertificateAuthority(tmp_path / "ca"), first_users(tmp_path)
    shown = authority.issue("orders-app") if certificates else None
    with Cluster(tmp_path / "cluster", settings=PATIENT) as cluster:
        for node in cluster.nodes.values():
            furnish(node, authority, users, certificates=certificates)
        cluster.command("stream", "add", "orders", "--replicas", "3")
        load = Load(cluster.nats.url)
        operator = Security(cluster, tmp_path, shown, load)
        nobody: dict[str, Any] = {"bootstrap.servers": cluster.servers, "log_level": 0}
        optional, clients, demanded, made = parts()
        with load.running():
            operator.carry_out(optional)
            assert len(stored({**nobody, "group.id": "nobody"})) > 0, "who was there before goes on"
            operator.carry_out(clients)
            assert len(stored(known(cluster, shown))) > 0
            wait_until(
                lambda: all(node.metric(TOLERATED) == 0 for node in cluster.nodes.values()),
                "somebody has not moved: nodes are in by TLS and their login",
            )
            operator.carry_out(demanded)
            operator.carry_out(made)
        for stranger in (nobody, *([known(cluster, None)] if certificates else [])):
            with pytest.raises(KafkaException):
                AdminClient(stranger).list_topics(timeout=2)
        assert set(AdminClient(known(cluster, shown)).list_topics(timeout=10).topics) == {"orders"}
        found = stored(known(cluster, shown))
        assert len(load.acked) > 100
        assert set(load.acked) <= set(found), "an acknowledged message is lost"
        assert found == sorted(found)
        for node in cluster.nodes.values():
            assert "permissive: any client may do anything" in node.log_text()
            assert "NotLetIn" not in node.log_text()
