"""Those who publish over NATS, and what they are told."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Protocol
from uuid import UUID

from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.subjects import partition_subject
from streamlog.record.compiled.keys import murmur2
from tests.simulation.checkers import AcknowledgedNeverLost, PublisherOrder, Violation
from tests.simulation.cluster.api_publisher import ApiPublisher
from tests.simulation.cluster.links import Links
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.observer import Observer
from tests.simulation.cluster.partition_checkers import CommittedLog, Replica
from tests.simulation.events import Events
from tests.simulation.fast_publisher import FastPublisher
from tests.simulation.publisher import Publisher

TIMEOUT_US = 700_000
BACKOFF_US = 60_000
PAUSE_US_MAX = 120_000
SEND_US_MAX = 1_000
PUBLISH_US_MIN = 1_000_000
"""However late the stream is created."""
NO_RESPONDERS = json.dumps({"error": {"code": 503, "description": "no responders"}}).encode()


class _Told:
    """What a publisher is told goes to the checkers."""

    def __init__(
        self,
        acknowledged: Callable[[str, int], None],
        refused: Callable[[str], None],
        fast: "_ToldOfFast",
    ) -> None:
        self.acknowledged = acknowledged
        self.refused = refused
        self.order = PublisherOrder()
        self.fast = fast


class _ToldOfFast:
    """What a publisher of fast batches is told, to be judged at once."""

    def __init__(self, stored: Callable[[str], None], placed: Callable[..., None]) -> None:
        self.in_order: set[str] = set()
        """Publishers that want no gap."""
        self.stored = stored
        self.placed = placed


class Way(Protocol):
    """By which messages come to the nodes."""

    def publish(self, subject: str, reply: str, head: bytes, body: bytes) -> int:
        """0: the publisher is told at once that nobody is there."""


class Publishers:
    """Two for each partition of each stream, be it one more of an old name: one waits for each
    answer, one has several on the way.
    """

    nats: "Way"

    def __init__(
        self,
        events: Events,
        links: Links,
        rng: random.Random,
        observer: Observer,
        *,
        until_us: int,
    ) -> None:
        self._events = events
        self._links = links
        self._rng = rng
        self._observer = observer
        self._until_us = until_us
        self._by_name: dict[str, Publisher | ApiPublisher] = {}
        self._places: dict[str, Replica] = {}
        self.kinds: list[tuple[int, type[Publisher]]] = [(1, Publisher), (4, Publisher)]
        """Of each partition's publishers, with how many messages each has on the way."""
        self._ended: set[str] = set()
        """Their streams are deleted."""
        self._subjects: dict[str, str] = {}
        self._kept: dict[Replica, AcknowledgedNeverLost] = {}
        self._streams: dict[Replica, tuple[str, int]] = {}
        """Of which name each is, and since when it has been there."""
        self._refused_ids: dict[str, Replica] = {}
        """Of messages that are not stored, as their publishers were told."""
        self._fast = _ToldOfFast(self._fast_stored, self._fast_placed)
        self._due_us: dict[str, int] = {}
        """Messages of fast batches come in order."""
        self.stored: Callable[[Replica, int], None] = lambda _place, _offset: None
        """A publisher was told that its message is there."""
        observer.partitions.matching.may_hold = self._may_hold

    @property
    def done(self) -> bool:
        return all(publisher.done for publisher in self._by_name.values())

    def publish_to(self, stream: StreamImage) -> None:
        """``stream`` is new."""
        until_us = max(self._until_us, self._events.now_us + PUBLISH_US_MIN)
        config = stream.config
        for number in range(config.partitions):
            for window, kind in self.kinds:
                name = f"{config.name}{number}{'xo'[window == 1]}{len(self._by_name)}"
                place = Replica(stream.stream_id, number)
                self._places[name] = place
                self._streams[place] = config.name, self._events.now_us
                self._subjects[name] = _subject_of(config, number)
                self._by_name[name] = publisher = kind(
                    name,
                    window=window,
                    pause_us_max=PAUSE_US_MAX,
                    until_us=until_us,
                    rng=self._rng,
                    events=self._events,
                    send=self._send,
                    checkers=_Told(self._acknowledged, self._refused, self._fast),  # type: ignore[arg-type]
                    timeout_us=TIMEOUT_US,
                    backoff_us=BACKOFF_US,
                )
                publisher.start()

    def publish_by_operations(
        self, stream: StreamImage, node: Callable[[], ClusterNode | None]
    ) -> None:
        """``stream`` is new. ``node``: one that takes requests."""
        until_us = max(self._until_us, self._events.now_us + PUBLISH_US_MIN)
        config = stream.config
        for number in range(config.partitions):
            name = f"{config.name}{number}p{len(self._by_name)}"
            self._places[name] = Replica(stream.stream_id, number)
            self._by_name[name] = publisher = ApiPublisher(
                name,
                stream,
                number,
                events=self._events,
                rng=self._rng,
                until_us=until_us,
                node=node,
                acknowledged=self._acknowledged,
            )
            publisher.start()

    def end(self, stream_id: UUID) -> None:
        """The stream is to be deleted: nothing is sent to it any more."""
        for name, place in self._places.items():
            if place.stream_id == stream_id:
                self._ended.add(name)
                self._by_name[name].end()

    def answer(self, data: bytes) -> None:
        """Publications of a node: answers to publishers."""
        for reply, payload in _publications(data):
            self.tell(reply, payload)

    def said(self, data: bytes) -> None:
        """As ``answer``, but when the node writes it: perhaps it does not come."""
        for reply, payload in _publications(data):
            publisher = self._by_name.get(reply.partition(".")[0])
            if isinstance(publisher, FastPublisher):
                publisher.said(reply, payload)

    def check(self) -> None:
        """At the end: order, and that something was acknowledged at all."""
        for name, publisher in self._by_name.items():
            is_patient = (
                isinstance(publisher, Publisher) and publisher.retries
            )  # others may ask nodes that are killed
            if is_patient and not publisher.acknowledged and name not in self._ended:
                raise Violation(f"nothing of {name} was ever acknowledged")
        for message_id in self._refused_ids:
            self._check_refused(message_id)
        for replica, log in self._observer.partitions.logs.items():
            if replica not in self._observer.partitions.forgiven:
                log.check_order({name for name, it in self._by_name.items() if it.waits_for_each})
                for name in sorted(self._fast.in_order):
                    if self._places[name] == replica:
                        log.check_gaps(name)

    def state(self) -> str:
        return ", ".join(
            f"{name}: {'done' if it.done else 'waits'} after {it.acknowledged}"
            for name, it in self._by_name.items()
            if name not in self._ended
        )

    def _may_hold(self, replica: Replica, message_id: str) -> bool:
        """The stream for which it was meant, or a later one of that name that was there when it came
        to NATS. Never an earlier one: nothing is created in its place before every node knows
        that it is gone, or has no lease.
        """
        name, _, number = message_id.partition("#")[0].partition(":")
        if not name:
            return True  # an erasure
        place = self._places[name]
        if replica == place:
            return True
        if replica not in self._streams or replica.partition != place.partition:
            return False
        stream, since_us = self._streams[replica]
        meant, meant_since_us = self._streams[place]
        sent_us = self._by_name[name].sent_us(int(number))
        return stream == meant and meant_since_us < since_us <= sent_us + SEND_US_MAX

    def _acknowledged(self, message_id: str, offset: int) -> None:
        """By the stream for which it was meant, unless a later one of that name has it."""
        place = self._places[message_id.partition(":")[0]]
        logs, forgiven = self._observer.partitions.logs, self._observer.partitions.forgiven
        later = [it for it in self._streams if self._may_hold(it, message_id)]
        holders = [it for it in later if it in logs and logs[it].holds(message_id, offset)]
        if holders:
            place = holders[-1]
        elif any(it in forgiven for it in later):
            return  # nothing is noted of that one any more
        self._observer.acknowledged(place, message_id, offset)
        self._kept.setdefault(place, AcknowledgedNeverLost()).acknowledged(message_id, offset)
        self.stored(place, offset)

    def _refused(self, message_id: str) -> None:
        self._refused_ids[message_id] = self._places[message_id.partition(":")[0]]
        self._check_refused(message_id)

    def _check_refused(self, message_id: str) -> None:
        place = self._refused_ids[message_id]
        if any(log.has(message_id) for log in self._logs_for(message_id, place)):
            raise Violation(f"{place}: {message_id} is stored, and was refused")

    def _fast_stored(self, message_id: str) -> None:
        """By the stream for which it was meant, or a later one of that name."""
        place = self._places[message_id.partition(":")[0]]
        if not any(log.has(message_id) for log in self._logs_for(message_id, place)):
            raise Violation(f"{place}: {message_id} of a fast batch is acknowledged, wrongly")

    def _fast_placed(self, name: str, among: range, offset: int) -> None:
        place, ids = self._places[name], [f"{name}:{number}" for number in among]
        logs = [log for it in ids for log in self._logs_for(it, place)]
        if not any(log.holds(it, offset) for it in ids for log in logs):
            raise Violation(f"{place}: a batch of {name} with {among} is told of {offset}, wrongly")

    def _logs_for(self, message_id: str, place: Replica) -> list[CommittedLog]:
        """Those that may have it, and of which all is known."""
        partitions = self._observer.partitions
        holders = [it for it in {**self._streams, place: None} if self._may_hold(it, message_id)]
        return [partitions.log_of(it) for it in holders if it not in partitions.forgiven]

    def tell(self, reply: str, payload: bytes) -> None:
        """A publisher is answered."""
        publisher = self._by_name[reply.partition(".")[0]]
        assert isinstance(publisher, Publisher)
        is_forgiven = self._places[publisher.name] in self._observer.partitions.forgiven
        if isinstance(publisher, FastPublisher) and not is_forgiven:
            publisher.judge(reply, payload)
        delay_us = self._rng.randint(50, 1_000)
        self._events.after(delay_us, lambda: publisher.answered(reply, payload))

    def _send(self, frames: bytes) -> None:
        """Each ``HMSG <subject> 1 <reply> <sizes>``, as the publisher writes it; several are of a fast batch.
        ``s`` is the stream's subject, and others are below it.
        """
        messages = []
        while frames:
            line, _, rest = frames.partition(b"\r\n")
            _, subject, _, reply, head_size, size = line.decode().split(" ")
            head, body = rest[: int(head_size)], rest[int(head_size) : int(size)]
            messages.append((subject, reply, head, body))
            frames = rest[int(size) + 2 :]
        name = reply.partition(".")[0]

        def arrive() -> None:
            for below, reply, head, body in messages:
                subject = self._subjects[name] + ("" if below == "s" else f".{below}")
                if not self.nats.publish(subject, reply, head, body):
                    self.tell(reply, NO_RESPONDERS)

        now_us = self._events.now_us
        due_us = now_us + self._rng.randint(50, SEND_US_MAX)
        if isinstance(self._by_name[name], FastPublisher):
            due_us = self._due_us[name] = max(due_us, self._due_us.get(name, 0))
        self._events.after(due_us - now_us, arrive)


def _publications(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(subject, payload) of each ``PUB``."""
    while data:
        line, _, data = data.partition(b"\r\n")
        _, subject, size = line.decode().split(" ")
        yield subject, data[: int(size)]
        data = data[int(size) + 2 :]


def _subject_of(config: StreamConfig, number: int) -> str:
    """One whose messages go to that partition."""
    if not config.is_spread:
        return partition_subject(config.subjects[0], number)
    tokens = (str(token) for token in itertools.count())
    chosen = next(
        it for it in tokens if murmur2(it.encode()) % (1 << 31) % config.partitions == number
    )
    return config.subjects[0].replace("*", chosen)
