"""Rolling from the version before the last feature level to this one, and no way back from there.

The version before is this one without its last feature level: what nodes tell each other beside it
changes freely as long as nothing has been released.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamlog.metadata.image.feature_level import LEVEL_MAX
from tests.cluster import Cluster, ClusterNode
from tests.server_process import wait_until

ROOT = Path(__file__).parents[2]
BEFORE = LEVEL_MAX - 1

pytestmark = pytest.mark.slow


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Where that version's source is."""
    shutil.copytree(ROOT / "streamlog", tmp_path / "old" / "streamlog")
    features = tmp_path / "old" / "streamlog" / "metadata" / "features.py"
    text, count = re.subn(rf"\n    {LEVEL_MAX}: .*", "", features.read_text())
    assert count == 1
    features.write_text(text)
    return tmp_path / "old"


class VersionedNode(ClusterNode):
    """Either version, with the same folder and ports."""

    def __init__(self, number: int, directory: Path, old: Path) -> None:
        super().__init__(number, directory)
        self._new = self.command
        self._old = ["env", f"PYTHONPATH={old}", *self.command]
        self.command = self._old

    def upgrade(self) -> None:
        self.command = self._new

    def downgrade(self) -> None:
        self.command = self._old


def publish(cluster: Cluster, count: int) -> None:
    cluster.command_without_servers("publish", "s", "v", "--count", str(count), "--ack")


def features(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.command("cluster", "features", "--json"))
    return found


def upgrade_refused(cluster: Cluster) -> str:
    with pytest.raises(AssertionError) as refused:
        cluster.command("cluster", "upgrade", "--level", str(LEVEL_MAX), "--yes")
    return str(refused.value)


def test_rolling_from_the_old_to_the_new(tmp_path: Path, old: Path) -> None:
    def make_node(number: int, directory: Path) -> ClusterNode:
        return VersionedNode(number, directory, old)

    with Cluster(tmp_path / "cluster", make_node=make_node) as cluster:
        cluster.command_without_servers("stream", "add", "s", "--replicas", "3")
        publish(cluster, 50)
        for round_, (number, node) in enumerate(cluster.nodes.items(), start=1):
            assert isinstance(node, VersionedNode)
            assert node.stop(60) == 0
            node.upgrade()
            cluster.start(number)
            cluster.command("cluster", "check", "--wait", "--timeout", "30")
            publish(cluster, 50)
            if round_ < len(cluster.nodes):
                said = upgrade_refused(cluster)
                unknown = f"knows feature levels 1 to {BEFORE}, not {LEVEL_MAX}"
                assert unknown in said or "has not said that it knows" in said
        assert features(cluster)["level"] == BEFORE
        wait_until(lambda: None not in features(cluster)["nodes"].values(), "what all nodes know")
        assert f"at feature level {LEVEL_MAX}" in cluster.command("cluster", "upgrade", "--yes")
        assert features(cluster)["level"] == LEVEL_MAX
        assert f"cannot go back to {BEFORE}" in _downgrade_refused(cluster)
        first = cluster[1]
        assert isinstance(first, VersionedNode)
        assert first.stop(60) == 0
        first.downgrade()
        first.spawn()
        assert first.wait(60) != 0
        assert f"metadata is of feature level {LEVEL_MAX}" in first.log_text()
        first.upgrade()
        cluster.start(1)
        cluster.command("cluster", "check", "--wait", "--timeout", "30")
        assert len(cluster.command("read", "s").splitlines()) == 200


def _downgrade_refused(cluster: Cluster) -> str:
    with pytest.raises(AssertionError) as refused:
        cluster.command("cluster", "upgrade", "--level", str(BEFORE), "--yes")
    return str(refused.value)
