"""One consumer: which message goes to which subject next, and what is said meanwhile. Pure.

``delivery.Delivery`` knows which messages are pending, since when and how often they were delivered. A consumer adds
JetStream's rules: pull requests that wait, or the deliver subject of a push consumer; heartbeats, flow control, limits,
pauses, and what each acknowledgement means.

Events are method calls with the time; what is to be done is gathered, and taken with ``take``. The coordinator
reads the stream for it:

    needs_message   a message is due again that is not here: ``provide`` brings it, or says that it is gone
    wants           how many further messages may be delivered now: ``add`` brings them, or as many as it ``reads``;
                    ``end_of_stream`` says that there are none
    is_running_low  what was read ahead is nearly delivered: ``add`` brings more before a client has to wait for it

Invariants. A message is delivered first in the order of its partition. No more than ``max_ack_pending`` messages are
pending. A pull request gets no more messages and bytes than it asks for. It is ended by exactly one status, or by its
last message; if it may still have had bytes then, the status "Batch Completed" follows that message. Whatever was not
acknowledged is delivered again, until ``max_deliver``.

A stream may lose messages that were delivered: by an unclean election, or when it is restored. Then the consumer goes
back to where the stream has other messages (``rewind``): those were never delivered, whatever their offsets.

With ``ack_policy: flow_control`` the answer to a flow control request acknowledges what its client has come to. It is
asked for when half of the window is sent, when no more may be pending, and with each heartbeat while something is. What
is not acknowledged is delivered again when the consumer is reset, and not before: its client resets it where it
has missed something, which it sees by the consumer sequences. A coordinator that takes over cannot know which of
these were sent, so it leaves many out (``begin_again``): the client is sure to miss them.

A delivery is counted before its message is here to be sent. If no client can have it then, it is *in hand*: it is not
counted again, does not become due, and goes to the next client. So a message is not given up for deliveries that
no client was there for.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final, NamedTuple

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.delivery.delivery import (
    OFFSET_MAX,
    Delivered,
    Delivery,
    DeliveryLimits,
    Exhausted,
    Place,
)
from streamlog.jetstream.consumers.acks import NO_ANSWER, Ack, AckKind, AckSubject, FlowAnswer
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.pull_request import PullRefused, PullRequest, read_pull
from streamlog.jetstream.consumers.read_ahead import AheadMessage, ReadAhead, RunPart
from streamlog.jetstream.consumers.run_delivery import fitting
from streamlog.log.leader_epochs import EpochStart, LeaderEpochs
from streamlog.record.compiled.message_run import MessageRun
from streamlog.record.offset_set import OffsetSet

READ_AHEAD: Final = 5_000
"""Messages of a push consumer, or of large pull requests, that are read before they can be delivered."""
AHEAD_FIRST: Final = 100
"""After the first read for a client, so many are read at least."""
AHEAD_PULLS_MIN: Final = 8
"""Where less was read ahead than for so many pull requests, the next messages are read."""
WINDOW_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes on their way to a consumer with flow control; nats-server's JsFlowControlMaxPending."""
WINDOW_BYTES_MIN: Final = WINDOW_BYTES_MAX // 16
"""The window that a subscription begins with. It doubles with each answer until the maximum."""
BURST_MS: Final = 20
"""A consumer with a rate limit may be ahead of it by so much, since timers are coarse."""
HELD_MS: Final = 1_000
"""What is in hand does not become due for that long, or for the wait of its delivery if that is longer."""
AHEAD_MS: Final = 1_000
"""What was read ahead is forgotten when nothing has asked for it for that long: it takes memory."""
NEVER_MS: Final = 100 * 365 * 24 * 3_600 * 1_000
"""The wait of what is not delivered again by itself."""
SEQUENCES_LEFT_OUT: Final = 1_000_000_000
"""More than a coordinator delivers that cannot keep what it has delivered."""
EPOCHS_MAX: Final = 8
"""Leader epochs of a partition that are kept: each election begins one."""
PRIORITY_LAST: Final = 10
"""Of a request that names no group: a number instead of JSON."""
_MS_NS: Final = 1_000_000


class Deliver(NamedTuple):
    """A message for ``subject``; ``pending``: how many match after it."""

    subject: str
    delivered: Delivered
    message: StoredMessage
    pending: int
    pin: str = ""
    """Of the client that has it, where one is pinned."""
    pins: bool = False
    """Its client is pinned by it, and learns of that from it."""


class DeliverRun(NamedTuple):
    """The first deliveries of the messages of a run from index ``start`` up to ``stop``."""

    subject: str
    partition: int
    run: MessageRun
    start: int
    stop: int
    sequence: int
    """Of the first one; that of each further one is one more."""
    pending: int
    """After the first one; one less after each."""

    def deliveries(self, start: int) -> Iterator[Deliver]:
        """One by one, from index ``start`` on."""
        for i in range(start, self.stop):
            message = StoredMessage(*self.run.message(i))
            place, number = Place(self.partition, message.sequence - 1), i - self.start
            delivered = Delivered(place, self.sequence + number, 1)
            yield Deliver(self.subject, delivered, message, max(0, self.pending - number))


class Tell(NamedTuple):
    """A status instead of a message; ``headers``: further header lines."""

    subject: str
    code: int
    description: str
    headers: tuple[tuple[str, object], ...] = ()
    reply: str = ""


class Confirm(NamedTuple):
    """An acknowledgement that its client waits for: answered once the state is kept."""

    reply: str


class Advise(NamedTuple):
    """An advisory, or a metric, of that kind."""

    kind: str
    fields: dict[str, object]


Effect = Deliver | DeliverRun | Tell | Confirm | Advise


@dataclass(slots=True, eq=False)
class WaitingPull:
    """A pull request that is not fulfilled."""

    number: int
    """Requests are counted as they come."""
    subject: str
    request: PullRequest
    left: int
    bytes_left: int
    pin: str
    """The pin that its client knows of."""
    expires_ms: int | None
    beat_ms: int | None
    """When the next heartbeat is due."""
    sent: int = 0


class Consumer:
    """Events in, effects out."""

    def __init__(
        self,
        config: ConsumerConfig,
        delivery: Delivery,
        *,
        now_ms: int,
        rng: Random,
        flow_subject: str = "",
        reply_prefix: str = "",
    ) -> None:
        """``now_ms``: by a clock that does not jump; ``flow_subject``: where a client answers flow control;
        ``reply_prefix``: of the reply subjects of messages, up to the consumer's name; ``rng``: makes pins, and chooses
        the acknowledgements that are sampled.
        """
        self._rng = rng
        self.pin = ""
        """What the one client that is served knows, with the policy ``pinned_client``; empty: no client is pinned."""
        self.pinned_ms: int | None = None
        self._pinned_until_ms: int | None = None
        self._reply_prefix_bytes = len(reply_prefix.encode())
        self.config = config
        self._takes_runs = _takes_runs(config)
        self.delivery = delivery
        self.waiting: deque[WaitingPull] = deque()
        self.is_changed = False
        """What has to be kept is not what was kept last."""
        self.last_delivered_ms: int | None = None
        self.last_ack_ms: int | None = None
        self._effects: list[Effect] = []
        self.last_pull = 0
        """The number of the last request that waited."""
        self._pulled: tuple[bytes | None, ConsumerConfig, PullRequest] = (
            None,
            config,
            PullRequest(),
        )
        """The last request of a client: its body, by which configuration it was read, and what it asks for."""
        self._left = 0
        """Messages that the waiting requests may still get."""
        self._pulls_ms: int | None = None
        """No waiting request expires, or is due a heartbeat, before that."""
        self._ahead = ReadAhead()
        self._ahead_count = 0
        """So many are read at once. It doubles with each read, until the messages are forgotten."""
        self._has_read_nothing = False
        """The last read brought no message, while others were here."""
        self._beyond: dict[int, int] = {}
        """How many match beyond what was read, by partition."""
        self._beyond_count = 0
        """Of all partitions."""
        self._in_hand: deque[Delivered] = deque()
        """Deliveries that are counted, and not sent yet."""
        self._sequence = delivery.delivered.sequence
        """Of the last delivery."""
        self._is_bound = False
        """A push consumer's deliver subject has subscribers."""
        self._used_ms = now_ms
        """When it was used last: by a pull request, an acknowledgement, or a subscriber."""
        self._beat_ms: int | None = None
        self._flow_subject = flow_subject
        self._flow_number = 0
        self._flow_asked = ""
        """The reply subject of a flow-control request that is not answered."""
        self._flow_asked_bytes = 0
        self._window_bytes = WINDOW_BYTES_MIN
        self._outstanding_bytes = 0
        self._is_blocked = False
        """The deliver subject's connections are behind with their reading."""
        self._rate_ns = now_ms * _MS_NS
        """When all that was sent would have been sent at just the limit of the rate."""
        self._held_until_ms: int | None = None
        """The rate limit, or the replay at the original pace, holds the next message back until then."""
        self._replays: dict[int, int] = {}
        """How many messages are delivered at their original pace, by partition: those that were there at the start."""
        self._replayed: tuple[int, int] | None = None
        """When the last one of them was delivered, and its timestamp."""
        self._paused_until_ms: int | None = None
        self.keeps_given_up = False
        """Messages that it has given up stay in the stream until they are acknowledged after all, or deleted."""
        self.given_up: dict[int, OffsetSet] = {}
        """By partition."""
        self.epochs: dict[int, LeaderEpochs] = {}
        """By partition, in which leader epochs the messages were written that it has read."""

    # What the coordinator has to know

    def take(self) -> list[Effect]:
        """What is to be done, in order; each once."""
        taken, self._effects = self._effects, []
        return taken

    @property
    def needs_read(self) -> bool:
        """Messages have to be read, or counted."""
        if self.is_running_low:
            return True
        if not self._is_used:  # nothing goes anywhere
            return False
        return self.wants > 0 or self.needs_message is not None or self.needs_count

    @property
    def needs_message(self) -> Place | None:
        """It is in hand, a client is there for it, and its message has to be read."""
        return self._in_hand[0].place if self._in_hand and self._target() is not None else None

    @property
    def wants(self) -> int:
        """How many messages may be delivered for the first time now, beyond those that are here."""
        if self._ahead.count or self._in_hand or self.delivery.has_redelivery:
            return 0
        if self._target() is None or not self.delivery.has_room:
            return 0
        most = READ_AHEAD
        if not self.config.is_push:
            most = min(most, self._left)
        if self.delivery.limits.pending_max:
            most = min(most, self.delivery.limits.pending_max - self.delivery.pending_count)
        return most

    @property
    def reads(self) -> int:
        """How many messages to read, where it ``wants`` some: more for a client that asks again and again."""
        return max(self.wants, self._ahead_count)

    @property
    def is_running_low(self) -> bool:
        """A client that asks again and again has nearly all that was read ahead. What comes next is read while it
        handles that.
        """
        if self._has_read_nothing or self._ahead.count > AHEAD_PULLS_MIN * self._pulled[2].batch:
            return False
        if not self._may_forget or self._ahead_count < READ_AHEAD or not self._beyond_count:
            return False
        return self._takes_runs and not (
            self.config.is_push or self.config.filters or self._in_hand
        )

    @property
    def needs_count(self) -> bool:
        """Whether a request is served depends on how many messages there are: ``count`` brings that."""
        waits = self.config.priority_policy == "overflow" and bool(self.waiting)
        return waits and not self.is_paused and self._target() is None

    @property
    def is_bound(self) -> bool:
        return self._is_bound

    @property
    def is_paused(self) -> bool:
        return self._paused_until_ms is not None

    def inboxes(self, count: int) -> list[str]:
        """Of the pull requests that are served next."""
        return list(dict.fromkeys(it.subject for it in islice(self.waiting, count)))

    def next_offset(self, partition: int) -> int:
        """Where the stream is read next."""
        ahead = self._ahead.next_offset(partition)
        return self.delivery.next_offset(partition) if ahead is None else ahead

    def next_ms(self) -> int | None:
        """When ``tick`` is due; None: not before the next event."""
        found = [self._held_until_ms, self._paused_until_ms, self._pinned_until_ms]
        if self.waiting:
            found.append(self._pulls_ms)
        if self.delivery.pending_count and not self.config.acks_by_flow:
            found.append(self.delivery.next_deadline_ms)
        if self._is_bound:
            found.append(self._beat_ms)
        elif not self.waiting:  # it is not used
            if self.config.inactive_threshold_ms:
                found.append(self._used_ms + self.config.inactive_threshold_ms)
            if self._may_forget:
                found.append(self._used_ms + AHEAD_MS)
        soonest: int | None = None
        for it in found:
            if it is not None and (soonest is None or it < soonest):
                soonest = it
        return soonest

    def is_abandoned(self, now_ms: int) -> bool:
        """It was not used for its inactive threshold."""
        threshold_ms = self.config.inactive_threshold_ms
        is_idle = not self._is_used and now_ms - self._used_ms >= threshold_ms
        return bool(threshold_ms) and is_idle

    # Requests and subscribers

    def pull(self, subject: str, body: bytes, now_ms: int) -> None:
        """CONSUMER.MSG.NEXT, whose messages go to ``subject``."""
        if not subject:  # nothing can be sent there
            return
        self._used_ms = now_ms
        if body == self._pulled[0] and self.config is self._pulled[1]:
            request = self._pulled[2]  # clients ask the same again and again
        else:
            try:
                request = read_pull(body, self.config)
            except PullRefused as refused:
                self._tell(subject, refused.code, refused.description)
                return
            self._pulled = body, self.config, request
        if self._serve_at_once(subject, request, now_ms):
            return
        self._expire_pulls(now_ms)
        if self.pin and request.id == self.pin:
            self._pinned_until_ms = now_ms + self.config.priority_timeout_ms
        elif self.pin and request.id:
            self._tell(subject, 423, "Nats-Pin-Id mismatch")
            return
        pending = self._pending() + self.delivery.due_count
        if request.no_wait and 0 < pending < self._left:
            self._tell(subject, 408, "Requests Pending")
            return
        if len(self.waiting) >= self.config.max_waiting:
            if (
                not request.idle_heartbeat_ms
            ):  # a client that misses heartbeats asks again, but not at once
                self._tell(subject, 409, "Exceeded MaxWaiting")
            return
        self.last_pull += 1
        pull = WaitingPull(
            self.last_pull,
            subject,
            request,
            request.batch,
            request.max_bytes,
            request.id,
            now_ms + request.expires_ms if request.expires_ms else None,
            now_ms + request.idle_heartbeat_ms if request.idle_heartbeat_ms else None,
        )
        self._queue(pull)
        self._left += pull.left
        self._note_time(pull)
        if pull.pin:
            self._end_wrong_pins()
        if self.is_paused:
            self._end_one_shots()
        self.pump(now_ms)

    def _serve_at_once(self, subject: str, request: PullRequest, now_ms: int) -> bool:
        """What ``pump`` does with a request that finds all its messages here, and no other one before it: most do, and
        it takes half of the time. False: it has done nothing.
        """
        delivery, ahead, count = self.delivery, self._ahead, request.batch
        if self.waiting or not ahead.count or self._in_hand or not self._takes_runs:
            return False
        if request.max_bytes or self._paused_until_ms is not None or delivery.has_redelivery:
            return False
        part = ahead.first_part
        if part.count < count or delivery.room < count:
            return False
        self.last_pull += 1
        self._held_until_ms = None
        self._deliver_run(subject, part, count, now_ms)
        self._note_delivered(now_ms)
        return True

    def unpin(self, reason: str, now_ms: int) -> None:
        """The next request of a client without a pin has its client pinned."""
        self.pin, self.pinned_ms, self._pinned_until_ms = "", None, None
        self._effects.append(_unpinned(self.config, reason))
        self._end_wrong_pins()
        self.pump(now_ms)

    def _end_wrong_pins(self) -> None:
        """Of clients that were pinned."""
        if any(it.pin not in ("", self.pin) for it in self.waiting):
            for it in self.waiting:
                if it.pin not in ("", self.pin):
                    self._end_pull(it, 423, "Nats-Wrong-Pin-Id")
            self._keep_pulls(deque(it for it in self.waiting if it.pin in ("", self.pin)))

    def _queue(self, pull: WaitingPull) -> None:
        """Behind the others; if there are priorities, behind those that have its own."""
        waiting, place = self.waiting, len(self.waiting)
        if self.config.priority_policy == "prioritized":
            while place and _priority_of(waiting[place - 1]) > _priority_of(pull):
                place -= 1
        waiting.insert(place, pull)

    def drop_pulls(self, subject: str, now_ms: int | None = None) -> None:
        """Nothing listens at that subject any more."""
        if now_ms is not None and self.waiting:
            self._used_ms = now_ms
        self._keep_pulls(deque(it for it in self.waiting if it.subject != subject))

    def not_sent(self, it: Deliver, now_ms: int) -> None:
        """Its client had gone by then: the next one gets it, as the same delivery. A client that was to be pinned
        knows nothing of it: the pin is free again, as if there had been no such client.
        """
        if it.pins and it.pin == self.pin:
            self.pin, self.pinned_ms, self._pinned_until_ms = "", None, None
            self._effects.append(_unpinned(self.config, "client gone"))
        self._take_back(it, now_ms)
        self._forget_client(it.subject, now_ms)

    def run_not_sent(self, it: DeliverRun, sent: int, now_ms: int) -> None:
        """The same, of all messages of the run but the first ``sent``."""
        for each in it.deliveries(it.start + sent):
            self._take_back(each, now_ms)
        self._forget_client(it.subject, now_ms)

    def _take_back(self, it: Deliver, now_ms: int) -> None:
        self._hold(it.delivered, now_ms)
        self._in_hand.append(it.delivered)

    def _forget_client(self, subject: str, now_ms: int) -> None:
        if self.config.is_push:
            self.bind(False, now_ms)
        else:
            self.drop_pulls(subject, now_ms)

    def _keep_pulls(self, kept: deque[WaitingPull]) -> None:
        self.waiting = kept
        self._left = sum(it.left for it in kept)
        self._pulls_ms = None
        for it in kept:
            self._note_time(it)

    def _note_time(self, pull: WaitingPull) -> None:
        for time_ms in (pull.expires_ms, pull.beat_ms):
            if time_ms is not None and (self._pulls_ms is None or time_ms < self._pulls_ms):
                self._pulls_ms = time_ms

    def end_pulls(self, code: int, description: str) -> None:
        """The consumer goes: no pull request is answered here any more."""
        for it in self.waiting:
            self._end_pull(it, code, description)
        self._keep_pulls(deque())

    def bind(self, is_bound: bool, now_ms: int) -> None:
        """Whether the deliver subject has subscribers."""
        if is_bound == self._is_bound:
            return
        self._is_bound, self._used_ms = is_bound, now_ms
        self._flow_asked, self._outstanding_bytes = "", 0
        self._window_bytes = WINDOW_BYTES_MIN
        if is_bound and self.config.idle_heartbeat_ms:
            self._beat_ms = now_ms + self.config.idle_heartbeat_ms
        self.pump(now_ms)

    def block(self, is_blocked: bool, now_ms: int) -> None:
        """Whether those that read the deliver subject are behind."""
        self._is_blocked = is_blocked
        if not is_blocked:
            self.pump(now_ms)

    def flow_answered(self, subject: str, now_ms: int, answer: FlowAnswer = NO_ANSWER) -> int:
        """An answer to flow control: what was sent before the request has been read. How many it acknowledges."""
        if subject != self._flow_asked:
            return 0
        count = self._acknowledged_by_flow(answer, now_ms) if self.config.acks_by_flow else 0
        self._outstanding_bytes -= self._flow_asked_bytes
        self._flow_asked, self._used_ms = "", now_ms
        self._window_bytes = min(2 * self._window_bytes, WINDOW_BYTES_MAX)
        self._ask_for_flow()  # if what was sent since fills the window, no delivery would ask
        self.pump(now_ms)
        return count

    def _acknowledged_by_flow(self, answer: FlowAnswer, now_ms: int) -> int:
        """The client may have more than was delivered from here: by a coordinator before."""
        delivery = self.delivery
        if answer.consumer_sequence <= delivery.ack_floor.sequence:
            return 0
        stop = min(answer.stream_sequence, delivery.next_offset(0))
        count = delivery.ack_all(Place(0, stop - 1)) if stop else 0
        if count:
            self.is_changed = True
            self.last_ack_ms = now_ms
            self._drop_from_hand()
        return count

    def begin_again(self) -> None:
        """A coordinator before has delivered what is not known here: the client is to reset the consumer."""
        self.delivery.skip_sequences(SEQUENCES_LEFT_OUT)
        self._sequence = self.delivery.last_sequence

    def pause(self, until_ms: int | None, now_ms: int) -> None:
        """None: go on now. Nothing is delivered until then; heartbeats and requests go on."""
        self._paused_until_ms = None if until_ms is None or until_ms <= now_ms else until_ms
        if self.is_paused:
            self._end_one_shots()
        self.pump(now_ms)

    def reconfigure(self, config: ConsumerConfig, now_ms: int) -> None:
        before, self.config = self.config, config
        self._takes_runs = _takes_runs(config)
        self.delivery.limits = limits_of(config)
        if self.pin and config.priority_policy != "pinned_client":
            self.pin, self.pinned_ms, self._pinned_until_ms = "", None, None
        if config.filters != before.filters and config.deliver_policy != "last_per_subject":
            self._forget_ahead()  # read by filters of before; the messages are read again by those of now
        if config.rate_limit_bps != before.rate_limit_bps:
            self._rate_ns = now_ms * _MS_NS
        if not config.idle_heartbeat_ms:
            self._beat_ms = None
        elif self._beat_ms is None:
            self._beat_ms = now_ms + config.idle_heartbeat_ms
        self.pump(now_ms)

    def reset(
        self,
        offsets: Mapping[int, int],
        now_ms: int,
        *,
        epochs: Mapping[int, Sequence[EpochStart]] | None = None,
    ) -> None:
        """Begin again at these offsets, by partition; what was delivered before is forgotten. ``epochs``: in which the
        messages before an offset were written that it has not come to.
        """
        for partition, offset in offsets.items():
            next_offset = self.delivery.next_offset(partition)
            self._acknowledged_late(partition, offset, next_offset)
            if offset > next_offset:  # it knows nothing of what is in between
                self.epochs.pop(partition, None)
                self.note_epochs(partition, (epochs or {}).get(partition, ()))
            # It goes back to what it has read: those epochs hold until that is read again. What was picked was picked
            # by messages up to where it reads on, and these are not read again.
        self.delivery.reset(offsets)
        self._forget_ahead()
        self._in_hand.clear()
        self._replays.clear()
        self._replayed = None
        self._sequence = 0
        self._flow_asked, self._outstanding_bytes = "", 0
        self.last_delivered_ms = self.last_ack_ms = None
        self.is_changed = True
        self.pump(now_ms)

    @property
    def _may_forget(self) -> bool:
        """What was read ahead is found again by its offset; what was picked is not."""
        return self._ahead.count > 0 and self.config.deliver_policy != "last_per_subject"

    def _forget_ahead(self) -> None:
        self._ahead.clear()
        self._ahead_count = 0
        self._has_read_nothing = False
        self._beyond.clear()
        self._beyond_count = 0

    # Acknowledgements

    def acknowledged(self, acked: AckSubject, ack: Ack, reply: str, now_ms: int) -> None:
        """``reply``: where the client waits for an answer; empty: it does not."""
        if self.config.acks_by_flow:
            return
        self._used_ms = now_ms
        place = Place(acked.partition, acked.stream_sequence - 1)
        delivery = self.delivery
        match ack.kind:
            case AckKind.ACK | AckKind.NEXT:
                self._sample(place, now_ms)
                acks_all = self.config.ack_policy == "all"
                changed = bool(delivery.ack_all(place)) if acks_all else delivery.ack(place)
            case AckKind.NAK:
                # What is in hand is sent next: the answer is to a delivery before.
                is_in_hand = any(it.place == place for it in self._in_hand)
                changed = is_in_hand or delivery.nak(place, now_ms, ack.delay_ms)
                if changed:
                    self._advise("MSG_NAKED", place, acked)
            case AckKind.PROGRESS:
                changed = delivery.in_progress(place, now_ms)
            case AckKind.TERM:
                count = delivery.delivery_count(place)
                changed = delivery.terminate(place)
                if changed:
                    more: dict[str, object] = {"reason": ack.reason} if ack.reason else {}
                    self._advise("MSG_TERMINATED", place, acked, deliveries=count, **more)
        if ack.kind in _ENDS and self.given_up:
            changed |= self._acknowledged_late(place.partition, place.offset, place.offset + 1)
        if changed:
            self.is_changed = True
            if ack.kind in _ENDS:
                self.last_ack_ms = now_ms
                self._drop_from_hand()
        if ack.kind is AckKind.NEXT:
            self.pull(reply, ack.next_request, now_ms)
        elif reply:
            self._effects.append(Confirm(reply))
        self.pump(now_ms)

    def acknowledged_runs(self, runs: Iterable[tuple[int, int, int]], now_ms: int) -> None:
        """Positive acknowledgements: partition, first offset, and the offset after the last."""
        if self.config.acks_by_flow:
            return
        self._used_ms = now_ms
        delivery, acks_all, count = self.delivery, self.config.ack_policy == "all", 0
        for partition, start, stop in runs:
            # What is above was not delivered from here.
            upper = min(stop, delivery.next_offset(partition))
            if start >= upper:
                continue
            if self.given_up:
                count += self._acknowledged_late(partition, start, upper)
            if self.config.sample_percent:
                for offset in range(upper - 1 if acks_all else start, upper):
                    self._sample(Place(partition, offset), now_ms)
            if acks_all:
                count += delivery.ack_all(Place(partition, upper - 1))
            else:
                count += delivery.ack_run(partition, start, upper)
        if count:
            self.is_changed = True
            self.last_ack_ms = now_ms
            self._drop_from_hand()
        self.pump(now_ms)

    def _sample(self, place: Place, now_ms: int) -> None:
        """A metric of some of the acknowledgements."""
        if not self.config.sample_percent or 100 * self._rng.random() >= self.config.sample_percent:
            return
        record = self.delivery.pending(place)
        if record is not None:
            fields: dict[str, object] = {
                "consumer_seq": record.sequence,
                "stream_seq": place.offset + 1,
                "ack_time": max(0, now_ms - record.delivered_ms) * _MS_NS,
                "deliveries": record.count,
            }
            self._effects.append(Advise("ACK", fields))

    def _acknowledged_late(self, partition: int, start: int, stop: int) -> bool:
        """Of messages that were given up; whether there were some."""
        given_up = self.given_up.get(partition)
        late = None if given_up is None else given_up.between(start, stop)
        if given_up is None or not late:
            return False
        given_up.remove_all(late)
        if not given_up:
            del self.given_up[partition]
        return True

    # The stream

    def add(self, partition: int, messages: MessageRun, *, next_offset: int, beyond: int) -> None:
        """The next messages of a partition that match; those below ``next_offset`` do not, or are gone.
        ``beyond``: how many match from there on. ``pump`` delivers them.
        """
        # What is below its next offset was taken from the stream while it was read.
        was_empty = not self._ahead.count
        is_empty = not self._ahead.add(partition, messages, self.next_offset(partition))
        self._has_read_nothing = is_empty and not was_empty
        if not is_empty:
            self._ahead_count = min(max(AHEAD_FIRST, 2 * self._ahead_count), READ_AHEAD)
        self._note_beyond(partition, beyond)
        if partition not in self._replays:
            self._replays[partition] = self._ahead.count_of(partition) + beyond
        # What is here comes first: what is skipped now would be passed over with it.
        if was_empty and is_empty and next_offset > self.delivery.next_offset(partition):
            self.delivery.skip(partition, next_offset)

    def count(self, partition: int, beyond: int, now_ms: int) -> None:
        """How many match beyond what was read."""
        self._note_beyond(partition, beyond)
        self.pump(now_ms)

    def _note_beyond(self, partition: int, beyond: int) -> None:
        self._beyond_count += beyond - self._beyond.get(partition, 0)
        self._beyond[partition] = beyond

    def end_of_stream(self, now_ms: int, last_pull: int | None = None) -> None:
        """No further message matches now: a request that does not wait for one ends. ``last_pull``: as it was before
        the stream was read; for requests that came later there may be messages that came before them.
        """
        if self._in_hand or self.delivery.has_redelivery or self._ahead.count:
            return
        self._replays = dict.fromkeys(self._replays, 0)
        if self.waiting:
            self._used_ms = now_ms
        self._end_one_shots(last_pull)

    def _end_one_shots(self, last_pull: int | None = None) -> None:
        if not any(it.request.no_wait for it in self.waiting):
            return
        kept = deque[WaitingPull]()
        for it in self.waiting:
            is_over = it.request.no_wait and (it.sent or it.expires_ms is None)
            if is_over and (last_pull is None or it.number <= last_pull):
                self._tell(it.subject, 404, "No Messages")
            else:
                kept.append(it)
        self._keep_pulls(kept)

    def provide(self, place: Place, message: StoredMessage | None, now_ms: int) -> None:
        """The message that is needed; None: it is gone."""
        if not self._in_hand or self._in_hand[0].place != place:
            return
        self._note_use(now_ms)
        self._expire_pulls(now_ms)
        due = self._in_hand[0]
        if message is None:
            self._in_hand.popleft()
            self.delivery.forget(place)
            self.is_changed = True
        elif self._target_for(message, due.count, due.sequence, self._pending()):
            self._in_hand.popleft()
            wait_ms = self.delivery.limits.wait_ms(due.count)
            self.delivery.nak(place, now_ms, max(wait_ms, 1))  # it begins when the message is sent
            self._deliver(due, message, now_ms)
        self.pump(now_ms)

    def start_moved(self, partition: int, offset: int, now_ms: int) -> None:
        """Retention or a purge took what is below."""
        self._ahead.forget_below(partition, offset)
        self.is_changed |= bool(self.delivery.start_moved(partition, offset))
        self._keep_given_up(partition, offset, OFFSET_MAX)
        self._in_hand = deque(
            it
            for it in self._in_hand
            if it.place.partition != partition or it.place.offset >= offset
        )
        self.pump(now_ms)

    def _keep_given_up(self, partition: int, start: int, stop: int) -> None:
        given_up = self.given_up.get(partition)
        if given_up is not None:
            given_up.keep_between(start, stop)
            if not given_up:
                del self.given_up[partition]

    def note_epochs(self, partition: int, epochs: Sequence[EpochStart]) -> None:
        """Of messages that were read next; what was read after the first of them was forgotten."""
        if not epochs:
            return
        known = self.epochs.setdefault(partition, LeaderEpochs())
        for number, it in enumerate(epochs):
            if not number:
                known.truncate(it.start_offset)
            known.assign(*it)
        known.keep_last(EPOCHS_MAX)

    def read_epochs(self, partition: int, offset: int) -> tuple[EpochStart, ...]:
        """Of the messages below ``offset``, as far as they are known."""
        known = self.epochs.get(partition)
        entries = () if known is None else known.entries
        return tuple(it for it in entries if it.start_offset < offset)

    def rewind(self, partition: int, offset: int, now_ms: int) -> None:
        """The stream has lost what was read from ``offset`` on, and has other messages there."""
        self._forget_ahead()
        self.delivery.rewind(partition, offset)
        if partition in self.epochs:
            self.epochs[partition].truncate(offset)
        self._keep_given_up(partition, 0, offset)
        self._in_hand = deque(
            it
            for it in self._in_hand
            if it.place.partition != partition or it.place.offset < offset
        )
        self.is_changed = True
        self.pump(now_ms)

    # What is in hand

    def _hold(self, delivered: Delivered, now_ms: int) -> None:
        """It does not become due while it is in hand."""
        wait_ms = self.delivery.limits.wait_ms(delivered.count)
        self.delivery.nak(delivered.place, now_ms, max(wait_ms, HELD_MS))

    def _drop_from_hand(self) -> None:
        """What was acknowledged by the answer to a delivery before."""
        if self._in_hand and self.config.ack_policy != "none":
            is_pending = self.delivery.is_pending
            self._in_hand = deque(it for it in self._in_hand if is_pending(it.place))

    # Time

    def tick(self, now_ms: int) -> None:
        """At ``next_ms``, or later."""
        if self._paused_until_ms is not None and self._paused_until_ms <= now_ms:
            self._paused_until_ms = None
        if self._pinned_until_ms is not None and self._pinned_until_ms <= now_ms:
            self.unpin("timeout", now_ms)
        deadline_ms = self.delivery.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= now_ms:
            for it in self._in_hand:
                self._hold(it, now_ms)
            self.delivery.expire(now_ms)
        self._note_use(now_ms)
        self._expire_pulls(now_ms)
        self._beat(now_ms)
        if self._may_forget and not self._is_used and now_ms - self._used_ms >= AHEAD_MS:
            self._forget_ahead()
        self.pump(now_ms)

    @property
    def _is_used(self) -> bool:
        """A client waits for messages."""
        return self._is_bound or bool(self.waiting)

    def _note_use(self, now_ms: int) -> None:
        if self._is_used:
            self._used_ms = now_ms

    def _expire_pulls(self, now_ms: int) -> None:
        """And send the heartbeats that are due."""
        if self._pulls_ms is None or now_ms < self._pulls_ms:
            return
        kept = deque[WaitingPull]()
        for it in self.waiting:
            if it.expires_ms is not None and it.expires_ms <= now_ms:
                self._end_pull(it, 408, "Request Timeout")
                continue
            kept.append(it)
            if it.beat_ms is not None and it.beat_ms <= now_ms:
                self._tell(it.subject, 100, "Idle Heartbeat", self._last_delivered())
                it.beat_ms = now_ms + it.request.idle_heartbeat_ms
        self._keep_pulls(kept)

    def _beat(self, now_ms: int) -> None:
        if self._is_bound and self._beat_ms is not None and self._beat_ms <= now_ms:
            headers = self._last_delivered()
            if self._flow_asked:
                headers = (*headers, ("Nats-Consumer-Stalled", self._flow_asked))
            self._tell(self.config.deliver_subject, 100, "Idle Heartbeat", headers)
            self._beat_ms = now_ms + self.config.idle_heartbeat_ms
            if self.config.acks_by_flow and self.delivery.pending_count:
                self._request_flow()

    def _last_delivered(self) -> tuple[tuple[str, object], ...]:
        position = self.delivery.delivered
        stream = max(position.offsets.values(), default=0)
        return ("Nats-Last-Consumer", position.sequence), ("Nats-Last-Stream", stream)

    # Delivering

    def pump(self, now_ms: int) -> None:
        """Deliver what is here to those that want it."""
        self._note_use(now_ms)
        self._expire_pulls(now_ms)
        delivery = self.delivery
        while (exhausted := delivery.take_exhausted()) is not None:
            self._give_up(exhausted)
        self._held_until_ms = None
        if self._ahead.count and delivery.has_room and self._is_plain:
            self._pump_plainly(now_ms)
            return
        while not self._in_hand and self._target() is not None:
            if delivery.has_redelivery:
                if self._is_early(None, now_ms):
                    return
                self._take_redelivery(now_ms)
            elif self._ahead.count and delivery.has_room:
                read = self._ahead.first
                if self._is_early(read, now_ms):
                    return
                pending = self._pending() - 1
                if self._target_for(read.message, 1, self._sequence + 1, pending):
                    self._ahead.drop(1)
                    delivered = delivery.deliver(read.place, now_ms)
                    self._deliver(delivered, read.message, now_ms)
                    self._note_replayed(read, now_ms)
            else:
                return

    @property
    def _is_plain(self) -> bool:
        """One subject gets the next messages as they are, and nothing is due again."""
        if not self._takes_runs or self._in_hand or self.delivery.has_redelivery:
            return False
        if self._target() is None:
            return False
        if self.config.is_push:
            return True
        subject = self.waiting[0].subject
        return all(it.subject == subject and not it.request.max_bytes for it in self.waiting)

    def _pump_plainly(self, now_ms: int) -> None:
        """What ``pump`` does then, by the run."""
        config, delivery, ahead = self.config, self.delivery, self._ahead
        subject = config.deliver_subject if config.is_push else self.waiting[0].subject
        sent = 0
        while ahead.count and self._target() is not None:
            part = ahead.first_part
            count = min(part.count, delivery.room)
            if not config.is_push:
                count = min(count, self._left - sent)
            if config.flow_control:
                count = self._note_flow(part, count)
            if count <= 0:
                break
            self._deliver_run(subject, part, count, now_ms)
            sent += count
            if config.flow_control:
                self._ask_for_flow(is_sent=True)
        if not sent:
            return
        self._note_delivered(now_ms)
        if not config.is_push:
            self._deduct_evenly(sent, now_ms)
        elif config.idle_heartbeat_ms:
            self._beat_ms = now_ms + config.idle_heartbeat_ms

    def _deliver_run(self, subject: str, part: RunPart, count: int, now_ms: int) -> None:
        """The first ``count`` messages of what was read ahead, whose first part is ``part``."""
        start, stop = part.start, part.start + count
        offsets = part.run.offsets(start, stop)
        sequence = self.delivery.deliver_run(part.partition, offsets, now_ms)
        pending = self._pending() - 1
        self._effects.append(
            DeliverRun(subject, part.partition, part.run, start, stop, sequence, pending)
        )
        self._ahead.drop(count)

    def _note_delivered(self, now_ms: int) -> None:
        self._sequence = max(self._sequence, self.delivery.last_sequence)
        self.last_delivered_ms = self._used_ms = now_ms
        self.is_changed = True

    def _deduct_evenly(self, count: int, now_ms: int) -> None:
        """The waiting requests have got so many messages in turn."""
        waiting = self.waiting
        self._left -= count
        while count:
            rounds = min(count // len(waiting), *(it.left for it in waiting))
            if not rounds:  # the last ones, fewer than there are requests
                served = count
                count, rounds = 0, 1
            else:
                served = len(waiting)
                count -= rounds * served
            for _ in range(served):
                it = waiting.popleft()
                it.sent += rounds
                it.left -= rounds
                if it.left:
                    if it.request.idle_heartbeat_ms:
                        it.beat_ms = now_ms + it.request.idle_heartbeat_ms
                    waiting.append(it)

    def _note_flow(self, part: RunPart, count: int) -> int:
        """How many of these the window takes, up to the one that has the client asked whether it follows."""
        if count <= 0:
            return 0
        bytes_max = self._window_bytes
        if not self._flow_asked:
            bytes_max = bytes_max // 2 + 1
        count, size_bytes = fitting(
            part.run,
            part.start,
            part.start + count,
            head_bytes=self._reply_prefix_bytes + len("1."),
            sequence=self.delivery.last_sequence + 1,
            pending=self._pending() - 1,
            bytes_max=max(1, bytes_max - self._outstanding_bytes),
        )
        self._outstanding_bytes += size_bytes
        return count

    def _take_redelivery(self, now_ms: int) -> None:
        found = self.delivery.take_redelivery(now_ms)
        self.is_changed = True
        if isinstance(found, Exhausted):
            self._give_up(found)
        elif found is not None:
            self._hold(found, now_ms)
            self._in_hand.append(found)

    def _is_early(self, read: AheadMessage | None, now_ms: int) -> bool:
        """Its time has not come. None: a message that is due again, which is not replayed."""
        until_ms = now_ms
        if self.config.rate_limit_bps:
            until_ms = -(-self._rate_ns // _MS_NS) - BURST_MS
        if read is not None and self._replayed is not None and self._is_replayed(read):
            sent_ms, timestamp_ms = self._replayed
            until_ms = max(until_ms, sent_ms + read.message.timestamp_ms - timestamp_ms)
        if until_ms <= now_ms:
            return False
        self._held_until_ms = until_ms
        return True

    def _is_replayed(self, read: AheadMessage) -> bool:
        return self.config.replay_policy == "original" and self._replays[read.place.partition] > 0

    def _note_replayed(self, read: AheadMessage, now_ms: int) -> None:
        if self._is_replayed(read):
            self._replayed = now_ms, read.message.timestamp_ms
            self._replays[read.place.partition] -= 1

    def _give_up(self, exhausted: Exhausted) -> None:
        self.is_changed = True
        if self.keeps_given_up:
            place = exhausted.place
            self.given_up.setdefault(place.partition, OffsetSet()).add(place.offset)
        fields: dict[str, object] = {
            "stream_seq": exhausted.place.offset + 1,
            "deliveries": exhausted.count,
        }
        self._effects.append(Advise("MAX_DELIVERIES", fields))

    def _target(self) -> str | None:
        """Where a message may go now."""
        if self._paused_until_ms is not None:
            return None
        if not self.config.is_push:
            return next((it.subject for it in self.waiting if self._may_serve(it)), None)
        is_full = self.config.flow_control and self._outstanding_bytes >= self._window_bytes
        return (
            self.config.deliver_subject
            if self._is_bound and not (is_full or self._is_blocked)
            else None
        )

    def _target_for(self, message: StoredMessage, count: int, sequence: int, pending: int) -> bool:
        """Whether the next client may have it. Pull requests that have no room for it end."""
        while not self.config.is_push and not self.is_paused and self._bring_forward():
            pull = self.waiting[0]
            if not pull.request.max_bytes:
                return True
            if self._size_of(message, count, sequence, pending) <= pull.bytes_left:
                return True
            self.waiting.popleft()
            self._left -= pull.left
            self._end_pull(pull, 409, "Message Size Exceeds MaxBytes")
        return self._target() is not None

    def _may_serve(self, pull: WaitingPull) -> bool:
        """By its priority group."""
        request, policy = pull.request, self.config.priority_policy
        if policy == "pinned_client":
            return pull.pin == self.pin
        if policy != "overflow" or not (request.min_pending or request.min_ack_pending):
            return True
        is_behind = 0 < request.min_pending <= self._pending() + len(self._in_hand)
        return is_behind or 0 < request.min_ack_pending <= self.delivery.pending_count

    def _bring_forward(self) -> bool:
        """The first request that may be served; those before it go behind the others."""
        for _ in range(len(self.waiting)):
            if self._may_serve(self.waiting[0]):
                return True
            self.waiting.rotate(-1)
        return False

    def _pin_to(self, pull: WaitingPull, now_ms: int) -> None:
        self.pin = pull.pin = f"{self._rng.getrandbits(88):022x}"
        self.pinned_ms, self._pinned_until_ms = now_ms, now_ms + self.config.priority_timeout_ms
        self._effects.append(Advise("PINNED", {"group": pull.request.group, "pinned_id": self.pin}))

    def _deliver(self, delivered: Delivered, message: StoredMessage, now_ms: int) -> None:
        """To the next client."""
        self._sequence = max(self._sequence, delivered.sequence)
        self.last_delivered_ms = self._used_ms = now_ms
        self.is_changed = True
        config, pending = self.config, self._pending()
        pull = None if config.is_push else self.waiting[0]
        pins = pull is not None and config.priority_policy == "pinned_client" and not self.pin
        if pull is not None and pins:
            self._pin_to(pull, now_ms)
        subject = config.deliver_subject if pull is None else pull.subject
        self._effects.append(Deliver(subject, delivered, message, pending, self.pin, pins))
        size_bytes = 0
        if config.rate_limit_bps or (
            config.flow_control if pull is None else pull.request.max_bytes
        ):
            size_bytes = self._size_of(message, delivered.count, delivered.sequence, pending)
        if config.rate_limit_bps:
            cost_ns = size_bytes * 8 * 1_000 * _MS_NS // config.rate_limit_bps
            self._rate_ns = max(self._rate_ns, now_ms * _MS_NS) + cost_ns
        if pull is not None:
            self._deduct(pull, size_bytes, now_ms)
            return
        if config.idle_heartbeat_ms:
            self._beat_ms = now_ms + config.idle_heartbeat_ms
        if config.flow_control:
            self._outstanding_bytes += size_bytes
            self._ask_for_flow(is_sent=True)

    def _deduct(self, pull: WaitingPull, size_bytes: int, now_ms: int) -> None:
        """The first request has got a message."""
        self.waiting.popleft()
        pull.sent += 1
        pull.left -= 1
        self._left -= 1
        has_bytes = not pull.request.max_bytes
        if pull.request.max_bytes:
            pull.bytes_left -= size_bytes
            has_bytes = pull.bytes_left > 0
        if pull.left and has_bytes:  # requests share what there is
            if pull.request.idle_heartbeat_ms:
                pull.beat_ms = now_ms + pull.request.idle_heartbeat_ms
            self._queue(pull)
            return
        self._left -= pull.left
        if pull.bytes_left > 0:
            self._end_pull(pull, 409, "Batch Completed")

    def _pending(self) -> int:
        """How many match that were not delivered."""
        return self._ahead.count + self._beyond_count

    def _size_of(self, message: StoredMessage, count: int, sequence: int, pending: int) -> int:
        """What it counts among the bytes of a pull request, and of flow control: all but the line, as nats-server
        counts it.
        """
        numbers = f"{count}.{message.sequence}.{sequence}.{message.timestamp_ms}000000.{pending}"
        names = len(message.subject.encode()) + self._reply_prefix_bytes + len(numbers)
        block_bytes, data_bytes = len(message.header_block), len(message.data)
        if self.config.headers_only:
            block_bytes = (block_bytes or len("NATS/1.0\r\n\r\n")) + len("Nats-Msg-Size: \r\n")
            data_bytes = len(str(data_bytes))
        return names + block_bytes + data_bytes

    def _ask_for_flow(self, *, is_sent: bool = False) -> None:
        """If it is time. ``is_sent``: something was sent; else a client that acknowledges nothing would be asked
        without end for as long as no more may be pending.
        """
        is_full = is_sent and self.config.acks_by_flow and not self.delivery.has_room
        if is_full or self._outstanding_bytes > self._window_bytes // 2:
            self._request_flow()

    def _request_flow(self) -> None:
        if self._flow_asked:
            return
        self._flow_number += 1
        self._flow_asked = f"{self._flow_subject}.{self._flow_number}"
        self._flow_asked_bytes = self._outstanding_bytes
        subject = self.config.deliver_subject
        self._tell(subject, 100, "FlowControl Request", reply=self._flow_asked)

    # What is said

    def _end_pull(self, pull: WaitingPull, code: int, description: str) -> None:
        headers = (("Nats-Pending-Messages", pull.left), ("Nats-Pending-Bytes", pull.bytes_left))
        self._tell(pull.subject, code, description, headers)

    def _tell(
        self,
        subject: str,
        code: int,
        description: str,
        headers: tuple[tuple[str, object], ...] = (),
        reply: str = "",
    ) -> None:
        self._effects.append(Tell(subject, code, description, headers, reply))

    def _advise(self, kind: str, place: Place, acked: AckSubject, **more: object) -> None:
        fields: dict[str, object] = {
            "consumer_seq": acked.consumer_sequence,
            "stream_seq": place.offset + 1,
            "deliveries": acked.count,
            **more,
        }
        self._effects.append(Advise(kind, fields))


_ENDS: Final = frozenset((AckKind.ACK, AckKind.NEXT, AckKind.TERM))


def _takes_runs(config: ConsumerConfig) -> bool:
    """Messages may go as they are, many at once, to the client that asked first."""
    is_held_back = config.rate_limit_bps or config.replay_policy == "original"
    return not (is_held_back or config.headers_only) and config.priority_policy == "none"


def _priority_of(pull: WaitingPull) -> int:
    return pull.request.priority if pull.request.group else PRIORITY_LAST


def _unpinned(config: ConsumerConfig, reason: str) -> Advise:
    return Advise("UNPINNED", {"group": config.priority_groups[0], "reason": reason})


def limits_of(config: ConsumerConfig) -> DeliveryLimits:
    needs_acks = config.ack_policy != "none"
    return DeliveryLimits(
        ack_wait_ms=NEVER_MS if config.acks_by_flow else config.ack_wait_ms or 30_000,
        backoff_ms=config.backoff_ms,
        deliveries_max=max(0, config.max_deliver),
        pending_max=max(0, config.max_ack_pending) if needs_acks else 0,
    )
