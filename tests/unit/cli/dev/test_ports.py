"""Ports: the one asked for or a free one, never one twice."""

import socket
from pathlib import Path

import pytest

from streamlog.cli.dev.dev_layout import CHOICES, DevPlan, Ports, lay_out
from streamlog.errors import ConfigError

HOST = "127.0.0.1"


def test_free_ports_differ() -> None:
    settled = Ports()
    ports = [settled.settle("--x", HOST, 0) for _ in range(20)]
    assert len(set(ports)) == 20
    assert settled.taken == set(ports)
    assert all(port in CHOICES for port in ports)


def test_a_free_port_that_is_named_is_taken() -> None:
    settled = Ports()
    port = Ports().settle("--x", HOST, 0)
    assert settled.settle("--x", HOST, port) == port
    assert settled.taken == {port}


def test_a_port_in_use_names_the_option() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^--x: port {port} is in use; "):
            Ports().settle("--x", HOST, port)


def test_a_port_named_twice_is_in_use() -> None:
    settled = Ports()
    port = settled.settle("--x", HOST, 0)
    with pytest.raises(ConfigError, match="is in use"):
        settled.settle("--y", HOST, port)


def test_a_port_beyond_the_last_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--x: there is no port 65536; "):
        Ports().settle("--x", HOST, 65_536)


def test_two_clusters_that_start_at_once_choose_other_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither listens yet."""
    monkeypatch.setattr("random.sample", lambda choices, _: list(choices)[:20])
    one, other = Ports(), Ports()
    first = [one.settle("--x", HOST, 0) for _ in range(5)]
    assert not {other.settle("--x", HOST, 0) for _ in range(5)} & set(first)
    one.close()
    assert Ports().settle("--x", HOST, 0) in first


def test_a_chosen_port_is_none_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Ports().settle("--x", HOST, 0)
    monkeypatch.setattr("random.sample", lambda choices, _: [named, *choices])
    plan = DevPlan(tmp_path, 1, None, nats_server=False, nats_port=0, kafka_port=named, http_port=0)
    (node,) = lay_out(plan, Ports())
    assert node.kafka == f"{HOST}:{named}"
