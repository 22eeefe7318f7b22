"""What headers ask for while a message comes is what they ask for once it is read from the log.

Whatever a NATS client publishes, in an envelope or not, in a batch or not, and whatever Kafka's
producers write between, copies of NATS's records among it: who leads next, and builds everything
from the log, knows the same ids, rollups and lifetimes as who took the messages in.
"""

import asyncio
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.admission.message_ttl import Lifetimes
from streamlog.ingest.admission.publish_headers import publish_headers
from streamlog.ingest.dedup_recovery.window_scan import look_at_recent, rebuild_window
from streamlog.partition.deletes.message_ttl import _look
from streamlog.record.batch import check_batch
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.compression import Compression
from streamlog.record.produced import check_inside, check_outside, stamp
from streamlog.record.published import asked, lifetime_s
from tests import enveloped
from tests.ingest_way import Way, message
from tests.led_partition import FakeSlice, as_partition

NAMES = (b"Nats-Msg-Id", b"Nats-Rollup", b"Nats-TTL", b"Nats-Expected-Stream", b"a", b"nats-msg-id")
VALUES = (b"1", b"2", b" 1", b"all", b"sub", b"ALL ", b"", b"\t", b"1\r", b"2\n3", b"orders")
headers = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=4)
lines = st.lists(
    st.sampled_from([b"%b: %b" % (name, value) for name in NAMES for value in VALUES])
    | st.sampled_from([b"", b"Nats-Msg-Id", b":x", b"\r", b"Nats-Msg-Id: 1\r\n\r\nNats-TTL: 2"]),
    max_size=4,
)
blocks = st.builds(
    lambda begin, lines, end: b"\r\n".join((begin, *lines)) + end,
    st.sampled_from([b"NATS/1.0", b"NATS/1.0 503", b"NATS", b""]),
    lines,
    st.sampled_from([b"\r\n\r\n", b"\r\n", b"", b"\r"]),
)


def frame(block: bytes, body: bytes, reply: str) -> bytes:
    sizes = b"%d %d" % (len(block), len(block) + len(body))
    return b"HMSG orders.x 1 %b %b\r\n%b%b\r\n" % (reply.encode(), sizes, block, body)


@settings(max_examples=400, deadline=None)
@given(blocks, st.none() | headers)
def test_a_record_asks_for_what_its_message_asked_for(
    block: bytes, inside: list[tuple[bytes, bytes]] | None
) -> None:
    asyncio.run(ask_both(block, inside))


async def ask_both(block: bytes, inside: list[tuple[bytes, bytes]] | None) -> None:
    way, blocks = Way(message_bytes_max=5_000), list[bytes]()
    body = b"v" if inside is None else enveloped.envelope(enveloped.message(headers=dict(inside)))

    def admit(header_block: bytes, *_: object) -> bool:
        blocks.append(header_block)
        return True

    way.ingest.inflow.admit, way.ingest.inflow.checks = admit, None
    way.read(frame(block, body, "r"))
    (record,) = (it for batch in way.partition.batches for it in iter_records(batch))
    stored = {name.encode(): value for name, value in asked(record.headers).items()}
    assert stored == (publish_headers(blocks[0]) if blocks else {})


kafka = st.tuples(
    st.just("kafka"), headers, st.booleans(), st.booleans(), st.sampled_from(list(Compression))
)
single = st.tuples(st.just("nats"), headers)
batch = st.tuples(st.just("batch"), headers, headers)


@settings(max_examples=150, deadline=None)
@given(st.lists(kafka | single | batch, max_size=8))
def test_who_leads_next_knows_what_was_asked_for(steps: list[tuple[object, ...]]) -> None:
    asyncio.run(lead_twice(steps))


async def lead_twice(steps: list[tuple[object, ...]]) -> None:
    way = Way(
        batches=True, rollups=True, lifetimes=Lifetimes.ANY, message_bytes_max=5_000,
        in_flight_bytes_max=1 << 20,
    )  # fmt: skip
    rolled: list[int] = []
    for number, step in enumerate(steps):
        if step[0] == "kafka":
            produce(way, *step[1:])  # type: ignore[arg-type]
            continue
        parts = [lines_of(it) for it in step[1:]]  # type: ignore[arg-type]
        if step[0] == "batch":
            ends = (b"", b"Nats-Batch-Commit: 1\r\n")
            parts = [
                b"%bNats-Batch-Id: %d\r\nNats-Batch-Sequence: %d\r\n%b" % (it, number, at, end)
                for at, (it, end) in enumerate(zip(parts, ends, strict=True), 1)
            ]
        before = len(way.partition.batches)
        way.read(b"".join(frame(b"NATS/1.0\r\n%b\r\n" % it, b"v", "r") for it in parts))
        rolled += (offset for offset, _ in erased_for(way.partition.batches[before:]))
    way.partition.commit()
    way.told()
    again = Deduplicator("orders", duplicate_window_ms=120_000)
    await rebuild_window(as_partition(way.partition), again, since_ms=0)
    assert ids_of(again) == ids_of(way.ingest.deduplicator)
    found = [
        it
        for scanned in await look_at_recent(as_partition(way.partition))
        for it in scanned.rollups
    ]
    assert [offset for offset, _ in found] == rolled
    dues, _ = _look(FakeSlice(b"".join(way.partition.batches)), 0, 0)  # type: ignore[arg-type]
    assert [code >> 1 for _, code in dues] == list(lasting(way))


def lines_of(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % pair for pair in pairs)


def produce(
    way: Way, pairs: list[tuple[bytes, bytes]], is_copy: bool, is_append_time: bool, codec: int
) -> None:
    """As a Kafka producer, perhaps as a copy of what a stream has."""
    run = RecordRun()
    run.append(None, b"k", [(b"subject", b"orders.x")] * is_copy + pairs)
    data = run.seal(
        base_offset=0, leader_epoch=-1, timestamp_ms=5, max_timestamp_ms=5, compression=codec
    )
    produced = check_inside(check_outside(data), data)
    partition = way.partition
    time_ms = way.now_ms if is_append_time else None
    stored = stamp(
        produced, base_offset=partition.log_end_offset, leader_epoch=0, append_time_ms=time_ms
    )
    partition.batches.append(stored)
    partition.log_end_offset += 1


def ids_of(deduplicator: Deduplicator) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for slot in deduplicator.known()[0]:
        found |= slot.ids()
    return found


def erased_for(batches: list[bytes]) -> Iterator[tuple[int, str]]:
    """Of one read: the messages with a rollup, as they are to be stored."""
    for data in batches:
        for record in iter_records(data):
            value = first(record.headers, "Nats-Rollup").lower()
            if value in (b"all", b"sub"):
                yield record.offset, value.decode()


def lasting(way: Way) -> Iterator[int]:
    for data in way.partition.batches:
        if check_batch(data).is_published:
            for record in iter_records(data):
                if (lifetime_s(first(record.headers, "Nats-TTL")) or 0) > 0:
                    yield record.offset


def first(pairs: tuple[tuple[str, bytes | None], ...], name: str) -> bytes:
    fit = (value or b"" for key, value in pairs if key == name and b"\n" not in (value or b""))
    return next((it.lstrip() for it in fit if b"\r" not in it), b"")


def test_a_plain_message_asks_for_nothing() -> None:
    assert publish_headers(b"") == {}
    assert message("r").startswith(b"MSG")
