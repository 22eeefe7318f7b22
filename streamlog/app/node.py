"""The composition root: builds a node's services and lives their life.

That life is two lists: what starts in which order, what stops in which order (``Lifecycle``).
"""

import asyncio
import logging
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from prometheus_client import ProcessCollector
from prometheus_client.registry import Collector

from streamlog import __version__
from streamlog.acl.rules import NO_RULES, RuleBook
from streamlog.activity.service import ActivityService
from streamlog.app.logs import summarise_logs
from streamlog.app.loop_lag import LoopLag
from streamlog.app.readiness import NodeReadiness
from streamlog.app.security import NodeSecurity, build_authenticator, to_nodes
from streamlog.app.status import NodeStatus, why_no_tail
from streamlog.app.tracing import traced, tracing_of
from streamlog.client.security import NO_SECURITY, Security
from streamlog.clock import wall_ms
from streamlog.condition import Condition
from streamlog.config import Settings
from streamlog.control.leaders.node_requests import Fields, NodeAnswer
from streamlog.control.service import ControlService
from streamlog.errors import ConfigError, NotLeader, StreamlogError, TopicForbidden
from streamlog.fairness import cooperatively
from streamlog.groups.service import GroupProgressPage, GroupService
from streamlog.http.access import may_read, may_stay, sees_by
from streamlog.http.api.routes import HttpApi
from streamlog.http.console.console import Console
from streamlog.http.endpoints import HttpEndpoints
from streamlog.http.gauges.cluster_gauges import ClusterGauges, ClusterStatistics, MachineGauges
from streamlog.http.gauges.consumer_gauges import ConsumerGauges
from streamlog.http.gauges.group_gauges import GroupGauges, LagGauges
from streamlog.http.gauges.log_ends import LogEnds
from streamlog.http.gauges.mirror_gauges import MirrorGauges
from streamlog.http.gauges.partition_gauges import (
    PartitionGauges,
    PartitionScrape,
    PartitionTotals,
)
from streamlog.http.gauges.share_gauges import ShareGauges
from streamlog.http.gauges.transaction_gauges import TransactionGauges
from streamlog.ingest.admission.publish_headers import API_LEVEL
from streamlog.ingest.nats.leaf import LeafLink
from streamlog.ingest.pub_ack_format import error_json
from streamlog.ingest.service import IngestService
from streamlog.jetstream.api import ManagementApi
from streamlog.jetstream.consumers.consumer_service import ConsumerHost
from streamlog.jetstream.errors import api_error
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.kafka.context import Context
from streamlog.kafka.net.listener import Listener
from streamlog.kafka.producer_ids import ProducerIds
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.storage.reserve import Reserve, ReservingDisk
from streamlog.metadata.commands import RegisterNode
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.data_dir import DataDir
from streamlog.metadata.nodes.node_condition import (
    disabling,
)
from streamlog.metadata.quorum.metadata_replica import MetadataReplica
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.metadata.quorum.voter_sets import configured_voters, fingerprint
from streamlog.metadata.read_barrier import catch_up
from streamlog.metadata.service import MetadataService
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.nats.auth.port_authenticator import PortAuthenticator
from streamlog.nats.auth.stream_access import StreamIndex
from streamlog.nats.links import NodeLinks, all_urls, connect_url
from streamlog.nats.port import Port
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from streamlog.partition.replica_manager import NodeTier, ReplicaManager
from streamlog.partition.state import PartitionStatistics
from streamlog.partition.tiering.object_storage import ObjectStorage
from streamlog.raft.node import RaftSettings
from streamlog.raft.voters import Voter, VoterSet
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.shares.share_service import ShareService
from streamlog.tls.certificates import CertificateReload, Certificates
from streamlog.transactions.marker_sender import MarkerSender
from streamlog.transactions.service import TransactionService


class LifecycleStep(NamedTuple):
    """A part of the node, and what is to be called; awaited before the next step begins."""

    part: str
    call: Callable[[], Awaitable[None]]


class Lifecycle:
    """Knows which parts have begun to start; only those are stopped."""

    def __init__(
        self, start_order: Sequence[LifecycleStep], stop_order: Sequence[LifecycleStep]
    ) -> None:
        self.starting: str | None = "node"
        """The part that is about to start; None when all have."""
        self._start_order = start_order
        self._stop_order = stop_order
        self._begun: set[str] = set()

    async def start(self) -> None:
        """Raises what a part raises; what has begun then is for ``stop``."""
        for part, call in self._start_order:
            began = time.monotonic()
            self.starting = part
            self._begun.add(part)
            await call()
            seconds = round(time.monotonic() - began, 3)
            logger.debug("started", extra={"part": part, "seconds": seconds})
        self.starting = None

    async def stop(self, timeout_s: float) -> bool:
        """A stop that fails is logged, and the next one still called. False: not clean."""
        clean = True
        try:
            async with asyncio.timeout(timeout_s):
                for part, call in self._stop_order:
                    if part in self._begun:
                        self._begun.remove(part)
                        clean &= await _succeeds(part, call)
        except TimeoutError:
            logger.error(STOP_TOO_LONG, extra={"seconds": timeout_s})
            return False
        return clean


async def _succeeds(part: str, call: Callable[[], Awaitable[None]]) -> bool:
    try:
        await call()
    except TimeoutError:
        raise
    except StreamlogError as error:
        logger.error(STOP_FAILED, extra={"part": part, "error": str(error)})
        return False
    except Exception:
        logger.exception(STOP_FAILED, extra={"part": part})
        return False
    return True


logger = logging.getLogger(__name__)

STOP_FAILED: Final = Condition(
    "SL-0002",
    "stop failed",
    "the next start recovers what is missing; look at the error",
    meaning="A part of the node did not stop in order. Records that were acknowledged are safe.",
)
STOP_TOO_LONG: Final = Condition(
    "SL-0003",
    "stop took too long",
    "the next start recovers; raise node.stop_timeout_ms if it is short",
    meaning="The node did not stop within node.stop_timeout_ms, and ended without the rest of "
    "the steps.",
)

RESERVE_NAME: Final = "reserve"
NATS_PORT: Final = "NATS.PORT"
"""The question of another node where this one's NATS port is, and by which token it takes links."""
NATS_PORT_TIMEOUT_S: Final = 2.0
TROUBLES_S: Final = 1.0
"""How often it is looked whether the log has to tell of a trouble, or of its end."""


class Node:
    """One node in its folder. ``run`` returns after ``stopping`` is set."""

    def __init__(
        self,
        settings: Settings,
        data_dir: DataDir,
        incarnation: UUID,
        *,
        tail_lost: bool = False,
        keys: KeyRing | None = None,
        machine: int | None = None,
    ) -> None:
        """``incarnation``: of this run, and noted in the folder; ``keys``: to encrypted streams;
        ``machine``: see ``MachineNode``.
        """
        self.stopping = asyncio.Event()
        self._settings = settings
        self._data_dir = data_dir
        self._tail_lost = tail_lost
        self._machine = None if machine is None else NodeId(machine)
        self._tasks: list[asyncio.Task[None]] = []
        self._incarnation = incarnation
        metrics = NodeMetrics()
        self._certificates = Certificates(settings)
        self.renewal = CertificateReload(self._certificates, metrics, settings.tls.reload_check_ms)
        security = to_nodes(settings, self._certificates)
        reserve = Reserve(data_dir.path / RESERVE_NAME, settings.log.metadata_reserve_bytes)
        self._metadata = build_metadata(settings, data_dir, self._incarnation, reserve, security)
        self._tracing = tracing_of(settings.tracing, data_dir.node_id)
        self._registry = ReplicaManager(
            data_dir.path,
            node_id=data_dir.node_id,
            settings=settings.log,
            metrics=metrics,
            replication=settings.replication,
            cluster=self._metadata,
            reserve=reserve,
            new_partition=traced(self._tracing),
            security=security,
            keys=keys,
            power_lost=data_dir.power_was_lost(),
            tier=tier_of(settings, data_dir, keys),
            awake_ms=self._metadata.awake_ms,
        )
        self._metadata.ask_before_heartbeats(
            self._unfit, self._registry.stall_ms, self._registry.oldest_sync_ms
        )
        self._groups = GroupService(
            node_id=data_dir.node_id,
            settings=settings.groups,
            metadata=self._metadata,
            partitions=self._registry,
        )
        self._markers = MarkerSender(
            data_dir.node_id,
            lambda: self._metadata.image,
            Peers(data_dir.cluster_id, data_dir.node_id, security=security),
            here=self._end_transaction,
            catch_up=partial(catch_up, self._metadata),
        )
        self._producer_ids = ProducerIds()
        self._transactions = TransactionService(
            node_id=data_dir.node_id,
            settings=settings.transactions,
            metadata=self._metadata,
            partitions=self._registry,
            markers=self._markers,
            new_producer_id=partial(self._producer_ids.take, self._metadata, data_dir.node_id),
        )
        self._activity = ActivityService(
            node_id=data_dir.node_id,
            settings=settings.activity,
            metadata=self._metadata,
            partitions=self._registry,
        )
        authenticator = build_authenticator(
            settings, lambda: self._metadata.image, self._certificates
        )
        self._security = NodeSecurity(settings, self._rules, authenticator, metrics)
        self._control = ControlService(
            node_id=data_dir.node_id,
            metadata=self._metadata,
            partitions=self._registry,
            peers=Peers(data_dir.cluster_id, data_dir.node_id, security=security),
            lease=self._metadata.lease,
            audit=self._security.audit,
            authorization=self._security.authorization,
            node_user=settings.sasl.node_user,
            groups=self._groups,
            transactions=self._transactions,
            log=settings.log,
            data_dir=settings.node.data_dir,
            metrics=metrics,
        )
        self._metadata.ask_for_room(self._control.load.room)
        self._shares = ShareService(settings=settings.groups, keeper=self._control.coordinators)
        self._listener = self._server(metrics, authenticator)
        self._router = Router(seed=int.from_bytes(os.urandom(8), "big") >> 1)
        self._sockets = Sockets(
            self._router,
            write_timeout_ms=settings.nats_listen.write_timeout_ms,
            read_buffer_bytes=settings.ingest.read_buffer_bytes,
            around_turn=self._tracing.traces.reading if self._tracing else None,
        )
        self._leaf = self._leaf_link()
        self._source, self._admin = self._nats_side(metrics)
        self._stream_index = StreamIndex()
        self._port, self._links = self._nats_port(metrics)
        self._loop_lag = LoopLag(metrics.event_loop_lag_seconds, metrics.event_loop_lag_max_seconds)
        self._readiness = NodeReadiness(
            node_id=data_dir.node_id,
            metadata=self._metadata,
            partitions=self._registry,
            source=self._source,
            admin=self._admin,
            certificates=self._certificates,
            loop_lag=self._loop_lag,
            starting=lambda: self._life.starting,
            stopping=self.stopping,
        )
        self._watched_by(metrics, security)
        self._life = self._lifecycle()

    def _watched_by(self, metrics: NodeMetrics, security: Security) -> None:
        """What tells others how the node is."""
        ProcessCollector(registry=metrics.registry)
        self._page = self._console(security)
        self._partition_scrape = PartitionScrape(
            statistics=self._statistics,
            partitions_max=self._settings.http.metrics_partitions_max,
        )
        self._site = HttpEndpoints(
            self._settings.http.host,
            self._settings.http.port,
            registry=metrics.registry,
            gauges=self._gauges,
            readiness=self._readiness,
            loop_lag_s=lambda: self._loop_lag.seconds,
            pages=lambda: [
                *self._page.routes(),
                *self._partition_scrape.routes(),
                *self._api().routes(),
            ],
            limits=self._settings.http,
            tls=self._certificates.http,
            access=self._security.http,
        )
        self._log_ends = LogEnds(
            wanted=self._committed,
            local=self._registry.partition,
            image=lambda: self._metadata.image,
            security=security,
        )

    @property
    def has_certificates(self) -> bool:
        """Which ``renewal`` may be asked to load again."""
        return self._certificates.are_shown

    def _server(self, metrics: NodeMetrics, authenticator: Authenticator | None) -> Listener:
        return Listener(
            Context(
                node_id=self._data_dir.node_id,
                address=self._advertised,
                settings=self._settings.kafka,
                partitions=self._registry,
                metadata=self._metadata,
                metrics=metrics,
                groups=self._groups,
                transactions=self._transactions,
                transaction_partitions=self._control.transactions,
                producer_ids=self._producer_ids,
                shares=self._shares,
                node_settings=self._settings,
                authenticator=authenticator,
                tls=self._certificates.kafka,
                authorization=self._security.authorization,
                audit=self._security.audit,
                control_service=self._control,
            )
        )

    def _nats_side(self, metrics: NodeMetrics) -> tuple[IngestService, ManagementApi]:
        source = IngestService(
            node_id=self._data_dir.node_id,
            nats=self._settings.nats,
            ingest=self._settings.ingest,
            message_bytes_max=self._settings.log.message_bytes_max,
            partitions=self._registry,
            metrics=metrics,
            router=self._router,
            sockets=self._sockets,
            lease=self._metadata.lease,
            leaf=self._leaf,
            barrier=self._control.freshness,
        )
        admin = ManagementApi(
            node_id=self._data_dir.node_id,
            nats=self._settings.nats,
            data_dir=self._data_dir.path,
            metadata=self._metadata,
            partitions=self._registry,
            metrics=metrics,
            control=self._control,
            router=self._router,
            sockets=self._sockets,
            payload_bytes_max=self._settings.nats_listen.payload_bytes_max,
            lease=self._metadata.lease,
            consumers=ConsumerHost(self._settings.consumers, self._metadata)
            if self._reaches_nats_clients
            else None,
            leaf=self._leaf,
            identity=self._security.identity,
            audit=self._security.audit,
        )
        return source, admin

    @property
    def _reaches_nats_clients(self) -> bool:
        """With messages of consumers, whose replies nats-server refuses from a node that is its client."""
        return self._settings.nats_listen.port is not None or self._settings.nats.is_leaf

    def _leaf_link(self) -> LeafLink | None:
        """None: the node is no leafnode."""
        nats = self._settings.nats
        if not nats.is_leaf:
            return None
        return LeafLink(
            nats,
            self._router,
            self._sockets,
            node_id=self._data_dir.node_id,
            cluster_id=self._data_dir.cluster_id,
            payload_bytes_max=self._settings.nats_listen.payload_bytes_max,
        )

    def _nats_port(self, metrics: NodeMetrics) -> tuple[Port | None, NodeLinks | None]:
        """The NATS port, and the links to other nodes' ports; None: the node has none."""
        settings = self._settings.nats_listen
        if settings.port is None:
            return None, None
        nodes = self._control.nodes

        async def ask(node_id: int) -> Mapping[str, Any]:
            answer = await nodes.ask(NodeId(node_id), NATS_PORT, {}, timeout_s=NATS_PORT_TIMEOUT_S)
            return answer.fields

        async def answer(_: Fields) -> NodeAnswer:
            is_open = self._port is not None and self._port.is_open
            return NodeAnswer(links.answer() if is_open else {})

        links = NodeLinks(
            self._router,
            self._sockets,
            node_id=self._data_dir.node_id,
            cluster_id=self._data_dir.cluster_id,
            token=secrets.token_urlsafe(32),
            address=self._port_address,
            ask=ask,
            tls=self._certificates.outgoing,
            payload_bytes_max=settings.payload_bytes_max,
            changed=self._ports_changed,
            linked=lambda linked: self._source.reach(frozenset(map(NodeId, linked))),
        )
        nodes.register(NATS_PORT, answer)
        port = Port(
            settings,
            self._router,
            self._sockets,
            node_id=self._data_dir.node_id,
            cluster_id=self._data_dir.cluster_id,
            domain=self._settings.nats.domain,
            metrics=metrics,
            tls=self._certificates.nats,
            api_level=API_LEVEL,
            connect_urls=lambda: all_urls(connect_url(*self._port_address()), links.urls),
            authenticator=self._port_authenticator(),
            streams=self._stream_index,
            refusal=_may_not_write,
            link=links.take,
        )
        return port, links

    def _port_authenticator(self) -> PortAuthenticator | None:
        """None: no client of the NATS port has to log in. Raises ConfigError."""
        settings = self._settings
        made = self._security.port_authenticator(settings.nats_listen, settings.nats_client_auth)
        return made if made.is_configured else None

    def _port_address(self) -> tuple[str, int]:
        """As clients and other nodes reach the NATS port."""
        assert self._port is not None, "there is a NATS port"
        settings = self._settings.nats_listen
        host, port = self._port.address
        return settings.advertised_host or host, settings.advertised_port or port

    def _ports_changed(self) -> None:
        if self._port is not None and self._port.is_open:
            self._port.tell_info()

    def _console(self, security: Security) -> Console:
        status = NodeStatus(
            node_id=self._data_dir.node_id,
            settings=self._settings,
            metadata=self._metadata,
            registry=self._registry,
            groups=self._groups,
            source=self._source,
            admin=self._admin,
            readiness=self._readiness,
            troubles=self._readiness.troubles,
            loop_lag=self._loop_lag,
            is_guarded=self._security.http.is_closed,
        )
        return Console(
            settings=self._settings.http,
            moment=status.moment,
            survey=status.survey,
            image=lambda: self._metadata.image,
            partitions=self._registry,
            may_read=may_read,
            may_stay=may_stay,
            permissions=sees_by,
            control=self._control,
            security=security,
            has_controller=lambda: (
                not self._metadata.is_open or self._metadata.controller_id is not None
            ),
        )

    def _api(self) -> HttpApi:
        http = self._settings.http
        return HttpApi(
            self._control,
            settings=http,
            is_ready=lambda: self._metadata.is_open,
            why_no_payloads=why_no_tail(http, is_guarded=self._security.http.is_closed),
        )

    def _lifecycle(self) -> Lifecycle:
        """Whatever answers others starts after what it needs, and stops before it."""
        return Lifecycle(
            start_order=(
                LifecycleStep("access", self._start_access),
                LifecycleStep("console", self._start_console),
                LifecycleStep("metadata", self._metadata.open),
                LifecycleStep("server", self._start_server),
                LifecycleStep("quorum", self._start_quorum),
                LifecycleStep("registration", self._register),
                LifecycleStep("partitions", self._start_partitions),
                LifecycleStep("groups", self._start_groups),
                LifecycleStep("transactions", self._start_transactions),
                LifecycleStep("shares", self._start_shares),
                LifecycleStep("page", self._start_page),
                LifecycleStep("activity", self._start_activity),
                LifecycleStep("NATS sockets", self._start_sockets),
                LifecycleStep("ingest", self._start_ingest),
                LifecycleStep("membership", self._start_membership),
                LifecycleStep("admin", self._start_admin),
                LifecycleStep("NATS port", self._open_port),
                LifecycleStep("NATS clients", self._start_port),
            ),
            stop_order=(
                LifecycleStep("NATS clients", self._retire_port),
                LifecycleStep("admin", self._admin.stop),
                LifecycleStep("ingest", self._source.stop),
                LifecycleStep("NATS port", self._stop_port),
                LifecycleStep("NATS sockets", self._stop_sockets),
                LifecycleStep("membership", self._metadata.leave),
                LifecycleStep("activity", self._activity.stop),
                LifecycleStep("shares", self._shares.stop),
                LifecycleStep("transactions", self._stop_transactions),
                LifecycleStep("groups", self._groups.stop),
                LifecycleStep("server", self._stop_server),
                LifecycleStep("metadata", self._metadata.close),
                LifecycleStep("partitions", self._registry.close),
                LifecycleStep("tracing", self._stop_tracing),
                LifecycleStep("console", self._stop_console),
                LifecycleStep("access", self._security.close),
            ),
        )

    async def _stop_server(self) -> None:
        await self._listener.stop()
        self._control.close()

    def _rules(self) -> RuleBook:
        """Of the metadata; there are none before these are read."""
        return self._metadata.image.rules if self._metadata.is_open else NO_RULES

    def _unfit(self) -> tuple[str, ...]:
        return self._readiness.unfit()

    async def _tell_of_troubles(self) -> None:
        """What ``/readyz`` and the page say is in the log, too: when it comes and when it goes."""
        known: dict[str, Condition] = {}
        while True:
            found = {it.name: it for it in self._readiness.troubles()}
            for name, it in found.items():
                if known.get(name) != it.event:
                    level = logging.ERROR if it.is_urgent else logging.WARNING
                    extra = {"reason": name, "problem": it.said}
                    logger.log(level, it.event, extra=extra)
            for name in known.keys() - found.keys():
                logger.info("node is well again", extra={"reason": name})
            known = {name: it.event for name, it in found.items()}
            await asyncio.sleep(TROUBLES_S)

    async def _gauges(self) -> list[Collector]:
        totals = await PartitionTotals.of(self._registry.partitions())
        shown = await self._progress()
        ends = await self._log_ends.known({tp for it in shown.groups for tp in it.committed})
        metadata, image = self._metadata, self._metadata.image
        failed = totals.failed + len(self._registry.unopened)
        partitions = PartitionGauges(totals, failed=failed, gone=len(self._registry.gone()))
        machine = MachineGauges(self._data_dir.path)
        if not metadata.is_open:
            return [partitions, machine]
        cluster = ClusterStatistics(
            role=metadata.quorum_role.value,
            quorum_epoch=metadata.quorum_epoch,
            controller=metadata.controller_id,
            metadata_offset=image.offset,
            lease_held=metadata.lease.held,
            nodes=len(image.nodes),
            fenced=sum(node.fenced for node in image.nodes.values()),
            leaderless=image.leaderless,
            activity_offset=self._activity.told_offset,
            clock_skew_s=metadata.clock_skew_s,
            unfit=disabling(self._readiness.troubles()),
            healing=metadata.healing_status,
        )
        groups = self._groups.statistics()
        lags = LagGauges(shown.groups, omitted=shown.omitted, ends=ends)
        consumers = ConsumerGauges(self._admin.consumer_statistics())
        mirrors = MirrorGauges(self._admin.fed_statistics())
        transactions = TransactionGauges(
            self._transactions.statistics(wall_ms()), self._markers.unsent
        )
        shares = ShareGauges(self._shares.statistics())
        of_streams = [
            GroupGauges(groups), shares, transactions, consumers, mirrors, lags, partitions
        ]  # fmt: skip
        return [ClusterGauges(cluster), *of_streams, machine]

    async def _statistics(self, streams: Iterable[str] | None) -> list[PartitionStatistics]:
        """Of the partitions here; of these streams, or of all."""
        if streams is None:
            here = self._registry.partitions()
            return [it.statistics() async for it in cooperatively(here) if not it.closed]
        image = self._metadata.image
        wanted = [image.streams[name] for name in streams if name in image.streams]
        tps = (
            TopicPartition(stream.name, number)
            for stream in wanted
            for number in range(len(stream.partitions))
        )
        found = [self._page.statistics(tp) async for tp in cooperatively(tps)]
        return [it for it in found if it is not None]

    async def _progress(self) -> GroupProgressPage:
        """Of the groups that ``/metrics`` tells the lag of."""
        return await self._groups.progress(self._settings.http.metrics_group_partitions_max)

    async def _committed(self) -> set[TopicPartition]:
        """Where these have committed."""
        return {tp for group in (await self._progress()).groups for tp in group.committed}

    async def run(self) -> bool:
        """False: the stop was not clean, so that the next start will recover."""
        async with asyncio.TaskGroup() as tasks:
            self._group = tasks
            starting = tasks.create_task(self._start())
            stop = tasks.create_task(self.stopping.wait())
            await asyncio.wait((starting, stop), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
            await self.stopping.wait()
            clean = await self._stop()
            if not clean:
                self._registry.give_up()
            for task in self._tasks:
                task.cancel()
        logger.info("stopped", extra={"clean": clean})
        return clean

    async def _start(self) -> None:
        """What cannot start leaves nothing half open behind it."""
        logger.info(
            "starting",
            extra={
                "version": __version__,
                "node": self._data_dir.node_id,
                "cluster": self._data_dir.cluster_id,
                "data_dir": str(self._data_dir.path),
                "event_loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
            },
        )
        try:
            await self._life.start()
        except StreamlogError:
            await self._stop()
            raise
        host, port = self._listener.address
        http = f"{self._settings.http.host}:{self._site.port}"
        logger.info("started", extra={"kafka": f"{host}:{port}", "http": http})

    async def _stop(self) -> bool:
        return await self._life.stop(self._settings.node.stop_timeout_ms / 1000)

    # The steps of the start

    async def _start_access(self) -> None:
        """No request is answered before the access rules are known."""
        await self._security.open()
        self._run(self._security.authorization.run())

    async def _start_console(self) -> None:
        await self._site.start()
        self._run(self._loop_lag.run())
        self._run(self._page.run())
        self._run(summarise_logs())
        if self._certificates.are_shown:
            self._run(self.renewal.run())

    async def _stop_tracing(self) -> None:
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    async def _stop_console(self) -> None:
        self._page.close()
        await self._site.stop()

    async def _start_server(self) -> None:
        """Other members of the quorum are answered from now on, clients when the node is ready."""
        self._listener.open()
        self._run(self._listener.run())

    async def _start_quorum(self) -> None:
        self._run(self._metadata.run())

    async def _register(self) -> None:
        """Say where this node is; it knows then all that was decided before."""
        host, port = self._advertised()
        await self._metadata.register(
            RegisterNode(
                node_id=self._data_dir.node_id,
                incarnation=self._incarnation,
                directory_id=self._data_dir.directory_id,
                host=host,
                port=port,
                rack=self._settings.node.rack,
                machine=self._machine,
                stamps=self._data_dir.stamps,
                tail_lost=self._tail_lost,
                sync=self._settings.log.sync,
            )
        )
        await asyncio.to_thread(self._data_dir.told_of_loss)

    async def _start_partitions(self) -> None:
        """Only with metadata that is up to date: a folder that it does not know is moved away."""

        async def begin(image: MetadataImage) -> None:
            log_id = None if image.log is None else image.log.log_id
            await self._registry.open(
                image,
                self._metadata.recently_deleted,
                is_log_known=log_id is not None and log_id == self._data_dir.metadata_log,
            )
            await asyncio.to_thread(self._data_dir.follows, log_id)
            self._registry.apply(MetadataImage(image.cluster_id), image)

        await self._metadata.attach(self._registry.apply, begin, self._registry.settled)
        if not self._registry.unopened:
            await asyncio.to_thread(self._data_dir.logs_recovered)
        self._run(self._registry.run())

    async def _start_groups(self) -> None:
        async def begin(image: MetadataImage) -> None:
            self._groups.apply(MetadataImage(image.cluster_id), image)
            self._registry.add_listener(self._groups.look)

        await self._metadata.attach(self._groups.apply, begin)
        self._run(self._groups.run())
        self._run(self._log_ends.run())

    async def _start_transactions(self) -> None:
        async def begin(image: MetadataImage) -> None:
            self._transactions.apply(MetadataImage(image.cluster_id), image)
            self._registry.add_listener(self._transactions.look)

        await self._metadata.attach(self._transactions.apply, begin)
        self._run(self._transactions.run())
        self._run(self._markers.run())

    async def _stop_transactions(self) -> None:
        await self._transactions.stop()
        self._markers.close()

    async def _end_transaction(self, tp: TopicPartition, marker: TransactionMarker) -> None:
        """In a partition that this node leads. Raises StreamlogError."""
        partition = self._registry.partition(tp)
        if not partition.is_leader:
            raise NotLeader(f"{tp} is led by another node")
        if tp.stream == OFFSETS_STREAM:
            await self._groups.end_transaction(tp, marker)
        else:
            await partition.end_transaction(marker)

    async def _start_shares(self) -> None:
        async def begin(_: MetadataImage) -> None:
            """Nothing is led for a share group before a member asks for it."""

        await self._metadata.attach(self._shares.apply, begin)
        self._run(self._shares.run())

    async def _start_page(self) -> None:
        async def begin(_: MetadataImage) -> None:
            """Only changes are told."""

        await self._metadata.attach(self._page.apply, begin)

    async def _start_activity(self) -> None:
        async def begin(image: MetadataImage) -> None:
            self._activity.apply(MetadataImage(image.cluster_id), image)
            self._registry.add_listener(self._activity.look)

        if self._settings.activity.enabled:
            await self._metadata.attach(self._activity.apply, begin)
            self._run(self._activity.run())

    async def _start_ingest(self) -> None:
        async def begin(image: MetadataImage) -> None:
            self._source.apply(MetadataImage(image.cluster_id), image)
            self._registry.add_listener(self._source.look)
            await self._source.settled(None)  # windows of duplicates are read

        await self._metadata.attach(self._source.apply, begin, self._source.settled)
        self._run(self._source.run())

    async def _start_membership(self) -> None:
        """The first heartbeat says that the node is ready to lead."""
        self._run(self._metadata.join(self._stamp_folder))
        self._run(self._tell_of_troubles())

    async def _stamp_folder(self) -> tuple[UUID, ...] | None:
        noted = await asyncio.to_thread(self._data_dir.stamp)
        return self._data_dir.stamps if noted else None

    async def _start_admin(self) -> None:
        await self._metadata.attach(self._admin.apply, self._admin.begin)
        self._registry.add_listener(self._admin.look)
        self._run(self._admin.run())

    async def _start_sockets(self) -> None:
        self._sockets.begin(self._source.room)
        self._run(self._sockets.run())
        if self._leaf is not None:
            self._run(self._leaf.run())

    async def _stop_sockets(self) -> None:
        self._sockets.close()

    async def _open_port(self) -> None:
        if self._port is not None:
            self._port.open()

    async def _start_port(self) -> None:
        """Clients are answered when all that they may ask for is there."""
        if self._port is None or self._links is None:
            return
        links, own = self._links, self._data_dir.node_id

        def follow(old: MetadataImage, new: MetadataImage) -> None:
            others = {number: node for number, node in new.nodes.items() if number != own}
            live = frozenset(number for number, node in others.items() if not node.fenced)
            links.apply({number: node.epoch for number, node in others.items()}, live)
            self._stream_index.apply(old, new)

        async def begin(image: MetadataImage) -> None:
            follow(MetadataImage(image.cluster_id), image)

        await self._metadata.attach(follow, begin)
        self._run(self._port.run())
        self._run(links.run())

    async def _retire_port(self) -> None:
        """Clients are told to go to another node; what they have sent is still answered."""
        if self._port is not None:
            self._port.retire()

    async def _stop_port(self) -> None:
        if self._port is not None:
            await self._port.stop()

    def _run(self, service: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._group.create_task(service))

    def _advertised(self) -> tuple[str, int]:
        """What clients are told to connect to."""
        kafka = self._settings.kafka
        host, port = self._listener.address
        return kafka.advertised_host or host, kafka.advertised_port or port


def _may_not_write(stream: str) -> bytes:
    """A PubAck that refuses."""
    refused = api_error(TopicForbidden(f"not allowed to write to {stream}"))
    return error_json(refused.code, refused.err_code, refused.description, stream)


METADATA_FILES_MAX = 16
TIER_FILES_MAX = 512
"""Open files of segments that were read back from the object store."""


def tier_of(settings: Settings, data_dir: DataDir, keys: KeyRing | None) -> NodeTier | None:
    """None without tier.url. Raises ConfigError."""
    if settings.tier.url is None:
        return None
    files = FilePool(OsDisk(), TIER_FILES_MAX, keys)
    storage = ObjectStorage(settings.tier, data_dir.cluster_id, data_dir.path, files=files)
    return NodeTier(settings.tier, data_dir.cluster_id, storage, files)


def build_metadata(
    settings: Settings,
    data_dir: DataDir,
    incarnation: UUID,
    reserve: Reserve,
    security: Security = NO_SECURITY,
) -> MetadataService:
    """Nothing is opened yet. Raises ConfigError."""
    voters = voters_of(settings)
    cluster = settings.cluster
    if voters.ids != {data_dir.node_id} and cluster.id is None:
        raise ConfigError("cluster.id", "is missing", "set it to the same text on every node")
    disk = ReservingDisk(reserve)
    store = MetadataStore(
        data_dir.metadata,
        data_dir.cluster_id,
        disk=disk,
        files=FilePool(disk, METADATA_FILES_MAX),
        power_lost=data_dir.power_was_lost(),
    )
    replica = MetadataReplica(
        store,
        node_id=data_dir.node_id,
        configured=voters,
        voters_id=fingerprint(data_dir.cluster_id, voters),
        settings=RaftSettings(
            election_timeout_ms=cluster.election_timeout_ms,
            request_timeout_ms=cluster.request_timeout_ms,
            pause_ms=cluster.pause_ms,
            fetch_wait_max_ms=cluster.heartbeat_interval_ms,
        ),
        random=random.random,
        may_encrypt=settings.encryption.active_key is not None,
        may_tier=settings.tier.url is not None,
    )
    return MetadataService(
        replica,
        data_dir.cluster_id,
        node_id=data_dir.node_id,
        incarnation=incarnation,
        settings=cluster,
        peers=Peers(data_dir.cluster_id, data_dir.node_id, security=security),
    )


def voters_of(settings: Settings) -> VoterSet:
    """As configured; none: this node alone. Raises ConfigError."""
    if settings.cluster.voters:
        return configured_voters(settings.cluster.voters)
    kafka = settings.kafka
    host = kafka.advertised_host or kafka.host
    port = kafka.advertised_port or kafka.port
    return VoterSet.of([Voter(NodeId(settings.node.id), host, port)])
