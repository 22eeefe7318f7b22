"""Rolling from the version before feature levels to this one, and no way back from there."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, ClusterNode
from tests.server_process import wait_until

ROOT = Path(__file__).parents[2]
BEFORE_LEVELS = "5a97f6d"
"""The last commit whose nodes know nothing of feature levels."""

pytestmark = pytest.mark.slow


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """That version's source; its compiled parts are missing, and their plain twins do."""
    archive = ["git", "archive", BEFORE_LEVELS, "streamlog"]
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"this checkout has no commit {BEFORE_LEVELS}")
    (tmp_path / "old").mkdir()
    unpack = ["tar", "xf", "-", "-C", str(tmp_path / "old")]
    subprocess.run(unpack, input=packed.stdout, check=True)
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
        cluster.command("cluster", "upgrade", "--level", "2", "--yes")
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
                assert "has not said that it knows" in said or "not a command" in said
        assert features(cluster)["level"] == 1
        wait_until(lambda: None not in features(cluster)["nodes"].values(), "what all nodes know")
        assert "at feature level 2" in cluster.command("cluster", "upgrade", "--yes")
        assert features(cluster)["level"] == 2
        assert "cannot go back to 1" in _downgrade_refused(cluster)
        first = cluster[1]
        assert isinstance(first, VersionedNode)
        assert first.stop(60) == 0
        first.downgrade()
        first.spawn()
        assert first.wait(60) != 0
        assert "FeatureLevelChanged" in first.log_text()
        first.upgrade()
        cluster.start(1)
        cluster.command("cluster", "check", "--wait", "--timeout", "30")
        assert len(cluster.command("read", "s").splitlines()) == 200


def _downgrade_refused(cluster: Cluster) -> str:
    with pytest.raises(AssertionError) as refused:
        cluster.command("cluster", "upgrade", "--level", "1", "--yes")
    return str(refused.value)
