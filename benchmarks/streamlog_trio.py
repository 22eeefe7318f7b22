"""Three nodes of streamlog."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from benchmarks.ports import free_port
from benchmarks.processes import binary
from benchmarks.trio import HOST, MEMBERS, Member, wait_for_port, wait_ready
from streamlog.cli.dev import embedded_nats


class Led(NamedTuple):
    """A partition as a node describes it to Kafka clients."""

    leader: int
    replicas: frozenset[int]
    isr: frozenset[int]


class StreamlogTrio:
    """Three nodes and the one nats-server, without JetStream, that all of them listen to."""

    name = "streamlog"

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        hosts: Sequence[str] = (HOST, HOST, HOST),
        nats_host: str = HOST,
        inside: Callable[[int], list[str]] = lambda _: [],
    ) -> None:
        directory.mkdir(parents=True)
        port = free_port()
        self._nats = f"{nats_host}:{port}"
        command = embedded_nats.command(nats_host, port, directory / "nats.conf")
        self._router = Member(command, directory / "nats.log", embedded_nats.environment())
        self._router.start()
        wait_for_port(port, nats_host)
        self._hosts = dict(zip(MEMBERS, hosts, strict=True))
        self._kafka = {i: free_port() for i in MEMBERS}
        self._http = {i: free_port() for i in MEMBERS}
        self._members: dict[int, Member] = {}
        for i in MEMBERS:
            config = directory / f"node-{i}.toml"
            config.write_text(self._config(i, directory, settings or {}))
            command = [*inside(i), binary("streamlog"), "serve", "--config", str(config)]
            self._members[i] = Member(command, directory / f"node-{i}.log")
            self._members[i].start()
        for i in MEMBERS:
            self._wait_ready(i)

    @property
    def pids(self) -> Sequence[int]:
        return [self._router.pid, *self.member_pids]

    @property
    def member_pids(self) -> Sequence[int]:
        return [member.pid for member in self._members.values()]

    @property
    def servers(self) -> str:
        """Bootstrap servers of Kafka clients."""
        return ",".join(f"{self._hosts[i]}:{self._kafka[i]}" for i in MEMBERS)

    def controller(self) -> int:
        """The node that decides, as a node tells Kafka clients."""
        return int(self._metadata(self.servers, "none").controller_id)

    def partitions(self, prefix: str, *, without: int = 0) -> list[Led]:
        """Of all streams of such names, as a node other than that one describes them."""
        member = next(i for i in MEMBERS if i != without)
        topics = self._metadata(f"{self._hosts[member]}:{self._kafka[member]}").topics
        return [
            Led(one.leader, frozenset(one.replicas), frozenset(one.isrs))
            for name, topic in topics.items()
            if name.startswith(prefix)
            for one in topic.partitions.values()
        ]

    def _metadata(self, servers: str, topic: str | None = None) -> Any:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        return admin.list_topics(topic, timeout=30) if topic else admin.list_topics(timeout=30)

    def nats(self, *, without: int = 0) -> str:
        return self._nats

    def nats_of(self, member: int) -> str:
        return self._nats

    def pid(self, member: int) -> int:
        return self._members[member].pid

    def start(self, member: int) -> None:
        self._members[member].start()
        self._wait_ready(member)

    def stop(self) -> None:
        for member in (*self._members.values(), self._router):
            member.kill()

    def _config(
        self, number: int, directory: Path, settings: Mapping[str, Mapping[str, object]]
    ) -> str:
        voters = [f"{i}@{self._hosts[i]}:{self._kafka[i]}" for i in MEMBERS]
        host = self._hosts[number]
        own: dict[str, dict[str, object]] = {
            "node": {"id": number, "data_dir": str(directory / f"node-{number}")},
            "nats": {"servers": [f"nats://{self._nats}"], "default_api_prefix": True},
            "kafka": {"host": host, "port": self._kafka[number]},
            "http": {"host": host, "port": self._http[number]},
            "cluster": {"id": "bench", "voters": voters},
        }
        sections = {s: {**own.get(s, {}), **settings.get(s, {})} for s in own.keys() | settings}
        return "".join(
            f"[{section}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items())
            for section, keys in sections.items()
        )

    def _wait_ready(self, number: int) -> None:
        wait_ready(self._members[number], self._hosts[number], self._http[number])
