"""Stories of nodes with NATS ports of their own, and links between them."""

from functools import partial

from streamlog.config import NatsSection
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import NATS
from tests.simulation.cluster.once import CopiesComeLate, OncePublisher
from tests.simulation.cluster.port_clients import PortClients, Stranger
from tests.simulation.cluster.ports import NatsPort
from tests.simulation.cluster.swarm import Kind, SwarmWorld
from tests.simulation.cluster.tcp import NATS_PORT

STRANGER_US = 700_000
HELD_US = (100_000, 12_000_000)
"""How long links bring nothing: now shorter, now longer than what they are given up after."""


class PortsWorld(SwarmWorld):
    """Publishers and others are clients of the nodes' ports; messages between nodes take the links.

    Every node that may lead gets a copy of a message, and a link may hold one back until the node at its other end
    leads. Some publishers give ids, and repeat what is not acknowledged; others do neither.
    """

    NODES = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.of_nodes = {"nats": NatsSection(servers=()), "has_port": True}
        outside = Host(NodeId(NATS), self.events, self.rng)
        outside.start(object())
        self._outside = outside
        self.tcp.add(outside)
        self.clients = PortClients(
            self.events,
            self.rng,
            self.tcp,
            sorted(self.hosts),
            outside,
            link_of=self._link_of,
        )
        self.clients.told = self.publishers.tell
        self.publishers.nats = self.clients
        self.publishers.kinds += [(1, OncePublisher)]
        self._tokens: list[tuple[NodeId, str]] = []
        """Of all processes, in order."""

    def faults(self) -> list[Kind]:
        troubles = self.troubles
        return [
            troubles.kill,
            troubles.power,
            troubles.power_of_all,
            troubles.stop,
            troubles.isolate,
            troubles.split,
            troubles.cut_one_way,
            troubles.storm,
            troubles.slow_disk,
            self._restart_in_order,
            self._operate,
            self._kill_a_leader,
            self._cut_a_leader_off,
            self._elect_another,
            self._act_late,
        ]

    def always(self) -> list[Kind]:
        return [self._end_links, self._hold_links]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        """Now with a subject for each partition, now spread by a token of the subject."""
        rng = self.rng
        partitions, replicas = rng.choice((1, 2)), rng.choice((1, 3, 3))
        if rng.random() < 0.5:
            return StreamConfig.of(name=name, partitions=partitions, replicas=replicas)
        return StreamConfig.of(
            name=name,
            subjects=(f"{name}.*",),
            partitions=partitions + 1,
            replicas=replicas,
            partition_by="tokens:2",
        )

    def run(self) -> None:
        self.events.after(0, self.clients.begin)
        self.events.after(STRANGER_US, self._ask_as_a_stranger)
        super().run()

    def _link_of(self, node_id: NodeId, other: NodeId) -> object:
        node = self.hosts[node_id].process
        if node is None or node.port is None:
            return None
        peers = [it for it in node.port.sockets.links() if it.sock.endpoint.far.node_id == other]
        return peers[0] if len(peers) == 1 else None

    # Faults

    def _end_links(self) -> None:
        """Connections between ports, some of them."""
        ends = [it for it in self.tcp.endpoints(NATS_PORT) if it.far is not self._outside]
        ends = [it for it in ends if it.host is not self._outside and it.alive]
        if ends:
            chosen = self.rng.sample(ends, self.rng.randint(1, len(ends)))
            self.troubles.tell(f"{len(chosen)} ends of links are reset")
            for endpoint in chosen:
                endpoint.reset()

    def _hold_links(self) -> None:
        """Nothing passes from one node to another over their link, and neither is told."""
        source, target = self.rng.sample(sorted(self.hosts), 2)
        ways = [(source, target, NATS_PORT), (target, source, NATS_PORT)]
        held = self.rng.choice((ways, ways[:1]))
        self.troubles.tell(f"the links are held: {held}")
        self.tcp.held |= set(held)
        self.events.after(self.rng.randint(*HELD_US), partial(self._let_go, held))

    def _let_go(self, held: list[tuple[NodeId, NodeId, int]]) -> None:
        self.tcp.held -= set(held)

    def _ask_as_a_stranger(self) -> None:
        """With the token of another process, now or before."""
        self.events.after(STRANGER_US, self._ask_as_a_stranger)
        ports: dict[NodeId, NatsPort] = {
            node.host.node_id: node.port for node in self.nodes() if node.port is not None
        }
        for node_id, port in ports.items():
            if (node_id, port.token) not in self._tokens:
                self._tokens.append((node_id, port.token))
        if not ports:
            return
        target = self.rng.choice(sorted(ports))
        others = [token for _, token in self._tokens if token != ports[target].token]
        if others:
            asks_as = self.rng.choice([it for it in sorted(self.hosts) if it != target])
            Stranger(self._outside, self.tcp, target, asks_as, self.rng.choice(others))

    # The end

    def _look(self) -> None:
        if Host.latest is self._outside:
            Host.latest = None
        super()._look()

    def _is_well(self) -> bool:
        if self.troubles.over:
            self.tcp.held.clear()
        return super()._is_well() and self.clients.is_well

    def _state(self) -> str:
        return f"{super()._state()}\n{self.clients.state()}"


class LinksAlone(PortsWorld):
    """Leaders stay. Links end, and hold back what they carry: nothing of that doubles a message, be it one
    without an id.
    """

    def faults(self) -> list[Kind]:
        return []


class CopiesComeLateOverLinks(CopiesComeLate, PortsWorld):
    """As with NATS; links between nodes hold the copies back."""

    def always(self) -> list[Kind]:
        return [*super().always(), self._end_links]

    def _hold(self, target: NodeId, for_us: int) -> None:
        held = [(source, target, NATS_PORT) for source in sorted(self.hosts) if source != target]
        self.tcp.held |= set(held)
        self.events.after(for_us, partial(self._let_go, held))
