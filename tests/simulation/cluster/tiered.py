"""Stories of tiered streams: segments go to a store that fails, replicas let go of them, and all is read even so."""

import random
from typing import Final

import pytest

from streamlog.errors import OffsetOutOfRange, StreamlogError
from streamlog.metadata.commands import ElectLeader
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.partition import stream_limits
from streamlog.partition.partition import Partition
from tests.simulation.checkers import Violation
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.partition_checkers import (
    Replica,
    records_in,
    records_of,
    replica_of,
)
from tests.simulation.cluster.swarm import ENSURE_US, Kind, SwarmWorld
from tests.simulation.cluster.tier_store import SimStore

READ_US: Final = 300_000
"""Between two reads of some partition."""
READ_BYTES: Final = 1 << 16
CHOSEN_WITHIN_US: Final = 6_000_000
"""An operator gives up then."""
LOOK_US: Final = 20_000


class TieredWorld(SwarmWorld):
    """All streams are tiered, of small segments."""

    def __init__(self, seed: int) -> None:
        self.store = SimStore(seed)
        self._tier_rng = random.Random(f"tiered {seed}")
        super().__init__(seed)
        self.of_nodes["store"] = self.store
        self.observer.sees_image = self._note_tiered_ends
        partitions = self.observer.partitions
        partitions.tiered_end = lambda replica: self._tiered_ends.get(replica, 0)
        partitions.forgets_ids = True  # the ids of messages are read from local logs alone
        self._kept: dict[Replica, int] = {}
        """Where an unclean leader was chosen: all below stays, for the store has it."""
        self._read_whole: set[Replica] = set()
        """In the end."""
        self._next_look_us = 0
        self._tiered_ends: dict[Replica, int] = {}
        """As accepted: up to there logs may have let go of records. A late node may do so after the stream is
        deleted.
        """
        self.events.after(READ_US, self._read_some)

    def run(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream_limits, "local_age_min_ms", lambda _config: 0)
            super().run()

    def _config(self, name: str, nodes: int) -> StreamConfig:
        rng = self._tier_rng
        return (
            super()
            ._config(name, nodes)
            .changed(
                tiered=True,
                segment_bytes=4096,
                segment_age_ms=rng.choice((300, 2_000)),
                local_retention_ms=rng.choice((0, 0, 500)),
            )
        )

    def faults(self) -> list[Kind]:
        return [*super().faults(), self._store_away]

    def always(self) -> list[Kind]:
        return [self._kill_a_leader, self._elect_another]

    def _store_away(self) -> None:
        self.troubles.tell("the store is away")
        self.store.is_away = True
        self.events.after(self.rng.randint(100_000, 3_000_000), self._store_back)

    def _store_back(self) -> None:
        self.store.is_away = False

    def _note_tiered_ends(self, image: MetadataImage) -> None:
        for stream in image.streams.values():
            for number, partition in enumerate(stream.partitions):
                if partition.tier is not None:
                    replica = Replica(stream.stream_id, number)
                    end = max(partition.tier.end_offset, self._tiered_ends.get(replica, 0))
                    self._tiered_ends[replica] = end

    # Reading

    def _read_some(self) -> None:
        self.events.after(READ_US, self._read_some)
        led = self._led()
        if led:
            node, partition = self._tier_rng.choice(led)
            start, end = partition.log_start_offset, partition.high_watermark
            if start < end:
                offset = self._tier_rng.randrange(start, end)
                self._read(node, partition, offset, min(end, offset + 20))

    def _led(self) -> list[tuple[ClusterNode, Partition]]:
        return [
            (node, partition)
            for node in self.nodes()
            if node.is_at_work
            for partition in node.registry.partitions()
            if partition.is_leader and partition.config.tiered
        ]

    def _read(
        self, node: ClusterNode, partition: Partition, offset: int, end: int, *, whole: bool = False
    ) -> None:
        async def read() -> None:
            try:
                await self._compare(partition, offset, end)
            except OffsetOutOfRange as error:
                self.troubles.tell(f"read of {partition.tp} at {offset}: {error}")
                self._check_gone(partition, offset)
            except StreamlogError as error:
                self.troubles.tell(f"read of {partition.tp} at {offset}: not done: {error!r}")
            else:
                if whole:
                    self._read_whole.add(replica_of(partition))

        node.loop.call_soon(lambda: node.spawn(read()))

    def _check_gone(self, partition: Partition, offset: int) -> None:
        committed = self.observer.partitions.log_of(replica_of(partition))
        if self._may_judge(partition, offset) and offset >= committed.purge_asked:
            raise Violation(f"{partition.tp}: {offset} is out of range, and was never purged")

    def _may_judge(self, partition: Partition, offset: int) -> bool:
        """Not what an unclean leader may lose. One that has not compared itself with the store yet serves nothing."""
        replica = replica_of(partition)
        if replica not in self.observer.partitions.forgiven:
            return True
        return offset < self._kept.get(replica, 0) and not partition.state.is_behind_store

    async def _compare(self, partition: Partition, offset: int, end: int) -> None:
        """Each read equals what was committed. Raises StreamlogError."""
        replica = replica_of(partition)
        committed = self.observer.partitions.log_of(replica)
        if replica in self.observer.partitions.forgiven:
            end = min(end, self._kept.get(replica, 0))
        while offset < end and partition.is_leader:
            with await partition.read(offset, READ_BYTES) as part:
                data = part.read()
            found, after = records_in(data, offset, end)
            if not self._may_judge(partition, offset):
                return
            if after <= offset:
                raise Violation(f"{partition.tp}: nothing is read at {offset}, below {end}")
            missing = set(range(offset, min(after, end))) - {it.offset for it in found}
            if any(it not in committed.erased for it in missing):
                raise Violation(f"{partition.tp}: the read at {offset} has gaps: {missing}")
            for record in found:
                if record.offset < committed.end_offset and self._may_judge(
                    partition, record.offset
                ):
                    committed.agrees(partition.state.node_id, record, partition.leader_epoch)
            offset = after

    # The end

    def _is_well(self) -> bool:
        if not super()._is_well():
            return False
        self.store.is_away, self.store.failing = False, 0.0
        unread = [it for it in self._led() if replica_of(it[1]) not in self._read_whole]
        if self.events.now_us >= self._next_look_us:
            self._next_look_us = self.events.now_us + READ_US
            for node, partition in unread:
                replica = replica_of(partition)
                self._check_start(partition, replica)
                start, end = partition.log_start_offset, partition.high_watermark
                self._read(node, partition, start, end, whole=True)
        return not unread

    def _check_start(self, partition: Partition, replica: Replica) -> None:
        committed, start = self.observer.partitions.log_of(replica), partition.log_start_offset
        kept = self._kept.get(replica, 0)
        if not self._may_judge(partition, 0):
            return
        if partition.log_end_offset < kept:
            raise Violation(f"{replica} ends at {partition.log_end_offset}; the store had {kept}")
        if start > committed.latest_start:
            raise Violation(
                f"{replica} begins at {start}, and purges allow {committed.latest_start}"
            )
        if start < committed.purged:
            raise Violation(f"{replica} begins at {start}, and is purged up to {committed.purged}")


class TieredLeadersEnd(TieredWorld):
    """Leaders end while they copy segments, in every story, and partitions are purged."""

    NODES = (3,)

    def faults(self) -> list[Kind]:
        return [self._purge, self._store_away, self._act_late, self._cut_a_leader_off]

    def always(self) -> list[Kind]:
        return [self._kill_a_leader, self._elect_another, self._purge]


class UncleanTieredLeaders(TieredWorld):
    """A follower is down for long, and the store goes on without it. The in-sync replicas end, and it leads: what the
    store has must stay.
    """

    NODES = (3,)

    def faults(self) -> list[Kind]:
        return [self._store_away, self._act_late, self._cut_a_leader_off, self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._end_the_leader_of_one]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return super()._config(name, nodes).changed(partitions=1, replicas=2, min_isr=1)

    def _end_the_leader_of_one(self) -> None:
        """Once it is alone in the ISR, and the store has more than its follower; that one is chosen then."""
        place = self._place()
        if place is None:
            return
        stream, number = place
        partition = stream.partitions[number]
        behind = [it for it in partition.replicas if it != partition.leader]
        if partition.leader == NO_LEADER or len(behind) != 1 or not self.hosts[behind[0]].is_up:
            return
        follower, tp = self.hosts[behind[0]], TopicPartition(stream.name, number)
        held = next((it for it in follower.process.registry.partitions() if it.tp == tp), None)
        if held is None or replica_of(held) != Replica(stream.stream_id, number):
            return
        log_end, give_up_us = held.log_end_offset, self.events.now_us + CHOSEN_WITHIN_US
        self.troubles.kill(follower, down_us=CHOSEN_WITHIN_US)

        def wait() -> None:
            now = self.observer.newest.streams.get(stream.name)
            if now is None or now.stream_id != stream.stream_id or self.troubles.over:
                return
            image = now.partitions[number]
            is_behind = image.tier is not None and image.tier.end_offset > log_end
            if image.isr == (image.leader,) and image.leader != follower.node_id and is_behind:
                self.troubles.kill(self.hosts[image.leader], down_us=CHOSEN_WITHIN_US)
                self.troubles.boot(follower)
                self._choose(stream, number, follower, give_up_us + CHOSEN_WITHIN_US)
            elif self.events.now_us < give_up_us:
                self.events.after(LOOK_US, wait)

        self.events.after(LOOK_US, wait)

    def _choose(self, stream: StreamImage, number: int, host: Host, give_up_us: int) -> None:
        """Asked again until it leads, or the old one does."""
        now = self.observer.newest.streams.get(stream.name)
        if now is None or now.stream_id != stream.stream_id or self.troubles.over:
            return
        image = now.partitions[number]
        if image.leader == host.node_id or self.events.now_us >= give_up_us:
            return
        if image.leader == NO_LEADER and host.is_up and host.process.is_at_work:
            self._forgive(Replica(stream.stream_id, number), host, image)
            self._ask(
                ElectLeader(
                    stream=stream.name,
                    partition=number,
                    leader=NodeId(host.node_id),
                    unclean=True,
                )
            )
        self.events.after(ENSURE_US, lambda: self._choose(stream, number, host, give_up_us))

    def _forgive(self, replica: Replica, host: Host, image: PartitionImage) -> None:
        """The end of the log may go. The store's records stay as far as this node's log tells no other history."""
        end = 0 if image.tier is None else image.tier.end_offset
        committed = self.observer.partitions.log_of(replica)
        for held in host.process.registry.partitions():
            if replica_of(held) == replica:
                log = held.state.log
                start, log_end = log.log_start_offset, log.log_end_offset
                for record in records_of(log, start, min(end, log_end, committed.end_offset)):
                    if record != committed.records[record.offset]:
                        end = min(end, record.offset)
        self.observer.partitions.forgiven.add(replica)
        self._kept[replica] = min(end, self._kept.get(replica, end))
        self.troubles.tell(f"{replica} may end at {self._kept[replica]}")
