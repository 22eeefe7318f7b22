"""Three nodes or more as real processes: start, kill, pause, restart them, and wait for what comes.

What is known of leaders and in-sync replicas comes from stock Kafka clients and ``/readyz``.
"""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from benchmarks.ports import free_port
from streamlog.log.encryption.key_ring import KeyRing
from tests.history import Lane
from tests.replica_log import ReplicaLog, read_replica
from tests.server_process import NatsServer, ServerProcess, program, wait_until

NODES: Final = 3
HTTP_TIMEOUT_S: Final = 2.0
KAFKA_TIMEOUT_S: Final = 5.0
HASTY_TIMEOUT_S: Final = 1.0
"""Enough for a new connection and two answers, but where packets take 100 ms each."""
SETTLE_TIMEOUT_S: Final = 30.0

Settings = dict[str, dict[str, Any]]
"""A node's configuration: sections of keys."""


class PartitionView(NamedTuple):
    """One partition as a node describes it to Kafka clients."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and set(self.isr) == set(self.replicas)


class View(NamedTuple):
    """The cluster as a node describes it to Kafka clients."""

    controller: int
    nodes: frozenset[int]
    partitions: dict[Lane, PartitionView]


class ClusterNode(ServerProcess):
    """``streamlog serve``; the same ports and folder at each start."""

    def __init__(
        self,
        number: int,
        directory: Path,
        *,
        host: str = "127.0.0.1",
        data_dir: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.number = number
        self.host = host
        self.directory = directory
        self.data_dir = data_dir or directory / "data"
        self.kafka_port, self.http_port = free_port(), free_port()
        self.config = directory / "node.toml"
        self.keys: KeyRing | None = None  # to what is encrypted on its disk
        command = [*prefix, program("streamlog"), "serve", "--config", str(self.config)]
        super().__init__(command, directory / "node.log")

    @property
    def kafka(self) -> str:
        return f"{self.host}:{self.kafka_port}"

    @property
    def voter(self) -> str:
        return f"{self.number}@{self.kafka}"

    def configure(self, settings: Settings) -> None:
        """Write its file: what is asked for, and its own identity and addresses."""
        content = {section: dict(keys) for section, keys in settings.items()}
        own: Settings = {
            "node": {"id": self.number, "data_dir": str(self.data_dir)},
            "kafka": {"host": self.host, "port": self.kafka_port},
            "http": {"host": self.host, "port": self.http_port},
        }
        if not self.host.startswith("127."):
            own["security"] = {"allow_unauthenticated": True}
        for section, keys in own.items():
            content[section] = {**keys, **content.get(section, {})}
        self.config.write_text(
            "".join(
                f"[{section}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items())
                for section, keys in content.items()
            )
        )

    def wait_ready(self, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        def ready() -> bool:
            assert self.is_running(), f"node {self.number} ended:\n{self.log_text()[-4000:]}"
            return self.http("/readyz")[0] == 200

        wait_until(ready, f"node {self.number} is not ready", timeout_s)

    def http(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 where nobody answers."""
        address = f"http://{self.host}:{self.http_port}{path}"
        try:
            with urllib.request.urlopen(address, timeout=HTTP_TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """A sample of ``/metrics`` without labels."""
        for line in self.http("/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def replica(self, lane: Lane) -> ReplicaLog:
        """What its disk has of a partition."""
        folder = self.data_dir / "streams" / lane.stream / str(lane.partition)
        name = f"node {self.number}, {lane.stream}/{lane.partition}"
        return read_replica(folder, name, self.keys)

    def view(self, timeout_s: float = KAFKA_TIMEOUT_S) -> View:
        """The cluster as this node describes it; KafkaException if it does not answer."""
        from confluent_kafka.admin import AdminClient

        settings: dict[str, Any] = {"bootstrap.servers": self.kafka, "log_level": 0}
        return _view(AdminClient(settings).list_topics(timeout=timeout_s))


def _view(metadata: Any) -> View:
    partitions = {
        Lane(topic.topic, partition.id): PartitionView(
            partition.leader, tuple(partition.replicas), tuple(partition.isrs)
        )
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
    }
    return View(metadata.controller_id, frozenset(metadata.brokers), partitions)


class Nats(Protocol):
    """A nats-server, or several."""

    @property
    def url(self) -> str: ...

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
        nats: Nats | None = None,
        make_node: Callable[[int, Path], ClusterNode] = ClusterNode,
        started: Sequence[int] = (),
    ) -> None:
        """``started``: at first only these, by default all."""
        directory.mkdir(parents=True, exist_ok=True)
        self.nats: Nats = nats or NatsServer(directory)
        self.nodes = {i: make_node(i, directory / f"node-{i}") for i in range(1, nodes + 1)}
        self.voters = [self.nodes[i].voter for i in range(1, (voters or nodes) + 1)]
        """As the configuration lists them; the others are observers until they are made voters."""
        self.settings = settings or {}
        self._started = tuple(started)
        for node in self.nodes.values():
            node.configure(self.settings_of(node))

    def settings_of(self, node: ClusterNode) -> Settings:
        common: Settings = {
            "nats": {"servers": [self.nats.url], "reconnect_backoff_ms": 50},
            "log": {"segment_bytes": 4 << 20},
            "logging": {"format": "console"},
        }
        if len(self.nodes) > 1:
            common["cluster"] = {"id": "test", "voters": self.voters}
        wanted = self.settings
        return {s: {**common.get(s, {}), **wanted.get(s, {})} for s in common.keys() | wanted}

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

    def __getitem__(self, number: int) -> ClusterNode:
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
        for i in numbers or self.nodes:
            self.nodes[i].kill()

    def restart(self, *numbers: int) -> None:
        """Kill and start again."""
        self.kill(*numbers)
        self.start(*numbers)

    def close(self) -> None:
        """End everything, at once."""
        for node in self.nodes.values():
            node.kill()
        self.nats.kill()

    def running(self) -> Iterable[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_running()]

    def command(self, *arguments: str) -> str:
        """``streamlog <arguments> --bootstrap-server …`` of all running nodes; what it prints."""
        servers = ",".join(node.kafka for node in self.running())
        return self.command_without_servers(*arguments, "--bootstrap-server", servers)

    def command_without_servers(self, *arguments: str) -> str:
        """One that goes over NATS."""
        done = subprocess.run(
            [program("streamlog"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "NATS_URL": self.nats.url},
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def view(self) -> View:
        """As some running node describes it; over a slow network not the first time round."""
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

    def leader(self, lane: Lane) -> int:
        """The node that leads the partition; waits until there is one."""
        found = -1

        def known() -> bool:
            nonlocal found
            found = self.view().partitions[lane].leader
            return found >= 0

        wait_until(known, f"a leader of {lane}")
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

    def wait_settled(self, lanes: Sequence[Lane], timeout_s: float = SETTLE_TIMEOUT_S) -> None:
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
            state = [[view.partitions.get(lane) for lane in lanes] for view in views]
            return all(
                parts[0] is not None and parts[0].is_whole and len(set(parts)) == 1
                for parts in zip(*state, strict=True)
            )

        try:
            wait_until(settled, "the cluster is not settled", timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {lanes} are {state}") from None

    def replicas(self, lane: Lane) -> list[ReplicaLog]:
        """What is on disk of the partition, on all nodes that are to keep it."""
        return [self.nodes[i].replica(lane) for i in self.view().partitions[lane].replicas]

    def committed_end(self, lane: Lane, timeout_s: float = SETTLE_TIMEOUT_S) -> int:
        """The high watermark that Kafka clients are told; a new leader may need a moment."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "end", "log_level": 0})
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                try:
                    partition = TopicPartition(lane.stream, lane.partition)
                    _, high = consumer.get_watermark_offsets(partition, timeout=5.0)
                    return int(high)
                except KafkaException:
                    if time.monotonic() > deadline:
                        raise
        finally:
            consumer.close()

    def wait_replicated(self, lane: Lane, timeout_s: float = SETTLE_TIMEOUT_S) -> int:
        """Wait until each replica's log on disk ends where it is committed up to; that offset."""
        deadline = time.monotonic() + timeout_s
        while True:
            end = self.committed_end(lane)
            ends = [log.end for log in self.replicas(lane)]
            if set(ends) == {end}:
                return end
            if time.monotonic() > deadline:
                raise TimeoutError(f"{lane}: committed up to {end}, the replicas end at {ends}")
            time.sleep(0.1)
