"""A cluster in which everybody shows a certificate: nodes to each other, and stock clients."""

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog.client.blocking import BlockingCluster
from streamlog.errors import NodeUnreachable
from streamlog.model import TopicPartition as Lane
from tests.certificate_authority import BY_NAME, CertificateAuthority, Issued
from tests.cluster_cli import Cli
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

STREAM = "locked"
VALUES = [b"record %d" % number for number in range(100)]
PATIENCE_S = 30.0


class Locked(NamedTuple):
    cluster: Cluster
    authority: CertificateAuthority
    alice: Issued

    @property
    def servers(self) -> str:
        return self.cluster.servers

    def confluent(self, own: Issued | None = None) -> dict[str, Any]:
        shown = {}
        if own is not None:
            shown = {
                "ssl.certificate.location": str(own.cert),
                "ssl.key.location": str(own.key),
            }
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.ca),
            "log_level": 0,
            **shown,
        }


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    authority = CertificateAuthority(folder / "ca")
    tls: dict[str, object] = {
        **authority.issue("node").settings(),
        "client_ca": str(authority.ca),
        "client_auth": "required",
        "reload_check_ms": 200,
    }
    settings: dict[str, dict[str, object]] = {
        "tls": tls,
        "sasl": BY_NAME,
        "authorization": {"super_users": ["User:alice"]},
        # What waits for the nodes asks for /readyz in the clear; HTTP has tests of its own.
        "http": {"tls": False},
    }
    with Cluster(folder, settings=settings) as cluster:
        given = Locked(cluster, authority, authority.issue("alice"))
        admin = AdminClient(given.confluent(given.alice))
        for made in admin.create_topics([NewTopic(STREAM, 1, 3)]).values():
            made.result(PATIENCE_S)
        producer = Producer({**given.confluent(given.alice), "acks": "all"})
        for value in VALUES:
            producer.produce(STREAM, value)
        assert producer.flush(PATIENCE_S) == 0
        yield given


def by_confluent(locked: Locked, own: Issued | None) -> list[bytes]:
    settings = {**locked.confluent(own), "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.list_topics(STREAM, timeout=3)
        consumer.assign([TopicPartition(STREAM, 0, 0)])
        found: list[bytes] = []
        while len(found) < len(VALUES):
            for message in consumer.consume(100, timeout=1):
                assert message.error() is None
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def by_kafka_python(locked: Locked, own: Issued | None) -> list[bytes]:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Partition

    consumer = KafkaConsumer(
        bootstrap_servers=locked.servers.split(","),
        security_protocol="SSL",
        ssl_context=locked.authority.client(own),
        bootstrap_timeout_ms=3_000,
        consumer_timeout_ms=int(PATIENCE_S * 1000),
    )
    try:
        partition = Partition(STREAM, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return [next(consumer).value for _ in VALUES]
    finally:
        consumer.close()


def by_aiokafka(locked: Locked, own: Issued | None) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Partition

    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=locked.servers,
            security_protocol="SSL",
            ssl_context=locked.authority.client(own),
            request_timeout_ms=5_000,
        )
        try:
            await consumer.start()
            partition = Partition(STREAM, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return [(await consumer.getone()).value for _ in VALUES]
        finally:
            await consumer.stop()

    return asyncio.run(read())


READERS: dict[str, Callable[[Locked, Issued | None], list[bytes]]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_a_stock_client_with_a_certificate_reads(
    locked: Locked, reader: Callable[[Locked, Issued | None], list[bytes]]
) -> None:
    assert reader(locked, locked.alice) == VALUES


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_a_stock_client_without_one_reads_nothing(
    locked: Locked, reader: Callable[[Locked, Issued | None], list[bytes]]
) -> None:
    with pytest.raises(Exception) as caught:
        reader(locked, None)
    assert not isinstance(caught.value, AssertionError)


def test_sparks_client_speaks_tls_to_a_node(locked: Locked) -> None:
    with BlockingCluster.at(locked.servers, tls=locked.authority.client(locked.alice)) as cluster:
        assert cluster.list_offsets([Lane(STREAM, 0)], -1) == {Lane(STREAM, 0): len(VALUES)}
    with (
        BlockingCluster.at(locked.servers, tls=locked.authority.client()) as cluster,
        pytest.raises(NodeUnreachable),
    ):
        cluster.topology([STREAM])


def test_a_command_comes_as_the_node_whose_configuration_it_is_given(locked: Locked) -> None:
    config = str(locked.cluster[2].config)
    said = locked.cluster.command_without_servers("cluster", "check", "--node-config", config)
    assert "every replica is in sync" in said


def test_followers_fetch_and_the_quorum_votes_through_it(locked: Locked) -> None:
    described = AdminClient(locked.confluent(locked.alice)).list_topics(STREAM, timeout=PATIENCE_S)
    assert len(described.topics[STREAM].partitions[0].isrs) == 3
    host, _, port = locked.servers.split(",")[0].partition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.settimeout(PATIENCE_S)
        sock.sendall(b"\0\0\0\x0e\0\x12\0\0\0\0\0\x01\0\x04test")  # ApiVersions in the clear
        assert sock.recv(100)[:1] in (b"", b"\x15"), "an alert, or nothing"


class Nodes(NamedTuple):
    """What ``Cli`` wants to know."""

    nats: str
    addresses: dict[str, Any]


def test_commands_show_a_certificate(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = Cli(Nodes(locked.cluster.nats.url, {"nodes": [{"kafka": locked.servers}]}))
    files = ("--tls-cert", str(locked.alice.cert), "--tls-key", str(locked.alice.key))
    nodes = cli.json("cluster nodes", "--tls-ca", str(locked.authority.ca), *files)
    assert len(nodes["nodes"] if isinstance(nodes, dict) else nodes) == 3
    assert "wants a certificate" in cli.refused(
        "cluster nodes", "--tls-ca", str(locked.authority.ca)
    )
    assert "--tls-cert: needs --tls-key" in cli.refused("cluster nodes", *files[:2], code=2)
    monkeypatch.setenv("STREAMLOG_CLIENT_TLS_CA", str(locked.authority.ca))
    monkeypatch.setenv("STREAMLOG_CLIENT_TLS_CERT", str(locked.alice.cert))
    monkeypatch.setenv("STREAMLOG_CLIENT_TLS_KEY", str(locked.alice.key))
    assert cli.ok("consume", STREAM, "--count", "2").splitlines() == ["record 0", "record 1"]


def shown_by(address: str, context: ssl.SSLContext) -> int:
    """The serial number of the certificate."""
    from cryptography import x509

    host, _, port = address.partition(":")
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as sock,
        context.wrap_socket(sock, server_hostname=host) as sealed,
    ):
        der = sealed.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


def test_a_renewed_certificate_is_shown_and_a_bad_one_is_not(locked: Locked) -> None:
    node, context = locked.cluster[1], locked.authority.client(locked.alice)
    seen = {shown_by(node.kafka, context)}
    renewed = locked.authority.issue("node", days=90)
    wait_until(lambda: shown_by(node.kafka, context) not in seen, "the new one is not shown")
    seen.add(shown_by(node.kafka, context))
    good = renewed.key.read_bytes()
    renewed.key.write_text("no key")
    told = "certificates not reloaded"
    for number in (1, 2):
        os.kill(node.pid, signal.SIGHUP)
        wait_until(lambda n=number: node.log_text().count(told) >= n, "it is not told")  # type: ignore[misc]
    assert shown_by(node.kafka, context) in seen
    renewed.key.write_bytes(good)
    failed = 'streamlog_tls_reloads_total{result="failed"}'
    assert node.metric(failed) >= 2
    assert by_confluent(locked, locked.alice) == VALUES


def test_nobody_listens_for_others_unless_it_is_said(tmp_path: Path) -> None:
    from tools.nodes.ports import free_port
    from tools.nodes.server_process import ServerProcess, program

    config, port = tmp_path / "node.toml", free_port()
    text = (
        f'[node]\ndata_dir = "{tmp_path / "data"}"\n[nats]\nservers = ["nats://127.0.0.1:1"]\n'
        f'[kafka]\nhost = "0.0.0.0"\nport = {port}\n[http]\nport = {free_port()}\n'
    )
    config.write_text(text)
    node = ServerProcess([program("streamlog"), "serve", "-c", str(config)], tmp_path / "log")
    node.spawn()
    wait_until(lambda: not node.is_running(), "it runs")
    last = node.log_text().splitlines()[-1]
    assert last.startswith("streamlog: kafka.host: 0.0.0.0 can be reached from other machines"), (
        last
    )
    config.write_text(text + "[security]\nallow_unauthenticated = true\n")
    node.spawn()
    try:
        wait_until(lambda: "insecure: any client that reaches" in node.log_text(), "no warning")
    finally:
        node.kill()


def test_a_certificate_that_has_expired_is_of_no_use(locked: Locked) -> None:
    with pytest.raises(KafkaException):
        by_confluent(locked, locked.authority.issue("late", days=-1))
    told = "its certificate is not accepted: certificate has expired"
    wait_until(lambda: any(told in it.log_text() for it in locked.cluster.nodes.values()), "untold")
