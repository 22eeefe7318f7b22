"""Nodes as real processes, beside their nats-server: start, kill, pause, restart them, and wait for
what comes.

What is known of leaders and in-sync replicas comes from stock Kafka clients and ``/readyz``.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from tools.nodes.node_process import (
    KAFKA_TIMEOUT_S,
    SETTLE_TIMEOUT_S,
    NodeProcess,
    PartitionName,
    Settings,
    View,
)
from tools.nodes.replica_log import ReplicaLog
from tools.nodes.server_process import NatsServer, run_streamlog, wait_until

NODES: Final = 3
COMMAND_TIMEOUT_S: Final = 60.0
HASTY_TIMEOUT_S: Final = 1.0
"""Enough for a new connection and two answers, but where packets take 100 ms each."""

SMALL: Final[Settings] = {
    "nats": {"reconnect_backoff_ms": 50},
    "log": {"segment_bytes": 4 << 20},
    "logging": {"format": "console"},
}
"""Several segments of little data, and soon there again."""


class Nats(Protocol):
    """A nats-server, or several."""

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class NoNats:
    """Nodes that are among themselves, with NATS ports of their own."""

    url: Final = ""

    def start(self) -> None: ...

    def kill(self) -> None: ...


class Cluster:
    """``with Cluster(folder) as cluster``: a nats-server and nodes, all ready."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = NODES,
        voters: int | None = None,
        settings: Settings | None = None,
        defaults: Settings = SMALL,
        nats: Nats | None = None,
        make_node: Callable[[int, Path], NodeProcess] = NodeProcess,
        started: Sequence[int] = (),
    ) -> None:
        """``defaults``: what ``settings`` may change. ``started``: at first only these, by default
        all.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.nats: Nats = nats or NatsServer(directory)
        self.nodes = {i: make_node(i, directory / f"node-{i}") for i in range(1, nodes + 1)}
        self.voters = [self.nodes[i].voter for i in range(1, (voters or nodes) + 1)]
        """As the configuration lists them; the others are observers until they are made voters."""
        self.settings = settings or {}
        self._defaults = defaults
        self._started = tuple(started)
        for node in self.nodes.values():
            node.configure(self.settings_of(node))

    def settings_of(self, node: NodeProcess) -> Settings:
        own: Settings = {"nats": {"servers": [self.nats.url] if self.nats.url else []}}
        if len(self.nodes) > 1:
            own["cluster"] = {"id": "test", "voters": self.voters}
        layers = (self._defaults, own, self.settings)
        sections = dict.fromkeys(name for layer in layers for name in layer)
        return {s: {k: v for it in layers for k, v in it.get(s, {}).items()} for s in sections}

    def __enter__(self) -> Self:
        try:
            self.nats.start()
            self.start(*self._started)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __getitem__(self, number: int) -> NodeProcess:
        return self.nodes[number]

    @property
    def servers(self) -> str:
        """Bootstrap servers of Kafka clients."""
        return ",".join(node.kafka for node in self.nodes.values())

    def start(self, *numbers: int) -> None:
        """Start these, by default all, and wait until they are ready."""
        chosen = [self.nodes[i] for i in numbers or self.nodes]
        for node in chosen:
            node.spawn()
        for node in chosen:
            node.wait_ready()

    def kill(self, *numbers: int) -> None:
        """All at the same moment, so that none of them leads for another one before its own end."""
        ended = [self.nodes[i] for i in numbers or self.nodes]
        for node in ended:
            node.strike()
        for node in ended:
            node.kill()

    def restart(self, *numbers: int) -> None:
        """Kill and start again."""
        self.kill(*numbers)
        self.start(*numbers)

    def close(self) -> None:
        """End everything, at once."""
        for node in self.nodes.values():
            node.kill()
        self.nats.kill()

    def running(self) -> Iterable[NodeProcess]:
        return [node for node in self.nodes.values() if node.is_running()]

    def command(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """``streamlog <arguments> --bootstrap-server …`` of all running nodes; what it prints."""
        servers = ",".join(node.kafka for node in self.running())
        asked = [*arguments, "--bootstrap-server", servers]
        return self.command_without_servers(*asked, timeout_s=timeout_s)

    def command_without_servers(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """One that goes over NATS."""
        environment = {**os.environ, "NATS_URL": self.nats.url}
        done = run_streamlog(arguments, environment, timeout_s=timeout_s)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def view(self) -> View:
        """As the controller describes it, if it answers: what a command has changed is seen at once.

        Else as some running node does, whose metadata may be older. Over a slow network not the first time round.
        """
        from confluent_kafka import KafkaException

        first = self._view_of_some_node()
        controller = self.nodes.get(first.controller)
        if controller is None or not controller.is_running():
            return first
        try:
            return controller.view(timeout_s=HASTY_TIMEOUT_S)
        except KafkaException:
            return first

    def _view_of_some_node(self) -> View:
        from confluent_kafka import KafkaException

        timeout_s, deadline = HASTY_TIMEOUT_S, time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            for node in self.running():
                try:
                    return node.view(timeout_s=timeout_s)
                except KafkaException as error:
                    if time.monotonic() > deadline:
                        raise TimeoutError("no node describes the cluster") from error
            if time.monotonic() > deadline:
                raise TimeoutError("no node runs")
            timeout_s = KAFKA_TIMEOUT_S

    def leader(self, partition: PartitionName) -> int:
        """The node that leads the partition; waits until there is one."""
        found = -1

        def known() -> bool:
            nonlocal found
            found = self.view().partitions[partition].leader
            return found >= 0

        wait_until(known, f"a leader of {partition}")
        return found

    def controller(self) -> int:
        """The node that is the controller; waits until there is one."""
        found = -1

        def known() -> bool:
            nonlocal found
            found = self.view().controller
            return found >= 0

        wait_until(known, "a controller")
        return found

    def wait_settled(
        self, partitions: Sequence[PartitionName], timeout_s: float = SETTLE_TIMEOUT_S
    ) -> None:
        """Wait until every running node sees every partition led, by one, and all in sync."""
        from confluent_kafka import KafkaException

        state: object = None

        def settled() -> bool:
            nonlocal state
            try:
                views = [node.view() for node in self.running()]
            except KafkaException as error:
                state = error
                return False
            state = [[view.partitions.get(it) for it in partitions] for view in views]
            return all(
                parts[0] is not None and parts[0].is_whole and len(set(parts)) == 1
                for parts in zip(*state, strict=True)
            )

        try:
            wait_until(settled, "the cluster is not settled", timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {partitions} are {state}") from None

    def replicas(self, partition: PartitionName) -> list[ReplicaLog]:
        """What is on disk of the partition, on all nodes that are to keep it."""
        return [
            self.nodes[i].replica(partition) for i in self.view().partitions[partition].replicas
        ]

    def committed_end(self, partition: PartitionName, timeout_s: float = SETTLE_TIMEOUT_S) -> int:
        """The high watermark that Kafka clients are told; a new leader may need a moment."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "end", "log_level": 0})
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                try:
                    named = TopicPartition(*partition)
                    _, high = consumer.get_watermark_offsets(named, timeout=5.0)
                    return int(high)
                except KafkaException:
                    if time.monotonic() > deadline:
                        raise
        finally:
            consumer.close()

    def wait_replicated(self, partition: PartitionName, timeout_s: float = SETTLE_TIMEOUT_S) -> int:
        """Wait until each replica's log on disk ends where it is committed up to; that offset."""
        deadline = time.monotonic() + timeout_s
        while True:
            end = self.committed_end(partition)
            ends = [log.end for log in self.replicas(partition)]
            if set(ends) == {end}:
                return end
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{partition}: committed up to {end}, the replicas end at {ends}"
                )
            time.sleep(0.1)
