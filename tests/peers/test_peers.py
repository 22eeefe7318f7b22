"""Other clients' own tests against three nodes of ours.

A list for each, as ``aiokafka.toml``, says which of them, and why not the others.
"""

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.peers.expectations import Expectations, Verdict, judge
from tests.peers.sources import PEERS, NoSourcesError, Sources, sources
from tests.peers.suite import Suite
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings

pytestmark = [pytest.mark.peers, pytest.mark.slow]

LISTS = Path(__file__).parent
SETTINGS: Settings = {
    "groups": {"initial_rebalance_delay_ms": 0, "session_timeout_ms_min": 1_000},
    "nats": {"default_api_prefix": True},
    "nats_listen": {},
}
"""As peers have their Kafka, and their JetStream; consumers are served at a node's own port."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, settings=SETTINGS, nats=NoNats()) as started:
        yield started


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("lone")
    with Cluster(folder, nodes=1, settings=SETTINGS, nats=NoNats()) as started:
        yield started


@pytest.mark.parametrize("package", PEERS)
def test_peers_own_tests_pass(
    package: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    peer = PEERS[package]
    try:
        found = sources(peer, metadata.version(package))
    except NoSourcesError as error:
        pytest.skip(f"the tests of {package} cannot be had: {error}")
    expected = Expectations.read(LISTS / f"{package}.toml")
    suite = Suite(peer, found, expected, tmp_path / "suite")
    suite.collect()
    for place in ("cluster", "lone"):
        servers: Cluster = request.getfixturevalue(place)
        ports = [node.port_url for node in servers.nodes.values()]
        addresses = ports if peer.speaks_nats else servers.servers.split(",")
        suite.run(place, addresses)
    verdict = judge(expected, suite.collected, suite.outcomes)
    with capsys.disabled():
        print(f"\n{told(package, found, verdict)}")
    assert verdict.passed, "nothing was run"
    assert verdict.failed == [], "\n\n".join(
        f"{test}:\n{suite.details.get(test, '')}" for test in verdict.failed
    )


def told(package: str, found: Sources, verdict: Verdict) -> str:
    """For people: how many, and what is not as the list says."""
    lines = [
        f"{package} {found.installed}, its tests of {found.version}: {len(verdict.passed)} passed,"
        f" {len(verdict.failed)} failed, {len(verdict.failed_as_expected)} failed as expected,"
        f" {len(verdict.skipped)} skipped themselves"
    ]
    lines += [f"  failed: {test}" for test in verdict.failed]
    lines += [f"  passed, though it is listed as failing: {it}" for it in verdict.surprises]
    lines += [f"  listed, but there is no such test: {name}" for name in verdict.unknown]
    return "\n".join(lines)
