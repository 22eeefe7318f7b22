"""Three replicas of one partition, of the real state and log, with chance in the place of the rest.

The test is the controller, the network, the clocks and the worker threads: whatever may be late is
late, whatever may be lost is lost. After each step all that was promised is looked at.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from streamlog.errors import CorruptData, StorageFailed, StreamlogError
from streamlog.log.settings import LogSettings
from streamlog.model import NO_INCARNATION, NO_LEADER, EpochEnd, NodeId, TopicPartition
from streamlog.partition.replication.partition_follower import FetchPosition, PartitionFollower
from streamlog.partition.state import PartitionState, Step
from streamlog.record.codec import iter_records
from streamlog.replication.isr import IsrProposal, ReplicaStanding
from tests.log_folder import open_log, read_batches
from tests.partition_world import run_of
from tests.simulation.disk import SimDisk
from tests.steps import acknowledge

NODES = (NodeId(1), NodeId(2), NodeId(3))
TP = TopicPartition("s", 0)
LAG_MS = 1_000
SETTINGS = LogSettings(segment_bytes=1_000, index_interval_bytes=100)

Entry = tuple[int, bytes]
"""A record's epoch and value."""


class BrokenPromise(AssertionError):
    """What must never happen has."""


@dataclass(frozen=True)
class Image:
    """What the controller has decided about the partition, and knows of the nodes."""

    leader: NodeId
    leader_epoch: int
    isr: frozenset[NodeId]
    partition_epoch: int
    registered: dict[NodeId, ReplicaStanding] = field(default_factory=dict)
    stream: int = 0
    """A stream that is created anew is the next one."""
    incarnations: dict[NodeId, int] = field(default_factory=dict)
    """Of the replicas; empty: of stories in which they are always all nodes."""


@dataclass
class Answer:
    """A fetch on its way back."""

    asked: FetchPosition
    diverging: EpochEnd | None
    out_of_range: bool
    records: bytes
    high_watermark: int
    log_start: int


class Ack:
    """Told once, and truly."""

    def __init__(self, story: "ReplicaStory", stream: int, epoch: int, value: bytes) -> None:
        self._story = story
        self._stream = stream
        self._entry = epoch, value

    def committed(self, base_offset: int) -> None:
        if self._stream == self._story.image.stream:
            self._story.acked[base_offset] = self._entry

    def failed(self, error: StreamlogError) -> None:
        pass


@dataclass
class Replica:
    """A node's life; ``state`` is None while it is down."""

    node_id: NodeId
    disk: SimDisk
    epoch: int = 0
    state: PartitionState | None = None
    following: PartitionFollower | None = None
    answers: list[Answer] = field(default_factory=list)
    high_watermark: int = 0
    heard: int = -1  # place in the story's images
    registered: dict[NodeId, ReplicaStanding] = field(default_factory=dict)
    """As last heard."""
    has_lease: bool = True
    has_session: bool = True
    seen: tuple[object, list[Entry]] = (None, [])
    """A state's mark, and the records that it has."""
    stream: int = 0
    incarnation: int = NO_INCARNATION
    """Of the replica whose log ``disk`` has."""

    def start(self) -> None:
        log = open_log(self.disk, SETTINGS)
        self.state = PartitionState(
            TP, log, node_id=self.node_id, high_watermark=0, may_act=lambda: self.has_lease
        )
        self.following = PartitionFollower(self.state)
        self.high_watermark, self.heard = 0, -1
        self.answers.clear()


class ReplicaStory:
    """One seed, one story."""

    min_isr = 2

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.acked: dict[int, Entry] = {}
        """Since the last look."""
        self.committed: list[Entry] = []
        """Below the highest high watermark that anybody has shown."""
        self.image = Image(NODES[0], 0, frozenset(NODES), 0)
        self.past = [self.image]
        self.lost_proposals: list[tuple[NodeId, IsrProposal]] = []
        self.replicas = {
            node: Replica(node, SimDisk(self.rng.randrange(1 << 30))) for node in NODES
        }
        self.node_epochs = 0
        self.is_calm = False
        """Nothing is lost any more."""
        self._value = 0
        for replica in self.replicas.values():
            replica.start()
            self.hear(replica)

    def acts(self) -> dict[Callable[[Replica], None], float]:
        """What may happen, and how often."""
        return {
            self.pump: 30, self.append: 12, self.sync: 12, self.fetch: 5, self.take: 5,
            self.hear: 8, self.propose: 6, self.tick: 4, self.elect: 0.4, self.crash: 0.4,
            self.start: 8, self.deliver: 2, self.lease: 0.4, self.session: 1, self.outage: 0.08,
        }  # fmt: skip

    def run(self, steps: int) -> None:
        kinds = self.acts()
        for _ in range(steps):
            [act] = self.rng.choices(list(kinds), list(kinds.values()))
            act(self.rng.choice(list(self.replicas.values())))
            self.check()

    # What may happen

    def append(self, replica: Replica) -> None:
        state = replica.state
        if state is None or not state.is_leader:
            return
        self._value += 1
        value = b"%d" % self._value
        epoch = state.leader_epoch
        try:
            state.append(run_of(value), self.now_ms, Ack(self, replica.stream, epoch, value))
        except StorageFailed as error:
            acknowledge(state.disk_failed(error))
        except StreamlogError:
            return

    def sync(self, replica: Replica) -> None:
        """Begins one, or ends the one that was begun."""
        state = replica.state
        if state is None:
            return
        if state.syncing is None:
            begun = state.begin_sync()
            if isinstance(begun, Step):
                acknowledge(begun)
                return
        if self.rng.random() < 0.7 and state.syncing is not None:
            state.syncing.run()
            acknowledge(state.finish_sync())

    def pump(self, replica: Replica) -> None:
        """As it goes when nothing goes wrong."""
        if replica.following is not None and replica.following.position() is None:
            self.sync(replica)
        self.fetch(replica)
        self.take(replica)

    def fetch(self, replica: Replica) -> None:
        state, following = replica.state, replica.following
        if state is None or following is None:
            return
        asked = following.position()
        leader = self.replicas.get(state.leader)
        if asked is None or leader is None or leader.state is None:
            return
        theirs = leader.state
        if not self.is_meant(replica, leader, asked) or not theirs.is_leader:
            return
        try:
            step = theirs.follower_fetch(
                replica.node_id, replica.epoch, asked.offset, asked.last_epoch, self.now_ms,
                incarnation=replica.incarnation,
            )  # fmt: skip
            diverging, out_of_range = None, False
            if isinstance(step, EpochEnd):
                diverging = step
            else:
                acknowledge(step)
        except StreamlogError as error:
            if type(error).__name__ != "OffsetOutOfRange":
                return
            diverging, out_of_range = None, True
        records = b""
        if diverging is None and not out_of_range:
            log = theirs.log
            with log.read(asked.offset, self.rng.choice((1, 300)), log.log_end_offset) as piece:
                records = piece.read()
        answer = Answer(
            asked, diverging, out_of_range, records, theirs.high_watermark,
            theirs.log.log_start_offset,
        )  # fmt: skip
        if not self.is_lost():
            replica.answers.append(answer)

    def is_meant(self, replica: Replica, leader: Replica, asked: FetchPosition) -> bool:
        """Of the very stream, and in the same epoch: as ``PartitionFetch`` looks at it."""
        assert leader.state is not None
        return self.same_stream(replica, leader) and self.same_epoch(leader.state, asked)

    @staticmethod
    def same_stream(replica: Replica, leader: Replica) -> bool:
        return replica.stream == leader.stream

    @staticmethod
    def same_epoch(theirs: PartitionState, asked: FetchPosition) -> bool:
        return theirs.leader_epoch == asked.leader_epoch

    def take(self, replica: Replica) -> None:
        state, following = replica.state, replica.following
        if state is None or following is None or not replica.answers:
            return
        answer = replica.answers.pop(self.rng.randrange(len(replica.answers)))
        if not following.fits(answer.asked) or state.syncing is not None:
            return
        try:
            if answer.out_of_range:
                cut = following.out_of_range(answer.log_start)
            elif answer.diverging is not None:
                cut = following.diverged(answer.diverging)
            else:
                if answer.records:
                    following.append(memoryview(answer.records))
                acknowledge(following.advance(answer.high_watermark))
                return
        except CorruptData as error:
            raise BrokenPromise(f"node {replica.node_id}: {error}") from error
        following.begin_cut(cut)()
        step, lost = following.finish_cut()
        acknowledge(step)
        if lost:
            raise BrokenPromise(f"node {replica.node_id} has cut what is committed")

    def hear(self, replica: Replica) -> None:
        """The image, as it is or as it was a little before; never an older one than before."""
        state = replica.state
        if state is None:
            return
        last = len(self.past) - 1
        back = self.rng.randint(1, 2) if self.rng.random() < 0.3 else 0
        replica.heard = max(replica.heard, last - back, 0)
        image = self.past[replica.heard]
        self.told(replica, state, image)

    def told(self, replica: Replica, state: PartitionState, image: Image) -> None:
        replica.registered = image.registered
        replicas = tuple(image.incarnations) or NODES
        if image.leader == replica.node_id:
            step = state.lead(
                image.leader_epoch, image.isr, replicas=replicas, min_isr=self.min_isr,
                now_ms=self.now_ms, partition_epoch=image.partition_epoch,
                incarnations=image.incarnations,
            )  # fmt: skip
        else:
            step = state.follow(
                image.leader_epoch, image.isr, leader=image.leader, replicas=replicas,
                min_isr=self.min_isr, incarnations=image.incarnations,
            )  # fmt: skip
        acknowledge(step)

    def propose(self, replica: Replica) -> None:
        """The question may be lost, or come late; and the answer may be."""
        state = replica.state
        if state is None:
            return
        proposal = state.isr_proposal(
            self.now_ms,
            lag_time_ms=LAG_MS,
            standings=lambda node: replica.registered.get(node, ReplicaStanding(0, is_live=True)),
        )
        if proposal is None:
            return
        if self.is_lost():
            self.lost_proposals.append((replica.node_id, proposal))
            state.isr_unanswered(proposal, self.now_ms)
            return
        verdict = self.decide(replica.node_id, proposal)
        if self.is_lost():
            state.isr_unanswered(proposal, self.now_ms)
        elif verdict == "refused":
            acknowledge(state.isr_refused(proposal, self.now_ms))

    def is_lost(self) -> bool:
        return not self.is_calm and self.rng.random() < 0.2

    def deliver(self, _replica: Replica) -> None:
        """A question that was thought lost comes after all."""
        if self.lost_proposals:
            at = self.rng.randrange(len(self.lost_proposals))
            self.decide(*self.lost_proposals.pop(at))

    def decide(self, leader: NodeId, proposal: IsrProposal) -> str:
        image = self.image
        if (image.leader, image.leader_epoch) != (leader, proposal.leader_epoch):
            return "stale"
        if proposal.isr == image.isr:
            return "granted"
        if image.partition_epoch != proposal.partition_epoch:
            return "stale"
        for node, node_epoch in proposal.members:
            replica = self.replicas[node]
            if not replica.has_session or replica.state is None:
                return "refused"
            if not self.same_process(replica, node_epoch):
                return "refused"
        self.log(leader, image.leader_epoch, proposal.isr)
        return "granted"

    @staticmethod
    def same_process(replica: Replica, node_epoch: int) -> bool:
        return replica.epoch == node_epoch

    def tick(self, _replica: Replica) -> None:
        self.now_ms += self.rng.choice((1, 10, 300, 600))

    def lease(self, replica: Replica) -> None:
        replica.has_lease = self.rng.random() < 0.8
        if replica.state is not None:
            acknowledge(replica.state.settle())

    def session(self, replica: Replica) -> None:
        """The controller hears no more of a node that is not in sync, or hears of it again."""
        replica.has_session = not replica.has_session or replica.node_id in self.image.isr

    def outage(self, _replica: Replica) -> None:
        """The power fails for all of them, before anybody notices anything."""
        for replica in self.replicas.values():
            if replica.state is not None:
                replica.disk.crash()
                replica.state = None

    def elect(self, _replica: Replica) -> None:
        """Another leader, out of the ISR, although nothing is wrong with this one."""
        live = [it for it in self.image.isr if self.replicas[it].state is not None]
        if live:
            leader = self.rng.choice(sorted(live))
            self.log(leader, self.image.leader_epoch + 1, self.image.isr)

    def start(self, replica: Replica) -> None:
        """Up again, as another process: out of the ISR, if anybody else is in it."""
        if replica.state is not None:
            return
        node, image = replica.node_id, self.image
        self.node_epochs += 1
        replica.epoch = self.node_epochs
        replica.start()
        if image.leader in (node, NO_LEADER) and node in image.isr:
            self.log(node, image.leader_epoch + 1, image.isr)
        self.log(self.image.leader, self.image.leader_epoch, self.image.isr, changed=False)
        replica.heard = len(self.past) - 1  # it knows of its registration

    def crash(self, replica: Replica) -> None:
        """Down, and fenced at once."""
        if replica.state is None:
            return
        if self.rng.random() < 0.5:
            replica.disk.crash()
        else:
            replica.disk.kill()
        replica.state = None
        node, leader = replica.node_id, self.image.leader
        isr = self.image.isr - {node} or self.image.isr
        if leader == node:
            live = sorted(it for it in isr if self.replicas[it].state is not None)
            leader = self.rng.choice(live) if live else NO_LEADER
        if (leader, isr) != (self.image.leader, self.image.isr):
            grows = 1 if leader != self.image.leader else 0
            self.log(leader, self.image.leader_epoch + grows, isr)

    def log(
        self, leader: NodeId, leader_epoch: int, isr: frozenset[NodeId], *, changed: bool = True
    ) -> None:
        epoch = self.image.partition_epoch + (1 if changed else 0)
        nodes = {
            it.node_id: ReplicaStanding(it.epoch, it.state is not None)
            for it in self.replicas.values()
        }
        self.image = replace(
            self.image, leader=leader, leader_epoch=leader_epoch, isr=isr, partition_epoch=epoch,
            registered=nodes,
        )  # fmt: skip
        self.past.append(self.image)

    # What was promised

    def check(self) -> None:
        for replica in self.replicas.values():
            state = replica.state
            if state is None or replica.stream != self.image.stream:
                continue
            assert not isinstance(state.failure, StorageFailed), state.failure
            if state.high_watermark < replica.high_watermark:
                raise BrokenPromise(f"node {replica.node_id}: the high watermark has fallen")
            replica.high_watermark = state.high_watermark
            key = id(state), state.log.log_end_offset, state.log.epochs.entries
            if replica.seen[0] != key:
                replica.seen = key, self.entries(state)
                self.match(replica.seen[1])
            self.agree(replica.node_id, replica.seen[1][: state.high_watermark])
        while self.acked:
            offset, entry = self.acked.popitem()
            if self.committed[offset : offset + 1] != [entry]:
                raise BrokenPromise(f"{entry} is acknowledged at {offset}, and not committed")

    def match(self, entries: list[Entry]) -> None:
        """Records of one offset and one epoch are the same everywhere."""
        for other in self.replicas.values():
            if other.stream != self.image.stream:
                continue
            for offset, (mine, theirs) in enumerate(zip(entries, other.seen[1], strict=False)):
                if mine[0] == theirs[0] and mine[1] != theirs[1]:
                    raise BrokenPromise(f"two records at {offset} of epoch {mine[0]}")

    def agree(self, node: NodeId, shown: list[Entry]) -> None:
        both = min(len(shown), len(self.committed))
        if shown[:both] != self.committed[:both]:
            raise BrokenPromise(f"node {node} shows other records than were committed")
        self.committed.extend(shown[both:])

    @staticmethod
    def entries(state: PartitionState) -> list[Entry]:
        return [
            (header.leader_epoch, record.value or b"")
            for header, batch in read_batches(state.log)
            for record in iter_records(batch)
        ]

    def settle(self) -> None:
        """All are up, all is heard and fetched: what then?"""
        self.is_calm = True
        for replica in self.replicas.values():
            self.start(replica)
            replica.has_lease = replica.has_session = True
        if self.image.leader == NO_LEADER:
            self.elect(self.replicas[NODES[0]])
        for _ in range(40):
            for replica in self.replicas.values():
                self.hear(replica)
                for _ in range(3):
                    self.sync(replica)
                self.fetch(replica)
                while replica.answers:
                    self.take(replica)
                self.propose(replica)
            self.now_ms += 100
            self.check()
