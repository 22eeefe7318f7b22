"""Ports: the one asked for or a free one, never one twice."""

import socket

import pytest

from streamlog.cli.dev.dev_layout import CHOICES, settle_port
from streamlog.errors import ConfigError

HOST = "127.0.0.1"


def test_free_ports_differ() -> None:
    taken: set[int] = set()
    ports = [settle_port("--x", HOST, 0, taken) for _ in range(20)]
    assert len(set(ports)) == 20
    assert taken == set(ports)
    assert all(port in CHOICES for port in ports)


def test_a_free_port_that_is_named_is_taken() -> None:
    taken: set[int] = set()
    port = settle_port("--x", HOST, 0, set())
    assert settle_port("--x", HOST, port, taken) == port
    assert taken == {port}


def test_a_port_in_use_names_the_option() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^--x: port {port} is in use; "):
            settle_port("--x", HOST, port, set())


def test_a_port_named_twice_is_in_use() -> None:
    taken: set[int] = set()
    port = settle_port("--x", HOST, 0, taken)
    with pytest.raises(ConfigError, match="is in use"):
        settle_port("--y", HOST, port, taken)


def test_a_port_beyond_the_last_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--x: there is no port 65536; "):
        settle_port("--x", HOST, 65_536, set())
