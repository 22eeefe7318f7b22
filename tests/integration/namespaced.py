"""A cluster with each node in a network namespace of its own; nats-server and clients outside."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import NatsServer

OUTSIDE: Final = 0


class Namespaces(Protocol):
    """A network of namespaces, by number; 0 is the outside."""

    def address(self, number: int) -> str: ...

    def inside(self, number: int) -> Sequence[str]: ...


def cluster_in(
    network: Namespaces, directory: Path, *, settings: Settings | None = None
) -> Cluster:
    """Three nodes, not started yet."""
    directory.mkdir(parents=True, exist_ok=True)

    def make_node(number: int, folder: Path) -> NodeProcess:
        address, prefix = network.address(number), network.inside(number)
        return NodeProcess(number, folder, host=address, prefix=prefix)

    nats = NatsServer(directory, network.address(OUTSIDE))
    return Cluster(directory, settings=settings, nats=nats, make_node=make_node)
