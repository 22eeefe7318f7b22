"""A cluster without processes: the controller is asked, and what it decides is in force at once."""

from collections.abc import Iterable
from uuid import UUID

from streamlog.metadata import commands as c
from streamlog.metadata.controller import Decision, decide, next_moves
from streamlog.metadata.controller.self_healing import Healing
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metadata.image.records import MetadataRecord
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId


def ids(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


class World:
    """Nodes 1 to ``count``, all alive."""

    def __init__(
        self, count: int = 0, *, racks: Iterable[str | None] = (), machines: Iterable[int] = ()
    ) -> None:
        """``machines``: of the first nodes, the id of the first node on their machine."""
        self.machines = dict(enumerate(machines, 1))
        self.image = MetadataImage("c")
        self.live: set[NodeId] = set()
        self.hearsay: set[NodeId] = set()
        """Alive as the controller before this one knew."""
        self.runs = 0
        given = [*racks, *[None] * count]
        for node in range(1, count + 1):
            self.start(node, rack=given[node - 1])

    def ask(self, command: c.Command) -> Decision:
        """The last decision, where it comes in portions."""
        while (decision := self.ask_once(command)).unfinished:
            pass
        return decision

    def ask_once(self, command: c.Command) -> Decision:
        self.runs += 1
        decision = decide(
            self.image,
            command,
            now_ms=9,
            new_id=UUID(int=self.runs),
            live=frozenset(self.live),
            heard_of=self.heard_of,
        )
        self.apply(decision)
        return decision

    def apply(self, decision: Decision) -> None:
        self.image = self.image.apply_all(decision.records, offset=self.image.offset, epoch=1)

    def write(self, *records: MetadataRecord) -> None:
        self.apply(Decision(records))

    def go_on(self, healing: Healing | None = None) -> Decision:
        decision = next_moves(self.image, frozenset(self.live), self.heard_of, healing or Healing())
        self.apply(decision)
        return decision

    @property
    def heard_of(self) -> frozenset[NodeId]:
        return frozenset(self.live - self.hearsay)

    # Nodes

    def register(
        self,
        node: int,
        *,
        run: int | None = None,
        directory: int = 0,
        rack: str | None = None,
        tail_lost: bool = False,
        stamps: tuple[UUID, ...] | None = None,
    ) -> Decision:
        """``stamps``: what the folder knows; by default all there is."""
        self.runs += 1
        return self.ask(
            c.RegisterNode(
                node_id=NodeId(node),
                incarnation=UUID(int=(run or self.runs) + (1 << 32)),
                directory_id=UUID(int=directory),
                host=f"host-{node}",
                port=9092,
                rack=rack,
                machine=NodeId(self.machines[node]) if node in self.machines else None,
                stamps=self.stamps(node) if stamps is None else stamps,
                tail_lost=tail_lost,
            )
        )

    def stamps(self, node: int) -> tuple[UUID, ...]:
        """What a folder knows that is copied now."""
        known = self.image.nodes.get(NodeId(node))
        return () if known is None or known.stamp is None else (known.stamp,)

    def stamp(self, node: int, *stamps: UUID) -> Decision:
        command = c.StampFolder(node_id=NodeId(node), node_epoch=self.epoch(node), stamps=stamps)
        return self.ask(command)

    def beat(
        self,
        node: int,
        *,
        offline: tuple[tuple[str, int], ...] = (),
        full: bool = False,
        unfit: tuple[str, ...] = (),
    ) -> Decision:
        decision = self.ask(
            c.Heartbeat(
                node_id=NodeId(node), node_epoch=self.epoch(node), offset=self.image.offset,
                offline=offline, full=full, unfit=unfit,
            )
        )  # fmt: skip
        self.live.add(NodeId(node))
        self.hearsay.discard(NodeId(node))
        return decision

    def start(self, node: int, *, rack: str | None = None, tail_lost: bool = False) -> None:
        self.register(node, rack=rack, tail_lost=tail_lost)
        self.beat(node)

    def fence(self, *nodes: int) -> None:
        """All of them are gone at once."""
        self.live -= set(nodes)
        for node in ids(*nodes):
            self.ask(c.FenceNode(node_id=node, node_epoch=self.epoch(node)))

    def stop(self, node: int) -> Decision:
        return self.ask(c.StopNode(node_id=NodeId(node), node_epoch=self.epoch(node)))

    def drain(self, node: int, *, undo: bool = False) -> Decision:
        return self.ask(c.DrainNode(node_id=NodeId(node), undo=undo))

    def epoch(self, node: int) -> int:
        return self.image.nodes[NodeId(node)].epoch

    # Streams

    def create(self, name: str = "s", **settings: object) -> None:
        self.ask(c.CreateStream(config=StreamConfig.of(name=name, **settings)))

    def update(self, name: str = "s", **settings: object) -> None:
        config = self.image.stream(name).config.changed(**settings)
        self.ask(c.UpdateStream(config=config))

    def partition(self, number: int = 0, name: str = "s") -> PartitionImage:
        return self.image.stream(name).partition(number)

    def place(self, *replicas: int, name: str = "s", **settings: object) -> None:
        """A stream of one partition on these nodes, the first one leading."""
        self.create(name, replicas=len(replicas), **settings)
        self.move(*replicas, name=name)
        self.alter_isr(*self.partition(name=name).replicas, name=name)
        self.elect(name=name)
        assert self.partition(name=name).replicas == self.partition(name=name).isr == replicas

    def move(self, *replicas: int, name: str = "s", partition: int = 0) -> Decision:
        return self.ask(c.MovePartition(stream=name, partition=partition, replicas=ids(*replicas)))

    def elect(
        self, leader: int | None = None, *, unclean: bool = False, name: str = "s"
    ) -> Decision:
        wanted = None if leader is None else NodeId(leader)
        return self.ask(c.ElectLeader(stream=name, partition=0, leader=wanted, unclean=unclean))

    def proposal(self, *isr: int, name: str = "s", partition: int = 0) -> c.IsrChange:
        stream = self.image.stream(name)
        known = stream.partition(partition)
        return c.IsrChange(
            stream_id=stream.stream_id,
            stream=name,
            partition=partition,
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            isr=tuple((it, self.epoch(it), known.incarnation(it)) for it in ids(*isr)),
        )

    def propose(self, *changes: c.IsrChange, leader: int) -> list[str]:
        """The verdicts."""
        command = c.AlterIsr(
            node_id=NodeId(leader), node_epoch=self.epoch(leader), changes=tuple(changes)
        )
        return list(self.ask(command).result["verdicts"])

    def tier_change(self, version: int, start: int, end: int, **changes: object) -> c.TierChange:
        """Of the leader of s-0, in place of what counts now."""
        stream = self.image.stream("s")
        known = stream.partition(0)
        change = c.TierChange(
            stream_id=stream.stream_id,
            stream="s",
            partition=0,
            leader_epoch=known.leader_epoch,
            expected=None if known.tier is None else known.tier[:2],
            version=version,
            log_start_offset=start,
            end_offset=end,
        )
        return change.model_copy(update=changes)

    def alter_tier(self, *changes: c.TierChange, leader: int) -> list[str]:
        """The verdicts."""
        command = c.AlterTier(
            node_id=NodeId(leader), node_epoch=self.epoch(leader), changes=tuple(changes)
        )
        return list(self.ask(command).result["verdicts"])

    def alter_isr(self, *isr: int, name: str = "s", partition: int = 0) -> None:
        """What the leader proposes, and is granted."""
        leader = self.partition(partition, name).leader
        change = self.proposal(*isr, name=name, partition=partition)
        assert self.propose(change, leader=leader) == ["granted"]
