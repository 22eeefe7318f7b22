"""One seed, one story of a whole cluster: nodes, NATS, publishers, an operator, and trouble."""

import random
from functools import partial
from typing import Any

from streamlog.config import SyncPolicy
from streamlog.errors import ConfigError, StreamlogError
from streamlog.metadata.commands import (
    Command,
    DrainNode,
    ElectLeader,
    MovePartition,
    RebalanceLeaders,
    TransferController,
)
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from tests.simulation.checkers import Violation
from tests.simulation.cluster import settings
from tests.simulation.cluster.ground import ground
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import Links
from tests.simulation.cluster.nats import SimNats
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.observer import Observer
from tests.simulation.cluster.publishers import Publishers
from tests.simulation.cluster.tcp import Tcp
from tests.simulation.cluster.trouble import Troubles
from tests.simulation.events import Events

TROUBLE_FROM_US = 1_500_000
CALM_US = 40_000_000
RESTART_FAILED_US = 1_500_000
LOOK_US = 50_000
"""Between two looks at all replicas in sync."""


class ClusterWorld:
    """All of it follows from the seed."""

    NODES: tuple[int, ...] = (3, 3, 3, 5)
    """How many there are."""
    TROUBLE_S: tuple[int, ...] = (3, 3, 3, 6, 12)
    """Many short stories find more than a few long ones."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.events = Events()
        self.links = Links(self.events, self.rng)
        nodes = self.rng.choice(self.NODES)
        ids = [NodeId(number) for number in range(1, nodes + 1)]
        self.hosts = {node_id: Host(node_id, self.events, self.rng) for node_id in ids}
        self.tcp = Tcp(self.links, self.hosts)
        policies: tuple[SyncPolicy, ...] = ("commit", "commit", "interval", "os")
        self.sync = self.rng.choice(policies)
        self.cluster = settings.cluster_section(self.rng.choice((nodes, 3)))
        self.replication = settings.replication_section(self.rng.choice((None, None, 600)))
        self.of_nodes: dict[str, Any] = {}
        """What else each node is made with."""
        self.of_logs: dict[str, Any] = {}
        """How else its logs are set."""
        self._until_us = TROUBLE_FROM_US + self.rng.choice(self.TROUBLE_S) * 1_000_000
        self.observer = Observer()
        self.publishers = Publishers(
            self.events, self.links, self.rng, self.observer, until_us=self._until_us
        )
        self.nats = SimNats(self.events, self.links, self.rng, self.publishers.answer)
        self.publishers.nats = self.nats
        for host in self.hosts.values():
            host.on_end.append(partial(self.nats.process_ended, host))
        self.troubles = Troubles(
            self.events,
            self.rng,
            self.hosts,
            self.links,
            until_us=self._until_us,
            start=self._start,
        )
        self.troubles.kinds += [self._operate, self._operate, self._restart_in_order]
        self.configs = self._make_configs(nodes)
        self._created: set[str] = set()

    @property
    def story(self) -> list[str]:
        return self.troubles.story

    @property
    def events_run(self) -> int:
        return self.events.count

    def run(self) -> None:
        """Raises Violation."""
        with ground(self.seed, self.tcp, self.nats):
            for host in self.hosts.values():
                self.troubles.boot(host)
            for config in self.configs:
                self._create(config)
            self.events.after(TROUBLE_FROM_US, self.troubles.begin)
            self.events.after(RESTART_FAILED_US, self._restart_failed)
            self.events.after(LOOK_US, self._look_at_all)
            while not (self.troubles.over and self._is_well()):
                if self.events.now_us > self._until_us + CALM_US:
                    raise Violation(f"all is not well: {self._state()}")
                self.events.step()
                self._look()
            for host in self.hosts.values():
                host.disk.observed = True
            self._check_folders()
            self.observer.compare(self.nodes())
            self.publishers.check()

    # Nodes

    def nodes(self) -> list[ClusterNode]:
        return [host.process for host in self.hosts.values() if host.process is not None]

    def _start(self, host: Host) -> None:
        def failed(error: BaseException) -> None:
            if isinstance(error, StreamlogError | OSError) and not isinstance(error, ConfigError):
                host.events.after(0, lambda: self._failed(host, node, error))
            else:  # not here: it would be an error of a task that nobody waits for
                host.events.after(0, partial(self._is_at_fault, host, error))

        Host.current, before = host, Host.current
        try:
            node = ClusterNode(
                host,
                cluster=self.cluster,
                log=settings.log_section(self.sync).model_copy(update=self.of_logs),
                replication=self.replication,
                failed=failed,
                **self.of_nodes,
            )
        finally:
            Host.current = before
        host.start(node)

    def _is_at_fault(self, host: Host, error: BaseException) -> None:
        raise Violation(f"node {host.node_id} ends: {error!r}") from error

    def _failed(self, host: Host, node: ClusterNode, error: BaseException) -> None:
        if host.process is node:
            self.troubles.fail(host, repr(error))

    def _look_at_all(self) -> None:
        self.events.after(LOOK_US, self._look_at_all)
        self.observer.look_at_all(self.nodes())

    def _look(self) -> None:
        host, Host.latest = Host.latest, None
        if host is not None and host.process is not None:
            host.disk.observed = True
            self.observer.look(host.process)
            host.disk.observed = False

    def _restart_failed(self) -> None:
        """An operator who reads the readiness of each node."""
        self.events.after(RESTART_FAILED_US, self._restart_failed)
        for node in self.nodes():
            if node.failure is not None and not node.host.is_stopped:
                self.troubles.fail(node.host, f"restarted for {node.failure}")

    def _restart_in_order(self) -> None:
        host = self.hosts[self.rng.choice(sorted(self.hosts))]
        node = host.process
        if node is None or not node.is_at_work:
            return
        self.troubles.tell(f"node {host.node_id} is stopped in order")

        async def stop() -> None:
            await node.stop()
            self.troubles.tell(f"node {host.node_id} has stopped")
            host.events.after(0, lambda: self._end(host, node))

        node.loop.call_soon(lambda: node.spawn(stop()))
        # Who does not come to an end is killed.
        self.events.after(8_000_000, lambda: self._end(host, node))

    def _end(self, host: Host, node: ClusterNode) -> None:
        if host.process is node:
            host.kill()
            self.events.after(500_000, lambda: self.troubles.boot(host))

    # Streams and the operator

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        rng = self.rng
        return [
            StreamConfig.of(name="a", partitions=1, replicas=3),
            StreamConfig.of(
                name="b",
                partitions=2,
                replicas=rng.choice((2, 3, nodes)),
                min_isr=rng.choice((1, 2)),
                encrypted=True,
            ),
        ]

    def _create(self, config: StreamConfig) -> None:
        """Again, through whatever node, until one says that it is there."""
        if config.name in self._created:
            return
        node = self._ready_node()
        if node is not None:

            async def create() -> None:
                try:
                    stream, _ = await node.metadata.create_stream(config)
                except StreamlogError as error:
                    self.troubles.tell(f"stream {config.name} not created: {error}")
                    return
                self._is_created(stream)

            node.loop.call_soon(lambda: node.spawn(create()))
        self.events.after(400_000, lambda: self._create(config))

    def _is_created(self, stream: StreamImage) -> None:
        if stream.name not in self._created:
            self._created.add(stream.name)
            self.troubles.tell(f"stream {stream.name} is created")
            self.publishers.publish_to(stream)

    def _operate(self) -> None:
        node, command = self._ready_node(), self._command()
        if node is None or command is None:
            return
        self.troubles.tell(f"operator: {command!r}")

        async def ask() -> None:
            try:
                await node.metadata.request(command)
            except StreamlogError as error:
                self.troubles.tell(f"operator: refused: {error!r}")

        node.loop.call_soon(lambda: node.spawn(ask()))

    def _command(self) -> Command | None:
        rng, ids = self.rng, sorted(self.hosts)
        if not self._created:
            return None
        name = rng.choice(sorted(self._created))
        config = next(it for it in self.configs if it.name == name)
        number = rng.randrange(config.partitions)
        return rng.choice(
            (
                DrainNode(node_id=rng.choice(ids)),
                DrainNode(node_id=rng.choice(ids), undo=True),
                RebalanceLeaders(),
                ElectLeader(stream=name, partition=number),
                ElectLeader(stream=name, partition=number, leader=rng.choice(ids)),
                MovePartition(
                    stream=name,
                    partition=number,
                    replicas=tuple(rng.sample(ids, config.replicas)),
                ),
                TransferController(node_id=rng.choice([None, *ids])),
            )
        )

    def _ready_node(self) -> ClusterNode | None:
        ready = [node for node in self.nodes() if node.is_at_work]
        return self.rng.choice(ready) if ready else None

    # The end

    def _is_well(self) -> bool:
        nodes = self.nodes()
        if len(nodes) < len(self.hosts) or not all(node.ready for node in nodes):
            return False
        images = [node.metadata.image for node in nodes]
        return (
            len({image.offset for image in images}) == 1
            and len(self._created) == len(self.configs)
            and self._all_in_sync(images[0])
            and self.publishers.done
            and self.observer.all_even(nodes)
        )

    def _check_folders(self) -> None:
        """The metadata tells of each folder what became of its stream."""
        for host in self.hosts.values():
            orphans = host.disk.files_below("/data/orphans")
            if orphans:
                raise Violation(f"node {host.node_id} does not know {orphans}")

    def _all_in_sync(self, image: MetadataImage) -> bool:
        return all(
            partition.leader != NO_LEADER
            and set(partition.isr) == set(partition.replicas)
            and not partition.adding
            for stream in image.streams.values()
            for partition in stream.partitions
        )

    def _state(self) -> str:
        lines = [f"{self.publishers.state()}"]
        for node in self.nodes():
            host = node.host
            if not node.ready:
                waiting = getattr(node, "metadata", None) and node.metadata.waiting_for
                lines.append(f"node {host.node_id} is not ready: {waiting}")
                continue
            raft, image = node.replica.raft, node.metadata.image
            Host.current = host
            lines.append(
                f"node {host.node_id}: {raft.role.value} of epoch {raft.epoch}, leader"
                f" {raft.leader}, image {image.offset}, lease {node.metadata.lease.held},"
                f" fenced {[n.node_id for n in image.nodes.values() if n.fenced]}"
            )
            lines += [
                f"  {stream.name}-{number}: {partition}"
                for stream in image.streams.values()
                for number, partition in enumerate(stream.partitions)
            ]
            lines += [f"  {it.statistics()}" for it in node.registry.partitions()]
        return "\n".join(lines)
