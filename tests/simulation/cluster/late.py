"""Stories in which metadata is late: on its way to one node, or on its way to the controller."""

from unittest.mock import patch

from streamlog.errors import StreamlogError
from streamlog.metadata import replica
from streamlog.metadata.commands import Command, ElectLeader
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from streamlog.partition.owner import Partition
from streamlog.raft.events import Role
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.swarm import Kind, SwarmWorld

TRICKLE_US = (100_000, 500_000)
"""One way."""
TRICKLES_FOR_US = 3_000_000
MOMENT_US = (5_000, 60_000)
PROPOSAL_US = (150_000, 400_000)
"""A replica that restarts is registered anew by then."""
STRUCK_US = 900_000


class MetadataTrickles(SwarmWorld):
    """Over a slow link from the controller a node gets the metadata batch by batch: it acts on each
    of them, and late, while its fetches from other nodes go on.
    """

    NODES = (4, 5)

    def run(self) -> None:
        with patch.object(replica, "FETCH_BYTES", 1):
            super().run()

    def faults(self) -> list[Kind]:
        return []

    def _controller(self) -> ClusterNode | None:
        """None while it is not known, or not at work."""
        for node in self.nodes():
            if node.is_at_work and node.replica.raft.role is Role.LEADER:
                return node
        return None

    def _lag(self, host: Host) -> None:
        controller = self._controller()
        if controller is None or controller.host is host:
            return
        source, delay_us = controller.host.node_id, self.rng.randint(*TRICKLE_US)
        self.troubles.tell(f"metadata takes {delay_us / 1e6} s from {source} to {host.node_id}")
        self.links.slow_down(source, host.node_id, delay_us)
        self.events.after(TRICKLES_FOR_US, lambda: self.links.slow_down(source, host.node_id, 0))

    def _ask_controller(self, command: Command) -> None:
        controller = self._controller()
        if controller is not None:
            controller.loop.call_soon(lambda: controller.spawn(self._request(controller, command)))

    async def _request(self, node: ClusterNode, command: Command) -> None:
        self.troubles.tell(f"operator, of node {node.host.node_id}: {command!r}")
        try:
            await node.metadata.request(command)
        except StreamlogError as error:
            self.troubles.tell(f"operator: not done: {error!r}")


class LeadersForAMoment(MetadataTrickles):
    """A replica is elected and its leader is elected again before the replica hears of either: it
    leads when others have followed the next leader for long.
    """

    def always(self) -> list[Kind]:
        return [self._elect_for_a_moment]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return StreamConfig.of(name=name, partitions=2, replicas=3)

    def _elect_for_a_moment(self) -> None:
        controller, place = self._controller(), self._place()
        if controller is None or place is None:
            return
        stream, number = place
        leader = stream.partitions[number].leader
        others = set(stream.partitions[number].isr) - {leader, controller.host.node_id}
        if leader in (NO_LEADER, controller.host.node_id) or not others:
            return
        other = self.rng.choice(sorted(others))
        self._lag(self.hosts[other])

        def elect(node_id: NodeId) -> None:
            self._ask_controller(ElectLeader(stream=stream.name, partition=number, leader=node_id))

        elect(other)
        self.events.after(self.rng.randint(*MOMENT_US), lambda: elect(leader))


class ReplicasReturnSoon(MetadataTrickles):
    """Replicas are moved away and back before their nodes hear that they are away."""

    def always(self) -> list[Kind]:
        return [self._move_away_and_back]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return StreamConfig.of(name=name, partitions=2, replicas=self.rng.choice((2, 3)))


class JoinersLosePower(SwarmWorld):
    """A replica loses power, with what it has not synced, while the proposal by which it is in sync
    is on its way to the controller.
    """

    NODES = (4,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sync = "os"
        self._struck = False
        """One at a time."""

    def faults(self) -> list[Kind]:
        return []

    def always(self) -> list[Kind]:
        return [self._restart]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return StreamConfig.of(name=name, partitions=2, replicas=3)

    def _restart(self) -> None:
        """It leaves the in-sync replicas, and joins again."""
        self.troubles.kill(down_us=1_000)

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if host is None or not host.is_up or self.troubles.over or self._struck:
            return
        for partition in host.process.partitions():
            joining = self._joining(partition)
            if joining:
                self._strike_at(host, self.hosts[self.rng.choice(joining)])
                return

    def _joining(self, leader: Partition) -> list[NodeId]:
        """Who is to be in sync by the leader's proposal."""
        progress = leader.state.progress
        if progress is None or progress.in_sync.proposal is None:
            return []
        return sorted(progress.in_sync.proposal.isr - progress.isr)

    def _strike_at(self, leader: Host, joiner: Host) -> None:
        controllers = [
            node.host for node in self.nodes() if node.listens and node.replica.raft.is_active
        ]
        if len(controllers) != 1 or controllers[0] in (leader, joiner) or not joiner.is_up:
            return
        (controller,) = controllers
        self._struck = True
        self.troubles.tell(f"what node {leader.node_id} proposes is late")
        delay_us = self.rng.randint(*PROPOSAL_US)
        self.links.slow_down(leader.node_id, controller.node_id, delay_us)
        self.links.isolate(leader.node_id, [joiner.node_id])
        self.troubles.power(joiner, down_us=1_000)
        self.events.after(STRUCK_US, self._end_strike)

    def _end_strike(self) -> None:
        self._struck = False
        self.links.heal()
