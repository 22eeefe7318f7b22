"""Rolling from this version to one with one more feature level, and no way back from there.

The next version is this one with that level: nothing else has been released to upgrade to or from.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamlog.metadata.image.feature_level import LEVEL_MAX
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

ROOT = Path(__file__).parents[2]
NEXT = LEVEL_MAX + 1

pytestmark = pytest.mark.slow


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """The folder of its source."""
    shutil.copytree(ROOT / "streamlog", tmp_path / "next" / "streamlog")
    levels = tmp_path / "next" / "streamlog" / "metadata" / "image" / "feature_level.py"
    added = rf'\g<0>\n    {NEXT}: "more",'
    text, count = re.subn(rf"\n    {LEVEL_MAX}: .*", added, levels.read_text())
    assert count == 1
    levels.write_text(text)
    return tmp_path / "next"


class VersionedNode(NodeProcess):
    """Either version, with the same folder and ports."""

    def __init__(self, number: int, directory: Path, next_version: Path) -> None:
        super().__init__(number, directory)
        self._old = self.command
        self._new = ["env", f"PYTHONPATH={next_version}", *self.command]

    def upgrade(self) -> None:
        self.command = self._new

    def downgrade(self) -> None:
        self.command = self._old


def publish(cluster: Cluster, count: int) -> None:
    cluster.command_without_servers("publish", "s", "v", "--count", str(count), "--ack")


def features(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.command("cluster", "features", "ls", "--json"))
    return found


def upgrade_refused(cluster: Cluster) -> str:
    with pytest.raises(AssertionError) as refused:
        cluster.command("cluster", "features", "upgrade", "--level", str(NEXT), "--yes")
    return str(refused.value)


def test_rolling_from_the_old_to_the_new(tmp_path: Path, next_version: Path) -> None:
    def make_node(number: int, directory: Path) -> NodeProcess:
        return VersionedNode(number, directory, next_version)

    with Cluster(tmp_path / "cluster", make_node=make_node) as cluster:
        cluster.command("stream", "add", "s", "--replicas", "3")
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
                unknown = f"knows feature levels 1 to {LEVEL_MAX}, not {NEXT}"
                assert unknown in said or "has not said that it knows" in said
        assert features(cluster)["level"] == LEVEL_MAX
        wait_until(lambda: None not in features(cluster)["nodes"].values(), "what all nodes know")
        assert f"at feature level {NEXT}" in cluster.command(
            "cluster", "features", "upgrade", "--yes"
        )
        assert features(cluster)["level"] == NEXT
        assert f"cannot go back to {LEVEL_MAX}" in _downgrade_refused(cluster)
        first = cluster[1]
        assert isinstance(first, VersionedNode)
        assert first.stop(60) == 0
        first.downgrade()
        first.spawn()
        assert first.wait(60) != 0
        assert f"metadata is of feature level {NEXT}" in first.log_text()
        first.upgrade()
        cluster.start(1)
        cluster.command("cluster", "check", "--wait", "--timeout", "30")
        assert len(cluster.command("consume", "s").splitlines()) == 200


def _downgrade_refused(cluster: Cluster) -> str:
    with pytest.raises(AssertionError) as refused:
        cluster.command("cluster", "features", "upgrade", "--level", str(LEVEL_MAX), "--yes")
    return str(refused.value)
