"""Connections by the thousand that never come to a request: they cost little, and others get in."""

import contextlib
import errno
import socket
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from tests.certificate_authority import BY_NAME, CertificateAuthority
from tools.nodes.cluster import Cluster

UNAUTHENTICATED: Final = 200
HELD_MAX: Final = 5_000
"""By the attacker, at a time; the node has closed most of them."""
HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""How a ClientHello of 512 bytes begins."""
GROWTH_MIB: Final = 48
"""Of the node: about 60 KiB for each connection, and what Python keeps for the next ones."""
PATIENCE_S: Final = 20.0


class Locked(NamedTuple):
    cluster: Cluster
    client: dict[str, Any]

    @property
    def port(self) -> int:
        return self.cluster[1].kafka_port

    @property
    def resident_mib(self) -> float:
        return float(psutil.Process(self.cluster[1].pid).memory_info().rss) / 2**20

    def closed(self) -> float:
        """Connections without a request that the node has closed, or seen leave."""
        name = 'streamlog_connections_closed_total{{reason="{}"}}'
        return sum(self.cluster[1].metric(name.format(why)) for why in ("unauthenticated", "tls"))

    def ask(self) -> None:
        """As a new client that has a certificate; raises KafkaException if it waits too long."""
        found = AdminClient(self.client).list_topics(timeout=PATIENCE_S / 2)
        assert set(found.brokers) == {1}


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Locked]:
    authority = CertificateAuthority(tmp_path / "ca")
    node, alice = authority.issue("node"), authority.issue("alice")
    tls = {**node.settings(), "client_ca": str(authority.ca), "client_auth": "required"}
    settings: dict[str, dict[str, object]] = {
        "tls": dict(tls),
        "sasl": BY_NAME,
        "authorization": {"super_users": ["User:alice"]},
        "http": {"tls": False},
        "kafka": {
            "unauthenticated_connections_max": UNAUTHENTICATED,
            "handshake_timeout_ms": 3_000,
        },
    }
    with Cluster(tmp_path, nodes=1, settings=settings) as cluster:
        client = {
            "bootstrap.servers": cluster.servers,
            "log_level": "0",
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.ca),
            "ssl.certificate.location": str(alice.cert),
            "ssl.key.location": str(alice.key),
        }
        yield Locked(cluster, client)


def flood(locked: Locked, count: int) -> float:
    """So many; meanwhile a client asks now and then. The most that the node has taken, in MiB."""
    held: deque[socket.socket] = deque()
    most = 0.0
    try:
        for number in range(count):
            sock = socket.socket()
            held.append(sock)
            sock.bind((f"127.0.{number % 200}.{2 + number % 250}", 0))
            sock.setblocking(False)
            if sock.connect_ex(("127.0.0.1", locked.port)) not in (0, errno.EINPROGRESS):
                continue
            if number % 2:
                with contextlib.suppress(OSError):
                    sock.send(HELLO)
            if len(held) > min(HELD_MAX, count // 5):
                held.popleft().close()
            if number % (count // 5) == count // 10:
                most = max(most, locked.resident_mib)
                locked.ask()
        most = max(most, locked.resident_mib)
    finally:
        for sock in held:
            sock.close()
    return most


def test_thousands_that_say_nothing_are_held_in_bounds(locked: Locked) -> None:
    _check(locked, 3_000)


@pytest.mark.slow
def test_a_hundred_thousand_that_say_nothing_are_held_in_bounds(locked: Locked) -> None:
    _check(locked, 100_000)


def _check(locked: Locked, count: int) -> None:
    locked.ask()
    before = locked.resident_mib
    most = flood(locked, count)
    closed = locked.closed()
    print(f"{count} connections, {closed:.0f} closed; {before:.0f} MiB before, {most:.0f} at most")
    assert most - before < GROWTH_MIB
    assert closed > count / 4
    log = locked.cluster[1].log_text()
    assert log.count("connection closed") < 200 + count / 1_000, "a line for each of a flood"
    locked.ask()
