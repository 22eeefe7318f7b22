"""What clients saw of consumers, and whether it keeps the promises. It knows nothing of how consumers work.

Told are messages that are stored, deliveries as they leave a node, acknowledgements as they are sent and as they are
confirmed, and consumers as they are made and deleted. A consumer is known by its name and the mark in the reply
subjects of its messages, or the time when it was made: another one may have its name later. A *tenure* is the time of
one coordinator.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streamlog.jetstream.consumers.acks import read_ack_subject


class BrokenPromise(AssertionError):
    """A consumer breaks a promise."""


class MessageId(NamedTuple):
    """One message, whatever other stream has its name by now."""

    stream_id: str
    partition: int
    offset: int


class ConsumerId(NamedTuple):
    """A consumer, whatever other one has its name by now."""

    name: str
    made: int


class Tenure(NamedTuple):
    """One coordinator: the node, which of its processes, and in which leader epoch."""

    node: int
    process: int
    epoch: int


class Emission(NamedTuple):
    """One delivery, as it leaves the node."""

    number: int
    message: MessageId
    tenure: Tenure
    count: int  # type: ignore[assignment]  # of a tuple it is a method, which none needs here
    sequence: int
    time_ms: int


@dataclass
class Promises:
    """What a consumer was asked to be, as far as it is checked."""

    stream_id: str = ""
    """Empty: that of its first message."""
    filter: str = ""
    start_offset: int = 0
    start_is_known: bool = True
    """All messages from ``start_offset`` on are meant, in each partition; else those stored later."""
    max_deliver: int = -1
    max_ack_pending: int = 1_000
    acks_all: bool = False
    ack_wait_ms: int = 30_000
    partitions: int = 1
    lasts: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """By partition and subject: this offset is delivered, or a later one. If the start is not known."""


@dataclass
class SentAck:
    """An acknowledgement that ends a message, or that changes nothing but its deadline."""

    consumer: ConsumerId
    message: MessageId
    ends: bool
    covers: bool
    after: int
    """So many events had been told when it was sent."""


@dataclass
class _Known:
    """One consumer."""

    emissions: list[Emission] = field(default_factory=list)
    of_message: dict[MessageId, list[Emission]] = field(default_factory=dict)
    finished: dict[MessageId, int] = field(default_factory=dict)
    """Confirmed: never to be delivered again. With the number of the event."""
    finished_through: dict[int, int] = field(default_factory=dict)
    """By partition, below this offset."""
    ended: set[MessageId] = field(default_factory=set)
    """An acknowledgement that ends it was sent, whatever became of it."""
    covered: set[MessageId] = field(default_factory=set)
    ended_through: dict[int, int] = field(default_factory=dict)
    """These three count where an acknowledgement covers all messages before its own."""
    sealed_count: dict[MessageId, int] = field(default_factory=dict)
    """Deliveries that every later coordinator knows of."""
    sealed_sequence: int = 0
    sealed: int = 0
    """So many of ``emissions`` are counted in these."""
    sealed_by: Tenure | None = None
    promises: Promises | None = None
    first_after: int = 0
    """Messages that were stored after so many events are meant, if the start is not known."""
    dead: int | None = None
    """It was deleted for certain when so many events had been told."""

    @property
    def acks_all(self) -> bool:
        """An acknowledgement covers all messages before its own."""
        return self.promises is not None and self.promises.acks_all

    def is_ended(self, message: MessageId) -> bool:
        """An acknowledgement may have ended it."""
        if message in self.ended:
            return True
        through = self.ended_through.get(message.partition, 0)
        return self.acks_all and (message in self.covered or message.offset < through)


class ConsumerHistory:
    """``emitted``, ``confirmed`` and ``check_the_end`` raise BrokenPromise."""

    def __init__(self, *, clients_stay: bool) -> None:
        """``clients_stay``: none that has asked for messages is gone when they come. What could not be handed over
        goes to another client, later.
        """
        self.clients_stay = clients_stay
        self.failures = 0
        """How often another coordinator began. Each may swallow a delivery that was counted, and under way."""
        self.events = 0
        self.stored: dict[MessageId, tuple[str, int]] = {}
        """By subject, and after how many events."""
        self.gone: set[MessageId] = set()
        self._consumers: dict[ConsumerId, _Known] = {}

    def _next(self) -> int:
        self.events += 1
        return self.events

    def consumers(self) -> Mapping[ConsumerId, Promises | None]:
        return {key: it.promises for key, it in self._consumers.items()}

    # What is told

    def publish(self, message: MessageId, subject: str) -> None:
        self.stored[message] = subject, self._next()

    def remove(self, messages: Iterable[MessageId]) -> None:
        """A purge, retention or an erasure took them."""
        self.gone |= set(messages)

    def created(self, consumer: ConsumerId, promises: Promises) -> None:
        """A client was told that it is there."""
        known = self._known(consumer)
        if known.promises is None:
            known.first_after = self._next()
        known.promises = promises

    def living(self, name: str) -> list[ConsumerId]:
        """Those of that name that a client knows of; a deletion that is asked for now ends them."""
        return [key for key, it in self._consumers.items() if key.name == name and it.dead is None]

    def deleted(self, consumers: Iterable[ConsumerId]) -> None:
        """A client was told so of what was ``living`` when it asked."""
        now = self._next()
        for it in consumers:
            self._known(it).dead = now

    def ack_sent(
        self, consumer: ConsumerId, message: MessageId, *, ends: bool, covers: bool
    ) -> SentAck:
        """``ends``: the message is never to come again; ``covers``: nor are those before it, if it is so set."""
        known = self._known(consumer)
        if ends:
            known.ended.add(message)
        if covers:
            before = known.ended_through.get(message.partition, 0)
            known.ended_through[message.partition] = max(before, message.offset + 1)
            # Of other partitions it ends what was delivered first before it.
            others = (it for it in known.of_message if it.partition != message.partition)
            known.covered.update(others)
        return SentAck(consumer, message, ends, covers, len(known.emissions))

    def confirmed(self, sent: SentAck, *, by: Tenure | None = None) -> None:
        """A client was told that it is kept. ``by``: who said so."""
        known, now = self._known(sent.consumer), self._next()
        if sent.ends:
            known.finished.setdefault(sent.message, now)
            if sent.covers:
                number, end = sent.message.partition, sent.message.offset + 1
                known.finished_through[number] = max(known.finished_through.get(number, 0), end)
        # What the one that confirms had delivered by then is kept with it.
        for it in known.emissions[: sent.after]:
            if by is not None and it.tenure == by:
                known.sealed_count[it.message] = max(
                    known.sealed_count.get(it.message, 0), it.count
                )
                known.sealed_sequence = max(known.sealed_sequence, it.sequence)
                known.sealed_by = by

    def of_stream(self, stream_id: str) -> list[ConsumerId]:
        """Those that delivered messages of it."""
        return [
            key
            for key, it in self._consumers.items()
            if it.emissions and it.emissions[0].message.stream_id == stream_id
        ]

    def emitted(
        self,
        consumer: ConsumerId,
        reply: str,
        message: MessageId,
        subject: str,
        tenure: Tenure,
        time_ms: int,
    ) -> None:
        acked = read_ack_subject(reply)
        if acked is None:
            raise BrokenPromise(f"{reply!r} is no subject of an acknowledgement")
        known = self._known(consumer)
        it = Emission(self._next(), message, tenure, acked.count, acked.consumer_sequence, time_ms)
        if (acked.partition, acked.stream_sequence) != (message.partition, message.offset + 1):
            raise BrokenPromise(f"{consumer}: {message} is delivered as {reply}")
        self._check(consumer, known, it, subject)
        known.emissions.append(it)
        known.of_message.setdefault(message, []).append(it)

    # What must hold

    def _check(self, consumer: ConsumerId, known: _Known, it: Emission, subject: str) -> None:
        what = f"{consumer}: {it}"
        if known.dead is not None:
            raise BrokenPromise(f"{what} is delivered although it is deleted")
        stored = self.stored.get(it.message)
        if stored is None or stored[0] != subject:
            raise BrokenPromise(f"{what} was never stored as {subject}")
        through = known.finished_through.get(it.message.partition, 0) if known.acks_all else 0
        if it.message in known.finished or it.message.offset < through:
            raise BrokenPromise(f"{what} is delivered although its end is confirmed")
        before = [
            other for other in known.of_message.get(it.message, ()) if other.tenure == it.tenure
        ]
        if before and it.count <= before[-1].count:
            raise BrokenPromise(f"{what}: the count falls from {before[-1].count}")
        if it.count <= known.sealed_count.get(it.message, 0):
            raise BrokenPromise(f"{what}: the count falls from one that was kept")
        if known.sealed_by not in (None, it.tenure) and it.sequence <= known.sealed_sequence:
            raise BrokenPromise(f"{what}: the sequence falls from {known.sealed_sequence}")
        if self.clients_stay or (
            known.promises is not None and known.promises.max_ack_pending == 1
        ):
            self._check_order(what, known, it)
        if known.emissions and it.message.stream_id != known.emissions[0].message.stream_id:
            raise BrokenPromise(f"{what} is of another stream")
        promises = known.promises
        if promises is None:
            return
        if promises.stream_id not in ("", it.message.stream_id):
            raise BrokenPromise(f"{what} is of another stream")
        if promises.filter and not subject.startswith(promises.filter):
            raise BrokenPromise(f"{what} on {subject} does not match")
        if promises.start_is_known and it.message.offset < promises.start_offset:
            raise BrokenPromise(f"{what} is before the start")
        if 0 < promises.max_deliver < it.count:
            raise BrokenPromise(f"{what} is delivered too often")
        self._check_pending(what, known, it, promises)

    @staticmethod
    def _check_order(what: str, known: _Known, it: Emission) -> None:
        """Deliveries have ascending numbers, and a message is delivered first in the order of its partition."""
        for other in known.emissions:
            if other.tenure != it.tenure:
                continue
            if other.sequence >= it.sequence:
                raise BrokenPromise(f"{what}: the sequence falls from {other.sequence}")
            is_later = (
                other.message.partition == it.message.partition
                and other.message.offset >= it.message.offset
            )
            if it.count == 1 and is_later:
                raise BrokenPromise(f"{what} comes after {other}")

    def _check_pending(self, what: str, known: _Known, it: Emission, promises: Promises) -> None:
        if promises.max_ack_pending <= 0 or it.message in known.of_message:
            return
        open_ = {
            message
            for message, emissions in known.of_message.items()
            if not known.is_ended(message)
            and message not in self.gone
            and not 0 < promises.max_deliver <= emissions[-1].count
            # Another coordinator may have given it up, or read the partitions in another order.
            and (
                (promises.partitions == 1 and promises.max_deliver < 0)
                or emissions[-1].tenure == it.tenure
            )
        }
        if len(open_) >= promises.max_ack_pending:
            raise BrokenPromise(f"{what} is one more than may be pending: {sorted(open_)}")

    def check_the_end(self, living: Iterable[ConsumerId], now_ms: int, slack_ms: int) -> None:
        """All is calm, and clients have long taken and acknowledged what they could: nothing is left out."""
        for key in living:
            known = self._known(key)
            promises = known.promises
            assert promises is not None, "a client knows it"
            self._check_lasts(key, known, promises)
            for message, (subject, number) in self.stored.items():
                if message.stream_id != promises.stream_id or message in self.gone:
                    continue
                if promises.filter and not subject.startswith(promises.filter):
                    continue
                meant = (
                    message.offset >= promises.start_offset
                    if promises.start_is_known
                    else number > known.first_after
                )
                if meant:
                    self._check_delivered(key, known, message, promises, now_ms - slack_ms)

    def _check_lasts(self, key: ConsumerId, known: _Known, promises: Promises) -> None:
        for (number, subject), offset in promises.lasts.items():
            some = [
                it
                for it, (its_subject, _) in self.stored.items()
                if (it.stream_id, it.partition) == (promises.stream_id, number)
                and its_subject == subject
                and it.offset >= offset
            ]
            is_gone = any(it in self.gone for it in some)
            if some and not is_gone and not any(it in known.of_message for it in some):
                raise BrokenPromise(f"{key}: nothing of {subject} from {offset} on was delivered")

    def _check_delivered(
        self, key: ConsumerId, known: _Known, message: MessageId, promises: Promises, since_ms: int
    ) -> None:
        emissions = known.of_message.get(message)
        if not emissions:
            # What could not be handed over waits for another client, and may be covered meanwhile.
            if self.clients_stay or not known.is_ended(message):
                raise BrokenPromise(f"{key}: {message} was never delivered")
            return
        if known.is_ended(message):
            return
        most = max(it.count for it in emissions)
        if promises.max_deliver > 0:
            if most + self.failures < promises.max_deliver:
                raise BrokenPromise(f"{key}: {message} was delivered {most} times only")
        elif emissions[-1].time_ms < since_ms:
            raise BrokenPromise(f"{key}: {message} is not delivered again since {emissions[-1]}")

    def _known(self, consumer: ConsumerId) -> _Known:
        return self._consumers.setdefault(consumer, _Known())
