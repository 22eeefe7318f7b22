"""A cluster whose copies are lists of records, beside the image that the controller keeps.

The model keeps what no image shows: which records each replica really has, and which of them were
committed, that is, were on every member of the ISR that the leader had to count. Whoever is in
sync, and so may be elected, must have all of these.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine

from streamlog.errors import StreamlogError
from streamlog.metadata import commands as c
from streamlog.metadata.controller import Decision, batches, decide
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metadata.image.records import PartitionChanged, StreamCreated, encode_record
from streamlog.model import NO_LEADER, NodeId

NODES = [NodeId(number) for number in range(1, 6)]
RACKS = {NodeId(1): "a", NodeId(2): "a", NodeId(3): "b", NodeId(4): "c", NodeId(5): None}
MACHINES = {NodeId(1): NodeId(1), NodeId(2): NodeId(1)}
"""Nodes 1 and 2 share one; the others have one each."""
NAMES = ["s", "t"]
PARTITIONS_MAX = 3


class Key(NamedTuple):
    stream_id: UUID
    partition: int


@dataclass
class Process:
    """One run of a node."""

    number: int
    directory: int
    epoch: int = -1  # of its registration


@dataclass
class Folder:
    """A copy of a node's data folder."""

    directory: int
    stamps: tuple[UUID, ...]
    logs: dict[Key, list[int]]


@dataclass
class Copies:
    """What the replicas of one partition have."""

    logs: dict[NodeId, list[int]] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    proposal: c.IsrChange | None = None  # of the leader, not answered yet


class ControllerModel(RuleBasedStateMachine):
    """What is true between the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.image = MetadataImage("c")
        self.live: set[NodeId] = set()
        self.hearsay: set[NodeId] = set()
        """Of the live ones: those that this controller has not heard of itself."""
        self.processes: dict[NodeId, Process] = {}  # those that run
        self.directories = dict.fromkeys(NODES, 0)
        self.stamps: dict[NodeId, tuple[UUID, ...]] = dict.fromkeys(NODES, ())
        """What each node's folder knows."""
        self.backups: dict[NodeId, Folder] = {}
        self.copies: dict[Key, Copies] = {}
        self.number = 0
        self.log: list[bytes] = []
        self.ids: dict[str, UUID] = {}
        self.assigned: dict[Key, dict[NodeId, int]] = {}
        """The incarnations of all replicas."""
        self.may_be_unclean = False
        """The command that is being carried out allows for an unclean election."""
        self.joins: set[NodeId] = set()
        """Nodes that the command that is being carried out has in sync."""

    # The controller

    def ask(self, command: c.Command, *, elects: set[NodeId] | None = None) -> Decision | None:
        """None where it is refused. ``elects``: nodes that count as alive beside the live ones."""
        self.number += 1
        try:
            decision = decide(
                self.image,
                command,
                now_ms=self.number,
                new_id=UUID(int=self.number),
                live=frozenset(self.live),
                heard_of=frozenset(self.live - self.hearsay),
            )
        except StreamlogError:
            return None
        match command:
            case c.ElectLeader():
                self.may_be_unclean = command.unclean
            case c.UpdateStream():
                self.may_be_unclean = command.config.unclean_election
            case c.AlterIsr():
                self.joins = {node for change in command.changes for node, _, _ in change.isr}
        self.apply(decision, elects or set())
        self.may_be_unclean, self.joins = False, set()
        return decision

    def apply(self, decision: Decision, elects: set[NodeId]) -> None:
        able = self.able | elects
        for batch in batches(decision, 2):
            for offset, record in enumerate(batch, self.image.offset):
                if isinstance(record, StreamCreated):
                    self.ids[record.config.name] = record.stream_id
                elif isinstance(record, PartitionChanged):
                    self.check_change(record, able)
                    self.assign(record, offset)
            before = self.image
            self.image = before.apply_all(batch, offset=before.offset, epoch=1)
            self.log += map(encode_record, batch)
            assert list(self.image.changes(before)) == list(_slow_changes(self.image, before))
        for _, key, partition in self.places():
            machines = {MACHINES.get(node, node) for node in partition.target}
            assert len(machines) == len(partition.target), "one machine keeps it twice"
            assert (
                dict(zip(partition.replicas, partition.incarnations, strict=True))
                == self.assigned[key]
            )
        self.drop_copies()

    def assign(self, record: PartitionChanged, offset: int) -> None:
        """Who comes is of this offset, whether it was there earlier or not; who stays, stays."""
        key = Key(self.ids[record.stream], record.partition)
        before = self.assigned.get(key, {})
        self.assigned[key] = {node: before.get(node, offset) for node in record.replicas}

    def check_change(self, record: PartitionChanged, able: set[NodeId]) -> None:
        stream = self.image.streams.get(record.stream)
        if stream is None or record.partition >= len(stream.partitions):
            assert record.isr == record.replicas
            assert record.leader == record.replicas[0]
            assert set(record.replicas) <= able
            check_racks(record.replicas, able - self.draining)
            return
        known = stream.partitions[record.partition]
        assert record.partition_epoch == known.partition_epoch + 1
        assert record.leader_epoch == known.leader_epoch + (record.leader != known.leader)
        if record.leader in (NO_LEADER, known.leader):
            return
        assert record.leader in able
        assert set(record.isr) <= able
        copies = self.copies_of(Key(stream.stream_id, record.partition))
        if record.leader not in known.isr and record.leader not in self.joins:
            assert self.may_be_unclean or stream.config.unclean_election
            copies.committed = list(copies.logs.get(record.leader, []))

    @property
    def able(self) -> set[NodeId]:
        return {it.node_id for it in self.image.nodes.values() if not it.fenced} & self.live

    @property
    def draining(self) -> set[NodeId]:
        return {it.node_id for it in self.image.nodes.values() if it.draining}

    # Copies

    def copies_of(self, key: Key) -> Copies:
        return self.copies.setdefault(key, Copies())

    def places(self) -> Iterator[tuple[str, Key, PartitionImage]]:
        for name, stream in sorted(self.image.streams.items()):
            for number, partition in enumerate(stream.partitions):
                yield name, Key(stream.stream_id, number), partition

    def now(self, key: Key) -> tuple[str, PartitionImage]:
        return next((name, partition) for name, other, partition in self.places() if other == key)

    def drop_copies(self) -> None:
        """Whoever is no replica any more deletes its folder."""
        replicas = {key: partition.replicas for _, key, partition in self.places()}
        self.copies = {key: it for key, it in self.copies.items() if key in replicas}
        for key, copies in self.copies.items():
            for node in [node for node in copies.logs if node not in replicas[key]]:
                del copies.logs[node]

    def led(self) -> list[tuple[str, Key, PartitionImage]]:
        """Partitions whose leader runs, in the registration that was elected."""
        return [
            place
            for place in self.places()
            if place[2].leader in self.processes and self.is_present(place[2].leader)
        ]

    def is_present(self, node: NodeId) -> bool:
        process = self.processes.get(node)
        known = self.image.nodes.get(node)
        return process is not None and known is not None and known.epoch == process.epoch

    def fetch(self, key: Key, node: NodeId, leader: NodeId) -> None:
        copies = self.copies_of(key)
        copies.logs[node] = list(copies.logs.setdefault(leader, []))


def check_racks(replicas: tuple[NodeId, ...], hosts: set[NodeId]) -> None:
    """No rack has two replicas while another one has none."""
    racks = Counter(RACKS[node] or node for node in replicas)
    unused = {RACKS[node] or node for node in hosts} - set(racks)
    assert max(racks.values()) == 1 or not unused


def _slow_changes(new: MetadataImage, old: MetadataImage):  # type: ignore[no-untyped-def]
    return MetadataImage("c", 10**9, new.epoch, new.nodes, new.streams).changes(old)
