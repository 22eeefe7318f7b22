"""A mirror or source that reads by a durable consumer, as nats-server does: what its answers to flow control
acknowledge it has, and it has each message once, whatever is lost on the way, and whenever the consumer's
coordinator or the reader begins anew.
"""

import json
from collections import deque
from itertools import count
from random import Random
from typing import Any, NamedTuple

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
        self.way = deque[Any]()
        self.is_cut = False
        self.generation = 0
        self.reader = Reader(0)
        self.core = self.new_core()
        self.begin()

    def begin(self) -> None:
        self.core.bind(True, 0)
        self.reset()

    def new_core(self, *, is_new: bool = False) -> Consumer:
        """``is_new``: the consumer is created; else its coordinator begins anew."""
        self.generation += 1
        delivery = Delivery.decode(self.kept, limits_of(CONFIG), self.now_ms)
        subject = f"$JS.FC.p{self.generation}.s.c"
        core = Consumer(CONFIG, delivery, now_ms=self.now_ms, rng=Random(7), flow_subject=subject)
        if not is_new:
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


class Answer(NamedTuple):
    """Of the API, to the reader."""

    subject: bytes
    fields: dict[str, object]
    identity: str


class OfStream(NamedTuple):
    """A message or a status of the consumer that this incarnation of the stream has."""

    identity: str
    it: Delivered | Tell


class OurWorld(World):
    """The reader is ours. What was on its way before a reset may still come, also from a stream and a consumer that
    were deleted, and made again under their names. No word of that comes to the reader.
    """

    def begin(self) -> None:
        self.is_listening = False
        self.tokens = count()
        self.incarnation = 0
        self.place = ("", 0)
        """Of which stream the last record in the log is, and its sequence there."""
        self.reset()

    @property
    def identity(self) -> str:
        return f"s{self.incarnation}"

    def reset(self) -> None:
        """The reader's node begins anew."""
        self.listen(False)
        identity, position = self.place
        self.origin_reader = OriginReader(
            StreamOrigin("s", consumer="c", consumer_deliver="d", api="$JS.x.API"),
            position,
            lambda: f"t{next(self.tokens)}",
            inbox="_INBOX.m",
            identity=identity,
        )
        self.do(self.origin_reader.begin(self.now_ms))

    def make_again(self) -> None:
        """Stream and consumer. The log keeps what it has of the old one."""
        self.perform()
        self.incarnation, self.is_cut = self.incarnation + 1, False
        self.messages, self.log = [], []
        self.kept = Delivery(limits_of(CONFIG), starts={0: 0}).encode(0)
        self.core = self.new_core(is_new=True)
        self.core.bind(self.is_listening, self.now_ms)

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
            assert not it.payload
            if it.subject == b"$JS.x.API.CONSUMER.RESET.s.c":
                self.core.reset({0: self.core.delivery.ack_floor.offsets[0]}, self.now_ms)
                self.keep()
                self.perform()
            else:
                assert it.subject == b"$JS.x.API.CONSUMER.INFO.s.c"
            self.answer(it.reply)
        for taken in step.takes:
            if isinstance(taken, FlowControl):
                subject, answer_of = taken.reply.decode(), read_flow_answer(taken.block)
                self.core.flow_answered(subject, self.now_ms, answer_of)
                self.perform()
            else:
                assert taken.data.decode() == taken.identity, "the message of another stream"
                assert self.place[0] != taken.identity or self.place[1] < taken.sequence
                self.place = taken.identity, taken.sequence
                if taken.identity == self.identity:
                    self.log.append(taken.sequence)

    def answer(self, subject: bytes) -> None:
        if self.is_cut:
            return
        fields = {
            "config": {"ack_policy": "flow_control"},
            "delivered": {"stream_seq": self.core.delivery.delivered.offsets[0]},
            "created": f"when it was {self.incarnation}",
        }
        self.way.append(Answer(subject, fields, self.identity))

    def perform(self) -> None:
        """The way has what each message is of."""
        before = len(self.way)
        super().perform()
        said = [self.way.pop() for _ in range(len(self.way) - before)]
        self.way.extend(OfStream(self.identity, it) for it in reversed(said))

    def hear(self) -> None:
        if not self.way:
            return
        it = self.way.popleft()
        reader, now_ms = self.origin_reader, self.now_ms
        if isinstance(it, Answer):
            if it.subject.rpartition(b".")[0] + b".*" != reader.answer_subjects.encode():
                return  # an earlier reader has listened to it
            block = b"NATS/1.0\r\nNats-Stream-Identity: %b\r\n\r\n" % it.identity.encode()
            self.do(reader.answered(it.subject, json.dumps(it.fields).encode(), block, now_ms))
        elif not self.is_listening:
            return
        elif isinstance(it.it, Delivered):
            place = it.it.stream_sequence, it.it.consumer_sequence, int(it.identity[1:])
            reply = b"$JS.ACK.s.c.1.%d.%d.%d.0" % place
            self.do(reader.heard(b"a", reply, b"", it.identity.encode(), now_ms))
        else:
            lines = "".join(f"{name}: {value}\r\n" for name, value in it.it.headers)
            block = f"NATS/1.0 {it.it.code} {it.it.description}\r\n{lines}\r\n".encode()
            self.do(reader.heard(b"d", it.it.reply.encode(), block, b"", now_ms))

    def act(self, action: str) -> None:
        if action == "publish and deliver and hear":
            self.act("publish")
            self.act("deliver and hear")
        elif action == "make again":
            self.make_again()
        elif action == "make again as the reader begins anew":
            self.reset()
            self.make_again()
        elif action in ("lose", "cut") and self.incarnation and self.place[0] != self.identity:
            # Were the first ones of another stream lost, the next one might have the number that is expected.
            self.is_cut = False
        else:
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
again = st.one_of(
    actions,
    st.sampled_from(
        [
            "publish and deliver and hear", "publish and deliver and hear", "make again",
            "make again as the reader begins anew", "make again as the reader begins anew",
        ]
    ),
)  # fmt: skip
"""What a reader has and has not acknowledged is where another stream's messages may be taken for it."""


def played(world: World, story: list[str]) -> None:
    for action in story:
        world.act(action)
        world.check()
    world.heal()
    world.check()
    erased = {number for number, it in enumerate(world.messages, 1) if it is None}
    assert set(world.log) | erased == set(range(1, len(world.messages) + 1))
    assert world.core.delivery.pending_count == 0, "the last one is acknowledged, too"


@pytest.mark.parametrize("kind", [World, OurWorld])
@given(story=st.lists(actions, max_size=80))
@settings(max_examples=1_000, deadline=None)
def test_what_is_acknowledged_is_there_once(kind: type[World], story: list[str]) -> None:
    played(kind(), story)


@given(story=st.lists(again, max_size=80))
@settings(max_examples=1_000, deadline=None)
def test_nothing_is_lost_of_a_stream_that_was_made_again(story: list[str]) -> None:
    played(OurWorld(), story)
