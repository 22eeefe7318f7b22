"""A node that runs and cannot do its work: whoever is asked says the same, and others lead.

What is asked: /readyz, the page, metrics, ``cluster check``, ``cluster nodes``, ``doctor``.
"""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.certificate_authority import CertificateAuthority
from tests.integration.everyone import to_ten_seconds
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import program, wait_until

BARE = Path(__file__).parents[1] / "bare"
"""Has what sets the clock."""
STREAM = "orders"
PARTITIONS = 6
REBALANCE_MS = 300
FAST: dict[str, dict[str, object]] = {"cluster": {"leader_rebalance_ms": REBALANCE_MS}}


class Certified(NodeProcess):
    """With a certificate of its own."""

    authority: CertificateAuthority

    def configure(self, settings: dict[str, dict[str, object]]) -> None:
        own = self.authority.issue(f"node-{self.number}").settings()
        ca = {"ca": str(self.authority.ca), "reload_check_ms": 200}
        super().configure({**settings, "tls": {**own, **ca}, "http": {"tls": False}})


def led_by(node: NodeProcess) -> list[int]:
    """The leaders of the stream's partitions, as this node's page has them."""
    rows = json.loads(node.http(f"/api/partitions?stream={STREAM}")[1])["rows"]
    return [it["leader"] for it in rows]


def commanded(text: str, *more: str) -> tuple[int, str]:
    words = [program("streamlog"), *text.split(), *more]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def check_all_agree(cluster: Cluster, name: str, said: str, *options: str) -> None:
    """Node 1 is unfit for ``name``; it and others say so, and it leads nothing."""
    node, other = cluster[1], cluster[2]

    def reasons() -> dict[str, str]:
        found: dict[str, str] = json.loads(to_ten_seconds(node.http("/readyz")[1]))["reasons"]
        return found

    wait_until(lambda: node.http("/readyz")[0] != 0 and name in reasons(), f"{name} is no reason")
    assert said in reasons()[name]
    assert node.http("/readyz")[0] == 503 and node.http("/healthz")[0] == 200
    mine = {
        it["what"]: it for it in json.loads(to_ten_seconds(node.http("/api/status")[1]))["findings"]
    }
    (what,) = (it for it in mine if said in it)
    assert what.startswith("Node 1 (this one): ") and mine[what]["severity"] == "critical"

    def others_know() -> bool:
        told = json.loads(other.http("/api/status")[1])["findings"]
        return any(it["what"].startswith("Node 1: its ") for it in told)

    wait_until(others_know, "node 2 says nothing of it")
    wait_until(lambda: 1 not in led_by(other), "it leads")
    assert f'streamlog_node_unfit{{reason="{name}"}} 1.0' in node.http("/metrics")[1]
    assert f'streamlog_node_unfit{{reason="{name}"}} 0.0' in other.http("/metrics")[1]
    servers = ("--bootstrap-server", f"{other.kafka},{cluster[3].kafka}", *options)
    code, out = commanded("cluster check", *servers)
    assert code == 1 and "Node 1: its " in out, out
    code, out = commanded("cluster nodes", *servers)
    assert code == 0 and f"live, {name} trouble" in out, out
    code, out = commanded("doctor", "--config", str(node.config))
    assert code == 1 and "CRITICAL node: Node 1: its " in out, out


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "ca")


def make_stream(cluster: Cluster, *login: str) -> None:
    count = str(PARTITIONS)
    cluster.command("stream", "add", STREAM, "--partitions", count, "--replicas", "3", *login)


@pytest.mark.parametrize("controls", [False, True], ids=["of a node", "of the controller"])
def test_an_expired_certificate(
    tmp_path: Path, authority: CertificateAuthority, controls: bool
) -> None:
    """It expires while the node runs. Nobody could open a connection to such a controller."""
    Certified.authority = authority
    with Cluster(tmp_path, settings=FAST, make_node=Certified) as cluster:
        ca = ("--tls-ca", str(authority.ca))
        make_stream(cluster, *ca)
        if controls:
            wait_until(lambda: _decides(cluster, 1, *ca), "node 1 is not the controller")
        authority.issue("node-1", days=3 / 86_400)
        wait_until(lambda: _controller(cluster) in (2, 3), "nobody else is the controller")
        check_all_agree(cluster, "certificate", "its certificate has expired", *ca)
        authority.issue("node-1")
        cluster[1].wait_ready()
        wait_until(lambda: 1 in led_by(cluster[2]), "it does not lead again")


@pytest.mark.parametrize("controls", [False, True], ids=["of a node", "of the controller"])
def test_a_wrong_clock(tmp_path: Path, controls: bool) -> None:
    """The controller's clock may be the wrong one: that makes nobody else's wrong."""
    with Cluster(tmp_path, settings=FAST) as cluster:
        make_stream(cluster)
        cluster.kill(1)
        path = os.pathsep.join(filter(None, (str(BARE), os.environ.get("PYTHONPATH"))))
        wrong = ("TEST_CLOCK_AHEAD_S=600", f"PYTHONPATH={path}")
        cluster[1].command = ["env", *wrong, *cluster[1].command]
        before = cluster[1].log_text().count(" started ")
        cluster[1].spawn()
        # By then node 2 has noticed that the controller of before is gone.
        wait_until(lambda: cluster[1].log_text().count(" started ") > before, "it does not start")
        if controls:
            wait_until(lambda: _decides(cluster, 1), "node 1 is not the controller")
        check_all_agree(cluster, "clock", "its clock is 600.0 s ahead of that of most nodes")
        assert (_controller(cluster) == 1) is controls
        for node in (2, 3):
            cluster[node].wait_ready()


def _controller(cluster: Cluster) -> int:
    """As node 2 knows it."""
    return int(cluster[2].metric("streamlog_quorum_controller"))


def _decides(cluster: Cluster, node: int, *options: str) -> bool:
    if _controller(cluster) == node:
        return True
    with contextlib.suppress(AssertionError):
        cluster.command("cluster", "transfer-controller", str(node), *options)
    return False
