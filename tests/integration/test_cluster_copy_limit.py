"""A replica that is copied slowly, beside partitions in sync, in a cluster of processes."""

import os
import threading
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tests.history import Lane
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings

MIB: Final = 1 << 20
RATE: Final = MIB
COPIED_MIB: Final = 8
LARGE, BESIDE = Lane("large"), Lane("beside")
LIMITED: Final[Settings] = {
    "cluster": {"pause_tolerance_ms": 25_000, "session_timeout_ms": 30_000},
    "replication": {"copy_bytes_per_s": RATE},
}
ACK_S_MAX: Final = 5.0
"""Far less than the copy takes, and much for one record on a busy machine."""


class Publisher:
    """One record after the other, each once the one before is acknowledged by all in sync."""

    def __init__(self, servers: str) -> None:
        self.acks_s: list[float] = []
        """How long each took."""
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._publish)

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _publish(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            self._producer.produce(BESIDE.stream, b"x", partition=BESIDE.partition)
            if self._producer.flush(30.0):
                return
            self.acks_s.append(time.monotonic() - began)


def test_a_moved_replica_is_copied_no_faster_than_allowed(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=LIMITED) as cluster:
        cluster.command("stream", "add", LARGE.stream, "--replicas", "2")
        cluster.command("stream", "add", BESIDE.stream, "--replicas", "3")
        cluster.command("stream", "move", LARGE.stream, "0", "1,2", "--wait")
        cluster.wait_settled([LARGE, BESIDE])
        producer = Producer({"bootstrap.servers": cluster.servers, "acks": "all"})
        for _ in range(4 * COPIED_MIB):
            producer.produce(LARGE.stream, os.urandom(MIB // 4), partition=LARGE.partition)
        assert producer.flush(60.0) == 0
        assert set(cluster.view().partitions[LARGE].isr) == {1, 2}, "in sync, it is not held up"
        with Publisher(cluster.servers) as publisher:
            began = time.monotonic()
            cluster.command("stream", "move", LARGE.stream, "0", "1,3", "--wait")
            took_s = time.monotonic() - began
        # A second's worth is there at once, and the last answer, of about as much, is not waited for.
        assert took_s >= COPIED_MIB * MIB / RATE - 2.5
        acks_s = publisher.acks_s
        assert sum(acks_s) >= took_s - ACK_S_MAX, "they go on until the copy is done"
        assert max(acks_s) < ACK_S_MAX
        assert set(cluster.view().partitions[LARGE].isr) == {1, 3}
        assert set(cluster.view().partitions[BESIDE].isr) == {1, 2, 3}
