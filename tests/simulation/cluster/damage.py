"""Files of a node that does not run are lost, as far as the product promises to survive that."""

import random
from collections.abc import Callable, Sequence

from streamlog.metadata.image.metadata_image import PartitionImage, StreamImage
from streamlog.model import NodeId, TopicPartition
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.observer import Observer
from tests.simulation.cluster.partition_checkers import Replica
from tests.simulation.cluster.trouble import Troubles

STREAMS = "/data/streams"
SEGMENT = ".log"


class Damage:
    """One replica of each partition is damaged at most, while others that are in sync are whole."""

    def __init__(self, rng: random.Random, troubles: Troubles, observer: Observer) -> None:
        self._rng = rng
        self._troubles = troubles
        self._observer = observer
        self._damaged: set[Replica] = set()

    def lose(self) -> None:
        """A node ends, and a file of its is gone, empty, or cut when it starts again."""
        how = self._rng.choice((self._remove, self._empty, self._cut))
        self._lose(self._rng.choice, how)

    def lose_the_first(self) -> None:
        """Likewise; the file with which a log begins is gone."""
        self._lose(min, self._remove)

    def lose_in_use(self) -> None:
        """A follower runs on, and finds soon that a file of its is gone."""
        found = [
            (host, stream, number)
            for host, stream, number in self._found()
            if stream.partitions[number].leader != host.node_id
            and len(stream.partitions[number].isr) == len(stream.partitions[number].replicas)
        ]
        if found:
            self._lose_in_use(*self._rng.choice(found))

    def lose_at(self, host: Host, tp: TopicPartition) -> None:
        """As ``lose_in_use``, of this replica, if it may be damaged."""
        for found in self._found():
            if found[0] is host and (found[1].name, found[2]) == tp:
                self._lose_in_use(*found)

    def _lose_in_use(self, host: Host, stream: StreamImage, number: int) -> None:
        folder = f"{STREAMS}/{stream.name}/{number}"
        files = [name for name in host.disk.names(folder) if name.endswith(SEGMENT)]
        if len(files) < 2:
            return
        self._damaged.add(Replica(stream.stream_id, number))
        path = f"{folder}/{self._rng.choice(files[:-1])}"
        self._troubles.tell(f"node {host.node_id} loses {path} in use")
        self._remove(host, path)
        node = host.process
        reader = node.registry.partition(TopicPartition(stream.name, number)).reader
        node.loop.call_soon(lambda: node.spawn(reader.check_files()))

    def _found(self) -> list[tuple[Host, StreamImage, int]]:
        """Replicas that may be damaged."""
        return [
            (host, stream, number)
            for stream in self._observer.newest.streams.values()
            for number, partition in enumerate(stream.partitions)
            for host in self._troubles.hosts.values()
            if self._may_lose(host, stream, number, partition)
        ]

    def _lose(
        self, choose: Callable[[Sequence[str]], str], how: Callable[[Host, str], None]
    ) -> None:
        found = self._found()
        if not found:
            return
        host, stream, number = self._rng.choice(found)
        folder = f"{STREAMS}/{stream.name}/{number}"
        self._troubles.kill(host)
        files = [name for name in host.disk.names(folder) if name.endswith(SEGMENT)]
        if len(files) < 2:
            return
        self._damaged.add(Replica(stream.stream_id, number))
        path = f"{folder}/{choose(files[:-1])}"
        self._troubles.tell(f"node {host.node_id} loses {path}: {how.__name__[1:]}")
        how(host, path)

    def _may_lose(
        self, host: Host, stream: StreamImage, number: int, partition: PartitionImage
    ) -> bool:
        replica = Replica(stream.stream_id, number)
        others = set(partition.isr) - {host.node_id}
        return (
            host.is_up
            and host.process.ready
            and host.node_id in partition.replicas
            and bool(others)
            and replica not in self._damaged
            and replica not in self._observer.partitions.forgiven
            and all(self._is_whole(node_id) for node_id in others)
        )

    def _is_whole(self, node_id: NodeId) -> bool:
        process = self._troubles.hosts[node_id].process
        return process is not None and process.ready

    def _remove(self, host: Host, path: str) -> None:
        host.disk.remove(path)

    def _empty(self, host: Host, path: str) -> None:
        host.disk.replace(path, b"")

    def _cut(self, host: Host, path: str) -> None:
        content = host.disk.content(path)
        host.disk.replace(path, content[: self._rng.randrange(len(content))])
