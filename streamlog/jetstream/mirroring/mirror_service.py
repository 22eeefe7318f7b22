"""Mirrors and sources of a node: each partition of such a stream that it leads is fed for as long as it leads it.

``OriginReader`` (pure) speaks with one origin, ``LinkFeed`` and ``ClusterFeed`` carry it out, ``FedPartition`` appends.
A feed that cannot store begins again with what the log has.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.condition import FAULT, Condition
from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.errors import NotLeader, StreamlogError
from streamlog.jetstream.consumers.stream_source import StreamSource
from streamlog.jetstream.errors import api_error
from streamlog.jetstream.mirroring.fed_partition import FedPartition
from streamlog.jetstream.mirroring.mirror_statistics import (
    NEVER,
    FedStatistics,
    OriginState,
    joined,
    origin_info,
)
from streamlog.jetstream.mirroring.origin_feeds import (
    ClusterFeed,
    LinkFeed,
    OriginChanged,
    Store,
)
from streamlog.jetstream.mirroring.origin_links import OriginLink
from streamlog.jetstream.mirroring.origin_reader import OriginMessage
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.origin_circles import all_origins
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.stream_origin import StreamOrigin, origin_of
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.partition.partition import OriginProgress, Partition
from streamlog.partition.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

NOT_FED: Final = Condition(
    "SL-0520",
    "a mirror or source stands still",
    "see the error in `nats stream info`; it goes on by itself when that is gone",
    meaning="A stream that mirrors or sources another one cannot store what comes.",
)
ORIGINS: Final = "ORIGINS"
"""The question of another node how far the partitions of a stream have come."""
TOLD_S: Final = 1.0
"""How long a leader is waited for that is asked for that; a stream is described without it."""
PLACES_S: Final = 1.0
PAUSE_S: Final = 0.1
PAUSE_S_MAX: Final = 5.0
OTHER_PARTITION: Final = "/"
"""Between the name of a stream of this cluster and the number of its partition, in a source's index name."""


class Feeding(NamedTuple):
    """One leadership, and what the stream takes in it."""

    tp: TopicPartition
    leader_epoch: int
    stream_id: UUID
    mirror: str
    sources: str
    partitions: int
    partition_by: str
    subject_transform: str
    is_paused: bool
    """Nothing is taken; a purge keeps the places of sources all the same."""


class OriginPartition(NamedTuple):
    """A partition of an origin, and what the log calls it."""

    origin: StreamOrigin
    number: int
    index_name: str

    @property
    def named(self) -> StreamOrigin:
        """With the number in its name, for the headers of records."""
        if not self.number:
            return self.origin
        return self.origin._replace(name=f"{self.origin.name}{OTHER_PARTITION}{self.number}")


Feed = LinkFeed | ClusterFeed


class MirrorService:
    """``apply`` at each change of the image, ``look`` when a partition follows later, ``run`` as a task."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        domain: str,
        own_apis: Iterable[str],
        partitions: ReplicaManager,
        nodes: NodeRequests,
        source: StreamSource,
        image: Callable[[], MetadataImage],
        link: Callable[[], OriginLink],
        own_link: Callable[[], OriginLink],
        lease: Lease | None = None,
    ) -> None:
        """``own_apis``: prefixes of the API by which this cluster answers. ``link``: makes one to all others;
        ``own_link``: one to consumers of this cluster.
        """
        self._node_id = node_id
        self._own_apis = frozenset(it.rstrip(".") for it in own_apis)
        self._domain = domain
        self._inbox = f"_INBOX.{domain}"
        self._partitions = partitions
        self._nodes = nodes
        self._source = source
        self._image = image
        self._make_link = link
        self._make_own_link = own_link
        self._link: OriginLink | None = None
        self._own_link: OriginLink | None = None
        self._lease = lease
        self._wanted: dict[str, tuple[Feeding, ...]] = {}
        """By stream."""
        self._mirrors: dict[str, set[str]] = {}
        """Of this cluster, by their origin in it."""
        self._running: dict[Feeding, asyncio.Task[None]] = {}
        self._ending: dict[TopicPartition, list[asyncio.Task[None]]] = {}
        """That have been cancelled."""
        self._feeds: dict[TopicPartition, list[Feed]] = {}
        self._errors: dict[TopicPartition, dict[str, Any]] = {}
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        nodes.register(ORIGINS, self._answer_states)
        if lease is not None:
            lease.add_listener(lambda _: self._changed.set())

    # What is fed

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        for change in new.changes(old):
            name = (change.new or change.old or _nobody()).name
            if (origin := self._mirrored(change.old)) is not None:
                mirrors = self._mirrors.get(origin, set())
                mirrors.discard(name)
                if not mirrors:
                    self._mirrors.pop(origin, None)
            if (origin := self._mirrored(change.new)) is not None:
                self._mirrors.setdefault(origin, set()).add(name)
            wanted = () if change.new is None else tuple(self._led(change.new))
            if wanted != self._wanted.get(name, ()):
                self._wanted[name] = wanted
                self._changed.set()
            if not wanted:
                self._wanted.pop(name, None)

    def _mirrored(self, stream: StreamImage | None) -> str | None:
        """The stream of this cluster that it mirrors."""
        if stream is None or not stream.config.mirror:
            return None
        origin = origin_of(stream.config.mirror)
        return origin.name if self._is_here(origin) else None

    def look(self, tp: TopicPartition) -> None:
        """It may be led here by now."""
        if tp.stream in self._wanted:
            self._changed.set()

    def _led(self, stream: StreamImage) -> Iterator[Feeding]:
        config = stream.config
        if not config.is_fed or config.sealed:
            return
        for number, partition in enumerate(stream.partitions):
            if partition.leader == self._node_id:
                yield Feeding(
                    TopicPartition(stream.name, number),
                    partition.leader_epoch,
                    stream.stream_id,
                    config.mirror,
                    config.sources,
                    config.partitions,
                    config.partition_by,
                    config.subject_transform,
                    config.readonly or config.paused,
                )

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            while True:
                await self._changed.wait()
                self._changed.clear()
                wanted = {it for feedings in self._wanted.values() for it in feedings}
                for feeding in self._running.keys() - wanted:
                    task = self._running.pop(feeding)
                    task.cancel()
                    self._ending.setdefault(feeding.tp, []).append(task)
                for feeding in wanted - self._running.keys():
                    if self._open(feeding) is not None:
                        before = self._ending.pop(feeding.tp, [])
                        work = self._keep_feeding(feeding, before)
                        self._running[feeding] = group.create_task(work)
                self._ending = {
                    tp: left
                    for tp, tasks in self._ending.items()
                    if (left := [it for it in tasks if not it.done()])
                }

    def _open(self, feeding: Feeding) -> Partition | None:
        """Not before its log is open, and led here in that epoch."""
        try:
            partition = self._partitions.partition(feeding.tp)
        except StreamlogError:
            return None
        leads = partition.leads(feeding.leader_epoch)
        return partition if leads and partition.topic_id == feeding.stream_id.bytes else None

    async def _keep_feeding(self, feeding: Feeding, before: Sequence[asyncio.Task[None]]) -> None:
        """For as long as it is led; what storing raises is tried again with what the log has by then. Not before
        ``before`` have ended: what they still append would be read again.
        """
        if before:
            await asyncio.wait(before)
        tp, pause_s = feeding.tp, PAUSE_S
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "it runs as one"
        told: str | None = None
        try:
            while True:
                began_s = loop.time()
                try:
                    partition = self._open(feeding)
                    if partition is not None:
                        partition.origins = partial(self._progress, tp)
                        await self._feed(feeding, partition)
                except* OriginChanged:
                    pass
                except* StreamlogError as group:
                    error = _first(group)
                    self._errors[tp] = api_error(error).json()
                    if str(error) != told:
                        told = str(error)
                        extra = {"stream": tp.stream, "partition": tp.partition, "error": told}
                        logger.warning(NOT_FED, extra=extra)
                except* Exception as group:
                    extra = {"stream": tp.stream, "partition": tp.partition}
                    failed = FAULT.logged_as("a mirror or source has failed")
                    logger.error(failed, extra=extra, exc_info=group)
                if task.cancelling():  # a group that has failed in the same moment hides it
                    raise asyncio.CancelledError
                if loop.time() - began_s > PAUSE_S_MAX:
                    pause_s = PAUSE_S
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
        finally:
            self._errors.pop(tp, None)

    async def _feed(self, feeding: Feeding, partition: Partition) -> None:
        """Raises an ExceptionGroup."""
        fed = FedPartition(partition, feeding.leader_epoch, partition.config)
        try:
            await self._feed_in(feeding, partition, fed)
        finally:
            self._feeds.pop(feeding.tp, None)
            if partition.places is fed:
                partition.places = None

    async def _feed_in(self, feeding: Feeding, partition: Partition, fed: FedPartition) -> None:
        config, tp = partition.config, feeding.tp
        if any(it.consumer for it in all_origins(config)):
            await (
                fed.all_committed()
            )  # what is there already is acknowledged without being stored again
        async with asyncio.TaskGroup() as group:
            if self._lease is not None and not self._lease.held:
                raise NotLeader(f"{tp}: the lease of this node is over")
            if config.mirror:
                await fed.begin_at_first()
                await fed.find_unnamed()
                (origin,) = all_origins(config)
                feeds = [] if feeding.is_paused else [self._mirror(origin, tp.partition, fed)]
            else:
                places = [*self._places(config)]
                positions = await fed.source_positions([it.index_name for it in places])
                feeds = [
                    self._feed_of(
                        it, positions.get(it.index_name, 0), partial(fed.source, it.named), fed
                    )
                    for it in places
                    if not feeding.is_paused
                ]
                group.create_task(_keep_places(fed))
                partition.places = fed
            self._feeds[tp] = feeds
            self._errors.pop(tp, None)
            for feed in feeds:
                group.create_task(feed.run())
            await group.create_task(_ever())

    def _mirror(self, origin: StreamOrigin, number: int, fed: FedPartition) -> Feed:
        is_begun = False

        async def store(messages: Sequence[OriginMessage]) -> None:
            nonlocal is_begun
            await fed.mirror(messages)
            if not is_begun:
                await fed.committed()
                await fed.begin_at_first()
                is_begun = True

        return self._feed_of(
            OriginPartition(origin, number, origin.index_name),
            fed.mirrored,
            store,
            fed,
            is_mirror=True,
        )

    def _feed_of(
        self,
        place: OriginPartition,
        position: int,
        store: Store,
        fed: FedPartition,
        *,
        is_mirror: bool = False,
    ) -> Feed:
        origin = place.origin
        if self._is_here(origin) and not origin.consumer:
            stream = self._image().streams.get(place.origin.name)
            return ClusterFeed(
                place.origin,
                place.number,
                self._source,
                self._image,
                index_name=place.index_name,
                position=position,
                store=store,
                partitions=1 if stream is None else len(stream.partitions),
                wanted_partitions=fed.partitions if is_mirror else None,
                identity=fed.identity(place.index_name),
            )
        return LinkFeed(
            origin._replace(api="") if self._is_here(origin) else origin,
            self._linked_here() if self._is_here(origin) else self._linked(),
            index_name=place.index_name,
            position=position,
            inbox=self._inbox,
            store=store,
            committed=fed.committed,
            is_mirror=is_mirror,
            identity=fed.identity(place.index_name),
        )

    def _is_here(self, origin: StreamOrigin) -> bool:
        return not origin.api or origin.api in self._own_apis

    def _places(self, config: StreamConfig) -> Iterator[OriginPartition]:
        """Of all sources; of one of this cluster, all partitions."""
        for origin in all_origins(config):
            is_read_here = self._is_here(origin) and not origin.consumer
            stream = self._image().streams.get(origin.name) if is_read_here else None
            for number in range(1 if stream is None else len(stream.partitions)):
                yield OriginPartition(origin, number, _index_name(origin, number))

    def _linked(self) -> OriginLink:
        if self._link is None:
            assert self._group is not None, "run has begun"
            self._link = self._make_link()
            self._group.create_task(self._link.run())
        return self._link

    def _linked_here(self) -> OriginLink:
        if self._own_link is None:
            assert self._group is not None, "run has begun"
            self._own_link = self._make_own_link()
            self._group.create_task(self._own_link.run())
        return self._own_link

    # What is told

    def statistics(self) -> list[FedStatistics]:
        """Of the partitions that are fed here."""
        return [FedStatistics(*tp, self._states(tp)) for tp in sorted(self._feeds)]

    def _progress(self, tp: TopicPartition) -> list[OriginProgress]:
        """Nothing where it is not fed."""
        return [
            OriginProgress(
                it.place,
                it.lag,
                None if it.active_ms == NEVER else it.active_ms,
                str(it.error.get("description", it.error)) if it.error else None,
            )
            for it in self._states(tp)
        ]

    def _states(self, tp: TopicPartition) -> list[OriginState]:
        error = self._errors.get(tp)
        states = [feed.state() for feed in self._feeds.get(tp, ())]
        stream = self._image().streams.get(tp.stream)
        if error and not states and stream is not None:
            states = [OriginState(it.index_name) for it in all_origins(stream.config)]
        return [it._replace(error=error) if error else it for it in states]

    async def describe(self, stream: StreamImage) -> dict[str, Any]:
        """``mirror`` or ``sources`` of STREAM.INFO; nothing for a stream that has neither."""
        config = stream.config
        if not config.is_fed:
            return {}
        leaders = {
            partition.leader for partition in stream.partitions if partition.leader != NO_LEADER
        }
        found = await asyncio.gather(*(self._states_at(node, stream.name) for node in leaders))
        states = joined(it for part in found for it in part)
        told = [
            origin_info(origin, _of(states, origin), is_mirror=bool(config.mirror))
            for origin in all_origins(config)
        ]
        return {"mirror": told[0]} if config.mirror else {"sources": told}

    def alternates(self, name: str) -> dict[str, Any]:
        """``alternates`` of STREAM.INFO: the stream and its mirrors here, if it has any. As nats-server, a node that
        is alone tells of none.
        """
        image = self._image()
        mirrors = sorted(self._mirrors.get(name, ()))
        if not mirrors or len(image.nodes) < 2:
            return {}
        place = {"domain": self._domain, "cluster": image.cluster_id}
        return {"alternates": [{"name": it, **place} for it in (name, *mirrors)]}

    async def _states_at(self, node: NodeId, stream: str) -> list[OriginState]:
        if node == self._node_id:
            return self._states_of(stream)
        try:
            answer = await self._nodes.ask(node, ORIGINS, {"stream": stream}, timeout_s=TOLD_S)
            return [OriginState(**it) for it in answer.fields["states"]]
        except (StreamlogError, KeyError, TypeError):
            return []

    def _states_of(self, stream: str) -> list[OriginState]:
        tps = {*self._feeds, *self._errors}
        return [it for tp in tps if tp.stream == stream for it in self._states(tp)]

    async def _answer_states(self, fields: Fields) -> NodeAnswer:
        states = self._states_of(str(fields["stream"]))
        return NodeAnswer({"states": [it._asdict() for it in states]})


async def _ever() -> None:
    """A paused stream is not done."""
    await asyncio.Event().wait()


async def _keep_places(fed: FedPartition) -> None:
    """Other messages, too, have segments begin."""
    while True:
        await fed.nothing_gathered()
        fed.keep_places()
        await asyncio.sleep(PLACES_S)


def _index_name(origin: StreamOrigin, number: int) -> str:
    name, blank, rest = origin.index_name.partition(" ")
    return f"{name}{OTHER_PARTITION}{number}{blank}{rest}" if number else origin.index_name


def _of(states: dict[str, OriginState], origin: StreamOrigin) -> OriginState | None:
    """Of all its partitions."""
    own, _, rest = origin.index_name.partition(" ")
    found = [
        it
        for name, it in states.items()
        for place, _, after in (name.partition(" "),)
        if after == rest and (place == own or place.startswith(own + OTHER_PARTITION))
    ]
    if not found:
        return None
    first, *others = found
    for it in others:
        first = first.also(it)
    return first


def _first(group: BaseExceptionGroup[StreamlogError]) -> StreamlogError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, StreamlogError), "of that kind alone"
    return error


def _nobody() -> StreamImage:
    raise AssertionError("a change has one side at least")
