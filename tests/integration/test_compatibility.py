"""Other people's Kafka clients do what the table in docs/compatibility.md says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from compatibility import results
from compatibility.cells import run_cell
from compatibility.checks.catalogue import CHECKS
from compatibility.checks.check import Check
from compatibility.cluster import Cluster
from compatibility.outcome import Missing
from compatibility.peer import Peer, peers
from compatibility.registries import cache_folder, install, present

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]

AT_HAND = [peer for peer in peers() if present(peer) is not None]
"""Their packages are those of this environment."""
QUICK = [check for check in CHECKS if check.name in {"assign", "idempotent", "resume", "share"}]


def name_of(item: Peer | Check) -> str:
    return item.name


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("one") / "nodes", nodes=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("three") / "nodes") as cluster:
        yield cluster


@pytest.mark.parametrize("check", QUICK, ids=name_of)
@pytest.mark.parametrize("peer", AT_HAND, ids=name_of)
def test_clients_at_hand(node: Cluster, peer: Peer, check: Check, tmp_path: Path) -> None:
    installed = present(peer)
    assert installed is not None
    cell = f"{peer.name}-{check.name}"
    outcome = run_cell(node, installed, cell, check, tmp_path)
    if outcome.kind == "not offered":
        pytest.skip(outcome.reason)
    assert outcome.kind == "pass", f"{outcome.reason}\n{(tmp_path / f'{cell}.log').read_text()}"


@pytest.mark.slow
@pytest.mark.parametrize("peer", peers(), ids=name_of)
def test_every_cell_of_the_table(trio: Cluster, peer: Peer, tmp_path: Path) -> None:
    try:
        installed = install(peer, cache_folder())
    except Missing as missing:
        pytest.skip(f"{peer.name}: {missing}")
    found = {}
    for check in CHECKS:
        outcome = run_cell(trio, installed, f"{peer.name}-{check.name}", check, tmp_path)
        found[check.name] = outcome
    told = results.read()[peer.name].cells
    differs = {name: found[name] for name in found if found[name].kind != told[name].kind}
    assert differs == {}
