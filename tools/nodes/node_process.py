"""A node as a real process: start, kill, pause, restart it, and ask what it is like."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from streamlog.log.encryption.key_ring import KeyRing
from tools.nodes.ports import free_port
from tools.nodes.replica_log import ReplicaLog, read_replica
from tools.nodes.server_process import StreamlogProcess, http_get, program, wait_until

KAFKA_TIMEOUT_S: Final = 5.0
SETTLE_TIMEOUT_S: Final = 30.0

Settings = dict[str, dict[str, Any]]
"""A node's configuration: sections of keys."""

PartitionName = tuple[str, int]
"""A stream and a number: TopicPartition, or another named tuple of the same."""


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
    partitions: dict[PartitionName, PartitionView]


class NodeProcess(StreamlogProcess):
    """``streamlog serve``; the same ports and folder at each start."""

    def __init__(
        self,
        number: int,
        directory: Path,
        *,
        host: str = "127.0.0.1",
        data_dir: Path | None = None,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> None:
        """``prefix``: words before the command. ``environment``: instead of ours. ``settings``: as
        ``configure`` takes them, which is called later without them.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.number = number
        self.host = host
        self.directory = directory
        self.data_dir = data_dir or directory / "data"
        self.kafka_port, self.http_port = free_port(), free_port()
        self.port_url = f"nats://{host}:{free_port()}"
        """Of its NATS port, where the settings have ``nats_listen``."""
        self.config = directory / "node.toml"
        self.keys: KeyRing | None = None  # to what is encrypted on its disk
        command = [*prefix, program("streamlog"), "serve", "--config", str(self.config)]
        super().__init__(command, directory / "node.log", environment)
        self.settings: Settings = {}
        if settings is not None:
            self.configure(settings)

    @classmethod
    def alone(
        cls,
        directory: Path,
        nats_url: str,
        *,
        data_dir: Path | None = None,
        settings: Settings | None = None,
    ) -> Self:
        """A cluster of one, at a nats-server."""
        settings = settings or {}
        nats = {"servers": [nats_url], **settings.get("nats", {})}
        return cls(1, directory, data_dir=data_dir, settings={**settings, "nats": nats})

    @property
    def kafka(self) -> str:
        return f"{self.host}:{self.kafka_port}"

    @property
    def nats_url(self) -> str:
        """The first of its servers."""
        return str(self.settings["nats"]["servers"][0])

    @property
    def voter(self) -> str:
        return f"{self.number}@{self.kafka}"

    def configure(self, settings: Settings) -> None:
        """Write its file: what is asked for, and its own identity and addresses."""
        self.settings = settings
        content = {section: dict(keys) for section, keys in settings.items()}
        own: Settings = {
            "node": {"id": self.number, "data_dir": str(self.data_dir)},
            "kafka": {"host": self.host, "port": self.kafka_port},
            "http": {"host": self.host, "port": self.http_port},
        }
        if not self.host.startswith("127."):
            own["security"] = {"allow_unauthenticated": True}
        if "nats_listen" in settings:
            own["nats_listen"] = {"host": self.host, "port": int(self.port_url.rpartition(":")[2])}
        for section, keys in own.items():
            content[section] = {**keys, **content.get(section, {})}
        self.config.write_text(
            "".join(
                f"[{section}]\n" + "".join(f"{k} = {_toml(v)}\n" for k, v in keys.items())
                for section, keys in content.items()
            )
        )

    def add_settings(self, **sections: Mapping[str, object]) -> None:
        """For its next start: more keys of these sections, or other values."""
        known = self.settings
        more = {name: {**known.get(name, {}), **keys} for name, keys in sections.items()}
        self.configure({**known, **more})

    def start(self, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Return when it is ready."""
        self.spawn()
        self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        def ready() -> bool:
            self.check_running()
            return self.http("/readyz")[0] == 200

        wait_until(ready, f"node {self.number} is not ready", timeout_s)

    def http(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 where nobody answers."""
        return http_get(f"http://{self.host}:{self.http_port}{path}")

    def metric(self, name: str) -> float:
        """A sample of ``/metrics`` without labels."""
        for line in self.http("/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def replica(self, partition: PartitionName) -> ReplicaLog:
        """What its disk has of a partition."""
        stream, number = partition
        folder = self.data_dir / "streams" / stream / str(number)
        name = f"node {self.number}, {stream}/{number}"
        return read_replica(folder, name, self.keys)

    def view(self, timeout_s: float = KAFKA_TIMEOUT_S) -> View:
        """The cluster as this node describes it; KafkaException if it does not answer."""
        from confluent_kafka.admin import AdminClient

        settings: dict[str, Any] = {"bootstrap.servers": self.kafka, "log_level": 0}
        return _view(AdminClient(settings).list_topics(timeout=timeout_s))


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, default=str)


def _view(metadata: Any) -> View:
    partitions = {
        (topic.topic, partition.id): PartitionView(
            partition.leader, tuple(partition.replicas), tuple(partition.isrs)
        )
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
    }
    return View(metadata.controller_id, frozenset(metadata.brokers), partitions)
