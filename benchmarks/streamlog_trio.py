"""Three nodes of streamlog."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.trio import HOST, MEMBERS, WHOLE_TIMEOUT_S
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import NodeProcess, PartitionView, Settings
from tools.nodes.server_process import NatsServer

METADATA_TIMEOUT_S: Final = 30.0
AS_JETSTREAM: Final[Settings] = {"nats": {"default_api_prefix": True}}
"""Everything else is the default."""


class Nodes:
    """Three nodes, as far as it does not matter where their clients connect."""

    name = "streamlog"

    def __init__(self, cluster: Cluster) -> None:
        """Starts them."""
        self._cluster = cluster
        for member in cluster.nodes.values():
            member.spawn()
        for member in cluster.nodes.values():
            member.wait_ready(WHOLE_TIMEOUT_S)

    @property
    def pids(self) -> Sequence[int]:
        return self.member_pids

    @property
    def member_pids(self) -> Sequence[int]:
        return [member.pid for member in self._cluster.nodes.values()]

    def controller(self) -> int:
        """The node that decides, as a node tells Kafka clients."""
        return self._cluster.controller()

    def pid(self, member: int) -> int:
        return self._cluster[member].pid

    @property
    def nodes(self) -> Sequence[NodeProcess]:
        return list(self._cluster.nodes.values())

    def node(self, member: int) -> NodeProcess:
        return self._cluster[member]

    def start(self, member: int) -> None:
        self._cluster[member].start(WHOLE_TIMEOUT_S)

    def stop(self) -> None:
        self._cluster.close()


class PortTrio(Nodes):
    """Three nodes among themselves, whose clients connect to their NATS ports."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        settings: Settings = {"nats_listen": {}}
        super().__init__(
            Cluster(directory, settings=settings, defaults=AS_JETSTREAM, nats=NoNats())
        )

    def nats(self, *, without: int = 0) -> str:
        return self.nats_of(next(i for i in MEMBERS if i != without))

    def nats_of(self, member: int) -> str:
        return self._cluster[member].port_url.removeprefix("nats://")


class StreamlogTrio(Nodes):
    """Three nodes and the one nats-server, without JetStream, that all of them listen to."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Settings | None = None,
        hosts: Sequence[str] = (HOST, HOST, HOST),
        nats_host: str = HOST,
        inside: Callable[[int], list[str]] = lambda _: [],
    ) -> None:
        def node(number: int, folder: Path) -> NodeProcess:
            return NodeProcess(number, folder, host=hosts[number - 1], prefix=inside(number))

        directory.mkdir(parents=True)
        self._nats = NatsServer(directory, nats_host, tuned=True)
        self._nats.start()
        super().__init__(
            Cluster(
                directory,
                settings=settings,
                defaults=AS_JETSTREAM,
                nats=self._nats,
                make_node=node,
            )
        )

    @property
    def pids(self) -> Sequence[int]:
        return [self._nats.pid, *self.member_pids]

    @property
    def servers(self) -> str:
        """Bootstrap servers of Kafka clients."""
        return self._cluster.servers

    def partitions(self, prefix: str, *, without: int = 0) -> list[PartitionView]:
        """Of all streams of such names, as a node other than that one describes them."""
        member = next(i for i in MEMBERS if i != without)
        found = self._cluster[member].view(METADATA_TIMEOUT_S).partitions
        return [view for (stream, _), view in found.items() if stream.startswith(prefix)]

    def nats(self, *, without: int = 0) -> str:
        return self._nats.address

    def nats_of(self, member: int) -> str:
        return self._nats.address
