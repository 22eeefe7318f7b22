"""The ``nats`` command line manages streams here as it does with JetStream, three nodes at hand."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.nats_cli import nats_program
from tests.peers.sources import NoSourcesError
from tools.nodes.cluster import Cluster

pytestmark = [pytest.mark.peers, pytest.mark.slow]

Nats = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def nats(cluster: Cluster, tmp_path: Path) -> Nats:
    """Runs a command, which must end as expected; what it said."""
    try:
        program = nats_program()
    except NoSourcesError as error:
        pytest.skip(f"the nats command line cannot be had: {error}")

    def run(*arguments: str, code: int = 0) -> str:
        command = [str(program), "-s", cluster.nats.url, "--js-domain", "streamlog", *arguments]
        done = subprocess.run(
            command,
            env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        said = str(done.stdout + done.stderr)
        assert done.returncode == code, f"nats {' '.join(arguments)}:\n{said}"
        assert "failed schema validation" not in said
        return said

    return run


def info(nats: Nats, stream: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(nats("stream", "info", stream, "--json"))
    return told


def add(nats: Nats, name: str, *options: str) -> None:
    nats("stream", "add", name, "--subjects", f"{name}.*", "--defaults", *options)


def test_a_streams_life(nats: Nats) -> None:
    add(nats, "orders", "--replicas", "3", "--max-age", "1h", "--allow-direct")
    for i in range(3):
        nats("pub", f"orders.{i}", f"hello {i}")
    assert "orders" in nats("stream", "ls") and nats("stream", "ls", "-n").split() == ["orders"]
    assert "orders" in nats("stream", "find", "--subject", "orders.*")
    assert "orders" not in nats("stream", "find", "--empty")
    assert "orders" in nats("stream", "report")
    assert "hello 1" in nats("stream", "get", "orders", "2")
    assert "hello 2" in nats("stream", "get", "orders", "-S", "orders.2")
    nats("stream", "edit", "orders", "--description", "all of them", "-f")
    told = info(nats, "orders")
    assert told["config"]["description"] == "all of them"
    assert (told["state"]["messages"], told["state"]["last_seq"]) == (3, 3)
    assert "Purged 1" in nats("stream", "purge", "orders", "--keep", "2", "-f")
    nats("stream", "seal", "orders", "-f")
    assert info(nats, "orders")["config"]["sealed"]
    assert "sealed" in nats("stream", "purge", "orders", "-f", code=1)
    nats("stream", "rm", "orders", "-f")
    assert "not found" in nats("stream", "rm", "orders", "-f", code=1)


def test_leaders_and_replicas(nats: Nats) -> None:
    add(nats, "moved", "--replicas", "2")
    before = info(nats, "moved")["cluster"]
    nats("stream", "cluster", "step-down", "moved")
    after = info(nats, "moved")["cluster"]
    assert after["leader"] == before["replicas"][0]["name"]
    nats("stream", "cluster", "peer-remove", "moved", before["leader"], "-f")
    everybody = {"node-1", "node-2", "node-3"}
    (newcomer,) = everybody - {before["leader"], after["leader"]}
    peers = {it["name"] for it in info(nats, "moved")["cluster"]["replicas"]}
    assert newcomer in peers or before["leader"] in peers, "the move may be under way"
    nats("stream", "rm", "moved", "-f")


def test_its_benchmark_publishes(nats: Nats) -> None:
    add(nats, "bench")
    for mode, count in (("sync", "50"), ("async", "5000")):
        options = ("--stream", "bench", "--msgs", count, "--no-progress")
        assert "msgs/sec" in nats("bench", "js", "pub", mode, "bench.a", *options)
    assert info(nats, "bench")["state"]["messages"] == 5_050
    assert "storage" in nats("account", "info").lower()
    nats("stream", "rm", "bench", "-f")
