"""Wrong configurations and damaged folders: refused by name, or mended from the other nodes."""

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from streamlog.log.tools.verify import TORN, Aside, FolderFinding
from streamlog.log.tools.verify import verify as log_verify
from tests.history import Lane, check
from tests.integration.campaign import campaign
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import wait_until

REFUSAL_TIMEOUT_S: Final = 15.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that each test leaves whole."""
    with Cluster(tmp_path_factory.mktemp("bad")) as cluster:
        yield cluster


def intruder(
    cluster: Cluster, directory: Path, number: int, section: dict[str, object]
) -> NodeProcess:
    """A further node with other settings of ``[cluster]``, on a folder of its own."""
    node = NodeProcess(number, directory)
    settings: Settings = cluster.settings_of(node)
    node.configure({**settings, "cluster": {**settings["cluster"], **section}})
    return node


def refusal(node: NodeProcess) -> str:
    """Start it; it must end by itself, with one line. That line."""
    node.spawn()
    try:
        code = node.wait(REFUSAL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        node.kill()
        raise AssertionError(f"it goes on:\n{node.log_text()[-2000:]}") from None
    lines = node.log_text().splitlines()
    assert code != 0, lines
    assert not any("Traceback" in line for line in lines), node.log_text()
    return lines[-1]


def assert_whole(cluster: Cluster) -> None:
    """Whoever knocked, the cluster is as it was."""
    for node in cluster.nodes.values():
        node.wait_ready()
    everyone = frozenset(cluster.nodes)
    wait_until(lambda: cluster.view().nodes == everyone, "a node is missing")


def same_controller(*nodes: NodeProcess) -> bool:
    """Of one cluster, that is."""
    (first, *others) = [node.view().controller for node in nodes]
    return first >= 0 and others == [first] * len(others)


def test_a_second_node_of_an_id_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    line = refusal(intruder(cluster, tmp_path, 1, {}))
    assert "node 1 is alive" in line
    assert_whole(cluster)


def test_a_node_of_another_cluster_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    line = refusal(intruder(cluster, tmp_path, 4, {"id": "another"}))
    assert "another" in line and "test" in line
    assert_whole(cluster)


def test_what_the_log_says_of_voters_wins(cluster: Cluster) -> None:
    """A voter that is told by its file that it votes alone must not found a cluster of its own."""
    node = cluster[3]
    node.kill()
    settings = cluster.settings_of(node)
    try:
        node.configure({**settings, "cluster": {"id": "test", "voters": [node.voter]}})
        cluster.start(3)
        wait_until(lambda: same_controller(node, cluster[1]), "there are two clusters")
        assert node.view().nodes == frozenset(cluster.nodes)
    finally:
        node.kill()
        node.configure(settings)
        cluster.start(3)
    assert_whole(cluster)


def test_a_new_node_that_lists_other_voters_founds_nothing(tmp_path: Path) -> None:
    """The first election needs all voters, and those agree on who they are. Until then the odd one
    says what is wrong; once it is put right, the cluster begins.
    """
    cluster = Cluster(tmp_path)
    odd = cluster[3]
    settings = cluster.settings_of(odd)
    voters = [cluster[2].voter, odd.voter]
    odd.configure({**settings, "cluster": {**settings["cluster"], "voters": voters}})
    try:
        cluster.nats.start()
        for node in cluster.nodes.values():
            node.spawn()
        wait_until(lambda: "cluster.voters" in odd.log_text(), "the odd one says what is wrong")
        odd.kill()
        odd.configure(settings)
        odd.spawn()
        for node in cluster.nodes.values():
            node.wait_ready()
        wait_until(lambda: same_controller(cluster[1], cluster[2]), "there are two clusters")
    finally:
        cluster.close()


def wipe(node: NodeProcess) -> None:
    """As with a new disk."""
    shutil.rmtree(node.data_dir)


def forget_metadata(node: NodeProcess) -> None:
    """Only the quorum's folder is gone: what the node voted for and promised to keep."""
    shutil.rmtree(node.data_dir / "metadata")


def damage_streams(node: NodeProcess) -> None:
    """Flip a bit in the middle of each segment of the streams."""
    for path in files_of(node, "streams", "*.log"):
        flip(path)


def files_of(node: NodeProcess, folder: str, pattern: str) -> list[Path]:
    """Those that are not empty."""
    found = [path for path in (node.data_dir / folder).rglob(pattern) if path.stat().st_size]
    assert found, f"no {pattern} in {folder}"
    return found


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


async def blow_and_mend(
    cluster: Cluster, blow: Callable[[NodeProcess], None], *, before_s: float = 1.0
) -> None:
    """The leader is killed and its folder is struck before it starts again, under load."""
    lanes = [Lane(f"{blow.__name__}-{i}") for i in range(2)]

    def faults() -> None:
        node = cluster[cluster.leader(lanes[0])]
        threading.Event().wait(before_s)
        node.kill()
        blow(node)
        threading.Event().wait(0.5)
        cluster.start(node.number)

    await campaign(cluster, lanes, faults)


async def test_a_new_disk_is_filled_from_the_others(cluster: Cluster) -> None:
    """While everybody publishes; afterwards every replica has everything, the new one too."""
    await blow_and_mend(cluster, wipe)


@pytest.mark.slow
async def test_lost_metadata_come_from_the_others(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        await blow_and_mend(cluster, forget_metadata)


WATCHFUL: Final[Settings] = {"log": {"segment_bytes": 64 * 1024, "scrub_interval_ms": 300}}
"""Many segments, read again and again: nobody reads the old ones otherwise."""


@pytest.mark.slow
async def test_a_folder_is_mended_from_the_others(tmp_path: Path) -> None:
    """Bits have flipped in all segments while the node was down."""
    with Cluster(tmp_path, settings=WATCHFUL) as cluster:
        await blow_and_mend(cluster, damage_streams, before_s=4.0)  # most of it is checkpointed
        for node in cluster.nodes.values():
            assert list(findings(node)) == []
        assert any(kept_aside(node) for node in cluster.nodes.values())


@pytest.mark.slow
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_bit_that_flips_under_a_running_node_is_mended(tmp_path: Path, role: str) -> None:
    """In a batch that the node has written itself, and would serve: nobody reads it meanwhile."""
    lane = Lane("flipped")
    with Cluster(tmp_path, settings=WATCHFUL) as cluster:

        def publish_some() -> None:
            node = cluster[cluster.leader(lane)]
            wait_until(lambda: len(files_of(node, "streams", "*.log")) > 2, "there are segments")

        histories = await campaign(cluster, [lane], publish_some)
        leader = cluster.leader(lane)
        node = cluster[leader if role == "leader" else 1 + leader % len(cluster.nodes)]
        flip(min(files_of(node, "streams", "*.log")))
        wait_until(lambda: node.metric("streamlog_log_repairs_total") >= 1, "it is mended")
        cluster.wait_settled([lane])
        assert (cluster.leader(lane) == leader) == (role == "follower")
        check(histories[lane], cluster.replicas(lane), cluster.wait_replicated(lane))
        assert [path.name for path in kept_aside(node)] == [f"{0:020d}.log.damaged"]
        assert list(findings(node)) == []
        assert "damaged segment kept aside" in node.log_text()
        assert node.metric("streamlog_partitions_damaged") == 0


def kept_aside(node: NodeProcess) -> list[Path]:
    return [item.file for item in log_verify(node.data_dir) if isinstance(item, Aside)]


def findings(node: NodeProcess) -> Iterator[FolderFinding]:
    """What is wrong with its streams. A batch may just be on its way into the last segment."""
    for item in log_verify(node.data_dir / "streams"):
        if isinstance(item, FolderFinding) and TORN not in item.problem:
            yield item


def cut(path: Path) -> None:
    """Take the second half away."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    "blow", [flip, pytest.param(cut, marks=pytest.mark.slow)], ids=lambda blow: blow.__name__
)
async def test_a_damaged_quorum_log_is_not_voted_with(
    tmp_path: Path, blow: Callable[[Path], None]
) -> None:
    """It lacks what its node promised to keep. With an empty folder the node is welcome."""
    lanes = [Lane("struck")]
    with Cluster(tmp_path) as cluster:

        def faults() -> None:
            node = cluster[cluster.controller()]
            threading.Event().wait(2.0)  # it notes now and then how much is synced
            node.kill()
            (log,) = files_of(node, "metadata", "*.log")
            blow(log)
            assert str(log.parent) in refusal(node)
            wipe(node)
            cluster.start(node.number)

        await campaign(cluster, lanes, faults)
