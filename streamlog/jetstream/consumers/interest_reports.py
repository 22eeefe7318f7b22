"""What consumers have come to, from their coordinator to the leaders of the stream, which remove messages by it.

The coordinator's part is ``InterestReports``, the leader's ``StreamInterest``. What they decide by is in ``interest``.

A report names the leader epoch of the stream's partition that it is for, and carries a version: the leader epoch of the
coordinator's partition, and a number. A leader takes no report of another epoch, and none that is older than
one it has taken. So a coordinator that was deposed, whose report is late, cannot have removed what a consumer needs
that was made at its successor: that consumer's client has its answer only after the leader has taken a report
with it. A leader that is new removes nothing before it has been told.

A report has what is *kept*: what a state record says that is committed. An ephemeral consumer has no record, and what
it has come to counts at once. What is removed is hidden at once, and goes as ``MessageDeletes.foresee`` says it: by the
start of the log, or, where a message before it stays for long, by an erasure. A leader that fails takes along what it
had hidden, and its successor decides the same when it is told.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from streamlog.condition import CHECK_NODES, FAULT, Condition
from streamlog.control.leaders.local_leader import LocalLeader, tp_of
from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.control.messages.matching import Matching
from streamlog.errors import NotLeader, StreamlogError, StreamNotFound
from streamlog.jetstream.consumers.consumer_statistics import Holder
from streamlog.jetstream.consumers.interest import (
    Interest,
    Interests,
    Lookup,
    Releases,
    Version,
    name_of,
)
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.record.offset_set import OffsetSet

logger = logging.getLogger(__name__)

NOT_REMOVED: Final = Condition(
    "SL-0519",
    "acknowledged messages are not removed",
    CHECK_NODES,
    meaning="A stream keeps messages that all its consumers have acknowledged, because its leader could not be told, "
    "or could not remove them. The node tries again.",
)

INTEREST: Final = "CONSUMER.INTEREST"
"""The request of a coordinator to a leader of a stream."""
ASK_S: Final = 2.0
REPORT_S: Final = 0.02
"""How long a change waits for others before it is reported."""
SHARE_MAX: Final = 0.1
"""Of the coordinator's time, for the reports of one stream that no client waits for."""
LOOK_S: Final = 0.02
"""How long a message waits that no consumer may want, until it is looked at."""
RETRY_S: Final = 0.3
FAILURES_TOLD: Final = 10
"""Fewer in a row, as while a leader is elected, are nothing to tell of."""
OFFSETS_AT_ONCE: Final = 20_000
"""Of messages that match, before others have their turn of the event loop."""

Work = Callable[[], Awaitable[None]]


class Report(NamedTuple):
    """To the leader of one partition."""

    tp: TopicPartition
    stream_id: UUID
    leader_epoch: int
    interests: Interests
    is_final: bool = False
    """To be answered only when what goes by it is gone for good, whatever fails."""

    def fields(self) -> dict[str, Any]:
        return {
            "stream": self.tp.stream,
            "partition": self.tp.partition,
            "stream_id": str(self.stream_id),
            "leader_epoch": self.leader_epoch,
            "interests": self.interests.json(),
            "is_final": self.is_final,
        }

    @classmethod
    def of_fields(cls, fields: Fields) -> "Report":
        """Raises KeyError, TypeError, ValueError."""
        return cls(
            tp_of(fields),
            UUID(str(fields["stream_id"])),
            int(fields["leader_epoch"]),
            Interests.of_json(fields["interests"]),
            bool(fields["is_final"]),
        )


# At the leader


@dataclass(eq=False, slots=True)
class _Led:
    """A partition that is led here, in one leader epoch."""

    partition: Partition
    leader_epoch: int
    watch: Callable[[], None]
    releases: Releases = field(default_factory=Releases)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    losses: int = 0
    is_due: bool = False
    is_forgotten: bool = False

    def is_over(self) -> bool:
        partition = self.partition
        if self.is_forgotten:
            return True
        return not partition.is_leader or partition.leader_epoch != self.leader_epoch


class StreamInterest:
    """Of all partitions that this node leads. ``run`` as a task."""

    def __init__(
        self,
        leader: LocalLeader,
        nodes: NodeRequests,
        *,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._leader = leader
        self._nodes = nodes
        self._node_id = node_id
        self._image = image
        self._led: dict[tuple[UUID, int], _Led] = {}
        self._due: asyncio.Queue[_Led] = asyncio.Queue()
        nodes.register(INTEREST, self._answer)

    async def tell(self, report: Report) -> None:
        """Return once the leader goes by it. Raises StreamlogError; StreamNotFound where the stream is another one."""
        stream = self._image().stream(report.tp.stream)
        if stream.stream_id != report.stream_id:
            raise StreamNotFound(
                f"stream {report.tp.stream!r} is deleted; another one has its name"
            )
        place = stream.partition(report.tp.partition)
        if place.leader == NO_LEADER or place.leader_epoch != report.leader_epoch:
            raise NotLeader(f"{report.tp} is led by another node now")
        if place.leader == self._node_id:
            await self._take(report)
        else:
            await self._nodes.ask(place.leader, INTEREST, report.fields(), timeout_s=ASK_S)

    async def _answer(self, fields: Fields) -> NodeAnswer:
        await self._take(Report.of_fields(fields))
        return NodeAnswer({})

    async def _take(self, report: Report) -> None:
        partition = self._leader.led(report.tp)
        config, interests = partition.config, report.interests
        if partition.topic_id != report.stream_id.bytes:
            raise NotLeader(f"{report.tp} is of another stream of that name")
        if partition.leader_epoch != report.leader_epoch:
            raise NotLeader(f"{report.tp} is led in epoch {partition.leader_epoch}")
        if config.retention != ("workqueue" if interests.is_queue else "interest"):
            raise NotLeader(f"the retention of {report.tp} is not known to be that one yet")
        interests = interests.where(lambda it: partition.shared_end(it.epochs, it.next_offset))
        led = self._here(report.stream_id, partition)
        if not led.releases.tell(interests):
            raise NotLeader(
                f"a later coordinator has told what consumers of {report.tp} have come to"
            )
        await self._settle(led)
        if report.is_final:
            await self._have_gone(partition)

    def _here(self, stream_id: UUID, partition: Partition) -> _Led:
        key = stream_id, partition.tp.partition
        led = self._led.get(key)
        if led is not None and led.partition is partition and not led.is_over():
            return led
        if led is not None:
            self._forget(key)
        led = _Led(partition, partition.leader_epoch, watch=lambda: None)
        led.watch = partial(self._grown, key, led)
        led.losses = partition.erasing.losses
        self._led[key] = led
        partition.add_watcher(led.watch)
        return led

    def _grown(self, key: tuple[UUID, int], led: _Led) -> None:
        """The high watermark has moved, or another node leads."""
        if led.is_over():
            if self._led.get(key) is led:
                self._forget(key)
        elif not led.is_due:
            led.is_due = True
            asyncio.get_running_loop().call_later(LOOK_S, self._due.put_nowait, led)

    def _forget(self, key: tuple[UUID, int]) -> None:
        led = self._led.pop(key)
        led.is_forgotten = True
        led.partition.remove_watcher(led.watch)

    def forget(self, stream_id: UUID) -> None:
        """Its consumers do not empty it any more. If they do again, a coordinator tells it."""
        for key in [key for key in self._led if key[0] == stream_id]:
            self._forget(key)

    def holders(self, count: int) -> list[Holder]:
        """The consumers that hold most messages of partitions that are led here."""
        held = Counter[tuple[str, str]]()
        for led in self._led.values():
            told, partition = led.releases.told, led.partition
            if told is None or led.is_over():
                continue
            start, end, gone = (
                partition.log_start_offset,
                partition.stable_offset,
                partition.erased,
            )
            for key, it in told.by_consumer.items():
                low = max(start, it.next_offset)
                rest = max(0, end - low) - gone.count(low, end)
                name = partition.tp.stream, name_of(key)
                held[name] += rest + len(it.open)
        return [Holder(*name, messages) for name, messages in held.most_common(count)]

    async def run(self) -> None:
        """Look at what has come since a coordinator has told anything."""
        while True:
            led = await self._due.get()
            led.is_due = False
            if led.is_forgotten:
                continue
            try:
                await self._settle(led)
            except StreamlogError as error:
                if not led.is_over():
                    logger.warning(NOT_REMOVED, extra=led.partition.place(error))
                    asyncio.get_running_loop().call_later(RETRY_S, self._due.put_nowait, led)
            except Exception:
                logger.exception(FAULT.logged_as("acknowledged messages could not be removed"))

    async def settle(self, partition: Partition) -> None:
        """Have all looked at that has come by now. Raises StreamlogError."""
        led = self._led.get((UUID(bytes=partition.topic_id), partition.tp.partition))
        if led is not None and led.partition is partition:
            await self._settle(led)

    async def _settle(self, led: _Led) -> None:
        """Hide what goes by what is told. Raises StreamlogError."""
        partition = led.partition
        async with led.lock:
            while not led.is_over() and partition.config.is_consumed:
                if led.losses != partition.erasing.losses:
                    led.losses = partition.erasing.losses
                    led.releases.forget()
                question = led.releases.ask(
                    partition.log_start_offset, partition.stable_offset, partition.erased
                )
                if question is None:
                    return
                matching = {
                    key: await _found(partition, it) for key, it in question.lookups.items()
                }
                self._leader.led(partition.tp)  # also by the lease
                if led.is_over():
                    return
                released = led.releases.decide(question, matching)
                if released:
                    partition.erasing.foresee(released, later=True)

    async def _have_gone(self, partition: Partition) -> None:
        """Return once what is hidden is gone on every replica in sync. Raises StreamlogError."""
        start = partition.erased.first_absent(partition.log_start_offset)
        if start > partition.log_start_offset:
            await partition.purge(min(start, partition.high_watermark))
        await partition.erasing.settle()


async def _found(partition: Partition, lookup: Lookup) -> OffsetSet:
    matching = Matching(partition.subjects, lookup.filters, lookup.high)
    found, low = OffsetSet(), lookup.low
    while low < lookup.high:
        offsets, low = await matching.offsets(low, lookup.high, limit=OFFSETS_AT_ONCE)
        found.update(OffsetSet.in_order(offsets))
    return found


# At the coordinator


class Reported(Protocol):
    """What is needed of a coordinator."""

    @property
    def may_act(self) -> bool: ...
    def interests_of(self, stream: StreamImage, number: int) -> Mapping[str, Interest]: ...
    def run_task(self, work: Callable[[], Any]) -> asyncio.Task[None] | None: ...


class _Reporting:
    """One stream."""

    def __init__(self, stream_id: UUID, *, is_queue: bool) -> None:
        self.stream_id = stream_id
        self.is_queue = is_queue
        self.told: dict[int, tuple[int, Mapping[str, Interest]]] = {}
        """By partition: in which leader epoch its leader was told, and what."""
        self.is_due = False
        """A report is about to be made."""
        self.spent_s = 0.0
        """What making the last report took."""
        self.failures = 0
        """Reports that failed, one after the other."""
        self.next: asyncio.Future[None] | None = None
        self.lock = asyncio.Lock()


class InterestReports:
    """Of one coordinator. All is on the event loop."""

    def __init__(
        self,
        coordinator: Reported,
        interest: StreamInterest,
        image: Callable[[], MetadataImage],
        leader_epoch: int,
    ) -> None:
        self._coordinator = coordinator
        self._interest = interest
        self._image = image
        self._leader_epoch = leader_epoch
        self._number = 0
        self._streams: dict[str, _Reporting] = {}

    def concerns(self, stream: str) -> bool:
        """Acknowledgements remove messages of it."""
        return stream in self._streams

    @property
    def failing(self) -> int:
        """Streams whose leaders could not be told."""
        return sum(it.failures >= FAILURES_TOLD for it in self._streams.values())

    def is_queue(self, stream: str) -> bool:
        it = self._streams.get(stream)
        return it is not None and it.is_queue

    def look(self, streams: Iterable[StreamImage]) -> tuple[set[str], set[str]]:
        """All streams of this coordinator whose consumers empty them, and what leads them now; those that are new, and
        those that are none any more.
        """
        known, found, new = self._streams, dict[str, _Reporting](), set[str]()
        for stream in streams:
            name, was = stream.name, known.get(stream.name)
            if was is None or was.stream_id != stream.stream_id:
                was = _Reporting(stream.stream_id, is_queue=stream.config.retention == "workqueue")
                new.add(name)
            found[name] = was
        self._streams = found
        for name, it in found.items():
            if self._is_behind(name, it):
                self.changed(name)
        return new, known.keys() - found.keys()

    def _is_behind(self, name: str, it: _Reporting) -> bool:
        stream = self._image().streams.get(name)
        return stream is not None and any(
            number not in it.told or it.told[number][0] != place.leader_epoch
            for number, place in enumerate(stream.partitions)
        )

    def changed(self, stream: str) -> None:
        """A consumer of it is further, is new or is gone: report that soon."""
        it = self._streams.get(stream)
        if it is not None and not it.is_due:
            it.is_due = True
            if self._coordinator.run_task(partial(self._report, stream, it)) is None:
                it.is_due = False

    async def _report(self, stream: str, it: _Reporting) -> None:
        try:
            await asyncio.sleep(max(REPORT_S, it.spent_s / SHARE_MAX))
            while self._streams.get(stream) is it and self._coordinator.may_act:
                it.is_due = False
                try:
                    await self.told(stream)
                except StreamlogError as error:
                    it.failures += 1
                    if it.failures == FAILURES_TOLD:
                        logger.warning(NOT_REMOVED, extra={"stream": stream, "error": str(error)})
                    it.is_due = True
                    await asyncio.sleep(RETRY_S)
                    continue
                it.failures = 0
                return
        finally:
            it.is_due = False

    async def told(self, stream: str) -> None:
        """Return once all leaders go by what is so at this moment, or by later. Raises StreamlogError."""
        it = self._streams.get(stream)
        if it is None:
            return
        if it.next is None:
            it.next = asyncio.get_running_loop().create_future()
            it.next.add_done_callback(_heard)
            if self._coordinator.run_task(partial(self._tell_next, stream, it, it.next)) is None:
                it.next = None
                raise NotLeader(f"consumers of {stream} are coordinated by another node now")
        await asyncio.shield(it.next)

    async def _tell_next(self, stream: str, it: _Reporting, told: "asyncio.Future[None]") -> None:
        """What changes while a report is under way, the next one tells, all of it."""
        try:
            async with it.lock:
                it.next = None
                await self._tell(stream, it)
            told.set_result(None)
        except StreamlogError as error:
            told.set_exception(error)
        finally:
            if it.next is told:
                it.next = None
            if not told.done():
                told.set_exception(
                    NotLeader(f"what consumers of {stream} have come to is not told")
                )

    async def have_gone(self, stream: str) -> None:
        """Return once all that goes by what is so at this moment is gone for good. Raises StreamlogError."""
        it = self._streams.get(stream)
        if it is not None:
            async with it.lock:
                await self._tell(stream, it, is_final=True)

    async def _tell(self, name: str, it: _Reporting, *, is_final: bool = False) -> None:
        stream = self._image().stream(name)
        if stream.stream_id != it.stream_id:
            raise StreamNotFound(f"stream {name!r} is deleted; another one has its name now")
        if not self._coordinator.may_act:
            raise NotLeader(f"consumers of {name} are coordinated by another node now")
        self._number += 1
        version, began_s = Version(self._leader_epoch, self._number), time.perf_counter()
        reports = list[Report]()
        for number, place in enumerate(stream.partitions):
            interests = self._coordinator.interests_of(stream, number)
            if is_final or it.told.get(number) != (place.leader_epoch, interests):
                it.told.pop(number, None)
                told = Interests(version, stream.config.retention == "workqueue", interests)
                tp = TopicPartition(name, number)
                reports.append(Report(tp, stream.stream_id, place.leader_epoch, told, is_final))
        it.spent_s = time.perf_counter() - began_s
        await _all(self._tell_one(it, report) for report in reports)

    async def _tell_one(self, it: _Reporting, report: Report) -> None:
        await self._interest.tell(report)
        it.told[report.tp.partition] = report.leader_epoch, report.interests.by_consumer


async def _all(tasks: Iterable[Awaitable[None]]) -> None:
    """Raises the first error once all have ended."""
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _heard(done: "asyncio.Future[None]") -> None:
    """No request may wait for it any more."""
    with suppress(asyncio.CancelledError):
        done.exception()
