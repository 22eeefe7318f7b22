"""The service that takes messages from NATS for every partition that this node leads."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from streamlog.config import IngestSection, NatsSection
from streamlog.errors import StreamlogError
from streamlog.ingest.answers import Answers
from streamlog.ingest.connection import IngestClient
from streamlog.ingest.frames import Inflow
from streamlog.ingest.inlet import Inlet, OwnedPartition
from streamlog.ingest.outage import Outage
from streamlog.ingest.room import Room
from streamlog.ingest.sequencer import Ack, Sequencer
from streamlog.ingest.servers import connect_options
from streamlog.ingest.subscriptions import Subscription, Subscriptions
from streamlog.ingest.window import ReadablePartition, rebuild_window
from streamlog.metadata.image import Image, StreamImage
from streamlog.metadata.stream import NO_LIMIT, StreamConfig
from streamlog.metadata.subjects import partition_subject
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition

logger = logging.getLogger(__name__)

ROUND_TRIP_TIMEOUT_S: Final = 2.0
COMMIT_TIMEOUT_S: Final = 10.0
"""How long a stop waits for what is appended to be committed and acknowledged."""

_ACKS: Final = {"all": Ack.COMMITTED, "leader": Ack.APPENDED, "none": Ack.NEVER}


class LedPartition(OwnedPartition, ReadablePartition, Protocol):
    """What ingest needs of ``partition.owner.Partition``."""


class Partitions(Protocol):
    """What ingest needs of ``partition.registry.Registry``."""

    def partition(self, tp: TopicPartition) -> LedPartition: ...


class _Opening(NamedTuple):
    """An inlet that is to listen as soon as its duplicate window is known."""

    inlet: Inlet
    partition: LedPartition
    config: StreamConfig


class NatsSource:
    """``reconcile`` says what to listen to, ``run`` stays connected, ``stop`` ends without loss."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        nats: NatsSection,
        ingest: IngestSection,
        message_bytes_max: int,
        partitions: Partitions,
        metrics: NodeMetrics,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._node_id = node_id
        self._options = connect_options(nats, name=f"streamlog node {node_id} ingest")
        self._message_bytes_max = message_bytes_max
        self._partitions = partitions
        self._metrics = metrics
        self._now_ms = now_ms
        self._read_bytes = ingest.read_bytes
        self._inlets: dict[TopicPartition, Inlet] = {}
        self._by_stream: dict[str, list[TopicPartition]] = {}
        """The keys of ``_inlets``, by stream."""
        self._subscriptions = Subscriptions()
        self._outage = Outage(metrics)
        self._room = Room(
            inflight_bytes_max=ingest.inflight_bytes_max,
            stall_ms_max=ingest.stall_ms_max,
            metrics=metrics,
        )
        self._answers = Answers(self._write, metrics)
        self._client = self._new_client()
        self._closed = asyncio.Event()
        """The current client has ended for good."""
        self._stopping = False
        self._stopped = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self._outage.is_connected

    async def run(self) -> None:
        """Be connected until ``stop``; wait for a NATS that is not there."""
        async with asyncio.TaskGroup() as group:
            connecting = group.create_task(self._stay_connected())
            await self._stopped.wait()
            connecting.cancel()

    async def _stay_connected(self) -> None:
        while True:
            self._closed.clear()
            try:
                await self._client.connect(
                    **self._options,
                    no_echo=True,
                    error_cb=self._outage.failed,
                    disconnected_cb=self._outage.disconnected,
                    closed_cb=self._client_closed,
                )
                await self._closed.wait()
            except Exception:
                logger.exception("connecting to NATS failed")
                await self._client.close()
                await asyncio.sleep(self._options["reconnect_time_wait"])
            self._client = self._new_client()

    async def stop(self) -> None:
        """Listen to nothing more, append what has come, wait for its commit, acknowledge, close."""
        self._stopping = True
        client, sids = self._client, self._subscriptions.sids()
        client.unsubscribe_all(sids)
        await client.round_trip(ROUND_TRIP_TIMEOUT_S)
        client.forget(sids)
        if not await self._room.wait_empty(COMMIT_TIMEOUT_S):
            extra = {"inflight_bytes": self._room.taken_bytes}
            logger.warning("stopping with appends uncommitted", extra=extra)
        self._answers.flush()
        await client.round_trip(ROUND_TRIP_TIMEOUT_S)
        self._inlets.clear()
        self._by_stream.clear()
        self._stopped.set()
        self._outage.closed()
        await client.close()

    async def reconcile(self, old: Image, new: Image) -> None:
        """Listen as ``new`` says. Partitions must be open by now, and those gone closed."""
        opened: list[_Opening] = []
        ended: list[int] = []
        for change in new.changes(old):
            if change.new is None:
                assert change.old is not None, "a change has one side at least"
                ended += self._drop(self._by_stream.get(change.old.name, ()))
            else:
                ended += self._follow(change.new, opened)
            await asyncio.sleep(0)
        self._client.unsubscribe_all(ended)
        await self._open(opened)
        if opened or ended:
            await self._client.round_trip(ROUND_TRIP_TIMEOUT_S)
        self._client.forget(ended)

    def received(self, touched: list[Inflow]) -> None:
        """One read is parsed: one append for each partition in it."""
        for inflow in touched:
            inlet = inflow.owner
            assert isinstance(inlet, Inlet)
            try:
                inlet.take()
            except Exception:
                tp = inlet.partition.tp
                extra = {"stream": tp.stream, "partition": tp.partition}
                logger.exception("messages could not be taken", extra=extra)

    @property
    def has_room(self) -> bool:
        return self._room.has_room

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def connected(self) -> None:
        self._outage.connected(self._client.connected_url, subscriptions=len(self._subscriptions))

    def _follow(self, stream: StreamImage, opened: list[_Opening]) -> list[int]:
        """Inlets for what is led here, new ones also into ``opened``. Sids that are to end."""
        name = stream.name
        led = [
            TopicPartition(name, number)
            for number, partition in enumerate(stream.partitions)
            if partition.leader == self._node_id
        ]
        known = self._by_stream.get(name, [])
        ended = self._drop(tp for tp in known if tp not in led)
        for tp in led:
            inlet = self._inlets.get(tp)
            if inlet is not None:
                ended += self._reconfigure(inlet, stream.config)
            elif (opening := self._new_inlet(tp, stream.config)) is not None:
                opened.append(opening)
        return ended

    def _new_inlet(self, tp: TopicPartition, config: StreamConfig) -> _Opening | None:
        try:
            partition = self._partitions.partition(tp)
        except StreamlogError as error:
            extra = {"stream": tp.stream, "partition": tp.partition, "error": str(error)}
            logger.error("partition cannot be listened for", extra=extra)
            return None
        sequencer = Sequencer(tp.stream, duplicate_window_ms=config.duplicate_window_ms)
        inlet = Inlet(
            partition,
            sequencer=sequencer,
            **self._inlet_settings(config),
            answers=self._answers,
            room=self._room,
            metrics=self._metrics,
            now_ms=self._now_ms,
        )
        self._inlets[tp] = inlet
        self._by_stream.setdefault(tp.stream, []).append(tp)
        return _Opening(inlet, partition, config)

    def _inlet_settings(self, config: StreamConfig) -> dict[str, Any]:
        limit = config.message_bytes_max
        return {
            "value_bytes_max": self._message_bytes_max if limit == NO_LIMIT else limit,
            "default_ack": _ACKS[config.acks],
            "answering": not config.no_ack,
        }

    def _reconfigure(self, inlet: Inlet, config: StreamConfig) -> list[int]:
        """Another configuration for an inlet that listens. Sids that are to end."""
        inlet.sequencer.configure(duplicate_window_ms=config.duplicate_window_ms)
        inlet.configure(**self._inlet_settings(config))
        self._client.rebind(inlet.sids, inlet.inflow)
        wanted = _subjects(config, inlet.partition.tp)
        kept = {self._subscriptions.subject(sid): sid for sid in inlet.sids}
        missing = [subject for subject in wanted if subject not in kept]
        ended = [sid for subject, sid in kept.items() if subject not in wanted]
        new = self._client.subscribe_all(Subscription(s, inlet.inflow) for s in missing)
        inlet.sids = (*(sid for sid in inlet.sids if sid not in ended), *new)
        return ended

    def _drop(self, tps: Iterable[TopicPartition]) -> list[int]:
        """These are led here no longer. Sids that are to end."""
        ended: list[int] = []
        for tp in list(tps):
            ended += self._inlets.pop(tp).sids
            self._by_stream[tp.stream].remove(tp)
            if not self._by_stream[tp.stream]:
                del self._by_stream[tp.stream]
        return ended

    async def _open(self, openings: list[_Opening]) -> None:
        """Listen; with ids in the log's last while to be read first, after those without."""
        slow: list[tuple[_Opening, int]] = []
        for opening in openings:
            since_ms = self._now_ms() - opening.config.duplicate_window_ms
            found = await opening.partition.offset_for_timestamp(since_ms)
            if found is None:
                self._listen(opening)
            else:
                slow.append((opening, found[0]))
        for opening, offset in slow:
            partition, sequencer = opening.partition, opening.inlet.sequencer
            since_ms = self._now_ms() - opening.config.duplicate_window_ms
            count = await rebuild_window(
                partition, sequencer, from_offset=offset, since_ms=since_ms
            )
            extra = {"stream": partition.tp.stream, "partition": partition.tp.partition}
            logger.info("duplicate window rebuilt", extra={**extra, "ids": count})
            self._listen(opening)

    def _listen(self, opening: _Opening) -> None:
        inlet, config = opening.inlet, opening.config
        if self._stopping or self._inlets.get(inlet.partition.tp) is not inlet:
            return
        subjects = _subjects(config, inlet.partition.tp)
        inlet.sids = tuple(
            self._client.subscribe_all(Subscription(subject, inlet.inflow) for subject in subjects)
        )

    def _new_client(self) -> IngestClient:
        return IngestClient(self, self._subscriptions, read_bytes=self._read_bytes)

    async def _client_closed(self) -> None:
        self._closed.set()

    def _write(self, data: bytes) -> None:
        self._client.write(data)


def _subjects(config: StreamConfig, tp: TopicPartition) -> list[str]:
    return [partition_subject(subject, tp.partition) for subject in config.subjects]
