"""One life of a node: streamlog's own services, started and stopped in their order.

Simulated are the event loop, threads, clocks, disk, sockets and the NATS client; the rest, from
the socket API's frames to the quorum and from NATS frames to the log, is what runs in production.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from streamlog.authn.session import ANONYMOUS_SESSION
from streamlog.config import (
    ClusterSection,
    GroupsSection,
    LogSection,
    NatsSection,
    ReplicationSection,
    SyncPolicy,
    TierSection,
    TransactionsSection,
)
from streamlog.control.control import Control
from streamlog.control.operation import Caller
from streamlog.control.service import ControlService
from streamlog.errors import NotLeader, StreamlogError
from streamlog.groups.service import GroupService
from streamlog.ingest.service import IngestService
from streamlog.jetstream.consumers.interest_reports import StreamInterest
from streamlog.jetstream.consumers.stream_source import StreamSource
from streamlog.jetstream.mirroring.mirror_service import MirrorService
from streamlog.jetstream.mirroring.origin_links import OriginLink
from streamlog.kafka.context import Context
from streamlog.kafka.net.connection import ClientConnection
from streamlog.kafka.producer_ids import ProducerIds
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.commands import RegisterNode
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.last_run import NodeRuns
from streamlog.metadata.quorum.metadata_replica import MetadataReplica
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.metadata.quorum.voter_sets import configured_voters, fingerprint
from streamlog.metadata.read_barrier import ReadBarrier, catch_up
from streamlog.metadata.service import MetadataService
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import NodeTier, ReplicaManager
from streamlog.raft.node import RaftSettings
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.shares.share_service import ShareService
from streamlog.transactions.marker_sender import MarkerSender
from streamlog.transactions.service import TransactionService
from tests.log_folder import a_key_ring
from tests.partition_world import failures_of
from tests.simulation.cluster import settings
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.loop import SimLoop
from tests.simulation.cluster.machine import SimThreads
from tests.simulation.cluster.path import path_on
from tests.simulation.cluster.ports import NatsPort
from tests.simulation.cluster.settings import CLUSTER_ID
from tests.simulation.cluster.sockets import PORT, SimChannel, host_name
from tests.simulation.cluster.tcp import NATS_PORT, Endpoint
from tests.simulation.cluster.tier_store import SimStore, SimTierStorage

DISK_BYTES = 1 << 30
"""Of a disk that is as large as it need be."""


class Coordination(NamedTuple):
    """How a node coordinates groups and transactions."""

    groups: GroupsSection
    transactions: TransactionsSection


class ClusterNode:
    """The process on ``host``, from its start on. As ``app.node.Node``, on simulated ground."""

    def __init__(
        self,
        host: Host,
        *,
        cluster: ClusterSection,
        log: LogSection,
        replication: ReplicationSection,
        failed: Callable[[BaseException], None],
        nats: NatsSection = settings.NATS,
        has_port: bool = False,
        has_feeds: bool = False,
        coordination: Coordination | None = None,
        store: SimStore | None = None,
    ) -> None:
        """``failed``: the process ends by itself, with that. ``has_port``: it has a NATS port, and links to
        other nodes' ports. ``has_feeds``: mirrors and sources that it leads are fed. ``coordination``: it
        coordinates groups, transactions and share groups; None: nothing. ``store``: the object store of the cluster.
        """
        self.host = host
        self.is_built = False
        self.listens = False
        self.ready = False
        self.stopping = False
        self.tail_lost = False
        self._failed = failed
        self._cluster = cluster
        self._nats = nats
        self._has_port = has_port
        self._has_feeds = has_feeds
        self._coordination = coordination
        self._store = store
        self.port: NatsPort | None = None
        self.mirrors: MirrorService | None = None
        self._log = log
        self._replication = replication
        self._path = path_on(host.disk, "/data")
        self.loop = SimLoop(host, self._unhandled)  # type: ignore[abstract]
        self._connections: list[ClientConnection] = []
        self._untold: deque[tuple[MetadataImage, MetadataImage]] = deque()
        """Changes of the metadata that the ingests are still to be told of."""
        self._threads = SimThreads(max_workers=2)
        self.loop.call_soon(self._begin)

    def acceptor(self, port: int) -> Callable[[Endpoint], None] | None:
        """What takes connections to a port; None: nobody listens there."""
        if port == NATS_PORT:
            return None if self.port is None else self.port.acceptor
        return self.accept if self.listens else None

    def accept(self, endpoint: Endpoint) -> None:
        if not self.listens:
            endpoint.close(reset=True)
            return

        def begin() -> None:
            channel: Any = SimChannel(endpoint)
            connection = ClientConnection(channel, "peer", self._context, self._threads)
            self._connections.append(connection)
            self.spawn(connection.run())

        self.loop.call_soon(begin)

    def spawn(self, service: Coroutine[Any, Any, None]) -> None:
        """Whatever it raises ends the process."""
        self.loop.create_task(self._guarded(service))

    async def stop(self) -> None:
        """In order; the process is gone after it."""
        self.stopping = True
        if self.mirrors is not None:
            self._feeding.cancel()
        if self.port is not None:
            self.port.retire()
        await self.source.stop()
        if self._coordination is not None:
            await self.shares.stop()
            await self.transactions.stop()
            self._markers.close()
            await self.groups.stop()
        if self.port is not None:
            await self.port.stop()
        await self.metadata.leave()
        self.listens = False
        for connection in self._connections:
            connection.stop()
        await self.metadata.close()
        await self.registry.close()
        self._runs.end()

    # Its start

    def _begin(self) -> None:
        self.spawn(self._start())

    async def _guarded(self, service: Coroutine[Any, Any, None]) -> None:
        try:
            await service
        except Exception as error:
            self._failed(error)

    def _unhandled(self, context: dict[str, Any]) -> None:
        if self.loop.is_closed():
            return
        error = context.get("exception")
        self._failed(error or AssertionError(context.get("message")))

    async def _start(self) -> None:
        host, disk = self.host, self.host.disk
        disk.make_directory(str(self._path))
        self._runs = NodeRuns(disk, self._path, str(host.boot))
        self.incarnation = uuid.UUID(int=host.rng.getrandbits(128))
        self.tail_lost = self._runs.begin(self.incarnation)
        self._build()
        await self.metadata.open()
        self.listens = True
        self.spawn(self.metadata.run())
        await self.metadata.register(self._registration())
        self._runs.told()
        registry, source = self.registry, self.source
        await self.metadata.attach(registry.apply, self._open_partitions, registry.settled)
        self.spawn(self.registry.run())
        if self._coordination is not None:
            await self._begin_coordination()
        if self.port is not None:
            self.port.begin(source.room)
        await self.metadata.attach(self._tell_source, self._begin_ingest, source.settled)
        self.spawn(self.source.run())
        if self.mirrors is not None:
            await self.metadata.attach(self.mirrors.apply, self._begin_feeds)
            self._feeding = self.loop.create_task(self._guarded(self.mirrors.run()))
        self.ready = True
        if self.port is not None:
            await self.port.open(self.metadata)
        await self.metadata.join()

    def _build(self) -> None:
        node_id, disk = self.host.node_id, self.host.disk
        metrics = NodeMetrics()
        voters = configured_voters(self._cluster.voters)
        store = MetadataStore(
            self._path / "metadata", CLUSTER_ID, disk=disk, files=FilePool(disk, 16)
        )
        self.replica = MetadataReplica(
            store,
            node_id=node_id,
            configured=voters,
            voters_id=fingerprint(CLUSTER_ID, voters),
            settings=RaftSettings(
                election_timeout_ms=self._cluster.election_timeout_ms,
                request_timeout_ms=self._cluster.request_timeout_ms,
                pause_ms=self._cluster.pause_ms,
                fetch_wait_max_ms=self._cluster.heartbeat_interval_ms,
            ),
            random=self.host.rng.random,
            may_encrypt=True,
            may_tier=True,
        )
        self.metadata = MetadataService(
            self.replica,
            CLUSTER_ID,
            node_id=node_id,
            incarnation=self.incarnation,
            settings=self._cluster,
            peers=Peers(CLUSTER_ID, node_id),
        )
        self.registry = ReplicaManager(
            self._path,
            node_id=node_id,
            settings=self._log,
            metrics=metrics,
            disk=disk,
            replication=self._replication,
            cluster=self.metadata,
            keys=a_key_ring(),
            power_lost=self._runs.power_was_lost(),
            tier=self._tier(),
        )
        coordination = self._coordination or Coordination(GroupsSection(), TransactionsSection())
        self.groups = GroupService(
            node_id=node_id,
            settings=coordination.groups,
            metadata=self.metadata,
            partitions=self.registry,
        )
        self._markers = MarkerSender(
            node_id,
            lambda: self.metadata.image,
            Peers(CLUSTER_ID, node_id),
            here=self._end_transaction,
            catch_up=partial(catch_up, self.metadata),
        )
        producer_ids = ProducerIds()
        self.transactions = TransactionService(
            node_id=node_id,
            settings=coordination.transactions,
            metadata=self.metadata,
            partitions=self.registry,
            markers=self._markers,
            new_producer_id=partial(producer_ids.take, self.metadata, node_id),
        )
        control = ControlService(
            node_id=node_id,
            metadata=self.metadata,
            partitions=self.registry,
            peers=Peers(CLUSTER_ID, node_id),
            lease=self.metadata.lease,
            groups=self.groups,
            transactions=None if self._coordination is None else self.transactions,
            log=self._log,
            metrics=metrics,
            disk_usage=self._disk_usage,
        )
        self.metadata.ask_for_room(control.load.room)
        self.shares = ShareService(settings=coordination.groups, keeper=control.coordinators)
        self.control = Control(control, Caller(ANONYMOUS_SESSION))
        """What operators and applications ask of this node."""
        self._context = Context(
            node_id=node_id,
            address=lambda: (f"n{node_id}", settings.KAFKA.port),
            settings=settings.KAFKA,
            partitions=self.registry,
            metadata=self.metadata,
            metrics=metrics,
            groups=self.groups,
            producer_ids=producer_ids,
            control_service=control,
        )
        if self._coordination is not None:
            self._context = replace(
                self._context,
                transactions=self.transactions,
                transaction_partitions=control.transactions,
                shares=self.shares,
            )
        router = Router(seed=self.host.rng.getrandbits(32))
        self.source = IngestService(
            node_id=node_id,
            nats=self._nats,
            ingest=settings.INGEST,
            message_bytes_max=self._log.message_bytes_max,
            partitions=self.registry,
            router=router,
            sockets=Sockets(router, write_timeout_ms=10_000),
            metrics=metrics,
            lease=self.metadata.lease,
            barrier=ReadBarrier(self.metadata),
        )
        if self._has_port:
            self.port = NatsPort(self, router, control.nodes, metrics)
        if self._has_feeds:
            self.mirrors = self._make_mirrors(control)
        self.is_built = True

    def _disk_usage(self, _: Path) -> tuple[int, int, int]:
        disk = self.host.disk
        total, used = disk.capacity_bytes or DISK_BYTES, disk.used_bytes()
        return total, used, max(0, total - used)

    def _tier(self) -> NodeTier | None:
        if self._store is None:
            return None
        section = TierSection(interval_ms=150, orphan_grace_ms=3_000)
        storage = SimTierStorage(self.host, self._store)
        return NodeTier(section, CLUSTER_ID, storage, FilePool(self.host.disk, 64, a_key_ring()))

    def _make_mirrors(self, control: ControlService) -> MirrorService:
        node_id, metadata = self.host.node_id, self.metadata
        interest = StreamInterest(
            control.leader, control.nodes, node_id=node_id, image=lambda: metadata.image
        )
        return MirrorService(
            node_id=node_id,
            domain="streamlog",
            own_apis=(),
            partitions=self.registry,
            nodes=control.nodes,
            source=StreamSource(control.leader, control.leaders, control.nodes, interest),
            image=lambda: metadata.image,
            link=_no_link,
            own_link=_no_link,
            lease=metadata.lease,
        )

    async def _begin_feeds(self, image: MetadataImage) -> None:
        assert self.mirrors is not None, "there are some"
        self.mirrors.apply(MetadataImage(image.cluster_id), image)
        self.registry.add_listener(self.mirrors.look)

    async def _begin_coordination(self) -> None:
        """As ``app.node.Node`` does."""
        for service in (self.groups, self.transactions):
            await self.metadata.attach(service.apply, partial(self._coordinate, service))
            self.spawn(service.run())
        self.spawn(self._markers.run())

        async def share(_: MetadataImage) -> None:
            """Nothing is led for a share group before a member asks for it."""

        await self.metadata.attach(self.shares.apply, share)
        self.spawn(self.shares.run())

    async def _coordinate(
        self, service: GroupService | TransactionService, image: MetadataImage
    ) -> None:
        service.apply(MetadataImage(image.cluster_id), image)
        self.registry.add_listener(service.look)

    async def _end_transaction(self, tp: TopicPartition, marker: TransactionMarker) -> None:
        """In a partition that this node leads. Raises StreamlogError."""
        partition = self.registry.partition(tp)
        if not partition.is_leader:
            raise NotLeader(f"{tp} is led by another node")
        if tp.stream == OFFSETS_STREAM:
            await self.groups.end_transaction(tp, marker)
        else:
            await partition.end_transaction(marker)

    def _registration(self) -> RegisterNode:
        return RegisterNode(
            node_id=self.host.node_id,
            incarnation=self.incarnation,
            directory_id=self.host.directory_id,
            host=host_name(self.host.node_id),
            port=PORT,
            stamps=self._runs.stamps,
            tail_lost=self.tail_lost,
            sync=self._log.sync,
        )

    async def _open_partitions(self, image: MetadataImage) -> None:
        log_id = None if image.log is None else image.log.log_id
        await self.registry.open(
            image,
            self.metadata.recently_deleted,
            is_log_known=log_id is not None and log_id == self._runs.metadata_log,
        )
        self._runs.follows(log_id)
        self.registry.apply(MetadataImage(image.cluster_id), image)
        if not self.registry.unopened:
            self._runs.recovered()

    async def _begin_ingest(self, image: MetadataImage) -> None:
        self.source.apply(MetadataImage(image.cluster_id), image)
        self.registry.add_listener(self.source.look)
        await self.source.settled(None)

    def _tell_source(self, old: MetadataImage, new: MetadataImage) -> None:
        """In order; at once, unless its ingests are late."""
        self._untold.append((old, new))
        if late_us := self.host.ingests_late_us:
            self.loop.call_later(late_us / 1e6, self._tell_source_all, new.offset)
        else:
            self._tell_source_all(new.offset)

    def _tell_source_all(self, offset: int) -> None:
        while self._untold and self._untold[0][1].offset <= offset:
            self.source.apply(*self._untold.popleft())

    async def act_late(self) -> None:
        """Hold back what is committed of the metadata, until ``Host.late_us``; all else goes on."""
        await self.metadata.attach(lambda _old, _new: None, self._wait_until_late)

    async def _wait_until_late(self, _image: MetadataImage) -> None:
        await asyncio.sleep(max(0, self.host.late_us - self.host.events.now_us) / 1e6)

    def partitions(self) -> Iterator[Partition]:
        """None before there are any."""
        return self.registry.partitions() if self.ready else iter(())

    @property
    def sync(self) -> SyncPolicy:
        """Of streams that name none."""
        return self._log.sync

    @property
    def is_at_work(self) -> bool:
        return self.ready and not self.stopping and not self.host.is_stopped

    @property
    def failure(self) -> StreamlogError | None:
        """Why the node wants a restart, although it runs."""
        if not self.is_built:
            return None
        return self.metadata.failure or next(iter(failures_of(self.registry).values()), None)


def _no_link() -> OriginLink:
    raise AssertionError("all origins are streams of this cluster, and read without consumers")
