"""SIGHUP, which `systemctl reload` sends and a terminal that is closed: no server ends of it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tools.nodes.dev import Dev
from tools.nodes.node_process import NodeProcess
from tools.nodes.ordering_process import OrderingProcess
from tools.nodes.server_process import ServerProcess, wait_until


def hang_up(server: ServerProcess) -> None:
    """And again."""
    for number in (1, 2):
        os.kill(server.pid, signal.SIGHUP)

        def heard(wanted: int = number) -> bool:
            assert server.is_running(), f"it ended:\n{server.log_text()[-2000:]}"
            return server.log_text().count("SIGHUP") >= wanted

        wait_until(heard, "it is not said")


def test_a_node_without_certificates_goes_on(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node()
    node.start()
    hang_up(node)
    assert node.http("/readyz")[0] == 200
    assert node.stop() == 0


def test_an_ordering_node_goes_on(tmp_path: Path) -> None:
    nowhere = "127.0.0.1:1"
    node = OrderingProcess(
        "o-1",
        tmp_path / "o-1",
        "c",
        "--stream",
        "s",
        servers=lambda: nowhere,
        nats=f"nats://{nowhere}",
    )
    node.spawn()
    try:
        wait_until(lambda: node.http("/healthz")[0] == 200, f"it does not start: {node.log_text()}")
        hang_up(node)
        assert node.stop() == 0
    finally:
        node.kill()


def test_a_development_cluster_stops_in_order_with_its_terminal(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    dev.start()
    pid = dev.node_pid
    os.kill(dev.pid, signal.SIGHUP)
    try:
        assert dev.wait() == 0
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its node runs on")
    finally:
        dev.kill()
