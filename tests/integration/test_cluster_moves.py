"""Replicas move away and back, or a move is cancelled, while their node stands still, or its NATS.

Then whoever has the records dies. Stock clients judge: what they were acknowledged is there, at the
offset that they were told.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog.cli.stream import move
from streamlog.errors import InvalidRequest
from tests.history import Lane
from tests.integration.campaign import campaign
from tests.integration.conftest import read_stream
from tests.integration.kafka_producers import confluent
from tests.secured_nats import ConfiguredNats
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, PartitionView, Settings
from tools.nodes.ports import free_port
from tools.nodes.replica_log import differences
from tools.nodes.server_process import ServerProcess, wait_until

NODES: Final = 4
VOTERS: Final = 3
LATE: Final = 4
"""The node with a nats-server of its own."""
PATIENT: Final[Settings] = {"cluster": {"pause_tolerance_ms": 12_000, "session_timeout_ms": 15_000}}
"""Whoever stands still for a moment is not succeeded for it."""
KAFKA, NATS = Lane("k"), Lane("n")
"""What is published to only while nobody stands still, and what is published to all the time."""
STUTTER_S: Final = 0.1
"""Enough to fetch once, and perhaps not enough to hear what has become of the replica."""
SETTLE_S: Final = 60.0


class LinkedNats:
    """Two nats-servers, and nobody moves from one to the other."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        head = 'cluster {{ name: "c", no_advertise: true, listen: "127.0.0.1:{}"{} }}\n'
        route = f', routes: ["nats://127.0.0.1:{port}"]'
        self.near = ConfiguredNats(directory, head.format(port, ""), name="near")
        self.far = ConfiguredNats(directory, head.format(free_port(), route), name="far")
        self.url = self.near.url

    def start(self) -> None:
        self.near.start()
        self.far.start()

    def kill(self) -> None:
        self.near.kill()
        self.far.kill()


class WithLateNode(Cluster):
    """One node hears what is published through the far nats-server."""

    def __init__(self, directory: Path) -> None:
        self.linked = LinkedNats(directory / "nats")
        super().__init__(directory, nodes=NODES, voters=VOTERS, settings=PATIENT, nats=self.linked)

    def settings_of(self, node: NodeProcess) -> Settings:
        settings = super().settings_of(node)
        if node.number == LATE:
            settings["nats"] = {**settings["nats"], "servers": [self.linked.far.url]}
        return settings

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        processes = [*self.nodes.values(), self.linked.near, self.linked.far]
        assert not [it.command for it in processes if _is_there(it.pid)]


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _say(text: str) -> None:
    """Shown when the test fails, or with ``-s``."""
    print(f"{time.monotonic():.1f} {text}", file=sys.stderr)


@contextmanager
def standing_still(process: ServerProcess) -> Iterator[None]:
    process.pause()
    try:
        yield
    finally:
        process.resume()


class Moves:
    """Rounds of moves and deaths in one cluster, and all that was acknowledged of ``KAFKA``."""

    def __init__(self, cluster: WithLateNode, *, seed: int | None = None) -> None:
        self._cluster = cluster
        self._choice = random.Random(seed)
        self._acked: list[bytes] = []

    def create(self) -> None:
        topic = NewTopic(
            KAFKA.stream, 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "1"}
        )
        admin = AdminClient({"bootstrap.servers": self._cluster[1].kafka, "log_level": 0})
        admin.create_topics([topic])[KAFKA.stream].result()

    def publish(self, count: int) -> None:
        """Each value says at which offset it is to be."""
        first = len(self._acked)
        values = [b"%d %b" % (first + i, b"x" * 1_000) for i in range(count)]
        offsets = confluent(self._cluster.servers, KAFKA.stream, values)
        assert offsets == list(range(first, first + count))
        self._acked += values

    def round(self, number: int) -> None:
        """A node that leads nothing is late; then one or two of the others die."""
        cluster, choice = self._cluster, self._choice
        leaders = {cluster.leader(lane) for lane in (KAFKA, NATS)}
        busy = {*leaders, cluster.controller()}
        late = choice.choice([it for it in cluster.nodes if it not in busy])
        if number % 3:  # else it may have no replica that could be moved away
            self._bring(KAFKA, late)
        self.publish(choice.randrange(1, 200))
        fault: ServerProcess = cluster[late]
        if late == LATE and choice.random() < 0.5:
            fault = cluster.linked.far
        with standing_still(fault):
            for lane in (KAFKA, NATS):
                self._move(lane, late, may_wait=lane == KAFKA)
        threading.Event().wait(choice.uniform(0.0, STUTTER_S))
        with standing_still(fault):
            threading.Event().wait(choice.uniform(0.0, 1.0))
            victims = self._victims(late)
            _say(f"round {number}: {self._view(KAFKA, late)}, {late} is late, {victims} die")
            cluster.kill(*victims)
        if len(victims) == 1:
            self.publish(choice.randrange(1, 50))
        cluster.start(*victims)
        cluster.wait_settled([KAFKA, NATS], timeout_s=SETTLE_S)
        self.judge()

    def judge(self) -> None:
        """Everything acknowledged is there, and nothing else."""
        there = read_stream(self._cluster.servers, KAFKA.stream, start=0)
        wanted = dict(enumerate(self._acked))
        assert {it.offset: it.value for it in there} == wanted

    def compare(self) -> None:
        end = self._cluster.wait_replicated(KAFKA)
        assert differences(self._cluster.replicas(KAFKA), end) == []

    def _victims(self, late: int) -> list[int]:
        """The leader, whoever else is to keep a replica, or both; never the late one."""
        leader = self._cluster.leader(KAFKA)
        kept = self._view(KAFKA, late).replicas
        others = [it for it in kept if it not in (leader, late)] or [leader]
        both = sorted({leader, *others})
        return self._choice.choice([[leader], [leader], [leader], [others[0]], both])

    def _bring(self, lane: Lane, late: int) -> None:
        """It keeps a replica, and has all."""
        leader = self._cluster.leader(lane)
        self._ask(lane, late, leader, late)
        self._cluster.wait_settled([lane])
        self._wait(lane, late, lambda view: set(view.replicas) == {leader, late})

    def _move(self, lane: Lane, late: int, *, may_wait: bool) -> None:
        """Away from the late one and back; or to it, and never mind."""
        cluster, choice = self._cluster, self._choice
        view = self._view(lane, late)
        leader = view.leader
        if late in view.replicas:
            others = [it for it in cluster.nodes if it not in (leader, late)]
            self._ask(lane, late, leader, choice.choice(others))
            if may_wait or choice.random() < 0.5:
                self._wait(lane, late, lambda view: late not in view.replicas)
            self._ask(lane, late, leader, late)
            return
        before = view.replicas
        self._ask(lane, late, leader, late)
        if choice.random() < 0.7:
            self._cancel(lane, late)
        if choice.random() < 0.5:
            self._ask(lane, late, leader, late)
            if choice.random() < 0.5:
                self._ask(lane, late, *before)

    def _ask(self, lane: Lane, late: int, *replicas: int) -> None:
        """Of the nodes that answer."""
        nodes = ",".join(map(str, replicas))
        move.move(lane.stream, lane.partition, nodes, servers=self._able(late))

    def _cancel(self, lane: Lane, late: int) -> None:
        with suppress(InvalidRequest):  # where only its NATS stands still it may have ended
            move.cancel_move(lane.stream, lane.partition, servers=self._able(late))

    def _able(self, late: int) -> str:
        return ",".join(it.kafka for it in self._cluster.nodes.values() if it.number != late)

    def _view(self, lane: Lane, late: int) -> PartitionView:
        """As somebody describes it who does not stand still, and is not late."""
        node = next(it for it in self._cluster.nodes.values() if it.number != late)
        return node.view().partitions[lane]

    def _wait(self, lane: Lane, late: int, condition: Callable[[PartitionView], bool]) -> None:
        def is_so() -> bool:
            try:
                return condition(self._view(lane, late))
            except KafkaException:
                return False

        wait_until(is_so, f"{lane} is moved")


async def play(directory: Path, rounds: int) -> None:
    with WithLateNode(directory) as cluster:
        moves = Moves(cluster)
        moves.create()

        def faults() -> None:
            for number in range(rounds):
                moves.round(number)

        own: dict[str, Any] = {"sequential": 2, "pipelined": 1, "once": 1, "pause_s": 0.05}
        await campaign(cluster, [NATS], faults, settings={"replicas": "2"}, **own)
        moves.judge()
        moves.compare()


async def test_moves_and_late_nodes(tmp_path: Path) -> None:
    await play(tmp_path, 2)


@pytest.mark.slow
async def test_moves_and_late_nodes_again_and_again(tmp_path: Path) -> None:
    await play(tmp_path, 20)
