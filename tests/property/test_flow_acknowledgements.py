"""A mirror or source that reads by a durable consumer, as nats-server does: what its answers to flow control
acknowledge it has, and it has each message once, whatever is lost on the way, and whenever the consumer's
coordinator or the reader begins anew.
"""

import json
from collections import deque
from itertools import count
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.delivery.delivery import Delivery
from streamlog.jetstream.consumers.acks import read_flow_answer
from streamlog.jetstream.consumers.consumer import Consumer, Deliver, Tell, limits_of
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.mirroring.origin_reader import FlowControl, OriginReader, ReaderStep
from streamlog.metadata.stream.stream_origin import StreamOrigin
from tests.message_runs import one_by_one, run_of

BEAT_MS = 1_000
CONFIG = ConsumerConfig(
    name="c",
    durable_name="c",
    deliver_subject="d",
    ack_policy="flow_control",
    flow_control=True,
    idle_heartbeat_ms=BEAT_MS,
    max_ack_pending=3,
)


class Delivered(NamedTuple):
    consumer_sequence: int
    stream_sequence: int


class Reader:
    """nats-server's: ``position`` is in its log, ``count`` is not."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.count = 0

    def heard(self, it: Delivered) -> tuple[bool, bool]:
        """Whether it is new, and whether the consumer is to be reset."""
        is_next = it.consumer_sequence == self.count + 1
        if it.stream_sequence <= self.position:
            self.count += is_next
            return False, False
        if is_next:
            self.count, self.position = it
            return True, False
        return False, it.consumer_sequence > self.count

    def answer(self) -> bytes:
        return b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (
            self.count,
            self.position,
        )


class World:
    """The reader is as nats-server's."""

    def __init__(self) -> None:
        self.messages: list[StoredMessage | None] = []
        self.now_ms = 0
        self.log: list[int] = []
        self.kept = Delivery(limits_of(CONFIG), starts={0: 0}).encode(0)
        self.way = deque[Delivered | Tell]()
        self.is_cut = False
        self.generation = 0
        self.reader = Reader(0)
        self.core = self.new_core()
        self.begin()

    def begin(self) -> None:
        self.core.bind(True, 0)
        self.reset()

    def new_core(self) -> Consumer:
        self.generation += 1
        delivery = Delivery.decode(self.kept, limits_of(CONFIG), self.now_ms)
        subject = f"$JS.FC.p{self.generation}.s.c"
        core = Consumer(CONFIG, delivery, now_ms=self.now_ms, rng=Random(7), flow_subject=subject)
        core.begin_again()
        return core

    def reset(self) -> None:
        """RESET is answered once the state is kept. The reader listens anew."""
        self.core.take()
        self.core.reset({0: self.core.delivery.ack_floor.offsets[0]}, self.now_ms)
        self.keep()
        self.way.clear()
        self.reader = Reader(self.log[-1] if self.log else 0)

    def keep(self) -> None:
        self.kept = self.core.delivery.encode(self.now_ms)

    def perform(self) -> None:
        for it in one_by_one(self.core.take()):
            if self.is_cut:
                continue
            if isinstance(it, Deliver):
                self.way.append(Delivered(it.delivered.sequence, it.delivered.place.offset + 1))
            elif isinstance(it, Tell):
                self.way.append(it)

    def deliver(self) -> None:
        core = self.core
        if core.needs_message is not None or not core.wants:
            core.pump(self.now_ms)
        else:
            offset = core.next_offset(0)
            found = [it for it in self.messages[offset:] if it is not None][: core.reads]
            end = found[-1].sequence if found else len(self.messages)
            core.add(0, run_of(found), next_offset=end, beyond=0)
            core.pump(self.now_ms)
        self.perform()

    def hear(self) -> None:
        if not self.way:
            return
        it = self.way.popleft()
        if isinstance(it, Delivered):
            is_new, is_missed = self.reader.heard(it)
            if is_new:
                self.log.append(it.stream_sequence)
            if is_missed:
                self.reset()
        elif it.reply:
            self.core.flow_answered(it.reply, self.now_ms, read_flow_answer(self.reader.answer()))
            self.perform()
        else:
            headers = dict(it.headers)
            last = headers["Nats-Last-Consumer"]
            if last and last != self.reader.count:
                self.reset()
            elif "Nats-Consumer-Stalled" in headers:
                self.core.flow_answered(str(headers["Nats-Consumer-Stalled"]), self.now_ms)
                self.perform()

    def act(self, action: str) -> None:
        match action:
            case "publish":
                self.messages.append(
                    StoredMessage("a", len(self.messages) + 1, 0, b"", b"x" * len(self.messages))
                )
            case "erase what is last" | "erase what is there":
                end = len(self.messages) if action == "erase what is last" else len(self.log)
                if end:
                    self.messages[end - 1] = None
            case "deliver":
                self.deliver()
            case "hear":
                self.hear()
            case "deliver and hear":
                self.deliver()
                while self.way:
                    self.hear()
            case "lose":
                if self.way:
                    self.way.popleft()
            case "cut":
                self.is_cut = not self.is_cut
            case "keep":
                self.keep()
            case "time":
                self.now_ms += BEAT_MS
                self.core.tick(self.now_ms)
                self.perform()
            case "the coordinator begins anew":
                self.core = self.new_core()
                self.core.bind(True, self.now_ms)
            case "the reader begins anew":
                self.reset()

    def check(self) -> None:
        assert self.log == sorted(set(self.log)), "a double, or out of order"
        floor = self.core.delivery.ack_floor.offsets[0]
        there = {it.sequence for it in self.messages[:floor] if it is not None}
        assert there <= set(self.log), "acknowledged without being there"

    def heal(self) -> None:
        self.is_cut = False
        for _ in range(4 * len(self.messages) + 60):
            self.act("time")
            self.act("deliver")
            while self.way:
                self.act("hear")
                self.act("deliver")


class OurWorld(World):
    """The reader is ours. What was on its way before a reset may still come."""

    def begin(self) -> None:
        self.is_listening = False
        self.asks = False
        self.tokens = count()
        self.reset()

    def reset(self) -> None:
        """The reader's node begins anew."""
        self.listen(False)
        self.origin_reader = OriginReader(
            StreamOrigin("s", consumer="c", consumer_deliver="d", api="$JS.x.API"),
            self.log[-1] if self.log else 0,
            lambda: f"t{next(self.tokens)}",
            inbox="_INBOX.m",
        )
        self.do(self.origin_reader.begin(self.now_ms))

    def listen(self, is_listening: bool) -> None:
        self.is_listening = is_listening
        self.core.bind(is_listening, self.now_ms)
        self.perform()

    def do(self, step: ReaderStep) -> None:
        if step.closes:
            self.listen(False)
        if step.opens:
            self.listen(True)
        for it in step.sends:
            assert it.subject == b"$JS.x.API.CONSUMER.RESET.s.c" and not it.payload
            self.core.reset({0: self.core.delivery.ack_floor.offsets[0]}, self.now_ms)
            self.keep()
            self.perform()
            delivered = self.core.delivery.delivered.offsets[0]
            answer = {
                "config": {"ack_policy": "flow_control"},
                "delivered": {"stream_seq": delivered},
            }
            self.do(self.origin_reader.answered(json.dumps(answer).encode(), b"", self.now_ms))
        for taken in step.takes:
            if isinstance(taken, FlowControl):
                subject, answer_of = taken.reply.decode(), read_flow_answer(taken.block)
                self.core.flow_answered(subject, self.now_ms, answer_of)
                self.perform()
            else:
                self.log.append(taken.sequence)

    def hear(self) -> None:
        if not self.way:
            return
        it = self.way.popleft()
        if not self.is_listening:
            return
        reader, now_ms = self.origin_reader, self.now_ms
        if isinstance(it, Delivered):
            reply = b"$JS.ACK.s.c.1.%d.%d.0.0" % (it.stream_sequence, it.consumer_sequence)
            self.do(reader.heard(b"a", reply, b"", b"", now_ms))
        else:
            lines = "".join(f"{name}: {value}\r\n" for name, value in it.headers)
            block = f"NATS/1.0 {it.code} {it.description}\r\n{lines}\r\n".encode()
            self.do(reader.heard(b"d", it.reply.encode(), block, b"", now_ms))

    def act(self, action: str) -> None:
        super().act(action)
        if action == "time":
            self.do(self.origin_reader.tick(self.now_ms))
        if action == "the coordinator begins anew":
            self.core.bind(self.is_listening, self.now_ms)


actions = st.sampled_from(
    [
        "publish", "publish", "publish", "erase what is last", "erase what is there", "deliver",
        "deliver", "hear", "hear", "hear", "deliver and hear", "deliver and hear", "lose",
        "cut", "keep", "time", "the coordinator begins anew", "the reader begins anew",
    ]
)  # fmt: skip


@pytest.mark.parametrize("kind", [World, OurWorld])
@given(story=st.lists(actions, max_size=80))
@settings(max_examples=1_000, deadline=None)
def test_what_is_acknowledged_is_there_once(kind: type[World], story: list[str]) -> None:
    world = kind()
    for action in story:
        world.act(action)
        world.check()
    world.heal()
    world.check()
    erased = {number for number, it in enumerate(world.messages, 1) if it is None}
    assert set(world.log) | erased == set(range(1, len(world.messages) + 1))
    assert world.core.delivery.pending_count == 0, "the last one is acknowledged, too"
