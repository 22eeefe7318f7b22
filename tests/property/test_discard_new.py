"""What a stream with ``discard=new`` takes in, message by message, against a naive log."""

import asyncio
import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ingest.admission.batches.batch_staging import BatchStagingLimit
from streamlog.ingest.admission.batches.fast_batches import FastBatchLimit
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.partition_ingest import ConflictAnswers, PartitionIngest
from streamlog.ingest.pub_acks import PubAcks
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Router
from streamlog.record.codec import iter_records
from tests.ingest_way import Written
from tests.led_partition import FakePartition, as_partition
from tests.nats_frames import FrameParser, msg

START = 10
names = st.sampled_from([b"a", b"b", b"c.1"])
reads = st.lists(st.lists(names, max_size=6), max_size=6)


class World:
    def __init__(self, **limits: object) -> None:
        self.partition = FakePartition()
        self.partition.config = StreamConfig.of(
            name="orders", discard="new", allow_atomic=True, **limits
        )
        metrics = NodeMetrics()
        self.written = Written()
        self.answers = PubAcks(self.written, metrics, Router())
        room = InFlightBytes(
            in_flight_bytes_max=1 << 20, backpressure_timeout_ms=1, metrics=metrics
        )
        self.ingest = PartitionIngest(
            as_partition(self.partition),
            deduplicator=Deduplicator("orders", duplicate_window_ms=120_000),
            settings=IngestSettings(message_bytes_max=1000, bounded=True, batches=True),
            answers=self.answers,
            conflicts=ConflictAnswers(self.answers, room, None),
            room=room,
            staging=BatchStagingLimit(room, in_flight_bytes_max=1 << 20),
            fast_batches=FastBatchLimit(),
            metrics=metrics,
            now_ms=lambda: 1_000_000,
            grown={},
        )
        self.parser = FrameParser()
        self.parser.bind(3, self.ingest.inflow)
        self.count = 0

    def take_batch(self, subjects: list[bytes], before: list[bytes], after: list[bytes]) -> None:
        """In one read with others; the last message of the batch has its reply."""
        frames = b"".join(self.frame(subject) for subject in before)
        batch_id = b"b%d" % self.count
        for number, subject in enumerate(subjects, 1):
            lines = [b"Nats-Batch-Id: " + batch_id, b"Nats-Batch-Sequence: %d" % number]
            reply = b""
            if number == len(subjects):
                lines.append(b"Nats-Batch-Commit: 1")
                reply = b" r.%d" % self.count
                self.count += 1
            head = b"".join(line + b"\r\n" for line in (b"NATS/1.0", *lines, b""))
            sizes = b"%d %d" % (len(head), len(head) + 1)
            frames += b"HMSG %b 3%b %b\r\n%bx\r\n" % (subject, reply, sizes, head)
        self.feed(frames + b"".join(self.frame(subject) for subject in after))

    def frame(self, subject: bytes, payload: bytes = b"x") -> bytes:
        self.count += 1
        return msg(payload, subject, b"r.%d" % (self.count - 1))

    def take(self, subjects: list[bytes], payload: bytes = b"x") -> None:
        """One read of the socket."""
        self.feed(b"".join(self.frame(subject, payload) for subject in subjects))

    def feed(self, frames: bytes) -> None:
        for _ in self.parser.feed(frames):
            self.ingest.take()

    def told(self) -> list[object]:
        """In the order of the messages: the sequence, or the error's text."""
        self.partition.commit()
        data, found = b"".join(self.written), {}
        while data:
            line, _, data = data.partition(b"\r\n")
            _, reply, size = line.split()
            answer = json.loads(data[: int(size)])
            error = answer.get("error")
            if error:
                assert (error["code"], error["err_code"]) in ((503, 10077), (503, 10008))
            found[int(reply.removeprefix(b"r."))] = error["description"] if error else answer["seq"]
            data = data[int(size) + 2 :]
        return [found[number] for number in range(self.count)]


@settings(max_examples=100, deadline=None)
@given(reads, st.integers(1, 12), st.none() | st.integers(1, 3))
def test_messages_and_messages_of_a_subject(
    sent: list[list[bytes]], messages: int, of_subject: int | None
) -> None:
    asyncio.run(fill(sent, messages, of_subject))


async def fill(sent: list[list[bytes]], messages: int, of_subject: int | None) -> None:
    limits: dict[str, object] = {"retention_messages": messages}
    if of_subject:
        limits |= {"discard_new_per_subject": True, "max_messages_per_subject": of_subject}
    world, wanted = World(**limits), list[object]()
    there: Counter[bytes] = Counter()
    for subjects in sent:
        world.take(subjects)
        for subject in subjects:
            if of_subject and there[subject] == of_subject:
                wanted.append("maximum messages per subject exceeded")
            elif there.total() == messages:
                wanted.append("maximum messages exceeded")
            else:
                there[subject] += 1
                wanted.append(START + there.total())
    assert world.told() == wanted


async def test_bytes() -> None:
    """One that does not fit does not keep a smaller one out."""
    world = World(retention_bytes=1_000)
    world.take([b"a"] * 3, bytes(200))
    world.take([b"a"] * 2, bytes(200))
    world.take([b"a"], bytes(10))
    full = "maximum bytes exceeded"
    assert world.told() == [11, 12, 13, full, full, 14]
    assert world.partition.size_bytes <= 1_000


async def test_there_is_room_again() -> None:
    world = World(retention_messages=2)
    world.take([b"a", b"b", b"c"])
    world.partition.log_start_offset += 1
    world.take([b"d", b"e"])
    world.partition.erased.add(START + 1)
    world.take([b"f", b"g"])
    full = "maximum messages exceeded"
    assert world.told() == [11, 12, full, 13, full, 14, full]


async def test_subjects_that_are_not_counted_yet() -> None:
    world = World(discard_new_per_subject=True, max_messages_per_subject=1)
    world.partition.subjects.is_known = False
    world.take([b"a", b"b"])
    world.partition.subjects.is_known = True
    world.take([b"a", b"b", b"a"])
    text = "the messages of each subject are not counted yet; ask again"
    assert world.told() == [text, text, 11, 12, "maximum messages per subject exceeded"]


batches = st.tuples(
    st.lists(names, max_size=3), st.lists(names, max_size=3), st.lists(names, max_size=3)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(batches, max_size=4), st.integers(1, 12), st.none() | st.integers(1, 3))
def test_batches_are_taken_whole_or_not_at_all(
    sent: list[tuple[list[bytes], list[bytes], list[bytes]]], messages: int, of_subject: int | None
) -> None:
    asyncio.run(fill_with_batches(sent, messages, of_subject))


async def fill_with_batches(
    sent: list[tuple[list[bytes], list[bytes], list[bytes]]], messages: int, of_subject: int | None
) -> None:
    """A batch is refused, too, where there is room for it but not for what came before it in the
    same read.
    """
    limits: dict[str, object] = {"retention_messages": messages}
    if of_subject:
        limits |= {"discard_new_per_subject": True, "max_messages_per_subject": of_subject}
    world = World(**limits)
    stored: list[bytes] = []

    def fits(asked: list[bytes]) -> bool:
        there = Counter(stored + asked)
        return there.total() <= messages and (
            not of_subject or all(there[it] <= of_subject for it in asked)
        )

    def take_each(asked: list[bytes]) -> None:
        for subject in asked:
            if fits([subject]):
                stored.append(subject)

    for before, batch, after in sent:
        taken = len(world.partition.values())
        world.take_batch(batch, before, after)
        take_each(before)
        at = len(stored)
        found = subjects_of(world.partition)[taken:]
        if batch and found[at - taken : at - taken + len(batch)] == batch and fits(batch):
            stored += batch
        take_each(after)
        assert subjects_of(world.partition) == stored
    world.told()


def subjects_of(partition: FakePartition) -> list[bytes]:
    found = (record for batch in partition.batches for record in iter_records(batch))
    return [record.headers[0][1] or b"" for record in found]
