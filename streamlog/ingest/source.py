"""The service that takes messages from NATS for every partition that this node leads."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from streamlog.config import IngestSection, NatsSection
from streamlog.errors import StreamlogError
from streamlog.ingest.answers import Answers
from streamlog.ingest.frames import Inflow
from streamlog.ingest.inlet import Inlet, OwnedPartition
from streamlog.ingest.listening import Listening
from streamlog.ingest.openings import OpenedPartition, Openings
from streamlog.ingest.outage import Outage
from streamlog.ingest.room import Room
from streamlog.ingest.sequencer import Ack, Sequencer
from streamlog.ingest.servers import connect_options
from streamlog.ingest.snapshots import Kept, Snapshots
from streamlog.ingest.standby import FollowedPartition, Prepared, Standby
from streamlog.metadata.image import Image, StreamImage
from streamlog.metadata.stream import NO_LIMIT, StreamConfig, is_internal
from streamlog.metadata.subjects import partition_subject
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_S: Final = 10.0
"""How long a stop waits for what is appended to be committed and acknowledged."""

_ACKS: Final = {"all": Ack.COMMITTED, "leader": Ack.APPENDED, "none": Ack.NEVER}


class KeptPartition(OwnedPartition, FollowedPartition, OpenedPartition, Protocol):
    """What ingest needs of ``partition.owner.Partition``."""


class Partitions(Protocol):
    """What ingest needs of ``partition.registry.Registry``."""

    def partition(self, tp: TopicPartition) -> KeptPartition: ...


class Lease(Protocol):
    """What ingest needs of ``metadata.lease.Lease``."""

    @property
    def held(self) -> bool: ...

    def add_listener(self, listener: Callable[[bool], None]) -> None: ...


class NatsSource:
    """``reconcile`` says what to listen to, ``run`` stays connected, ``stop`` ends without loss.

    Without the lease nothing is listened to, since nothing may be stored; what was appended before
    waits for its commit. Publishers then hear at once that nobody is there, as they do while one
    leader has gone and the next one still reads its duplicate window.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        nats: NatsSection,
        ingest: IngestSection,
        message_bytes_max: int,
        partitions: Partitions,
        metrics: NodeMetrics,
        lease: Lease | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._node_id = node_id
        self._message_bytes_max = message_bytes_max
        self._partitions = partitions
        self._metrics = metrics
        self._now_ms = now_ms
        self._inlets: dict[TopicPartition, Inlet] = {}
        self._by_stream: dict[str, list[TopicPartition]] = {}
        """The keys of ``_inlets``, by stream."""
        self._outage = Outage(metrics)
        self._room = Room(
            inflight_bytes_max=ingest.inflight_bytes_max,
            stall_ms_max=ingest.stall_ms_max,
            metrics=metrics,
        )
        self._listening = Listening(
            self._received,
            options=connect_options(nats, name=f"streamlog node {node_id} ingest"),
            read_bytes=ingest.read_bytes,
            room=self._room,
            outage=self._outage,
        )
        self._answers = Answers(self._listening.write, metrics)
        self._grown: dict[Inlet, None] = {}
        self._snapshots = Snapshots(self._take_grown)
        self._openings = Openings(self._listen, snapshots=self._snapshots, now_ms=now_ms)
        self._standby = Standby(now_ms=now_ms)
        self._reconciled = 0
        """The offset of the image that was acted on last."""
        self._may_listen = lease is None or lease.held
        if lease is not None:
            lease.add_listener(self._lease_changed)
        self._running = False
        self._stopping = False
        self._stopped = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self._outage.is_connected

    def has_settled(self, image: Image) -> bool:
        """All that ``image`` has led here is listened to, as far as there is a NATS, and it knows.

        Not while a duplicate window is being read, for one.
        """
        behind = self._reconciled < image.offset
        return not behind and not self._openings.count and self._listening.is_heard

    async def run(self) -> None:
        """Be connected until ``stop``; wait for a NATS that is not there."""
        self._running = True
        services = (
            self._listening.run, self._openings.run, self._standby.run, self._snapshots.run,
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(service()) for service in services]
            await self._stopped.wait()
            for task in tasks:
                task.cancel()

    async def stop(self) -> None:
        """Listen to nothing more, append what has come, wait for its commit, acknowledge, close."""
        self._stopping = True
        for inlet in self._inlets.values():
            inlet.sids = ()
        await self._listening.end_all()
        if not await self._room.wait_empty(COMMIT_TIMEOUT_S):
            extra = {"inflight_bytes": self._room.taken_bytes}
            logger.warning("stopping with appends uncommitted", extra=extra)
        for inlet in self._inlets.values():
            inlet.give_up()
        self._answers.flush()
        await self._listening.round_trip()
        await self._snapshots.save(self._known(self._inlets.values()))
        self._inlets.clear()
        self._by_stream.clear()
        self._stopped.set()
        await self._listening.close()

    async def reconcile(self, old: Image, new: Image) -> None:
        """Listen as ``new`` says. Partitions must be led by now, and those gone closed.

        A stream that is new, gone or changed is listened to accordingly when this returns, so that
        whoever asked for it may count on it. A change of leaders waits for nobody: duplicate
        windows are read in the background, but for those of a node that starts.
        """
        awaited = False
        for change in new.changes(old):
            awaited |= not (change.old and change.new and change.old.config == change.new.config)
            if change.new is None:
                assert change.old is not None, "a change has one side at least"
                self._drop(self._by_stream.get(change.old.name, ()))
                self._standby.leave_stream(change.old.name)
            else:
                self._follow(change.new)
            await asyncio.sleep(0)
        if not self._running:
            await self._openings.drain()
        if awaited:
            await self._listening.round_trip()
        self._reconciled = new.offset

    def _received(self, touched: list[Inflow]) -> None:
        """One read is parsed: one append for each partition in it."""
        for inflow in touched:
            inlet = inflow.owner
            assert isinstance(inlet, Inlet)
            self._grown[inlet] = None
            try:
                inlet.take()
            except Exception:
                tp = inlet.partition.tp
                extra = {"stream": tp.stream, "partition": tp.partition}
                logger.exception("messages could not be taken", extra=extra)

    def _follow(self, stream: StreamImage) -> None:
        """Inlets for what is led here, each for one leader epoch; what is kept is prepared for."""
        name, config = stream.name, stream.config
        if is_internal(name):
            return
        led = {
            TopicPartition(name, number): partition.leader_epoch
            for number, partition in enumerate(stream.partitions)
            if partition.leader == self._node_id
        }
        known = self._by_stream.get(name, [])
        self._drop(tp for tp in known if led.get(tp) != self._inlets[tp].leader_epoch)
        for tp, leader_epoch in led.items():
            inlet = self._inlets.get(tp)
            if inlet is not None:
                self._reconfigure(inlet, config)
            elif (partition := self._kept(tp)) is not None:
                self._lead(partition, leader_epoch, config)
        followed = (
            TopicPartition(name, number)
            for number, partition in enumerate(stream.partitions)
            if partition.leader != self._node_id and self._node_id in partition.replicas
        )
        kept = (partition for tp in followed if (partition := self._kept(tp)) is not None)
        self._standby.follow(name, kept, duplicate_window_ms=config.duplicate_window_ms)

    def _take_grown(self) -> list[Kept]:
        """Those to which something was appended since this was asked for last."""
        grown, self._grown = self._grown, {}
        return self._known(grown)

    def _known(self, inlets: Iterable[Inlet]) -> list[Kept]:
        """Of these, those whose ids are all known: nobody else has appended since."""
        return [
            Kept(partition, inlet.sequencer)
            for inlet in inlets
            if inlet.opened
            and (partition := self._kept(inlet.partition.tp)) is not None
            and partition.leader_epoch == inlet.leader_epoch
        ]

    def _kept(self, tp: TopicPartition) -> KeptPartition | None:
        try:
            return self._partitions.partition(tp)
        except StreamlogError as error:
            extra = {"stream": tp.stream, "partition": tp.partition, "error": str(error)}
            logger.error("partition cannot be listened for", extra=extra)
            return None

    def _lead(self, partition: KeptPartition, leader_epoch: int, config: StreamConfig) -> None:
        """A new inlet; it listens when its sequencer knows the ids in the log."""
        tp = partition.tp
        prepared = self._standby.take(tp)
        if prepared is None:
            window_ms = config.duplicate_window_ms
            prepared = Prepared(Sequencer(tp.stream, duplicate_window_ms=window_ms))
        prepared.sequencer.configure(duplicate_window_ms=config.duplicate_window_ms)
        inlet = Inlet(
            partition,
            leader_epoch=leader_epoch,
            sequencer=prepared.sequencer,
            subjects=_subjects(config, tp),
            **self._inlet_settings(config),
            answers=self._answers,
            room=self._room,
            metrics=self._metrics,
            now_ms=self._now_ms,
        )
        self._inlets[tp] = inlet
        self._by_stream.setdefault(tp.stream, []).append(tp)
        self._openings.add(inlet, partition, known_offset=prepared.known_offset)

    def _inlet_settings(self, config: StreamConfig) -> dict[str, Any]:
        limit = config.message_bytes_max
        return {
            "value_bytes_max": self._message_bytes_max if limit == NO_LIMIT else limit,
            "keyed": config.is_compacted,
            "default_ack": _ACKS[config.acks],
            "answering": not config.no_ack,
        }

    def _reconfigure(self, inlet: Inlet, config: StreamConfig) -> None:
        """Another configuration for an inlet. Between two subjects that overlap nothing is lost."""
        inlet.sequencer.configure(duplicate_window_ms=config.duplicate_window_ms)
        inlet.configure(**self._inlet_settings(config))
        inlet.subjects = wanted = _subjects(config, inlet.partition.tp)
        ended = [sid for sid in inlet.sids if self._listening.subject(sid) not in wanted]
        inlet.sids = tuple(sid for sid in inlet.sids if sid not in ended)
        self._listen(inlet)
        self._listening.end(ended)

    def _drop(self, tps: Iterable[TopicPartition]) -> None:
        """These are led here no longer, or in another epoch.

        They end before a new inlet listens to the same subject, lest both get one message.
        """
        ended: list[int] = []
        for tp in list(tps):
            inlet = self._inlets.pop(tp)
            inlet.close()
            ended += inlet.sids
            self._by_stream[tp.stream].remove(tp)
            if not self._by_stream[tp.stream]:
                del self._by_stream[tp.stream]
        self._listening.end(ended)

    def _listen(self, inlet: Inlet) -> None:
        """To all its subjects, if the time has come."""
        if not inlet.opened or self._stopping or not self._may_listen:
            return
        heard = {self._listening.subject(sid) for sid in inlet.sids}
        missing = (subject for subject in inlet.subjects if subject not in heard)
        inlet.sids = (*inlet.sids, *self._listening.begin(missing, inlet.inflow))

    def _lease_changed(self, held: bool) -> None:
        changed, self._may_listen = held != self._may_listen, held
        if self._stopping or not changed:
            return
        inlets = self._inlets.values()
        if held:
            for inlet in inlets:
                self._listen(inlet)
        else:
            ended = [sid for inlet in inlets for sid in inlet.sids]
            for inlet in inlets:
                inlet.sids = ()
            self._listening.end(ended)
        logger.log(
            logging.INFO if held else logging.WARNING,
            "listening again" if held else "not listening: the controller is not heard",
            extra={"partitions": len(inlets)},
        )


def _subjects(config: StreamConfig, tp: TopicPartition) -> list[str]:
    return [partition_subject(subject, tp.partition) for subject in config.subjects]
