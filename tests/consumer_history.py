"""What clients saw of consumers, and whether it keeps the promises. It knows nothing of how consumers work.

Told are messages that are stored, deliveries as they leave a node, acknowledgements as they are sent and as they are
confirmed, and consumers as they are made and deleted. A consumer is known by its name and the mark in the reply
subjects of its messages, or the time when it was made: another one may have its name later. A *tenure* is the time of
one coordinator.

A stream can lose messages that it had acknowledged, and have others at their offsets: the leader epoch tells them
apart. An acknowledgement names an offset alone. It may end what is there by then, once that was delivered.

A consumer that is reset forgets. When it did so lies between the request and its answer, so meanwhile little is judged.
"""

from collections import Counter
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
    leader_epoch: int = 0
    """In which it was written."""

    @property
    def place(self) -> tuple[str, int, int]:
        return self.stream_id, self.partition, self.offset


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
    asked_of: str = ""
    """The stream that was there when it was asked for, and when that was answered; empty: not known."""
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
    ended_places: set[tuple[str, int, int]] = field(default_factory=set)
    """The same, of any message that was there at some time."""
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
    is_doubtful: bool = False
    """Its deletion was asked for."""
    reset_after: int = 0
    """What was told of it before was forgotten by a reset."""
    settled_after: int = 0
    """The reset was answered after so many events."""
    again_from: int | None = None
    """From that offset on it delivers again what it had delivered before the reset."""
    skipped: int = 0
    """Below that offset a reset may have it deliver nothing."""
    late: dict[int, int] = field(default_factory=dict)
    """Offsets of resets that were under way when it was made, by when they were asked: they do the same."""

    @property
    def acks_all(self) -> bool:
        """An acknowledgement covers all messages before its own."""
        return self.promises is not None and self.promises.acks_all

    def is_ended(self, message: MessageId) -> bool:
        """An acknowledgement may have ended it."""
        if message in self.ended or (
            message.place in self.ended_places and message in self.of_message
        ):
            return True
        through = self.ended_through.get(message.partition, 0)
        return self.acks_all and (message in self.covered or message.offset < through)

    def since(self, emissions: Iterable[Emission]) -> list[Emission]:
        """Those that no reset has it forget."""
        return [it for it in emissions if it.number > self.reset_after]


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
        self.lost: set[MessageId] = set()
        """Of those that are gone: what was acknowledged, and lost with its leader."""
        self._lost_places: set[tuple[str, int, int]] = set()
        self._consumers: dict[ConsumerId, _Known] = {}
        self._deleting: set[str] = set()
        """Names of consumers."""
        self._resets = Counter[str]()
        """That are asked for and not answered, by the name of the consumer."""
        self._resets_to: dict[str, dict[int, int]] = {}
        """Their offsets, by when they were asked: one that comes late may find the next consumer of its name."""

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

    def lose(self, messages: Iterable[MessageId]) -> None:
        """A leader was elected that lacks these, the last ones of a partition."""
        lost = set(messages)
        self.gone |= lost
        self.lost |= lost
        self._lost_places |= {it.place for it in lost}
        ends = dict[tuple[str, int], int]()
        for it in lost:
            key = it.stream_id, it.partition
            ends[key] = min(it.offset, ends.get(key, it.offset))
        for known in self._consumers.values():
            for stream_id in {it.stream_id for it in known.of_message}:
                for number, through in known.finished_through.items():
                    known.finished_through[number] = min(
                        through, ends.get((stream_id, number), through)
                    )

    def reset_asked(self, name: str, offset: int | None) -> int:
        """A consumer of that name is to begin again at ``offset``; None: at its acknowledgement floor. Returns when."""
        self._resets[name] += 1
        for key, it in self._consumers.items():
            if key.name == name:
                it.skipped = max(it.skipped, offset or 0)
        asked = self._next()
        self._resets_to.setdefault(name, {})[asked] = offset or 0
        return asked

    def reset_is_over(self, name: str, asked: int) -> None:
        """It has come, or will not."""
        self._resets_to[name].pop(asked, None)

    def reset_refused(self, name: str, asked: int) -> None:
        """A client was told so; no consumer that was made since then has had it."""
        self.reset_is_over(name, asked)
        for key, it in self._consumers.items():
            if key.name == name:
                it.late.pop(asked, None)

    def reset_done(self, consumer: ConsumerId, offset: int | None, asked: int) -> None:
        """A client was told so, of this one."""
        known = self._known(consumer)
        self._resets[consumer.name] -= 1
        self.reset_is_over(consumer.name, asked)
        now = self._next()
        known.finished.clear()
        known.finished_through.clear()
        known.sealed_count.clear()
        known.sealed_sequence, known.sealed_by = 0, None
        # Of resets that were under way at the same time it is not known which came last.
        is_last = not self._resets[consumer.name] and known.settled_after < asked
        known.reset_after, known.settled_after = asked, now
        known.again_from = offset if is_last else None
        if not is_last:
            known.skipped = max(known.skipped, offset or 0)
        elif offset is not None:
            known.skipped = offset

    def release(self, messages: Iterable[MessageId], *, stream_id: str, is_queue: bool) -> None:
        """A leader removes them, since consumers are done with them."""
        released = set(messages)
        living = [
            (key, it)
            for key, it in self._consumers.items()
            if it.promises is not None
            and it.dead is None
            and not it.is_doubtful
            and not self._resets[key.name]
            and stream_id in (it.promises.stream_id, it.promises.asked_of)
        ]
        for message in released - self.gone:
            if is_queue:
                if not any(it.is_ended(message) for it in self._consumers.values()):
                    raise BrokenPromise(f"{message} is removed, and no consumer has done with it")
                continue
            for key, known in living:
                if self._wants(known, message) and not self._has_ended(known, message):
                    raise BrokenPromise(f"{message} is removed although {key} wants it")
        self.gone |= released

    def _wants(self, known: _Known, message: MessageId) -> bool:
        promises = known.promises
        assert promises is not None, "a client knows it"
        subject, number = self.stored[message]
        if promises.filter and not subject.startswith(promises.filter):
            return False
        if message.offset < max([known.skipped, *known.late.values()]):
            return False
        if number > known.first_after:
            return message.offset >= promises.start_offset
        return promises.start_is_known and message.offset >= promises.start_offset

    def _has_ended(self, known: _Known, message: MessageId) -> bool:
        if not known.is_ended(message):
            return False
        again = known.again_from
        if again is None or message.offset < again or not self.clients_stay:
            return True
        return bool(known.since(known.of_message.get(message, ())))

    def check_removed(
        self, there: Iterable[MessageId], living: Iterable[ConsumerId], *, is_queue: bool
    ) -> None:
        """What the consumers of a stream have done with, as was confirmed, is not in it in the end. ``living``: all of
        them; of a work queue one of them is enough.
        """
        known = [self._known(it) for it in living]
        for message in there:
            if is_queue:
                is_done = any(self._is_finished(it, message) for it in known)
            else:
                is_done = all(
                    self._is_finished(it, message) or not self._matches(it, message) for it in known
                )
            if is_done:
                raise BrokenPromise(f"{message} is there, although consumers have done with it")

    @staticmethod
    def _is_finished(known: _Known, message: MessageId) -> bool:
        if message in known.finished:
            return True
        through = known.finished_through.get(message.partition, 0) if known.acks_all else 0
        promises, emissions = known.promises, known.of_message.get(message, ())
        if message.offset >= through or promises is None or promises.max_deliver <= 0:
            return message.offset < through
        # What was given up is not covered by the acknowledgement of a later one. A coordinator that is no more may have
        # counted a delivery that it did not come to.
        last = known.emissions[-1].tenure if known.emissions else None
        return not any(it.count >= promises.max_deliver or it.tenure != last for it in emissions)

    def _matches(self, known: _Known, message: MessageId) -> bool:
        promises = known.promises
        return promises is None or self.stored[message][0].startswith(promises.filter)

    def created(self, consumer: ConsumerId, promises: Promises) -> None:
        """A client was told that it is there."""
        known = self._known(consumer)
        if known.promises is None:
            known.first_after = self._next()
            known.is_doubtful |= consumer.name in self._deleting
        known.promises = promises

    def living(self, name: str) -> list[ConsumerId]:
        """Those of that name that a client knows of; a deletion that is asked for now ends them."""
        return [key for key, it in self._consumers.items() if key.name == name and it.dead is None]

    def deletion_asked(self, name: str) -> None:
        """From now on the consumers of that name may be deleted at any time, also one that no client knows of yet."""
        self._deleting.add(name)
        for it in self.living(name):
            self._known(it).is_doubtful = True

    def deletion_is_over(self, name: str) -> None:
        """Consumers of that name that a client hears of from now on were made later."""
        self._deleting.discard(name)

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
            known.ended_places.add(message.place)
        if covers:
            before = known.ended_through.get(message.partition, 0)
            known.ended_through[message.partition] = max(before, message.offset + 1)
            # Of other partitions it ends what was delivered first before it.
            others = (it for it in known.of_message if it.partition != message.partition)
            known.covered.update(others)
        return SentAck(consumer, message, ends, covers, self._next())

    def confirmed(self, sent: SentAck, *, by: Tenure | None = None) -> None:
        """A client was told that it is kept. ``by``: who said so."""
        known, now = self._known(sent.consumer), self._next()
        if sent.after <= known.settled_after or self._resets[sent.consumer.name]:
            return  # a reset may have come after it
        emissions = known.of_message.get(sent.message, ())
        if not any(it.number > known.settled_after for it in emissions):
            return  # of a delivery before a reset, which may have passed over it
        if sent.ends:
            known.finished.setdefault(sent.message, now)
            if sent.covers:
                number, end = sent.message.partition, self._end_of(sent.message)
                known.finished_through[number] = max(known.finished_through.get(number, 0), end)
        # What the one that confirms had delivered by then is kept with it.
        for it in known.emissions:
            is_known = known.settled_after < it.number < sent.after
            if by is not None and it.tenure == by and is_known:
                known.sealed_count[it.message] = max(
                    known.sealed_count.get(it.message, 0), it.count
                )
                known.sealed_sequence = max(known.sealed_sequence, it.sequence)
                known.sealed_by = by

    def _end_of(self, message: MessageId) -> int:
        """An acknowledgement of it covers what is left of the messages below."""
        lost = (
            it.offset for it in self.lost if it[:2] == message[:2] and it.offset <= message.offset
        )
        return min(lost, default=message.offset + 1) if message in self.lost else message.offset + 1

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
        if self._resets[consumer.name]:
            return
        through = known.finished_through.get(it.message.partition, 0) if known.acks_all else 0
        if it.message in known.finished or it.message.offset < through:
            raise BrokenPromise(f"{what} is delivered although its end is confirmed")
        before = [
            other
            for other in known.since(known.of_message.get(it.message, ()))
            if other.tenure == it.tenure and other.number > known.settled_after
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
        start = promises.start_offset
        if known.again_from is not None:
            start = max(start, known.again_from)
        is_in_place = it.message.place in self._lost_places  # of what was before the start
        if promises.start_is_known and it.message.offset < start and not is_in_place:
            raise BrokenPromise(f"{what} is before the start")
        if 0 < promises.max_deliver < it.count:
            raise BrokenPromise(f"{what} is delivered too often")
        self._check_pending(what, known, it, promises)

    def _check_order(self, what: str, known: _Known, it: Emission) -> None:
        """Deliveries have ascending numbers, and a message is delivered first in the order of its partition."""
        for other in known.emissions:
            if other.tenure != it.tenure or other.number <= known.settled_after:
                continue
            if other.sequence >= it.sequence:
                raise BrokenPromise(f"{what}: the sequence falls from {other.sequence}")
            is_later = (
                other.message.partition == it.message.partition
                and other.message.offset >= it.message.offset
                and other.message not in self.lost
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
            and emissions[-1].number > known.settled_after
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
                if meant and message.offset >= max([known.skipped, *known.late.values()]):
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
        emissions = known.of_message.get(message, [])
        if known.again_from is not None and message.offset >= known.again_from:
            emissions = known.since(emissions)
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
        if consumer not in self._consumers:
            late = dict(self._resets_to.get(consumer.name, {}))
            self._consumers[consumer] = _Known(late=late)
        return self._consumers[consumer]
