"""Stories by swarm testing (Groce et al., ISSTA 2012): each seed draws which faults and which
operations it has, and how often each comes. Rare combinations are reached that way, which get lost
where everything may happen at any time.
"""

import random
from collections.abc import Callable
from functools import partial

from streamlog.errors import StreamlogError
from streamlog.ingest.partition_ingest import PartitionIngest
from streamlog.metadata.commands import (
    CancelMove,
    Command,
    CreateStream,
    DeleteStream,
    DrainNode,
    ElectLeader,
    MovePartition,
)
from streamlog.metadata.image.metadata_image import PartitionImage, StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from streamlog.partition.partition import Partition
from streamlog.raft.events import Role
from tests.simulation.checkers import Violation
from tests.simulation.cluster import settings
from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.damage import Damage
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import NATS, Weather
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.partition_checkers import Replica, replica_of

Kind = Callable[[], None]

SHARE = 0.45
"""Of what there is a seed has about so much."""
WEIGHT_MAX = 5
ENSURE_US = 300_000
"""An operator who wants a stream there, or gone, asks again after so long."""
LAG_US = (100_000, 3_000_000)
ACTS_WITHIN_US = 50_000
"""A node acts on the metadata that it knows before that."""
PATIENCE_US = 250_000
"""How long whoever moves a replica away waits at most before it is moved back."""
CONTROLLER_KILLED_US = (10_000, 200_000)
FENCED_US = 1_400_000
"""Longer than a session."""
SEGMENT_BYTES = 4 * 1024


class SwarmWorld(ClusterWorld):
    """As its parent; but streams come and go, replicas move to and fro, records are purged, nodes
    act late on what the metadata says, and files are lost.
    """

    NODES: tuple[int, ...] = (3, 3, 3, 4, 5)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._wanted: dict[str, StreamConfig] = {}
        """Streams that are to be there; the others are to go."""
        self._known: dict[str, StreamImage] = {}
        """Streams that are there, and published to."""
        self._ends = False
        """The drains are being ended."""
        self._damage = Damage(self.rng, self.troubles, self.observer)
        self.kinds = self._drawn()
        self.troubles.kinds = self.kinds
        if self.rng.random() < 0.3:
            self.replication = settings.replication_section(self.rng.choice((600, 2_000)))
        if self._damage.lose in self.kinds or self._damage.lose_the_first in self.kinds:
            self.sync = "commit"

    def faults(self) -> list[Kind]:
        """Each is in a story or not."""
        troubles = self.troubles
        return [
            troubles.kill,
            troubles.power,
            troubles.power_of_all,
            troubles.power_in_a_call,
            troubles.stop,
            troubles.isolate,
            troubles.split,
            troubles.cut_one_way,
            troubles.storm,
            troubles.slow_disk,
            troubles.fail_disk,
            troubles.fill_disk,
            troubles.jump,
            self._restart_in_order,
            self._operate,
            self._kill_a_leader,
            self._cut_a_leader_off,
            self._elect_another,
            self._hang_nats,
            self._act_late,
            self._recreate,
            self._recreate_several,
            self._move_away_and_back,
            self._move,
            self._cancel_move,
            self._purge,
            self._drain,
        ]

    def always(self) -> list[Kind]:
        """These are in every story."""
        return []

    def _drawn(self) -> list[Kind]:
        rng, kinds = self.rng, list[Kind]()
        for kind in self.faults():
            if rng.random() < SHARE:
                kinds += rng.randint(1, WEIGHT_MAX) * [kind]
        for kind in self.always():
            kinds += rng.randint(1, WEIGHT_MAX) * [kind]
        return kinds or [self.troubles.kill]

    # Streams

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        rng = self.rng
        return [self._config(name, nodes) for name in "abcd"[: rng.choice((1, 2, 2, 3, 4))]]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        rng = self.rng
        replicas = rng.choice((1, 2, 3, 3))
        return StreamConfig.of(
            name=name,
            partitions=rng.choice((1, 1, 2)),
            replicas=replicas,
            min_isr=rng.choice((None, 1, replicas)),
            encrypted=rng.random() < 0.2,
            segment_bytes=rng.choice((SEGMENT_BYTES, None)),
        )

    def _create(self, config: StreamConfig) -> None:
        """From the beginning on; see ``_ensure``."""
        self._wanted[config.name] = config
        self._ensure(config.name)

    def _ensure(self, name: str) -> None:
        """The stream is to be there, or to go; asked again until the metadata has it so."""
        config, known = self._wanted.get(name), self.observer.newest.streams.get(name)
        if (config is None) == (known is None):
            return
        command: Command = DeleteStream(name=name)
        if config is not None:
            command = CreateStream(config=config)
        self._ask(command)
        self.events.after(ENSURE_US, lambda: self._ensure(name))

    def _ask(self, command: Command) -> None:
        node = self._ready_node()
        if node is None:
            return
        self.troubles.tell(f"operator, of node {node.host.node_id}: {command!r}")

        async def ask() -> None:
            try:
                await self._carry_out(node, command)
            except StreamlogError as error:
                self.troubles.tell(f"operator: not done: {error!r}")

        node.loop.call_soon(lambda: node.spawn(ask()))

    async def _carry_out(self, node: ClusterNode, command: Command) -> None:
        await node.metadata.request(command)

    def _look(self) -> None:
        before = self.observer.newest.offset
        super()._look()
        newest = self.observer.newest
        if newest.offset != before:
            self.observer.look_at_all(self.nodes())
            for name in sorted({*self._known, *newest.streams}):
                self._look_at_stream(name, self._known.get(name), newest.streams.get(name))

    def _look_at_stream(self, name: str, old: StreamImage | None, new: StreamImage | None) -> None:
        if old and new and old.stream_id == new.stream_id:
            self._known[name] = new
            return
        if old:
            self.troubles.tell(f"stream {name} is deleted")
            self.publishers.end(old.stream_id)
            del self._known[name]
            self._created.discard(name)
        if new:
            self._known[name] = new
            self._is_created(new)
            self.troubles.tell(f"stream {name} is {new.stream_id.hex[-4:]}: {new.partitions}")
        if old or new:
            self._ensure(name)  # a deletion that was asked for twice may meet the next stream

    def _recreate(self) -> None:
        if self._created:
            self._delete(self.rng.choice(sorted(self._created)))

    def _recreate_several(self) -> None:
        names = sorted(self._created)
        for name in self.rng.sample(names, self.rng.randint(0, len(names))):
            self._delete(name)

    def _delete(self, name: str) -> None:
        """Created anew soon, sometimes with other settings."""
        rng, stream = self.rng, self._known.get(name)
        if stream is None or name not in self._wanted:
            return
        config = self._wanted.pop(name)
        if rng.random() < 0.5:
            self._lag_one_of(stream.partitions[0])
        self.publishers.end(stream.stream_id)
        self._ensure(name)
        if rng.random() < 0.2:
            config = self._config(name, len(self.hosts))
        delay_us = rng.choice((3_000, 50_000, 500_000))

        def create() -> None:
            if name in self.observer.newest.streams and name in self._known:
                self.events.after(delay_us, create)
                return
            self._create(config)

        self.events.after(delay_us, create)

    # Replicas

    def _place(self) -> tuple[StreamImage, int] | None:
        if not self._known:
            return None
        stream = self._known[self.rng.choice(sorted(self._known))]
        return stream, self.rng.randrange(len(stream.partitions))

    def _others(self, partition: PartitionImage) -> list[NodeId]:
        return [node_id for node_id in sorted(self.hosts) if node_id not in partition.replicas]

    def _move(self) -> None:
        place = self._place()
        if place is not None:
            stream, number = place
            replicas = tuple(self.rng.sample(sorted(self.hosts), stream.config.replicas))
            self._ask(MovePartition(stream=stream.name, partition=number, replicas=replicas))

    def _cancel_move(self) -> None:
        place = self._place()
        if place is not None:
            self._move()
            stream, number = place
            delay_us = self.rng.randint(0, PATIENCE_US)
            cancel = CancelMove(stream=stream.name, partition=number)
            self.events.after(delay_us, lambda: self._ask(cancel))

    def _move_away_and_back(self) -> None:
        """One replica gives way to another node, and comes back, perhaps before its node knew."""
        place = self._place()
        if place is None:
            return
        (stream, number), rng = place, self.rng
        partition = stream.partitions[number]
        others = self._others(partition)
        if not others or partition.is_moving:
            return
        leaving = rng.choice(partition.replicas)
        if rng.random() < 0.7:
            self._lag(self.hosts[leaving])
        away = tuple(rng.choice(others) if it == leaving else it for it in partition.replicas)
        self._ask(MovePartition(stream=stream.name, partition=number, replicas=away))
        back = MovePartition(stream=stream.name, partition=number, replicas=partition.replicas)
        give_up_us = self.events.now_us + rng.choice((PATIENCE_US, 2_000_000))

        def come_back() -> None:
            now = self._known.get(stream.name)
            if now is None or now.stream_id != stream.stream_id:
                return
            is_away = set(now.partitions[number].replicas) == set(away)
            if is_away or self.events.now_us >= give_up_us:
                self._ask(back)
            else:
                self.events.after(5_000, come_back)

        self.events.after(5_000, come_back)

    def _drain(self) -> None:
        node_id = self.rng.choice(sorted(self.hosts))
        self._ask(DrainNode(node_id=node_id))
        self.events.after(
            self.rng.randint(200_000, 2_000_000),
            lambda: self._ask(DrainNode(node_id=node_id, undo=True)),
        )

    # Purges

    def _purge(self) -> None:
        """Some of what is committed, asked of a leader."""
        led = [
            (node, partition)
            for node in self.nodes()
            if node.is_at_work
            for partition in node.registry.partitions()
            if partition.is_leader and partition.high_watermark > partition.log_start_offset
        ]
        if led:
            self._purge_at(*self.rng.choice(led))

    def _purge_at(self, node: ClusterNode, partition: Partition) -> None:
        offset = self.rng.randint(partition.log_start_offset, partition.high_watermark)
        replica, epoch = replica_of(partition), partition.leader_epoch
        committed = self.observer.partitions.log_of(replica)
        committed.purge_asked = max(committed.purge_asked, offset)
        what = f"purge of {partition.tp} ({replica}) up to {offset} in epoch {epoch}"
        self.troubles.tell(f"{what} asked of node {node.host.node_id}")

        async def purge() -> None:
            try:
                await self._cut(partition, offset)
            except StreamlogError as error:
                self.troubles.tell(f"{what}: not done: {error!r}")
                return
            self.troubles.tell(f"{what} is acknowledged")
            if replica not in self.observer.partitions.forgiven:
                committed.purges.append((offset, epoch))
                self._purged(partition, offset)

        node.loop.call_soon(lambda: node.spawn(purge()))

    async def _cut(self, partition: Partition, offset: int) -> None:
        await partition.purge(offset)

    def _purged(self, partition: Partition, offset: int) -> None:
        """Its leader has acknowledged that all below has gone."""

    # Nodes

    def _kill_a_leader(self) -> None:
        place = self._place()
        if place is not None:
            stream, number = place
            leader = stream.partitions[number].leader
            if leader != NO_LEADER:
                self.troubles.kill(self.hosts[leader])

    def _cut_a_leader_off(self) -> None:
        """From the other nodes, but not from NATS: what comes is appended, and not committed."""
        place = self._place()
        if place is None:
            return
        stream, number = place
        leader = stream.partitions[number].leader
        if leader == NO_LEADER:
            return
        if self.rng.random() < 0.5:
            self._lag(self.hosts[leader])
        self.troubles.tell(f"node {leader} is cut off from the other nodes")
        self.links.isolate(leader, [it for it in self.hosts if it != leader])
        self.troubles.heal_later()

    def _elect_another(self) -> None:
        """And perhaps the one before again, soon."""
        place = self._place()
        if place is None:
            return
        (stream, number), rng = place, self.rng
        partition = stream.partitions[number]
        for leader in (rng.choice(partition.replicas), *rng.choice(((), (partition.leader,)))):
            elect = ElectLeader(stream=stream.name, partition=number, leader=leader)
            self.events.after(rng.randint(0, PATIENCE_US), partial(self._ask, elect))

    def _hang_nats(self) -> None:
        """The NATS server of one node does not answer; everything else does."""
        place = self.rng.choice(sorted(self.hosts))
        self.troubles.tell(f"the NATS of node {place} hangs")
        self.links.isolate(place, [NATS])
        self.troubles.heal_later()

    def _act_late(self) -> None:
        self._lag(self.hosts[self.rng.choice(sorted(self.hosts))])

    def _lag_one_of(self, partition: PartitionImage) -> None:
        self._lag(self.hosts[self.rng.choice(partition.replicas)])

    def _lag(self, host: Host) -> None:
        """It fetches on, but acts late on what the metadata says."""
        rng = self.rng
        if rng.random() < 0.2 and host.is_up:
            self.troubles.stop(host)
            return
        host.late_us = self.events.now_us + rng.randint(*LAG_US)
        self.troubles.tell(f"node {host.node_id} acts late until {host.late_us / 1e6} s")
        node = host.process
        if node is not None and node.is_at_work:
            node.loop.call_soon(lambda: node.spawn(node.act_late()))

    # The end

    def _is_well(self) -> bool:
        if not self._ends:
            self._ends = True
            self._undo()
        return super()._is_well()

    def _undo(self) -> None:
        """What operators have begun, until it has ended: streams that are to be there need all nodes."""
        for node in self.observer.newest.nodes.values():
            if node.draining:
                self._ask(DrainNode(node_id=node.node_id, undo=True))
        self.events.after(ENSURE_US, self._undo)


class AlternatingWorld(SwarmWorld):
    """Leaders give way to others, and come back, before all of a node has heard of it."""

    def faults(self) -> list[Kind]:
        return [self._cut_a_leader_off, self.troubles.storm, self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._elect_another, self._act_late]


class IngestsLate(AlternatingWorld):
    """Partition ingests hear of another leader when their partition has long had its records: what a node
    takes in must not depend on the order in which its parts are told.

    The worst is waited for: a message is repeated of which the leader has the record, from a leader
    before it, and another replica does not have it yet. That one is elected then.
    """

    NODES = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._struck: set[tuple[Replica, int]] = set()
        for host in self.hosts.values():
            host.ingests_late_us = self.rng.choice((500_000, 1_000_000))

    def faults(self) -> list[Kind]:
        return []

    def always(self) -> list[Kind]:
        return [self._elect_another, self._be_slow]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return StreamConfig.of(name=name, partitions=2, replicas=3)

    def _be_slow(self) -> None:
        self.links.weather = Weather(slow=0.4, delay_us_max=self.rng.choice((100_000, 400_000)))

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if host is None or not host.is_up or self.troubles.over or not host.process.ready:
            return
        for ingest in host.process.source._ingests.values():
            if len(ingest._awaited):
                self._strike_at(host, ingest.partition)

    def _strike_at(self, host: Host, leader: Partition) -> None:
        """Elect whoever lacks what is waited for, and has it lack that until then."""
        struck = replica_of(leader), leader.leader_epoch
        if struck in self._struck or not leader.is_leader:
            return
        lacking = [
            node.host
            for node in self.nodes()
            for it in node.partitions()
            if it.tp == leader.tp
            and node.host.node_id in leader.isr
            and it.log_end_offset < leader.log_end_offset
        ]
        controllers = [n for n in self.nodes() if n.listens and n.replica.raft.role is Role.LEADER]
        if not lacking or any(it.host is host for it in controllers):
            return
        self._struck.add(struck)
        other = self.rng.choice(lacking)
        self.troubles.tell(f"{leader.tp}: node {other.node_id} lacks what node {host.node_id} has")
        self.links.weather = Weather()
        self.links.isolate(host.node_id, [other.node_id])
        elect = ElectLeader(
            stream=leader.tp.stream, partition=leader.tp.partition, leader=other.node_id
        )
        self._ask(elect)
        self.events.after(PATIENCE_US, self.links.heal)


class RepetitionsWait(SwarmWorld):
    """A message is repeated of which a new leader has the record, from the one before it, and which
    is not committed: the third replica lacks it, is elected, and has other records there. The
    ingest of the leader between hears of that when its partition has long had those records.
    """

    NODES = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._between: tuple[NodeId, NodeId, NodeId, Replica] | None = None
        """Who led, who leads, who lacks what that one has; and of what."""

    def faults(self) -> list[Kind]:
        return []

    def always(self) -> list[Kind]:
        return [self._cut_one_off]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return StreamConfig.of(name=name, partitions=2, replicas=3)

    def _cut_one_off(self) -> None:
        """Of a partition that the controller's node leads."""
        led = [
            partition
            for node in self.nodes()
            if node.is_at_work and node.replica.raft.role is Role.LEADER
            for partition in node.partitions()
            if partition.is_leader and len(partition.isr) == 3
        ]
        if not led or self._between is not None:
            return
        partition = self.rng.choice(led)
        first = partition.state.node_id
        second, third = self.rng.sample([it for it in sorted(self.hosts) if it != first], 2)
        self._between = first, second, third, replica_of(partition)
        self.troubles.tell(f"{partition.tp}: node {third} is cut off, node {second} is to lead")
        self.links.isolate(third, [first, second])
        self._elect_soon(partition, second, 100_000)
        self.events.after(1_000_000, self._end_it)

    def _end_it(self) -> None:
        self.links.heal()
        self._between = None

    def _elect_soon(self, partition: Partition, leader: NodeId, delay_us: int) -> None:
        tp = partition.tp
        elect = ElectLeader(stream=tp.stream, partition=tp.partition, leader=leader)
        self.events.after(delay_us, lambda: self._ask_controller(elect))

    def _ask_controller(self, command: Command) -> None:
        """Whoever is cut off is not asked."""
        node = self.hosts[self._between[0]].process if self._between else None
        if node is not None and node.is_at_work:
            node.loop.call_soon(lambda: node.spawn(self._request(node, command)))

    async def _request(self, node: ClusterNode, command: Command) -> None:
        try:
            await node.metadata.request(command)
        except StreamlogError as error:
            self.troubles.tell(f"operator: not done: {error!r}")

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if host is None or not host.is_up or self.troubles.over or not self._between:
            return
        _, second, third, replica = self._between
        if host.node_id != second or not host.process.ready or host.ingests_late_us:
            return
        for ingest in host.process.source._ingests.values():
            if self._awaits(ingest) and replica_of(ingest.partition) == replica:
                self.troubles.tell(f"{ingest.partition.tp}: node {third} is to lead")
                host.ingests_late_us = 1_500_000
                self.links.heal()
                self.links.isolate(second, [third])
                self._elect_soon(ingest.partition, third, 1_000)
                self.events.after(PATIENCE_US, self.links.heal)
                self.events.after(2_000_000, lambda: self._be_in_time(host))

    def _awaits(self, ingest: PartitionIngest) -> bool:
        """A repeated message waits for the commit of the first one."""
        return len(ingest._awaited) > 0

    def _be_in_time(self, host: Host) -> None:
        host.ingests_late_us = 0


class NatsHangs(SwarmWorld):
    """NATS servers and disks hang while the metadata changes; no node may act late for that."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._behind: dict[ClusterNode, tuple[int, int]] = {}
        """Up to which offset a node knows of what it does not act on, and since when."""

    def faults(self) -> list[Kind]:
        return [self.troubles.slow_disk, self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._hang_nats, self._recreate, self._elect_another]

    def _lag(self, host: Host) -> None:
        """Nobody holds it back here."""

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if host is None or not host.is_up or not host.process.is_at_work:
            return
        node: ClusterNode = host.process
        known, done = node.replica.image.offset, node.metadata.image.offset
        now_us = self.events.now_us
        behind, since_us = self._behind.setdefault(node, (known, now_us))
        if done >= behind:
            self._behind[node] = known, now_us
        elif now_us > since_us + ACTS_WITHIN_US:
            raise Violation(
                f"node {host.node_id} knows the metadata up to {behind}, and acts upon {done}"
            )


class DamageWorld(SwarmWorld):
    """Files are lost, in every story."""

    def always(self) -> list[Kind]:
        return [self._damage.lose, self._kill_a_leader]


class LogsLoseTheirBeginning(DamageWorld):
    """Little else than that, and logs of many segments."""

    def faults(self) -> list[Kind]:
        return [self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._damage.lose_the_first]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        rng = self.rng
        return StreamConfig.of(
            name=name, partitions=2, replicas=rng.choice((2, 3)), segment_bytes=SEGMENT_BYTES
        )


class FilesLostInUse(DamageWorld):
    """Little else than that, of followers that run on, and logs of many segments."""

    NODES = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sync = "commit"

    def faults(self) -> list[Kind]:
        return [self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._damage.lose_in_use]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        replicas = self.rng.choice((2, 3))
        return StreamConfig.of(
            name=name, partitions=2, replicas=replicas, segment_bytes=SEGMENT_BYTES
        )


class FilesLostWhileJoining(FilesLostInUse):
    """The file of a follower is gone at the worst moment: its leader has proposed that it joins the
    ISR, and it does not know yet that the controller has granted that.
    """

    def faults(self) -> list[Kind]:
        return [self.troubles.stop]

    def always(self) -> list[Kind]:
        return [self.troubles.kill, self._kill_a_leader]

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if host is None or not host.is_up or self.troubles.over or not host.process.ready:
            return
        for partition in host.process.registry.partitions():
            progress = partition.state.progress
            if progress is not None:
                for node_id in progress.in_sync.maximal - progress.isr:
                    self._damage.lose_at(self.hosts[node_id], partition.tp)


class RecreatedWorld(SwarmWorld):
    """Streams are deleted and created again under the same name, in every story."""

    def always(self) -> list[Kind]:
        return [self._recreate]


class NamesakesLate(SwarmWorld):
    """Little else than that, and nodes that act late."""

    def faults(self) -> list[Kind]:
        return [self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._recreate, self._recreate_several, self._act_late]


class NamesakesOfKilled(SwarmWorld):
    """Nodes act late on a deletion and a creation under the same name, and are killed again and
    again: what they find of the first stream when they start must not count for the second one.
    """

    NODES = (3,)

    def faults(self) -> list[Kind]:
        return [self.troubles.cut_one_way, self._elect_another]

    def always(self) -> list[Kind]:
        return [self._recreate_late_and_kill, self.troubles.kill, self._kill_a_leader]

    def _recreate_late_and_kill(self) -> None:
        host = self.hosts[self.rng.choice(sorted(self.hosts))]
        self._lag(host)
        self._recreate()
        self.events.after(self.rng.randint(50_000, 500_000), lambda: self.troubles.kill(host))

    def _config(self, name: str, nodes: int) -> StreamConfig:
        rng = self.rng
        return StreamConfig.of(name=name, partitions=2, replicas=2, min_isr=rng.choice((1, 2)))


class FencedComeBack(SwarmWorld):
    """A leader is cut off until others lead in its place, comes back, and hears late of that and of the
    deletion of its streams, which are created again.
    """

    def faults(self) -> list[Kind]:
        return []

    def always(self) -> list[Kind]:
        return [self._fence_and_recreate]

    def _fence_and_recreate(self) -> None:
        place = self._place()
        if place is None:
            return
        stream, number = place
        leader = stream.partitions[number].leader
        if leader == NO_LEADER or len(self.nodes()) < len(self.hosts):
            return
        host, node = self.hosts[leader], self.hosts[leader].process
        host.late_us = self.events.now_us + FENCED_US + self.rng.randint(*LAG_US)
        self.troubles.tell(f"node {leader} is cut off, and acts late until {host.late_us / 1e6} s")
        node.loop.call_soon(lambda: node.spawn(node.act_late()))
        self.links.isolate(leader, [it for it in self.hosts if it != leader])
        self.events.after(FENCED_US, lambda: self._delete(stream.config.name))
        self.events.after(FENCED_US + self.rng.randint(0, 200_000), self.links.heal)


class ControllersForget(SwarmWorld):
    """The controller that deletes a stream is killed soon; nodes hear late of the deletion, and the
    next controller creates the stream again.
    """

    def faults(self) -> list[Kind]:
        return [self._act_late]

    def always(self) -> list[Kind]:
        return [self._recreate_late_and_kill_the_controller]

    def _recreate_late_and_kill_the_controller(self) -> None:
        controllers = [it.host for it in self.nodes() if it.listens and it.replica.raft.is_active]
        for host in self.hosts.values():
            if host not in controllers:
                self._lag(host)
        self._recreate()
        for host in controllers:
            self.events.after(
                self.rng.randint(*CONTROLLER_KILLED_US), partial(self.troubles.kill, host)
            )


class MovesWorld(SwarmWorld):
    """Replicas are moved away and back, in every story."""

    NODES = (4, 5)

    def always(self) -> list[Kind]:
        return [self._move_away_and_back]


class ReplicasReturnLate(MovesWorld):
    """Little else than that, and nodes that act late."""

    def faults(self) -> list[Kind]:
        return [self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._move_away_and_back, self._act_late]


class LimitsWorld(SwarmWorld):
    """Streams keep few messages; in the end they have no more, and all that the limit keeps."""

    def __init__(self, seed: int) -> None:
        self._messages_max = random.Random(f"limit {seed}").choice((1, 3, 10, 40))
        super().__init__(seed)
        self.observer.partitions.messages_max = self._messages_max
        self.observer.partitions.forgets_ids = (
            True  # a replica that was away never has what has gone
        )

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return super()._config(name, nodes).changed(retention_messages=self._messages_max)

    def always(self) -> list[Kind]:
        return [self._kill_a_leader]

    def _is_well(self) -> bool:
        return super()._is_well() and not any(
            self._has_too_many(partition)
            for node in self.nodes()
            for partition in node.registry.partitions()
            if partition.is_leader
        )

    def _has_too_many(self, partition: Partition) -> bool:
        start, end = partition.log_start_offset, partition.high_watermark
        return end - start - partition.erased.count(start, end) > self._messages_max


class PurgesWorld(SwarmWorld):
    """Records are purged, in every story."""

    def always(self) -> list[Kind]:
        return [self._purge, self._kill_a_leader]


class LeadersEnd(SwarmWorld):
    """Leaders end, or are cut off, when they have appended what is not committed."""

    NODES = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._spared_until_us = 0

    def faults(self) -> list[Kind]:
        return [self._be_slow]

    def always(self) -> list[Kind]:
        return [self._elect_another]

    def _be_slow(self) -> None:
        self.links.weather = Weather(slow=0.4, delay_us_max=self.rng.choice((20_000, 200_000)))

    def _look(self) -> None:
        host = Host.latest
        super()._look()
        if host is None or not host.is_up or self.troubles.over:
            return
        if self.events.now_us < self._spared_until_us or not host.process.is_at_work:
            return
        is_behind = any(self._is_behind(it) for it in host.process.partitions())
        if is_behind and self.rng.random() < 0.02:
            self._spared_until_us = self.events.now_us + self.rng.randint(100_000, 1_500_000)
            if self.rng.random() < 0.5:
                self.troubles.kill(host, down_us=self.rng.randint(1_000, 1_000_000))
            else:
                self._cut_a_leader_off()
                self._while_cut_off()

    def _is_behind(self, partition: Partition) -> bool:
        return partition.is_leader and partition.log_end_offset > partition.high_watermark

    def _while_cut_off(self) -> None:
        """Something else is to happen."""
