"""franz-go's own tests that need a cluster, against three nodes. ``franz-go.toml`` says which, and what is expected."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.peers import go_modules
from tests.peers.expectations import Expectations
from tests.peers.sources import NoSourcesError
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings

pytestmark = [pytest.mark.peers, pytest.mark.slow]

MODULE: Final = "github.com/twmb/franz-go"
VERSION: Final = "v1.22.2"
RECORDS: Final = 50_000
"""That the largest of the tests pass along chains of groups, transactions and share groups; 500,000 by default."""
RUN_TIMEOUT_S: Final = 420.0
LIST: Final = Path(__file__).with_name("franz-go.toml")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings: Settings = {"groups": {"initial_rebalance_delay_ms": 0}, "nats_listen": {}}
    with Cluster(tmp_path / "nodes", settings=settings, nats=NoNats()) as started:
        yield started


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        found = go_modules.module(MODULE, VERSION) / "pkg" / "kgo"
        go_modules.build(found)
    except NoSourcesError as error:
        pytest.skip(f"the tests of franz-go cannot be had: {error}")
    return found


def test_franz_gos_own_tests_pass(
    cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = Expectations.read(LIST)
    collected = go_modules.names_in(folder, expected.files)
    names = [name for name in collected if expected.place(name) != "left out"]
    environment = {
        "KGO_SEEDS": cluster.servers,
        "KGO_TEST_RF": "3",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_UNSAFE": "1",
    }
    said = go_modules.run(folder, names, environment, RUN_TIMEOUT_S)
    found, texts = go_modules.outcomes(said), go_modules.said_by(said)
    failed = [name for name in names if found.get(name, "FAIL") == "FAIL"]
    unexpected = [name for name in failed if not expected.is_failing(name)]
    with capsys.disabled():
        print(f"\nfranz-go {VERSION}: {dict(Counter(found.values()))}")
        for name in filter(expected.is_failing, names):
            print(f"  listed as failing: {name}: {found.get(name)}")
    assert "PASS" in found.values()
    assert unexpected == [], "\n\n".join(f"{it}:\n{texts.get(it, said)}" for it in unexpected)
