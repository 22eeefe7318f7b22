"""Stories in which an older copy of a node's whole data folder is put back, as from a snapshot of
its volume.
"""

from dataclasses import dataclass

from streamlog.metadata.image.metadata_image import PartitionImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.simulation.cluster import settings
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.partition_checkers import Replica, replica_of
from tests.simulation.cluster.swarm import SEGMENT_BYTES, Kind, SwarmWorld
from tests.simulation.disk import FolderCopy

VOTERS = 3
MAJORITY = 2
FOLDER = "/data"
COPIED_FROM_US = 1_500_000
AT_ONCE_US = 1_000
DOWN_US = (1_000, 300_000)
LATE_US = (500_000, 2_500_000)
PAUSE_US = (500_000, 2_000_000)
LOOK_US = 20_000
"""Between two looks at whether the copy is old enough."""


@dataclass(frozen=True)
class _Copy:
    """Of the data folder of ``host``."""

    host: Host
    folder: FolderCopy
    ends: dict[Replica, int]
    """The log end offsets in it."""


class OlderCopiesReturn(SwarmWorld):
    """A copy of the data folder is made while its node is down. Later, when the node is in sync
    with more than the copy has, all nodes lose power, and this one is the first to come back, on
    the copy.

    It does not vote: a majority of the voters must keep what they have promised. Nor is it the only
    member in sync of any partition: then its copy is the best that there is.
    """

    NODES = (4, 5)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sync = "commit"
        self.cluster = settings.cluster_section(VOTERS)
        self.events.after(COPIED_FROM_US, self._make_a_copy)

    def faults(self) -> list[Kind]:
        return [
            self.troubles.kill,
            self.troubles.isolate,
            self._kill_a_leader,
            self._elect_another,
            self._move_away_and_back,
            self._recreate,
            self._purge,
        ]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        rng = self.rng
        return StreamConfig.of(
            name=name,
            partitions=2,
            replicas=rng.choice((2, 3)),
            encrypted=rng.random() < 0.2,
            segment_bytes=rng.choice((SEGMENT_BYTES, None)),
        )

    def _make_a_copy(self) -> None:
        """Of a node that ends for it; one at a time, as long as there is trouble."""
        if self.troubles.over:
            return
        candidates = [node for node in self.nodes() if self._may_be_copied(node)]
        if not candidates:
            self.events.after(LOOK_US, self._make_a_copy)
            return
        node = self.rng.choice(candidates)
        host = node.host
        ends = {replica_of(it): it.log_end_offset for it in node.partitions()}
        end = self.rng.choice((self.troubles.kill, self.troubles.power))
        end(host, down_us=self.rng.randint(*DOWN_US))
        self.troubles.tell(f"the folder of node {host.node_id} is copied")
        self._wait(_Copy(host, host.disk.copy(FOLDER), ends))

    def _may_be_copied(self, node: ClusterNode) -> bool:
        return node.host.node_id > VOTERS and node.is_at_work and any(node.partitions())

    def _wait(self, copy: _Copy) -> None:
        """Until the copy is an older one of a node whose records count."""
        if self.troubles.over:
            return
        lacked = self._lacked(copy)
        if lacked:
            self._put_back(copy, self.rng.choice(lacked))
            self.events.after(self.rng.randint(*PAUSE_US), self._make_a_copy)
        else:
            self.events.after(LOOK_US, lambda: self._wait(copy))

    def _lacked(self, copy: _Copy) -> list[PartitionImage]:
        """Partitions of which the copy lacks committed records, though its node is in sync. None
        before the node has registered again.
        """
        node, node_id = copy.host.process, copy.host.node_id
        if node is None or not node.is_at_work:
            return []
        found: list[PartitionImage] = []
        for stream in self.observer.newest.streams.values():
            for number, partition in enumerate(stream.partitions):
                if partition.isr == (node_id,):
                    return []
                replica = Replica(stream.stream_id, number)
                committed = self.observer.partitions.log_of(replica).end_offset
                if node_id in partition.isr and committed > copy.ends.get(replica, 0):
                    found.append(partition)
        return found

    def _put_back(self, copy: _Copy, lacked: PartitionImage) -> None:
        """Who else is in sync with what the copy lacks is late, as far as the quorum can do without
        them.
        """
        host, rng = copy.host, self.rng
        voters = [self.hosts[NodeId(number)] for number in range(1, VOTERS + 1)]
        rng.shuffle(voters)
        voters.sort(key=lambda it: it.node_id in lacked.isr)
        early = voters[:MAJORITY]
        self.troubles.power(host, down_us=AT_ONCE_US)
        for other in self.hosts.values():
            if other is not host:
                bounds = DOWN_US if other in early else LATE_US
                self.troubles.power(other, down_us=rng.randint(*bounds))
        host.disk.put_back(copy.folder)
        self.troubles.tell(f"node {host.node_id} has an older copy of its folder")
