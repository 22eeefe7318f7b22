"""Stories in which metadata is late: on its way to one node, or on its way to the controller."""

from unittest.mock import patch

from streamlog.errors import StreamlogError
from streamlog.metadata.commands import Command, ElectLeader
from streamlog.metadata.quorum import metadata_replica
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from streamlog.partition.partition import Partition
from streamlog.raft.events import Role
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.partition_checkers import Replica, replica_of
from tests.simulation.cluster.swarm import Kind, SwarmWorld

TRICKLE_US = (100_000, 500_000)
"""One way."""
TRICKLES_FOR_US = 3_000_000
MOMENT_US = (5_000, 60_000)
PROPOSAL_US = (150_000, 400_000)
"""A replica that restarts is registered anew by then."""
STRUCK_US = 900_000
SENDS_LATE_US = (900_000, 1_400_000)
HEARS_LATE_US = 300_000
"""Longer than that."""
PATIENCE_US = 600_000


class MetadataTrickles(SwarmWorld):
    """Over a slow link from the controller a node gets the metadata batch by batch: it acts on each
    of them, and late, while its fetches from other nodes go on.
    """

    NODES: tuple[int, ...] = (4, 5)

    def run(self) -> None:
        with patch.object(metadata_replica, "FETCH_BYTES", 1):
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


class DeposedLeadersSend(MetadataTrickles):
    """A leader has found what to send to a follower, and cannot send it yet. Another replica, which
    lacks the last of it, is elected; the one before follows it, and has its records in the same
    place of the same file when it can send. The follower has not heard of any of that.
    """

    NODES = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._parts: tuple[Replica, Host, Host, Host] | None = None
        """What is led by which node, who fetches it from there, and who is to lead it."""
        self._stage = 0
        """1: the leader sends nothing; 2: another is to be elected; 3: that one leads."""

    def always(self) -> list[Kind]:
        return [self._cut_one_off]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return StreamConfig.of(name=name, partitions=2, replicas=3)

    def _cut_one_off(self) -> None:
        led = [
            partition
            for node in self.nodes()
            if node.is_at_work and node.replica.raft.role is not Role.LEADER
            for partition in node.partitions()
            if partition.is_leader and len(partition.isr) == len(self.hosts)
        ]
        if not led or self._parts is not None or len(self.nodes()) < len(self.hosts):
            return
        partition = self.rng.choice(led)
        leader = self.hosts[partition.state.node_id]
        others = [host for host in self.hosts.values() if host is not leader]
        follower, next_leader = self.rng.sample(others, 2)
        self._parts = replica_of(partition), leader, follower, next_leader
        self._stage = 0
        self.troubles.tell(f"{partition.tp}: node {next_leader.node_id} is cut off from its leader")
        self.links.isolate(leader.node_id, [next_leader.node_id])
        self.events.after(PATIENCE_US, self._give_up)

    def _give_up(self) -> None:
        if self._stage == 0:
            self._end_it()

    def _end_it(self) -> None:
        self.links.heal()
        self._parts = None

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if self._parts is None or self.troubles.over:
            return
        metadata_replica, leader, follower, next_leader = self._parts
        if host is leader or host is follower or host is next_leader:
            old, behind, new = (
                self._held(it, metadata_replica) for it in (leader, follower, next_leader)
            )
            if old and behind and new:
                self._go_on(old, behind, new)

    def _held(self, host: Host, metadata_replica: Replica) -> Partition | None:
        found = host.process.partitions() if host.is_up and host.process.ready else ()
        return next((it for it in found if replica_of(it) == metadata_replica), None)

    def _go_on(self, old: Partition, behind: Partition, new: Partition) -> None:
        tp, next_leader = old.tp, new.state.node_id
        if self._stage == 0 and behind.log_end_offset > new.log_end_offset:
            self._stage = 1
            self._send_late(self.hosts[old.state.node_id], self.hosts[behind.state.node_id])
        elif self._stage == 1 and old.log_end_offset > behind.log_end_offset:
            self._stage = 2
            elect = ElectLeader(stream=tp.stream, partition=tp.partition, leader=next_leader)
            self._ask_controller(elect)
        elif self._stage == 2 and new.is_leader:
            self._stage = 3
            self.troubles.tell(f"{tp}: node {next_leader} leads from {new.log_end_offset}")
            self.links.heal()

    def _send_late(self, leader: Host, follower: Host) -> None:
        late_us = self.rng.randint(*SENDS_LATE_US)
        self.troubles.tell(f"node {leader.node_id} sends nothing of its logs for {late_us / 1e6} s")
        leader.sends_late_us = self.events.now_us + late_us
        follower.late_us = leader.sends_late_us + HEARS_LATE_US
        node = follower.process
        node.loop.call_soon(lambda: node.spawn(node.act_late()))
        self.events.after(late_us + 2 * HEARS_LATE_US, self._end_it)
