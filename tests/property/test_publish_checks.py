"""Messages that compiled checks let in, beside those that Python code judges: all is the same.

The same records, answers in the same order, ids in the window and counters, whatever the headers
are, and whatever happens between the reads.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import StorageFailed
from streamlog.ingest.admission.message_ttl import Lifetimes
from streamlog.ingest.admission.publish_headers import AckPolicy
from streamlog.ingest.admission.refusal import OVERLOADED
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.partition.state import UNAWAITED
from streamlog.record.batch import PUBLISHED, read_header
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.offset_set import OffsetSet
from tests import enveloped
from tests.ingest_way import Way

WINDOW_MS = 800
IDS_MAX = 8

message_ids = st.integers(0, 12).map(lambda number: b"Nats-Msg-Id: id-%d" % number)
sequences = st.integers(8, 24).map(lambda number: b"Nats-Expected-Last-Sequence: %d" % number)
last_ids = st.integers(0, 12).map(lambda number: b"Nats-Expected-Last-Msg-Id: id-%d" % number)
of_subject = (st.just(0) | st.integers(8, 24)).map(
    lambda number: b"Nats-Expected-Last-Subject-Sequence: %d" % number
)
common = message_ids | sequences | last_ids | of_subject | st.just(b"Nats-Expected-Stream: orders")
NAMES = (
    b"Nats-Msg-Id", b"Nats-Expected-Stream", b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Msg-Id", b"Nats-Expected-Last-Subject-Sequence",
    b"nats-msg-id",
    b"NATS-MSG-ID", b"Nats-Msg-Id ", b" Nats-Msg-Id", b"Nats-Msg-I", b"Nats-Msg-Idx", b"Nats-\xff",
    b"Nats-Expected-Last-Sequenc\xe9", b"Streamlog-Ack", b"streamlog-ack", b"Streamlog-Key",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-TTL", b"Nats-Rollup", b"Nats-Incr", b"Nats-Schedule", b"Nats-Stream-Source", b"a",
)  # fmt: skip
VALUES = (
    b"", b" ", b"\t", b"id-1", b" id-1", b"\t \tid-2", b"id-1 ", b"orders", b"orders ", b"10",
    b"010", b" 11", b"11 ", b"+11", b"-1", b"1_1", b"0x0b", b"\xd9\xa1\xd9\xa1", b"0" * 18 + b"11",
    b"0" * 16 + b"11", b"0" * 19 + b"11", b"9" * 18, b"9" * 20, b"9" * 40, b"1\r1", b"1\n1", b"\r",
    b"all", b"leader", b"none", b"ALL", b"sub", b"1s", b"never", b"id-3:x", b"x" * 300, b"\0", b"11\0",
)  # fmt: skip
odd = st.one_of(
    st.builds(lambda name, value: name + b":" + value, st.sampled_from(NAMES), st.sampled_from(VALUES)),
    st.sampled_from([b"", b"Nats-Msg-Id", b":id-1", b"\r", b"Nats-Msg-Id: id-1\r\n\r\nNats-TTL: 2"]),
    st.binary(max_size=12),
)  # fmt: skip
blocks = st.builds(
    lambda begin, lines, end: b"\r\n".join((begin, *lines)) + end,
    st.sampled_from([b"NATS/1.0"] * 8 + [b"NATS/1.0 503", b"NATS", b""]),
    st.lists(common, max_size=2) | st.lists(common | odd, max_size=4),
    st.sampled_from([b"\r\n\r\n"] * 8 + [b"\r\n", b"", b"\r"]),
)
bodies = st.sampled_from([b"", b"v"]) | st.builds(
    lambda headers, key, inbox, correlation_id, policy, checked, more: enveloped.envelope(
        enveloped.message(
            b"v",
            key=key,
            headers=headers,
            inbox=inbox,
            correlation_id=correlation_id,
            policy=policy,
        )
        + more,
        checked=checked,
    ),
    st.dictionaries(
        st.sampled_from([*NAMES[:6], b"reply", b"subject", b"Streamlog-Key", b"a:b", b"\xc3\xa4"]),
        st.sampled_from(VALUES),
        max_size=2,
    ),
    st.sampled_from([b"", b"k"]),
    st.sampled_from([b"", b"acks", b"r", b"a.>", b"a.b", b"\xc3\xa4"]),
    st.sampled_from([b"", b"7", b"\xc3\xa4"]),
    st.sampled_from([0, 0, 1, 1, 2, 3, -1]),
    st.booleans(),
    st.sampled_from([b"", b"", enveloped.text(3, b""), enveloped.text(2, b"other"), b"\xff"]),
)
messages = st.tuples(
    blocks, bodies, st.sampled_from([b"", b"r", b"_INBOX.x"]), st.sampled_from([b"x", b"x", b"y"])
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.lists(messages, max_size=6)),
        st.tuples(st.just("read"), st.lists(messages, max_size=6)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("fail")),
        st.tuples(st.just("produce")),
        st.tuples(st.just("erase")),
        st.tuples(st.just("later"), st.integers(-50, 500)),
        st.tuples(st.just("set"), st.sampled_from(["fault", "below_min_isr", "barred", "known"])),
    ),
    max_size=12,
)
stream_settings = st.fixed_dictionaries(
    {
        "default_ack": st.sampled_from(list(AckPolicy)),
        "answering": st.sampled_from([True, True, False]),
        "batches": st.booleans(),
        "rollups": st.booleans(),
        "bounded": st.sampled_from([False, False, True]),
        "lifetimes": st.sampled_from(list(Lifetimes)),
        "keyed": st.sampled_from([False, False, True]),
    }
)


def frame(block: bytes, body: bytes, reply: bytes, token: bytes = b"x") -> bytes:
    sizes = b"%d %d" % (len(block), len(block) + len(body))
    return b"HMSG orders.%b 1 %b %b\r\n%b%b\r\n" % (token, reply, sizes, block, body)


class Story(Way):
    """One ingest, and what befalls it."""

    def __init__(self, *, checked: bool, **stream: Any) -> None:
        super().__init__(
            in_flight_bytes_max=1 << 20, message_bytes_max=600, subjects=("orders.>",), **stream
        )
        self.partition.config = StreamConfig.of(name="orders", retention_messages=20)
        self.ingest.deduplicator.configure(duplicate_window_ms=WINDOW_MS)
        self.ingest.deduplicator.window.ids_max = IDS_MAX
        self.answers._now_ms = lambda: self.now_ms
        self.judged = 0
        """How many messages Python code decided about."""
        self._admit = self.ingest.inflow.admit
        self.ingest.inflow.admit = self._count
        if not checked:
            self.ingest.inflow.checks = None

    def _count(self, *message: Any) -> Any:
        self.judged += 1
        assert self._admit is not None
        return self._admit(*message)

    def step(self, what: str, *arguments: Any) -> None:
        getattr(self, f"do_{what}")(*arguments)

    def do_read(self, messages: Sequence[tuple[bytes, ...]]) -> None:
        self.read(*(frame(*message) for message in messages))

    def do_commit(self) -> None:
        self.partition.commit()

    def do_fail(self) -> None:
        if self.partition.waiting:
            first = self.partition.waiting[0][0]
            kept = [it for it in self.partition.batches if read_header(it).base_offset < first]
            self.partition.batches, self.partition.log_end_offset = kept, first
            self.partition.fail(StorageFailed("sync failed"))

    def do_produce(self) -> None:
        if self.partition.fault is not None:
            return
        run = RecordRun(attributes=PUBLISHED)
        run.append(None, b"k", [(b"subject", b"orders.y")])
        self.partition.append(run, UNAWAITED)

    def do_erase(self) -> None:
        first = self.partition.log_start_offset
        self.partition.erasing.append(OffsetSet([first]), UNAWAITED)

    def do_later(self, later_ms: int) -> None:
        self.now_ms += later_ms

    def do_set(self, what: str) -> None:
        if what == "fault":
            self.partition.fault = None if self.partition.fault else StorageFailed("full")
        elif what == "known":
            self.partition.subjects.is_known = not self.partition.subjects.is_known
        elif what == "below_min_isr":
            self.partition.below_min_isr = not self.partition.below_min_isr
        else:
            self.ingest._barred = None if self.ingest._barred else OVERLOADED

    def seen(self) -> Any:
        deduplicator = self.ingest.deduplicator
        slots, last = deduplicator.known()
        samples = {
            (sample.name, *sample.labels.items()): sample.value
            for metric in self.metrics.registry.collect()
            for sample in metric.samples
            if "publish" in sample.name and not sample.name.endswith("_created")
        }
        return (
            [(slot.end_ms, list(slot.ids().items())) for slot in slots],
            (last, len(deduplicator), deduplicator.complete_since_ms),
            [
                (it.offset, it.key, it.value, it.headers)
                for batch in self.partition.batches
                for it in iter_records(batch)
            ],
            self.answered(),
            samples,
            self.given_up,
        )


@settings(max_examples=250, deadline=None)
@given(stream_settings, steps)
def test_checked_messages_are_judged_as_others(
    stream: dict[str, Any], todo: list[tuple[Any, ...]]
) -> None:
    asyncio.run(tell(stream, todo))


async def tell(stream: dict[str, Any], todo: list[tuple[Any, ...]]) -> None:
    plain, checked = Story(checked=False, **stream), Story(checked=True, **stream)
    for step in todo:
        for story in (plain, checked):
            story.step(*step)
        assert checked.seen() == plain.seen()
    assert checked.judged <= plain.judged


@pytest.mark.parametrize("name", [*NAMES[:6], b"Nats-Msg-Id ", b"Streamlog-Ack"])
async def test_checked_header_is_judged_as_others_whatever_its_value(name: bytes) -> None:
    """First in a read and second, alone, twice and beside another, in NATS's block and an envelope."""
    first = (b"NATS/1.0\r\nNats-Msg-Id: id-1\r\n\r\n", b"v", b"r")
    plain = (b"NATS/1.0\r\n\r\n", b"v", b"r")
    for value in VALUES:
        line = name + b":" + value
        body = enveloped.envelope(
            enveloped.message(b"v", headers={name: value}, inbox=b"acks", policy=enveloped.ALL)
        )
        asking = (
            (b"NATS/1.0\r\n%b\r\n\r\n" % line, b"v", b"r"),
            (b"NATS/1.0\r\n%b\r\n%b:id-8\r\n\r\n" % (line, name), b"v", b"r"),
            (b"NATS/1.0\r\n%b\r\nNats-Msg-Id: id-9\r\n\r\n" % line, b"v", b"r"),
            (b"NATS/1.0\r\nNats-Msg-Id: id-9\r\n\r\n", body, b"r"),
            (b"", body, b"r"),
        )
        for message in asking:
            for read in ([message], [plain, message]):
                stories = [Story(checked=checked, batches=True) for checked in (False, True)]
                for story in stories:
                    story.do_read([first])
                    story.do_commit()
                    story.do_read(read)
                    story.do_commit()
                assert stories[1].seen() == stories[0].seen(), (message, read)


@pytest.mark.parametrize("policy", [enveloped.LEADER, enveloped.ALL, enveloped.NONE])
@pytest.mark.parametrize("inbox", [b"", b"acks"])
async def test_good_envelopes_are_opened_and_judged_in_compiled_code(
    policy: int, inbox: bytes
) -> None:
    stories = [Story(checked=checked) for checked in (False, True)]
    for story in stories:
        for number in range(5):
            headers = {b"Nats-Msg-Id": b"id-%d" % number, b"a": b"b"}
            body = enveloped.message(
                b"v", key=b"k", headers=headers, inbox=inbox, correlation_id=b"7", policy=policy
            )
            story.do_read([(b"NATS/1.0\r\n\r\n", enveloped.envelope(body, checked=True), b"r")] * 2)
            story.do_commit()
    plain, checked = stories
    assert checked.seen() == plain.seen()
    assert (plain.judged, checked.judged) == (10, 5)  # those that repeat an id


def test_good_messages_are_judged_by_compiled_checks_alone() -> None:
    asyncio.run(publish_good_messages())


async def publish_good_messages() -> None:
    story = Story(checked=True)
    end = story.partition.log_end_offset
    for number in range(6):
        lines = (
            b"Nats-Msg-Id: id-%d" % number,
            b"Nats-Expected-Stream: orders",
            b"Nats-Expected-Last-Sequence: %d" % (end + number),
            b"Nats-Expected-Last-Subject-Sequence: %d" % (end + number if number else 0),
            b"Nats-Expected-Last-Msg-Id: id-%d" % (number - 1) if number else b"other: x",
        )
        story.do_read([(b"\r\n".join((b"NATS/1.0", *lines, b"", b"")), b"v", b"r")])
        story.do_commit()
    assert (story.judged, len(story.ingest.deduplicator)) == (0, 6)
    assert [answer["seq"] for _, answer in story.told()] == list(range(end + 1, end + 7))
    again = [(b"NATS/1.0\r\nNats-Msg-Id: id-0\r\n\r\n", b"v", b"r")]
    story.do_read(again)
    assert (story.judged, story.told()) == (
        1, [("r", {"stream": "orders", "seq": end + 1, "duplicate": True})]
    )  # fmt: skip


def id_message(message_id: str) -> tuple[bytes, bytes, bytes]:
    return b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id.encode(), b"v", b"r"


async def test_full_window_is_found_full_by_compiled_checks() -> None:
    story = Story(checked=True)
    story.do_read([id_message(f"id-{number}") for number in range(IDS_MAX + 1)])
    assert (story.judged, len(story.ingest.deduplicator)) == (1, IDS_MAX)
    assert story.refused() == [("r", 10167)]


async def test_id_that_is_too_old_is_a_new_one_for_compiled_checks() -> None:
    story = Story(checked=True)
    story.do_read([id_message("id-1")])
    story.do_later(2 * WINDOW_MS)
    story.do_read([id_message("id-1")])
    assert story.judged == 0
    assert story.ingest.deduplicator.window.find(b"id-1") == 11
    assert len(story.ingest.deduplicator) == 1


async def test_answers_come_when_each_message_of_a_run_wants_them() -> None:
    story = Story(checked=True)
    early = enveloped.envelope(enveloped.message(b"v", inbox=b"early", policy=enveloped.LEADER))
    story.do_read([(b"NATS/1.0\r\n\r\n", early, b""), (b"NATS/1.0\r\n\r\n", b"v", b"late")])
    assert [subject for subject, _ in story.answered()] == ["early"]
    story.do_commit()
    assert [subject for subject, _ in story.answered()] == ["late"]
    story.do_read([(b"NATS/1.0\r\n\r\n", early, b"")] * 2)
    assert [subject for subject, _ in story.answered()] == ["early", "early"]
    story.do_commit()
    assert (story.answered(), story.judged) == ([], 0)
