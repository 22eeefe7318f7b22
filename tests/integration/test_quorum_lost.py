"""Two of three nodes are gone: whoever is asked tells what is so, and nothing that helps nobody.

What is asked: /readyz, the page, metrics, ``cluster``, ``stream ls``, ``group ls``, ``doctor``.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import program, wait_until

STREAM = "orders"
GROUP_LS_S_MAX = 20.0
"""It used to hang for 30; the start of a program is slow on a busy machine."""


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, NodeProcess]]:
    """Node 1, which has led partitions as the others have."""
    with Cluster(tmp_path_factory.mktemp("lost")) as cluster:
        made = ("stream", "add", STREAM, "--partitions", "3", "--replicas", "3")
        cluster.command(*made)
        wait_until(lambda: leaders(cluster[1]) == {1, 2, 3}, "not everybody leads")
        cluster.kill(2, 3)
        lost = "streamlog_quorum_controller"
        wait_until(lambda: cluster[1].metric(lost) == -1, "a controller is known")
        yield cluster, cluster[1]


def leaders(node: NodeProcess) -> set[int]:
    rows = json.loads(node.http(f"/api/partitions?stream={STREAM}")[1])["rows"]
    return {row["leader"] for row in rows}


def commanded(cluster: Cluster, text: str, *, code: int, timeout_s: float = 60.0) -> str:
    env = {**os.environ, "NATS_URL": cluster.nats.url}
    words = [program("streamlog"), *text.split()]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=timeout_s, env=env
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_page_says_who_answers(survivor: tuple[Cluster, NodeProcess]) -> None:
    _, node = survivor
    status: dict[str, Any] = {}

    def is_known() -> bool:
        status.update(json.loads(node.http("/api/status")[1]))
        return not any(it["alive"] for it in status["nodes"] if not it["this"])

    wait_until(is_known, "dead nodes are alive")
    assert [it["states"] for it in status["nodes"]] == [
        ["alive"], ["does not answer"], ["does not answer"],
    ]  # fmt: skip
    assert status["cluster"]["leaderless"] == 2
    said = " ".join(f"{it['what']} {it['remedy']}" for it in status["findings"])
    assert "No controller is known" in said
    for number in (2, 3):
        assert f"Node {number} at 127.0.0.1:" in said
    assert "2 partitions without a leader" in said
    assert "`streamlog cluster drain" not in said and "cluster elect-leader" not in said
    wait_until(lambda: "cluster" in json.loads(node.http("/readyz")[1])["reasons"], "it is ready")
    reasons = json.loads(node.http("/readyz")[1])["reasons"]
    assert "no word from the controller" in reasons["cluster"]


def test_the_api_says_who_answers(survivor: tuple[Cluster, NodeProcess]) -> None:
    _, node = survivor
    status, text = node.http("/api/v1/findings")
    assert status == 200, text
    found = json.loads(text)
    said = " ".join(it["what"] for it in found)
    assert "No controller is known: 1 of 3 voters answer" in said
    for number in (2, 3):
        assert f"Node {number} at 127.0.0.1:" in said
    (leaderless,) = (it for it in found if it["code"] == "SL-0201")
    assert sorted(it.partition(" ")[2] for it in leaderless["details"]) == [
        "is led by node 2, which does not answer",
        "is led by node 3, which does not answer",
    ]


def test_commands_say_who_answers(survivor: tuple[Cluster, NodeProcess]) -> None:
    cluster, _ = survivor
    servers = f"--bootstrap-server {cluster.servers}"
    said = commanded(cluster, f"cluster check {servers}", code=1)
    assert "No controller is known: 1 of 3 voters answer, and 2 are needed" in said
    for number in (2, 3):
        assert f"Node {number} at {cluster[number].kafka} does not answer" in said
    assert said.count("which does not answer") == 2
    said = commanded(cluster, f"cluster quorum {servers}", code=0)
    assert "none: 1 of 3 voters answer, 2 are needed" in said
    said = commanded(cluster, f"cluster nodes {servers}", code=0)
    assert said.count("does not answer") == 2 and said.count("answers") == 1


def test_streams_and_groups_are_not_to_be_had_and_why(
    survivor: tuple[Cluster, NodeProcess],
) -> None:
    cluster, _ = survivor
    said = commanded(cluster, f"stream ls --bootstrap-server {cluster.servers}", code=0)
    assert f"not all leaders of {STREAM} answer; `streamlog cluster check` says why" in said
    words = f"group ls --bootstrap-server {cluster.servers}"
    said = commanded(cluster, words, code=1, timeout_s=GROUP_LS_S_MAX)
    assert "there is no controller: `streamlog cluster check` says what is away" in said


def test_the_doctor_counts_whom_it_has_reached(survivor: tuple[Cluster, NodeProcess]) -> None:
    cluster, node = survivor
    said = commanded(cluster, f"doctor --config {node.config}", code=1)
    assert "1 of the 3 nodes of cluster test are reached, this one at" in said
    assert "CRITICAL cluster: No controller is known" in said
    assert "CRITICAL node: Node 1 is not ready: no word from the controller" in said
