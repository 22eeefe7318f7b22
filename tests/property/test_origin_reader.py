"""A reader hands on each message of its origin once, in order, whatever the way to the origin loses, doubles, delays or
swaps, and whenever the reader's node or the origin begins anew.
"""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.jetstream.mirroring.origin_reader import (
    PAUSE_MS_MAX,
    SILENCE_MS,
    FlowControl,
    OriginMessage,
    OriginReader,
    ReaderStep,
)
from streamlog.metadata.stream.stream_origin import StreamOrigin

WINDOW = 5
"""Deliveries until a flow control request is answered."""
ORIGIN = StreamOrigin("O", api="$JS.hub.API")
TICK_MS = 500


@dataclass
class Consumer:
    """As JetStream has it: what is next, what was delivered, and until when it stops."""

    deliver: bytes
    next_sequence: int
    number: int = 0
    unanswered: int = 0
    request: bytes = b""


@dataclass
class Origin:
    """Messages by sequence, with gaps, and consumers that deliver to whatever subject they were told."""

    sequences: list[int] = field(default_factory=list)
    last: int = 0
    consumers: list[Consumer] = field(default_factory=list)
    requests: "count[int]" = field(default_factory=count)

    def publish(self, gap: int) -> None:
        self.last += 1 + gap
        self.sequences.append(self.last)

    def create(self, request: dict[str, Any]) -> bytes:
        config = request["config"]
        assert config["ack_policy"] == "none"
        assert config["flow_control"] and config["idle_heartbeat"]
        start = config["opt_start_seq"] if config["deliver_policy"] != "all" else 1
        self.consumers.append(Consumer(config["deliver_subject"].encode(), start))
        return json.dumps({"name": "c", "num_pending": 0}).encode()

    def answer(self, subject: bytes) -> None:
        for consumer in self.consumers:
            if consumer.request == subject:
                consumer.request, consumer.unanswered = b"", 0

    def deliver(self, say: Callable[[bytes, bytes, bytes, bytes], None]) -> None:
        """One step of each consumer."""
        for consumer in self.consumers:
            wanted = [it for it in self.sequences if it >= consumer.next_sequence]
            if consumer.unanswered >= WINDOW:
                if not consumer.request:
                    consumer.request = b"$JS.FC.%d" % next(self.requests)
                    say(
                        consumer.deliver, consumer.request, b"NATS/1.0 100 FlowControl\r\n\r\n", b""
                    )
                continue
            if wanted:
                sequence = wanted[0]
                consumer.number += 1
                consumer.unanswered += 1
                consumer.next_sequence = sequence + 1
                place = (1, sequence, consumer.number, sequence * 1_000_000, len(wanted) - 1)
                reply = b"$JS.ACK.O.c." + b".".join(b"%d" % it for it in place)
                say(consumer.deliver, reply, b"", b"%d" % sequence)

    def beat(self, say: Callable[[bytes, bytes, bytes, bytes], None]) -> None:
        for consumer in self.consumers:
            head = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\n" % consumer.number
            if consumer.request:
                head += b"Nats-Consumer-Stalled: %b\r\n" % consumer.request
            say(consumer.deliver, b"", head + b"\r\n", b"")


class World:
    def __init__(self) -> None:
        self.origin = Origin()
        self.log: list[OriginMessage] = []
        self.now_ms = 0
        self.tokens = count()
        self.way = deque[tuple[bytes, bytes, bytes, bytes]]()
        self.faults = deque[str]()
        self.reader = self.new_reader()
        self.listening = set[bytes]()

    def new_reader(self) -> OriginReader:
        """With the place that the log has."""
        position = self.log[-1].sequence if self.log else 0
        return OriginReader(ORIGIN, position, lambda: f"t{next(self.tokens)}", inbox="_INBOX.m")

    def say(self, *message: bytes) -> None:
        subject, reply, block, payload = message
        fault = self.faults.popleft() if self.faults else ""
        if fault == "lose":
            return
        self.way.append((subject, reply, block, payload))
        if fault == "double":
            self.way.append((subject, reply, block, payload))
        if fault == "swap" and len(self.way) > 1:
            self.way[-1], self.way[-2] = self.way[-2], self.way[-1]

    def do(self, step: ReaderStep) -> None:
        if step.closes:
            self.listening.clear()
        if step.asks:
            self.listening.add(self.reader.answer_subjects.encode())
        if step.opens:
            self.listening.add(self.reader.deliver_subject.encode())
        for it in step.sends:
            fault = self.faults.popleft() if self.faults else ""
            if fault == "lose":
                continue
            assert it.subject == b"$JS.hub.API.CONSUMER.CREATE.O"
            self.say(it.reply, b"", b"", self.origin.create(json.loads(it.payload)))
        for taken in step.takes:
            if isinstance(taken, FlowControl):
                if not (self.faults and self.faults.popleft() == "lose"):
                    self.origin.answer(taken.reply)
            else:
                self.log.append(taken)

    def hear(self) -> None:
        if not self.way:
            return
        subject, reply, block, payload = self.way.popleft()
        is_answer = b".answer." in subject
        wanted = subject.rpartition(b".")[0] + b".*" if is_answer else subject
        if wanted not in self.listening:
            return
        if is_answer:
            self.do(self.reader.answered(subject, payload, block, self.now_ms))
        else:
            self.do(self.reader.heard(b"o.x", reply, block, payload, self.now_ms))

    def act(self, action: str) -> None:
        match action:
            case "publish":
                self.origin.publish(0)
            case "publish after a gap":
                self.origin.publish(3)
            case "deliver":
                self.origin.deliver(self.say)
            case "beat":
                self.origin.beat(self.say)
            case "hear":
                self.hear()
            case "time":
                self.now_ms += TICK_MS
                self.do(self.reader.tick(self.now_ms))
            case "the reader's node begins anew":
                self.do(ReaderStep(closes=True))
                self.reader = self.new_reader()
                self.do(self.reader.begin(self.now_ms))
            case "the origin forgets its consumers":
                self.origin.consumers.clear()
            case "the consumer ends":
                for consumer in self.origin.consumers:
                    self.say(consumer.deliver, b"", b"NATS/1.0 409 Consumer Deleted\r\n\r\n", b"")
                self.origin.consumers.clear()
            case fault:
                self.faults.append(fault.removeprefix("fault "))

    def check(self) -> None:
        """No gap and no double: the log is a beginning of the origin."""
        mine = [it.sequence for it in self.log]
        assert mine == self.origin.sequences[: len(mine)]
        assert all(it.data == b"%d" % it.sequence for it in self.log)
        assert all(it.timestamp_ms == it.sequence for it in self.log)

    def heal(self) -> None:
        self.faults.clear()
        for _ in range(2 * (SILENCE_MS + PAUSE_MS_MAX) // TICK_MS + 4 * len(self.origin.sequences)):
            self.act("time")
            for _ in range(3):
                self.act("deliver")
            self.act("beat")
            while self.way:
                self.act("hear")


actions = st.sampled_from(
    [
        "publish", "publish", "publish after a gap", "deliver", "deliver", "deliver", "beat", "hear",
        "hear", "hear", "hear", "time", "the reader's node begins anew",
        "the origin forgets its consumers", "the consumer ends", "fault lose", "fault double",
        "fault swap",
    ]
)  # fmt: skip


@given(st.lists(actions, max_size=80))
@settings(max_examples=300)
def test_each_message_comes_once_in_order(story: list[str]) -> None:
    world = World()
    world.do(world.reader.begin(0))
    for action in story:
        world.act(action)
        world.check()
    world.heal()
    world.check()
    assert len(world.log) == len(world.origin.sequences)
    assert world.reader.error is None
    assert world.reader.lag == 0


def answered(
    reader: OriginReader, step: ReaderStep, identity: bytes, now_ms: int = 0, **fields: object
) -> ReaderStep:
    """What it does when its request is answered."""
    block = b"NATS/1.0\r\nNats-Stream-Identity: %b\r\n\r\n" % identity if identity else b""
    payload = json.dumps({"name": "c", "num_pending": 0, **fields}).encode()
    return reader.answered(step.sends[0].reply, payload, block, now_ms)


REFUSED = {"code": 400, "err_code": 10225, "description": "another identity"}


def test_a_source_begins_anew_with_a_stream_that_was_made_again() -> None:
    tokens = count()
    reader = OriginReader(ORIGIN, 7, lambda: f"t{next(tokens)}", inbox="_INBOX.m", identity="first")
    asked = reader.begin(0)
    (request,) = asked.sends
    assert request.block == b"NATS/1.0\r\nNats-Stream-Identity: first\r\n\r\n"
    assert json.loads(request.payload)["config"]["opt_start_seq"] == 8
    asked = answered(reader, asked, b"", error=REFUSED)
    (request,) = asked.sends
    assert b"Identity: \r\n" in request.block
    assert json.loads(request.payload)["config"]["deliver_policy"] == "all"
    assert reader.replaced == 1
    answered(reader, asked, b"second")
    (taken,) = reader.heard(b"o.x", b"$JS.ACK.O.c.1.1.1.0.0", b"", b"", 0).takes
    assert isinstance(taken, OriginMessage)
    assert (taken.sequence, taken.identity) == (1, "second")
    assert b"Identity: second\r\n" in reader.begin(0).sends[0].block


def test_a_mirror_takes_nothing_of_a_stream_that_was_made_again() -> None:
    tokens = count()
    reader = OriginReader(ORIGIN, 0, lambda: f"t{next(tokens)}", inbox="_INBOX.m", is_mirror=True)
    answered(reader, reader.begin(0), b"first")
    asked = reader.begin(1)
    for now_ms in range(3):
        assert not answered(reader, asked, b"", now_ms, error=REFUSED).sends
        assert reader.error is not None
        assert "delete the mirror" in reader.error["description"]
        asked = reader.begin(now_ms)
        assert b"Identity: first\r\n" in asked.sends[0].block


def test_an_origin_that_does_not_say_who_it_is_goes_on() -> None:
    tokens = count()
    reader = OriginReader(ORIGIN, 7, lambda: f"t{next(tokens)}", inbox="_INBOX.m", identity="first")
    answered(reader, reader.begin(0), b"")
    (taken,) = reader.heard(b"o.x", b"$JS.ACK.O.c.1.8.1.0.0", b"", b"", 0).takes
    assert isinstance(taken, OriginMessage)
    assert (taken.sequence, taken.identity) == (8, "first")


# A durable consumer

DURABLE = StreamOrigin("O", api="$JS.hub.API", consumer="d", consumer_deliver="x")
FIRST: dict[str, Any] = {
    "config": {"ack_policy": "flow_control"},
    "created": "2026-01-01T00:00:00.1Z",
}
SECOND: dict[str, Any] = {**FIRST, "created": "2026-01-01T00:00:00.2Z"}
FLOW = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


def durable_reader(position: int, floor: int) -> OriginReader:
    """It listens."""
    tokens = count()
    reader = OriginReader(
        DURABLE, position, lambda: f"t{next(tokens)}", inbox="_INBOX.m", identity="first"
    )
    asked = reader.begin(0)
    assert answered(reader, asked, b"first", **FIRST, delivered={"stream_seq": floor}).opens
    return reader


def ack_of(sequence: int, number: int) -> bytes:
    return b"$JS.ACK.O.d.1.%d.%d.0.0" % (sequence, number)


@pytest.mark.parametrize(
    "reply, block",
    [
        (ack_of(1, 1), b""),
        (
            b"",
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\nNats-Last-Stream: 0\r\n\r\n",
        ),
    ],
)
def test_a_durable_consumer_of_another_stream_is_asked_again(reply: bytes, block: bytes) -> None:
    """What it delivers is older than what was acknowledged, and yet comes next: nothing is acknowledged."""
    reader = durable_reader(9, 9)
    assert reader.heard(b"o.x", reply, block, b"", 0).closes
    assert not reader.is_reading
    asked = reader.tick(10_000)
    assert asked.sends[0].subject == b"$JS.hub.API.CONSUMER.RESET.O.d"
    assert answered(reader, asked, b"second", 10_000, **SECOND).opens
    asked = reader.heard(b"o.x", ack_of(1, 1), b"", b"", 10_000)
    (taken,) = answered(reader, asked, b"", 10_000, **SECOND).takes
    assert isinstance(taken, OriginMessage)
    assert (taken.sequence, taken.identity, reader.replaced) == (1, "second", 1)


def test_what_comes_first_waits_until_its_consumer_is_known() -> None:
    reader = durable_reader(3, 2)
    assert not reader.heard(b"o.x", ack_of(3, 1), b"", b"", 0).takes, "the log has it"
    asked = reader.heard(b"o.x", ack_of(4, 2), b"", b"four", 0)
    assert asked.sends[0].subject == b"$JS.hub.API.CONSUMER.INFO.O.d" and not asked.takes
    assert not reader.heard(b"", b"$JS.FC.O.d.1", FLOW, b"", 0).takes
    assert not reader.heard(b"o.x", ack_of(5, 3), b"", b"five", 0).takes
    assert (reader.position, reader.held_bytes > 8) == (3, True)
    step = answered(reader, asked, b"first", **FIRST)
    assert [it.data for it in step.takes if isinstance(it, OriginMessage)] == [b"four", b"five"]
    assert reader.position == 5
    assert len(step.takes) == 2, "the request for flow control came after the question"
    (flow,) = answered(reader, step, b"first", **FIRST).takes
    assert isinstance(flow, FlowControl)
    assert flow.block == b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 4\r\n\r\n"
    assert reader.held_bytes == 0
    (taken,) = reader.heard(b"o.x", ack_of(6, 4), b"", b"six", 0).takes
    assert isinstance(taken, OriginMessage) and taken.sequence == 6


@pytest.mark.parametrize("identity, fields", [(b"first", SECOND), (b"second", FIRST)])
def test_nothing_is_acknowledged_to_a_consumer_that_was_made_again(
    identity: bytes, fields: dict[str, Any]
) -> None:
    """The log has the old stream up to 9, of which 5 were acknowledged; the new one's first messages look the same."""
    reader = durable_reader(9, 5)
    assert reader.heard(b"o.x", ack_of(6, 1), b"", b"", 0) == ReaderStep()
    asked = reader.heard(b"", b"$JS.FC.O.d.1", FLOW, b"", 0)
    step = answered(reader, asked, identity, **fields)
    assert step.closes and not step.takes
    assert answered(reader, reader.tick(10_000), b"second", 10_000, **SECOND).opens
    assert (reader.position, reader.replaced) == (0, 1)


@pytest.mark.parametrize("identity, fields", [(b"first", SECOND), (b"second", FIRST)])
def test_no_message_of_a_consumer_that_was_made_again_is_taken_for_the_old_ones(
    identity: bytes, fields: dict[str, Any]
) -> None:
    reader = durable_reader(9, 9)
    asked = reader.heard(b"o.x", ack_of(10, 1), b"", b"", 0)
    step = answered(reader, asked, identity, **fields)
    assert step.closes and not step.takes and reader.held_bytes == 0


def test_an_older_message_after_the_first_one_has_the_consumer_reset() -> None:
    reader = durable_reader(0, 0)
    assert reader.heard(b"o.x", ack_of(7, 4), b"", b"", 0).closes, "a loss"
    reader = durable_reader(0, 4)
    assert not reader.heard(b"o.x", ack_of(3, 8), b"", b"", 0).closes, "of before the reset"
    reader.heard(b"o.x", ack_of(5, 1), b"", b"", 0)
    assert not reader.heard(b"o.x", ack_of(5, 1), b"", b"", 0).closes, "a double"
    assert reader.heard(b"o.x", ack_of(1, 1), b"", b"", 0).closes
    reader = durable_reader(0, 4)
    reader.heard(b"o.x", ack_of(5, 1), b"", b"", 0)
    assert reader.heard(b"o.x", b"$JS.ACK.O.d.1.5.1.77.0", b"", b"", 0).closes, "stored later"


@pytest.mark.parametrize(
    "block, payload, said",
    [
        (b"NATS/1.0 503\r\n\r\n", b"", "CONSUMER.INFO is not answered"),
        (b"", b"[]", "not readable"),
        (b"", b"{", "not readable"),
        (b"", b'{"error": {"code": 404, "description": "no such consumer"}}', "no such consumer"),
    ],
)
def test_a_durable_consumer_that_is_not_told_of_is_given_up(
    block: bytes, payload: bytes, said: str
) -> None:
    reader = durable_reader(0, 0)
    asked = reader.heard(b"o.x", ack_of(1, 1), b"", b"", 0)
    assert reader.answered(asked.sends[0].reply, payload, block, 0).closes
    assert said in str(reader.error)
    asked = reader.tick(10_000)
    answered(reader, asked, b"first", 10_000, **FIRST)
    assert said in str(reader.error), "as long as nothing is better"
    asked = reader.heard(b"o.x", ack_of(1, 1), b"", b"", 10_000)
    assert answered(reader, asked, b"first", 10_000, **FIRST).takes
    assert reader.error is None


def test_an_answer_that_does_not_come_is_waited_for_so_long_and_no_longer() -> None:
    """Though the consumer's heartbeats come."""
    reader = durable_reader(0, 0)
    reader.heard(b"o.x", ack_of(1, 1), b"", b"", 100)
    beat = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\n\r\n"
    for now_ms in range(1_000, 4_100, 1_000):
        assert reader.heard(b"", b"", beat, b"", now_ms) == ReaderStep()
        assert reader.tick(now_ms) == ReaderStep()
    assert reader.due_ms == 4_100
    assert reader.tick(4_100).closes
    assert "CONSUMER.INFO is not answered" in str(reader.error)


def test_a_durable_consumer_must_say_when_it_was_made() -> None:
    tokens = count()
    reader = OriginReader(DURABLE, 0, lambda: f"t{next(tokens)}", inbox="_INBOX.m")
    assert answered(reader, reader.begin(0), b"", config=FIRST["config"]).closes
    assert "when the consumer was made" in str(reader.error)


def test_an_answer_to_another_question_is_none() -> None:
    reader = durable_reader(0, 0)
    asked = reader.heard(b"o.x", ack_of(1, 1), b"", b"", 0)
    late = asked.sends[0]._replace(reply=b"_INBOX.m.t0.answer.1")
    assert answered(reader, ReaderStep(sends=(late,)), b"first", **FIRST) == ReaderStep()
    assert answered(reader, asked, b"first", **FIRST).takes
    assert answered(reader, asked, b"first", **FIRST) == ReaderStep()
