"""A story in which the stream is also deleted and created again, replicas are moved away and back,
and some nodes hear late of all that: of one image after the other, or of many at once.

A node's log is of the stream and the incarnation that its node heard of when it was begun.
"""

from collections.abc import Callable
from dataclasses import replace

from streamlog.model import NO_INCARNATION, NO_LEADER, NodeId
from streamlog.replication.isr import IsrProposal
from tests.property.replica_story import NODES, BrokenPromise, Image, Replica, ReplicaStory
from tests.simulation.disk import SimDisk

REPLICAS_MIN = 2
"""Of a new stream."""


class NamesakeStory(ReplicaStory):
    """One seed, one story."""

    min_isr = 1

    def __init__(self, seed: int) -> None:
        self.late: set[NodeId] = set()
        """Nodes that hear of hardly anything."""
        self.down: set[NodeId] = set()
        self.offset = 0
        """Of the metadata."""
        super().__init__(seed)
        self.recreate(self.replicas[NODES[0]])

    def acts(self) -> dict[Callable[[Replica], None], float]:
        return {**super().acts(), self.recreate: 0.1, self.move: 0.6, self.lag: 0.5}

    def lag(self, replica: Replica) -> None:
        """One node at a time, for a while."""
        self.late = set() if self.late else {replica.node_id}

    def one_of(self, nodes: list[NodeId]) -> NodeId:
        """Mostly whoever is late: nothing is learned from the others."""
        late = [it for it in nodes if it in self.late]
        return self.rng.choice(late if late and self.rng.random() < 0.8 else nodes)

    def first_epoch(self) -> int:
        return self.image.leader_epoch + 1

    def recreate(self, _replica: Replica) -> None:
        """The stream is deleted, and there is another one at once; nothing of the old one counts.

        Whoever heard last keeps it: those that are up.
        """
        able = [it for it in NODES if it not in self.down and self.replicas[it].has_session]
        if len(able) < REPLICAS_MIN:
            return
        nodes = self.rng.sample(able, self.rng.randint(REPLICAS_MIN, len(able)))
        self.offset += 1
        image, registered = self.image, self.past[-1].registered
        self.image = Image(
            nodes[0], self.first_epoch(), frozenset(nodes), 0, registered, image.stream + 1,
            dict.fromkeys(nodes, self.offset),
        )  # fmt: skip
        self.past.append(self.image)
        self.committed, self.acked = [], {}
        self.lost_proposals.clear()  # the controller compares the streams' ids

    def move(self, _replica: Replica) -> None:
        """A node is assigned, or let go once enough others are in sync."""
        image = self.image
        if image.leader == NO_LEADER:
            return
        others = [it for it in NODES if it not in image.incarnations and it not in self.down]
        self.offset += 1
        if others:
            node = self.one_of(others)
            incarnations = {**image.incarnations, node: self.offset}
            self.image = replace(image, incarnations=incarnations)
            self.log(image.leader, image.leader_epoch, image.isr)
            return
        node = self.one_of(sorted(image.incarnations))
        isr, leader = image.isr - {node}, image.leader
        if not isr:
            return
        if leader == node:
            able = [it for it in sorted(isr) if self.replicas[it].state is not None]
            if not able:
                return
            leader = self.rng.choice(able)
        left = {it: known for it, known in image.incarnations.items() if it != node}
        self.image = replace(image, incarnations=left)
        self.log(leader, image.leader_epoch + (leader != image.leader), isr)

    def hear(self, replica: Replica) -> None:
        node = replica.node_id
        if node in self.down or (node in self.late and self.rng.random() < 0.98):
            return
        last = len(self.past) - 1
        if self.rng.random() < 0.5:
            at = min(replica.heard + 1, last)
        else:
            at = last - (self.rng.randint(1, 2) if self.rng.random() < 0.3 else 0)
        replica.heard = max(replica.heard, at, 0)
        image = self.past[replica.heard]
        self.open(replica, image)
        if replica.state is not None:
            self.told(replica, replica.state, image)

    def open(self, replica: Replica, image: Image) -> None:
        """The log that the node is to keep by ``image``, if any, and if it is not open yet."""
        heard, mine = replica.heard, image.incarnations.get(replica.node_id, NO_INCARNATION)
        if (replica.stream, replica.incarnation) != (image.stream, mine):
            replica.stream, replica.incarnation = image.stream, mine
            replica.state = replica.following = None
            replica.seen = None, []
            replica.disk = SimDisk(self.rng.randrange(1 << 30))
        if replica.state is None and mine != NO_INCARNATION:
            replica.start()
            replica.heard = heard

    def start(self, replica: Replica) -> None:
        node, image = replica.node_id, self.image
        if node not in self.down:
            return
        self.down.discard(node)
        self.late.discard(node)
        self.node_epochs += 1
        replica.epoch = self.node_epochs
        self.open(replica, image)
        if image.leader in (node, NO_LEADER) and node in image.isr:
            self.log(node, image.leader_epoch + 1, image.isr)
        self.log(self.image.leader, self.image.leader_epoch, self.image.isr, changed=False)
        replica.heard = len(self.past) - 1  # it knows of its registration

    def crash(self, replica: Replica) -> None:
        if replica.state is not None:
            self.down.add(replica.node_id)
            super().crash(replica)

    def outage(self, replica: Replica) -> None:
        self.down |= {it.node_id for it in self.replicas.values() if it.state is not None}
        super().outage(replica)

    def decide(self, leader: NodeId, proposal: IsrProposal) -> str:
        """The stream's id and the incarnations are those that the leader has heard of; it proposes
        upon a partition epoch of the same image.
        """
        if self.replicas[leader].stream != self.image.stream:
            return "stale"
        if not proposal.isr <= self.image.incarnations.keys():
            return "refused" if self.is_current(leader, proposal) else "stale"
        return super().decide(leader, proposal)

    def check(self) -> None:
        """Whoever may be elected has all that was shown, in the log that it would lead with."""
        super().check()
        image = self.image
        for node in image.isr - self.down if self.committed else ():
            replica = self.replicas[node]
            mine = image.stream, image.incarnations[node]
            has_log = replica.state is not None and (replica.stream, replica.incarnation) == mine
            if not has_log or replica.seen[1][: len(self.committed)] != self.committed:
                raise BrokenPromise(f"node {node} is in sync, and lacks what was committed")

    def is_current(self, leader: NodeId, proposal: IsrProposal) -> bool:
        image = self.image
        return (image.leader, image.leader_epoch, image.partition_epoch) == (
            leader, proposal.leader_epoch, proposal.partition_epoch,
        )  # fmt: skip
