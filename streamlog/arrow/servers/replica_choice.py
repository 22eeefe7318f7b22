"""Which of the nodes that have a partition is asked for it."""

import zlib

from streamlog.arrow.location import PartitionRange
from streamlog.client.blocking import BlockingCluster, BlockingConnection
from streamlog.client.topology import NodeInfo
from streamlog.errors import NotLeader
from streamlog.model import TopicPartition


class Replicas:
    """At first any in-sync replica, so that tasks spread over the nodes; after a failure the
    leader, then the others in turn.
    """

    def __init__(self, cluster: BlockingCluster, range_: PartitionRange) -> None:
        self._cluster = cluster
        self._name: TopicPartition = range_.name
        self._first = zlib.crc32(b"%d %d" % (range_.name.partition, range_.start_offset))
        self._failures = 0
        self._connection: BlockingConnection | None = None
        self.address = "no node"  # of the node asked last
        self.is_leader = False  # that node
        self.leader_epoch = -1

    def connection(self) -> BlockingConnection:
        """To the node whose turn it is. Raises Unavailable."""
        if self._connection is None:
            node, self.leader_epoch = self._choose()
            self.address = node.address
            self._connection = self._cluster.connect(node)
        return self._connection

    def fail(self) -> None:
        """The node asked last cannot serve now: the leader is looked up again."""
        self._failures += 1
        self._cluster.forget(self._name.stream)
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _choose(self) -> tuple[NodeInfo, int]:
        info = self._cluster.topic(self._name.stream).partition(self._name.partition)
        ids = [info.leader, *sorted(set(info.isr) - {info.leader})]
        turn = self._failures - 1 if self._failures else self._first
        chosen = ids[turn % len(ids)]
        node = self._cluster.node(chosen)
        self.is_leader = chosen == info.leader
        if node is None:
            raise NotLeader(f"{self._name}: node {chosen} is not there")
        return node, info.leader_epoch
