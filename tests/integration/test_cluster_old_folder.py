"""An older copy of a node's data folder is put back, as from a snapshot of its volume."""

import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog.log.storage.disk import OsDisk
from streamlog.metadata.nodes.last_run import read_run
from tests.history import Lane
from tests.integration.conftest import read_stream
from tests.integration.kafka_producers import confluent
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

LANE = Lane("s")
CONTROLLER, OLD, OTHER = 1, 2, 3


def values(what: str) -> list[bytes]:
    return [b"%s %d" % (what.encode(), number) for number in range(10)]


def create(node: NodeProcess) -> None:
    topic = NewTopic("s", 1, replica_assignment=[[OLD, OTHER]], config={"min.insync.replicas": "2"})
    admin = AdminClient({"bootstrap.servers": node.kafka, "log_level": 0})
    admin.create_topics([topic])["s"].result()


def wait_started(node: NodeProcess) -> None:
    """It has registered, and asks for leadership; it may still be behind."""

    def has_started() -> bool:
        status, body = node.http("/readyz")
        return status != 0 and "is starting" not in body and "begun yet" not in body

    wait_until(has_started, f"node {node.number} has not started")


def stamps(node: NodeProcess) -> set[UUID]:
    run = read_run(OsDisk(), node.data_dir)
    return set() if run is None else set(run.stamps)


def copy_stopped(cluster: Cluster, copy: Path) -> None:
    assert cluster[OLD].stop() == 0
    shutil.copytree(cluster[OLD].data_dir, copy)
    cluster.start(OLD)


def copy_running(cluster: Cluster, copy: Path) -> None:
    """As a snapshot of its volume does: all at one moment."""
    cluster[OLD].pause()
    shutil.copytree(cluster[OLD].data_dir, copy)
    cluster[OLD].resume()
    noted = stamps(cluster[OLD])
    wait_until(lambda: len(stamps(cluster[OLD]) - noted) > 1, "no stamp was granted")


@pytest.mark.parametrize("make_copy", [copy_stopped, copy_running])
def test_an_older_copy_neither_leads_nor_is_in_sync_until_it_has_caught_up(
    tmp_path: Path, make_copy: Callable[[Cluster, Path], None]
) -> None:
    """All nodes lose power, and the one with the older copy is the first to come back."""
    copy = tmp_path / "copy"
    with Cluster(
        tmp_path / "cluster", voters=1, settings={"cluster": {"stamp_ms": 200}}
    ) as cluster:
        create(cluster[CONTROLLER])
        confluent(cluster[CONTROLLER].kafka, "s", values("before"))
        make_copy(cluster, copy)
        cluster.wait_settled([LANE])
        confluent(cluster[CONTROLLER].kafka, "s", values("after"))
        cluster.kill(CONTROLLER, OLD, OTHER)

        shutil.rmtree(cluster[OLD].data_dir)
        shutil.copytree(copy, cluster[OLD].data_dir)
        cluster.start(CONTROLLER)
        cluster[OLD].spawn()
        wait_started(cluster[OLD])
        found = cluster.view().partitions[LANE]
        cluster.start(OTHER)
        cluster.wait_settled([LANE])
        read = [it.value for it in read_stream(cluster.servers, "s", start=0)]
        assert read == [*values("before"), *values("after")]
        assert (found.leader, found.isr) == (-1, (OTHER,))
        assert "older copy" in cluster[OLD].log_text()
