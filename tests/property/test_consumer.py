"""A consumer keeps its promises to clients, whatever comes between: judged by a stream that is a list, by requests that
remember what they got, and by messages that remember how often they were delivered, and when they are due.
"""

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.delivery.delivery import Delivery, Place
from streamlog.jetstream.consumers.acks import Ack, AckKind, AckSubject
from streamlog.jetstream.consumers.consumer import (
    Advise,
    Confirm,
    Consumer,
    Deliver,
    DeliverRun,
    Tell,
    limits_of,
)
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from tests.message_runs import run_of

EXAMPLES = 150
STEPS = 60
PARTITIONS = 2
STEPS_MAX = 2_000
"""Of work that one event may cause."""
PREFIX = "$JS.ACK.s.c."
PUSHED = "deliver.here"

configs = st.fixed_dictionaries(
    {
        "ack_policy": st.sampled_from(["explicit", "explicit", "all", "none"]),
        "max_deliver": st.sampled_from([-1, -1, 1, 2]),
        "max_ack_pending": st.sampled_from([-1, 1, 3]),
        "ack_wait_ms": st.sampled_from([1, 40, 1_500]),
        "backoff_ms": st.sampled_from([(), (), (30, 70)]),
        "replay_policy": st.sampled_from(["instant", "instant", "original"]),
        "headers_only": st.sampled_from([False, False, True]),
    }
)
pushes = st.fixed_dictionaries(
    {
        "flow_control": st.booleans(),
        "idle_heartbeat_ms": st.sampled_from([0, 100]),
        "rate_limit_bps": st.sampled_from([0, 0, 20_000]),
    }
)
requests = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 4),
        "max_bytes": st.just(0) | st.integers(35, 140),
        "expires": st.sampled_from([0, 25, 300]),
        "no_wait": st.booleans(),
        "idle_heartbeat": st.sampled_from([0, 10]),
        "priority": st.integers(0, 2),
    }
)


@dataclass(eq=False)
class Request:
    """Of a pull, at an inbox of its own."""

    inbox: str
    left: int
    bytes_left: int | None
    expires_ms: int | None
    no_wait: bool
    heartbeat_ms: int
    heard_ms: int
    ends: list[int]
    """Of the partitions, when it came."""
    got: int = 0
    ended: bool = False
    may_complete: bool = False
    """"Batch Completed" may follow."""
    is_there: bool = True


@dataclass(eq=False)
class Sent:
    """A message that was delivered, and is not settled."""

    count: int
    due_ms: int
    sequence: int
    first: int
    unsent: bool = False
    """Nobody got the delivery: the same one comes again."""


@dataclass
class Reading:
    """What the coordinator is told once its read is over."""

    place: Place | None
    message: StoredMessage | None = None
    partition: int = 0
    found: list[StoredMessage] = field(default_factory=list)
    next_offset: int = 0
    beyond: int = 0
    start: int = 0
    end: int = 0
    filters: tuple[str, ...] = ()


class ConsumerStory(RuleBasedStateMachine):
    """Clients, the stream, and the coordinator around a consumer."""

    @initialize(fields=configs, push=st.none() | pushes, is_prioritized=st.booleans(),
                published=st.integers(0, 6), reads_ahead=st.booleans())  # fmt: skip
    def begin(
        self,
        fields: dict[str, Any],
        push: dict[str, Any] | None,
        is_prioritized: bool,
        published: int,
        reads_ahead: bool,
    ) -> None:
        self.reads_ahead = reads_ahead
        if push is not None:
            if push["flow_control"]:
                push = {**push, "idle_heartbeat_ms": 100}
            fields = {**fields, **push, "deliver_subject": PUSHED}
        else:
            fields = {**fields, "max_waiting": 4}
            if is_prioritized:
                fields |= {"priority_policy": "prioritized", "priority_groups": ("g",)}
        self.config = ConsumerConfig(name="c", **fields)
        self.deliver_max = self.config.max_deliver
        """The largest so far: what is in hand when it falls is delivered all the same."""
        self.is_performing = False
        self.now_ms = 1_000
        self.needs_acks = self.config.ack_policy != "none"
        starts = dict.fromkeys(range(PARTITIONS), 0)
        delivery = Delivery(limits_of(self.config), starts=starts, needs_acks=self.needs_acks)
        self.core = Consumer(
            self.config,
            delivery,
            now_ms=self.now_ms,
            rng=random.Random(7),
            flow_subject="fc",
            reply_prefix=PREFIX,
        )
        self.stream: list[list[StoredMessage | None]] = [[] for _ in range(PARTITIONS)]
        self.starts = [0] * PARTITIONS
        self.next = [0] * PARTITIONS
        """Below it nothing is delivered first."""
        self.pending: dict[Place, Sent] = {}
        self.again: dict[Place, Sent] = {}
        """Without acknowledgements: what nobody got."""
        self.settled: set[Place] = set()
        self.sequence = 0
        self.requests: list[Request] = []
        self.is_bound = self.is_gone = False
        self.heard_ms = self.now_ms
        self.paused_until_ms: int | None = None
        self.asked = ""
        self.reading: Reading | None = None
        for number in range(published):
            self.publish(
                number % PARTITIONS, "ab"[number % 3 % 2], b"x" * number, has_headers=False
            )
        if not self.config.is_push:
            self.pull({"batch": 4, "max_bytes": 0, "expires": 0, "no_wait": False,
                       "idle_heartbeat": 0, "priority": 0})  # fmt: skip
        self.ends: dict[int, int] = {}
        """Of the pass over the partitions."""
        self.pass_pull = 0

    # What the consumer does

    def perform(self) -> None:
        self.is_performing = True
        for it in self.core.take():
            match it:
                case DeliverRun():
                    self.delivered_run(it)
                case Deliver():
                    if self.delivered(it):
                        self.core.not_sent(it, self.now_ms)
                case Tell():
                    self.told(it)
                case Advise():
                    self.advised(it)
                case Confirm():
                    assert it.reply == "reply"
        self.check()
        self.is_performing = False

    def delivered_run(self, it: DeliverRun) -> None:
        """Its client is there for all of it, or for nothing."""
        event("a run")
        assert it.start < it.stop <= it.run.count
        unsent = [self.delivered(each) for each in it.deliveries(it.start)]
        if any(unsent):
            assert all(unsent)
            self.core.run_not_sent(it, 0, self.now_ms)

    def delivered(self, it: Deliver) -> bool:
        """Whether it was not sent, since its client had gone."""
        place, message = it.delivered.place, it.message
        assert message.sequence == place.offset + 1
        assert place not in self.settled, "delivered again after it was settled"
        assert self.paused_until_ms is None or self.paused_until_ms <= self.now_ms
        known = self.pending.get(place) or self.again.pop(place, None)
        if known is not None and known.unsent:
            assert it.delivered.count == known.count
            assert it.delivered.sequence == known.sequence
            known.unsent = False
        else:
            # A number is left out if its message was settled while it was read again.
            gap = it.delivered.sequence - self.sequence
            assert gap > 0 and (gap == 1 or self.needs_acks)
            self.sequence = it.delivered.sequence
            if known is None:
                self.first(place, message)
                known = Sent(0, 0, self.sequence, self.sequence)
                if self.needs_acks:
                    self.pending[place] = known
            else:
                assert known.due_ms <= self.now_ms, "delivered again before its time"
            known.count, known.sequence = known.count + 1, it.delivered.sequence
            assert it.delivered.count == known.count
        assert self.deliver_max < 1 or known.count <= self.deliver_max
        known.due_ms = self.now_ms + self.wait_ms(known.count)
        if self.config.is_push:
            assert it.subject == PUSHED and (self.is_bound or self.is_gone)
            self.heard_ms = self.now_ms
            gone = self.is_gone
        else:
            request = next(each for each in self.requests if each.inbox == it.subject)
            gone = not request.is_there
            if not (gone and request.ended):  # others of the same moment
                self.got(request, it)
        if gone:
            event("nobody was there")
            known.unsent = True
            if not self.needs_acks:
                self.again[place] = known
            if self.config.is_push:
                self.is_bound = False
            for each in self.requests:
                each.ended |= each.inbox == it.subject
        return gone

    def first(self, place: Place, message: StoredMessage) -> None:
        partition, offset = place
        assert offset >= self.next[partition], "delivered first twice, or out of order"
        assert not self.alive(partition, self.next[partition], offset), "one was passed over"
        assert self.matches(message)
        if self.needs_acks and self.config.max_ack_pending > 0:
            assert len(self.pending) < self.config.max_ack_pending
        self.next[partition] = offset + 1

    def got(self, request: Request, it: Deliver) -> None:
        assert not request.ended, "a message after the end"
        assert request.expires_ms is None or self.now_ms < request.expires_ms
        if self.config.priority_policy == "prioritized" and request.is_there:
            event("prioritized")
        request.got += 1
        request.left -= 1
        request.heard_ms = self.now_ms
        if request.bytes_left is not None:
            request.bytes_left -= self.size_of(it)
            assert request.bytes_left >= 0, "more bytes than it asked for"
            request.may_complete = not request.left and request.bytes_left > 0
        request.ended = not request.left or request.bytes_left == 0

    def size_of(self, it: Deliver) -> int:
        place, message = it.delivered.place, it.message
        reply = AckSubject(
            "s", "c", it.delivered.count, message.sequence, it.delivered.sequence,
            message.timestamp_ms, it.pending, place.partition, 7,
        ).subject()  # fmt: skip
        size_bytes = len(message.subject) + len(reply)
        if not self.config.headers_only:
            return size_bytes + len(message.header_block) + len(message.data)
        head = message.header_block[:-2] or b"NATS/1.0\r\n"
        return size_bytes + len(head + b"Nats-Msg-Size: %d\r\n\r\n" % len(message.data))

    def told(self, it: Tell) -> None:
        if self.config.is_push and it.subject == PUSHED:
            assert it.code == 100
            if self.is_gone and not self.is_bound:
                return
            assert self.is_bound
            if it.reply:
                assert self.config.flow_control and not self.asked
                self.asked = it.reply
            else:
                assert self.now_ms - self.heard_ms >= self.config.idle_heartbeat_ms > 0
                self.heard_ms = self.now_ms
            return
        request = next((each for each in self.requests if each.inbox == it.subject), None)
        if request is None:
            assert it.code == 409 or it.description == "Requests Pending"  # refused
            return
        if request.ended and not request.is_there:
            request.may_complete = False
            return
        if it.code == 100:
            assert not request.ended
            assert self.now_ms - request.heard_ms >= request.heartbeat_ms > 0
            request.heard_ms = self.now_ms
            return
        if it.description == "Batch Completed":
            assert request.may_complete
            request.may_complete = False
            return
        assert not request.ended, "two ends"
        request.ended = True
        if it.description == "Requests Pending":
            others = sum(each.left for each in self.requests if not each.ended)
            known = sum(len(self.stream[number]) for number in range(PARTITIONS))
            assert request.no_wait and not request.got
            assert others > 1 and known
        elif it.code == 408:
            assert request.expires_ms is not None and request.expires_ms <= self.now_ms
        elif it.code == 404:
            assert request.no_wait and (request.got or request.expires_ms is None)
            if not self.core.is_paused:
                for number, end in enumerate(request.ends):
                    assert not self.alive(number, self.next[number], end), "there was one"
        else:
            assert it.description == "Message Size Exceeds MaxBytes"
            assert request.bytes_left is not None

    def advised(self, it: Advise) -> None:
        if it.kind != "MAX_DELIVERIES":
            return
        offset, count = int(str(it.fields["stream_seq"])) - 1, it.fields["deliveries"]
        found = [
            (place, sent)
            for place, sent in self.pending.items()
            if place.offset == offset
            and sent.count == count
            and not sent.unsent
            and not self.core.delivery.is_pending(place)
        ]
        assert found, "given up too early"
        place, sent = found[0]
        assert 0 < self.config.max_deliver <= sent.count and sent.due_ms <= self.now_ms
        del self.pending[place]
        self.settled.add(place)

    def check(self) -> None:
        core = self.core
        for place in self.pending:
            assert core.delivery.is_pending(place)
        assert core.delivery.pending_count == len(self.pending)
        live = [it for it in self.requests if not it.ended]
        assert {it.inbox for it in live} == {it.subject for it in core.waiting}
        assert not any(it.may_complete for it in self.requests), "the end was not told"
        if not self.config.is_push:
            assert core.wants <= sum(it.left for it in live)
        if self.config.priority_policy == "prioritized":
            order = [it.request.priority for it in core.waiting]
            assert order == sorted(order)

    # What there is

    def wait_ms(self, count: int) -> int:
        waits = self.config.backoff_ms or (self.config.ack_wait_ms,)
        return waits[min(count, len(waits)) - 1]

    def matches(self, message: StoredMessage) -> bool:
        return not self.config.filters or message.subject in self.config.filters

    def alive(self, partition: int, offset: int, end: int | None = None) -> list[StoredMessage]:
        offset = max(offset, self.starts[partition])
        return [it for it in self.stream[partition][offset:end] if it and self.matches(it)]

    # The coordinator

    def begin_read(self) -> bool:
        """False: nothing is to be read."""
        core = self.core
        assert self.reading is None
        place = core.needs_message
        if place is not None:
            kept = self.stream[place.partition][place.offset]
            gone = place.offset < self.starts[place.partition]
            self.reading = Reading(place, None if gone else kept)
            return True
        if not core.wants:
            return False
        number = next((it for it in range(PARTITIONS) if it not in self.ends), 0)
        if not self.ends:
            self.pass_pull = core.last_pull
        stream = self.stream[number]
        limit = core.reads if self.reads_ahead else core.wants
        found = self.alive(number, core.next_offset(number))[:limit]
        next_offset = found[-1].sequence if len(found) == limit else len(stream)
        next_offset = max(next_offset, core.next_offset(number))
        self.reading = Reading(
            None, None, number, found, next_offset, len(self.alive(number, next_offset)),
            self.starts[number], len(stream), self.config.filters,
        )  # fmt: skip
        return True

    def end_read(self) -> bool:
        """False: the end of the stream was reached."""
        it, self.reading = self.reading, None
        assert it is not None
        core = self.core
        if it.place is not None:
            core.provide(it.place, it.message, self.now_ms)
            if it.message is None:
                assert not core.delivery.is_pending(it.place)
                self.forget(it.place)
            self.perform()
            return True
        if it.filters != self.config.filters:
            self.ends.clear()
            return True
        if it.start > core.delivery.ack_floor.offsets.get(it.partition, 0):
            self.move_start(it.partition, it.start)
        core.add(it.partition, run_of(it.found), next_offset=it.next_offset, beyond=it.beyond)
        if not it.found:
            self.next[it.partition] = max(self.next[it.partition], it.next_offset)
        core.pump(self.now_ms)
        self.perform()
        self.ends[it.partition] = it.end
        if it.found:
            self.ends.clear()
        elif len(self.ends) == PARTITIONS:
            self.ends.clear()
            core.end_of_stream(self.now_ms, self.pass_pull)
            self.perform()
            return False
        return True

    def forget(self, place: Place) -> None:
        self.pending.pop(place, None)
        self.again.pop(place, None)

    def move_start(self, partition: int, offset: int) -> None:
        for place in [*self.pending, *self.again]:
            if place.partition == partition and place.offset < offset:
                self.forget(place)
        self.next[partition] = max(self.next[partition], offset)
        self.core.start_moved(partition, offset, self.now_ms)
        self.perform()

    def work(self) -> None:
        """Until nothing is to be read."""
        for _ in range(STEPS_MAX):
            if self.reading is None and not self.begin_read():
                return
            if not self.end_read() and not self.needs_more():
                return
        raise AssertionError("the work has no end")

    def needs_more(self) -> bool:
        core = self.core
        return core.needs_message is not None or any(
            core.wants and self.alive(it, core.next_offset(it)) for it in range(PARTITIONS)
        )

    # Events

    @rule(partition=st.integers(0, PARTITIONS - 1), subject=st.sampled_from("ab"), data=st.binary(max_size=40),
          has_headers=st.booleans())  # fmt: skip
    def publish(self, partition: int, subject: str, data: bytes, has_headers: bool) -> None:
        block = b"NATS/1.0\r\na: b\r\n\r\n" if has_headers else b""
        sequence = len(self.stream[partition]) + 1
        self.stream[partition].append(
            StoredMessage(subject, sequence, 1_000_000 + self.now_ms, block, data)
        )

    def new_request(self, body: dict[str, Any]) -> tuple[str, bytes]:
        body = dict(body)
        if body["idle_heartbeat"] * 2 > body["expires"]:
            body["idle_heartbeat"] = 0
        if self.config.priority_policy == "none":
            body["priority"] = 0
        else:
            body["group"] = "g"
        inbox = f"inbox.{len(self.requests)}"
        told = {
            name: value * 1_000_000 if name in ("expires", "idle_heartbeat") else value
            for name, value in body.items()
        }
        live = [
            it
            for it in self.requests
            if not it.ended and (it.expires_ms is None or it.expires_ms > self.now_ms)
        ]
        if len(live) < self.config.max_waiting:
            self.requests.append(
                Request(
                    inbox,
                    body["batch"],
                    body["max_bytes"] or None,
                    self.now_ms + body["expires"] if body["expires"] else None,
                    body["no_wait"],
                    body["idle_heartbeat"],
                    self.now_ms,
                    [len(it) for it in self.stream],
                )
            )
        return inbox, json.dumps(told).encode()

    @rule(body=requests)
    def pull(self, body: dict[str, Any]) -> None:
        inbox, told = self.new_request(body)
        self.core.pull(inbox, told, self.now_ms)
        self.perform()

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 20), is_noticed=st.booleans())
    def client_goes(self, number: int, is_noticed: bool) -> None:
        request = self.requests[number % len(self.requests)]
        request.is_there = False
        if is_noticed:
            request.ended = True
            self.core.drop_pulls(request.inbox, self.now_ms)
            self.perform()

    @precondition(lambda self: self.config.is_push)
    @rule(is_bound=st.booleans(), is_noticed=st.booleans())
    def subscribe(self, is_bound: bool, is_noticed: bool) -> None:
        self.is_gone = not is_bound
        if is_noticed and is_bound != self.is_bound:
            self.is_bound, self.asked, self.heard_ms = is_bound, "", self.now_ms
            self.core.bind(is_bound, self.now_ms)
            self.perform()

    @rule(is_blocked=st.booleans())
    def block(self, is_blocked: bool) -> None:
        self.core.block(is_blocked, self.now_ms)
        self.perform()

    @precondition(lambda self: self.asked)
    @rule()
    def answer_flow(self) -> None:
        asked, self.asked = self.asked, ""
        self.core.flow_answered(asked, self.now_ms)
        self.perform()

    @rule(partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 15), delay_ms=st.sampled_from([0, 0, 20]),
          kind=st.sampled_from([*AckKind, AckKind.ACK]), reply=st.sampled_from(["", "reply"]),
          body=requests)  # fmt: skip
    def acknowledge(
        self,
        partition: int,
        offset: int,
        delay_ms: int,
        kind: AckKind,
        reply: str,
        body: dict[str, Any],
    ) -> None:
        if self.pending:  # mostly one that counts
            partition, offset = sorted(self.pending)[offset % len(self.pending)]
        place, request = Place(partition, offset), b""
        if kind is AckKind.NEXT and reply:
            if self.config.is_push:
                reply = "elsewhere"
            else:
                reply, request = self.new_request(body)
        self.settle(place, kind, delay_ms)
        acked = AckSubject("s", "c", 1, offset + 1, 1, 0, 0, partition, 7)
        ack = Ack(kind, delay_ms if kind is AckKind.NAK else 0, "why", request)
        self.core.acknowledged(acked, ack, reply, self.now_ms)
        self.perform()

    def settle(self, place: Place, kind: AckKind, delay_ms: int) -> None:
        found = self.pending.get(place)
        if found is None:
            if kind in (AckKind.ACK, AckKind.NEXT) and self.config.ack_policy == "all":
                self.settle_all(place)
            return
        if kind is AckKind.NAK:
            found.due_ms = min(found.due_ms, self.now_ms)  # at the latest a delay after it
            if not delay_ms:
                return
        elif kind is AckKind.PROGRESS:
            pass  # it may come later; that it comes is seen by ``due_ms`` being passed
        elif kind is not AckKind.TERM and self.config.ack_policy == "all":
            self.settle_all(place)
        else:
            del self.pending[place]
            self.settled.add(place)

    def settle_all(self, place: Place) -> None:
        if place.offset >= self.core.delivery.next_offset(place.partition):
            return
        own = [it.first for at, it in self.pending.items()
               if at.partition == place.partition and at.offset <= place.offset]  # fmt: skip
        through = max(own, default=0)
        for at, it in list(self.pending.items()):
            if it.first <= through:
                del self.pending[at]
                self.settled.add(at)

    @rule(partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 15))
    def erase(self, partition: int, offset: int) -> None:
        if offset < len(self.stream[partition]):
            self.stream[partition][offset] = None

    @rule(
        partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 15), is_told=st.booleans()
    )
    def purge(self, partition: int, offset: int, is_told: bool) -> None:
        offset = min(offset, len(self.stream[partition]))
        self.starts[partition] = max(self.starts[partition], offset)
        if is_told:
            self.move_start(partition, self.starts[partition])

    @rule(for_ms=st.sampled_from([None, 0, 30, 2_000]))
    def pause(self, for_ms: int | None) -> None:
        self.paused_until_ms = None if for_ms is None else self.now_ms + for_ms
        self.core.pause(self.paused_until_ms, self.now_ms)
        self.perform()

    @rule(filters=st.sampled_from([(), ("a",), ("b",)]), max_deliver=st.sampled_from([-1, 1, 3]),
          max_ack_pending=st.sampled_from([-1, 1, 5]))  # fmt: skip
    def update(self, filters: tuple[str, ...], max_deliver: int, max_ack_pending: int) -> None:
        if max_deliver < 1 or self.deliver_max < 1:
            self.deliver_max = -1
        self.deliver_max = max(self.deliver_max, max_deliver) if self.deliver_max > 0 else -1
        self.config = replace(
            self.config,
            filter_subjects=filters,
            max_deliver=max_deliver,
            max_ack_pending=max_ack_pending,
        )
        self.core.reconfigure(self.config, self.now_ms)
        self.perform()

    @rule()
    def read_begins(self) -> None:
        if self.reading is None:
            self.begin_read()

    @rule()
    def read_ends(self) -> None:
        if self.reading is not None:
            self.end_read()

    @rule()
    def reads_all(self) -> None:
        self.work()

    @precondition(lambda self: self.reading is None)
    @rule(elapsed_ms=st.sampled_from([0, 5, 100, 1_500]), body=st.none() | requests, publishes=st.booleans(),
          kind=st.none() | st.sampled_from([*AckKind]), number=st.integers(0, 3))  # fmt: skip
    def reads_slowly(
        self,
        elapsed_ms: int,
        body: dict[str, Any] | None,
        publishes: bool,
        kind: AckKind | None,
        number: int,
    ) -> None:
        """Much happens between the beginning of a read and its end."""
        if not self.begin_read():
            return
        if publishes:
            self.publish(0, "a", b"", has_headers=False)
        if body is not None:
            self.pull(body)
        if kind is not None:
            self.acknowledge(0, number, 0, kind, "", {})
        if elapsed_ms:
            self.time(elapsed_ms)
        self.end_read()

    @rule(elapsed_ms=st.sampled_from([1, 5, 40, 100, 3_000]))
    def time(self, elapsed_ms: int) -> None:
        end_ms = self.now_ms + elapsed_ms
        for _ in range(STEPS_MAX):
            next_ms = self.core.next_ms()
            if next_ms is None or next_ms > end_ms:
                break
            self.tick_at(max(next_ms, self.now_ms))
        else:
            raise AssertionError("time stands still")
        self.now_ms = end_ms
        self.nothing_is_late()

    def tick_at(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.core.tick(now_ms)
        self.perform()
        next_ms = self.core.next_ms()
        assert next_ms is None or next_ms > now_ms, "it is due again at once"

    def nothing_is_late(self) -> None:
        for it in self.requests:
            if not it.ended:
                assert it.expires_ms is None or it.expires_ms > self.now_ms
                assert not it.heartbeat_ms or self.now_ms - it.heard_ms < it.heartbeat_ms
        if self.config.is_push and self.is_bound and self.config.idle_heartbeat_ms:
            assert self.now_ms - self.heard_ms < self.config.idle_heartbeat_ms
        if self.paused_until_ms is not None and self.paused_until_ms <= self.now_ms:
            assert not self.core.is_paused

    def teardown(self) -> None:
        if hasattr(self, "core") and not self.is_performing:  # no failure came before
            self.everything_comes()

    def everything_comes(self) -> None:
        """With clients that are there, all that is not settled comes until it is given up or acknowledged."""
        core = self.core
        self.pause(None)
        self.block(is_blocked=False)
        for round_number in range(STEPS_MAX):
            self.serve()
            if round_number > 20:  # some deliveries came and went; now they are acknowledged
                for place in sorted(self.pending):
                    self.acknowledge_one(place)
            self.work()
            is_left = any(self.alive(it, core.next_offset(it)) for it in range(PARTITIONS))
            if round_number > 20 and not (is_left or self.pending or self.again):
                event("all came")
                return
            next_ms = core.next_ms()
            self.tick_at(max(self.now_ms + 1, next_ms or 0) if round_number % 2 else self.now_ms)
        raise AssertionError("something never comes")

    def serve(self) -> None:
        if self.config.is_push:
            self.subscribe(is_bound=True, is_noticed=True)
            if self.asked:
                self.answer_flow()
            return
        for it in self.requests:
            if not it.ended:
                it.ended = True
                self.core.drop_pulls(it.inbox, self.now_ms)
        self.pull({"batch": 4, "max_bytes": 0, "expires": 0, "no_wait": False,
                   "idle_heartbeat": 0, "priority": 0})  # fmt: skip

    def acknowledge_one(self, place: Place) -> None:
        sent = self.pending.get(place)
        if sent is not None and not sent.unsent:
            self.settle(place, AckKind.ACK, 0)
            acked = AckSubject("s", "c", 1, place.offset + 1, 1, 0, 0, place.partition, 7)
            self.core.acknowledged(acked, Ack(AckKind.ACK), "", self.now_ms)
            self.perform()


TestConsumer = ConsumerStory.TestCase
TestConsumer.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
