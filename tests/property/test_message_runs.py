"""Runs of messages: what is gathered, and what is delivered, against what is made of each record by itself."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.control.messages.stored_messages import StoredMessage, stored_message
from streamlog.errors import CorruptBatch, CorruptData, StreamlogError
from streamlog.jetstream.consumers.acks import AckSubject, mark_of, read_ack_subject
from streamlog.jetstream.consumers.run_delivery import deliver_run, fitting
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.router import Router
from streamlog.record.batch import read_header
from streamlog.record.codec import iter_records, opened
from streamlog.record.compiled.message_run import MessageRun
from tests.message_runs import run_of
from tests.oracles.subjects import matches
from tests.property.test_codec import damaged_batches
from tests.property.test_shown_subject import Session, frames
from tests.record_batches import HandRecord, hand_batch

BASE_OFFSET = 100
LARGE = 1 << 40

values = st.none() | st.binary(max_size=8)
subject_texts = st.sampled_from(
    [b"a", b"a.b", b"c.1", b"", b"a b", b"a\r\nb", b".a", b"a..b", b"\xff"]
)
names = st.sampled_from([b"subject", b"reply", b"N", b"X\r\nY"])
headers = st.lists(st.tuples(names, values), max_size=3) | st.builds(
    lambda subject, rest: [(b"subject", subject), *rest],
    st.none() | subject_texts,
    st.lists(st.tuples(names, values), max_size=2),
)
records = st.lists(
    st.builds(
        HandRecord,
        value=values,
        key=values,
        headers=headers,
        timestamp_delta=st.integers(-500, 500),
        offset_delta=st.none(),
    ),
    min_size=1,
    max_size=6,
)


def shown(message: StoredMessage) -> tuple[Any, ...]:
    """As a run has it: what cannot be a subject is none."""
    text = message.subject.encode()
    is_subject = re.fullmatch(rb"[^\x00-\x20\x7f.]+(\.[^\x00-\x20\x7f.]+)*", text)
    return (message.subject if is_subject else "", *message[1:5])


def readable(message: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*message[:3], message[3].decode(errors="replace"), message[4])


def messages_of(run: MessageRun) -> list[tuple[Any, ...]]:
    return [run.message(index) for index in range(run.count)]


def gathered(batch: bytes, wanted: Any, **more: Any) -> tuple[MessageRun, int]:
    header, run = read_header(batch), MessageRun()
    return run, run.add_records(
        opened(header, batch), header, wanted, **{"bytes_max": LARGE, **more}
    )


@given(
    records,
    st.sampled_from([0, 0x08]),
    st.sets(st.integers(-1, 7), min_size=1),
    st.booleans(),
    st.sampled_from([(), (b"a",), (b"a.*", b"c.>"), (b">",)]),
)
@settings(max_examples=500, deadline=None)
def test_run_has_the_messages_that_are_wanted(
    made: list[HandRecord],
    attributes: int,
    deltas: set[int],
    is_range: bool,
    patterns: tuple[bytes, ...],
) -> None:
    batch = hand_batch(made, BASE_OFFSET, attributes=attributes)
    wanted: Any = [BASE_OFFSET + it for it in sorted(deltas)]
    if is_range:
        wanted = range(wanted[0], wanted[-1] + 1)
    run, upper = gathered(batch, wanted, patterns=patterns)
    expected = [shown(stored_message(it)) for it in iter_records(batch) if it.offset in wanted]
    if patterns:
        expected = [
            it for it in expected if it[0] and any(matches(p, it[0].encode()) for p in patterns)
        ]
    assert messages_of(run) == expected
    assert run.size_bytes == len(run.encode()) - 8 * (1 + 5 * run.count)
    assert min(wanted[-1] + 1, BASE_OFFSET + len(made)) <= upper <= BASE_OFFSET + len(made)
    assert run.next_offset == (expected[-1][1] if expected else 0)
    assert run.offsets(0, run.count) == [it[1] - 1 for it in expected]
    for offset in range(BASE_OFFSET - 2, BASE_OFFSET + 8):
        assert run.index_of(offset) == sum(it[1] - 1 < offset for it in expected)
    again = MessageRun.decode(run.encode())
    assert messages_of(again) == expected
    run.leave_out({BASE_OFFSET, BASE_OFFSET + 2})
    left = [it for it in expected if it[1] - 1 not in (BASE_OFFSET, BASE_OFFSET + 2)]
    assert messages_of(run) == left
    assert messages_of(MessageRun.decode(run.encode())) == left


@given(records, st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_run_ends_with_the_message_that_fills_it(made: list[HandRecord], bytes_max: int) -> None:
    batch = hand_batch(made, BASE_OFFSET)
    whole, _ = gathered(batch, range(BASE_OFFSET + 10))
    run, upper = gathered(batch, range(BASE_OFFSET + 10), bytes_max=bytes_max)
    expected, size = [], 0
    for number, it in enumerate(messages_of(whole)):
        expected.append(it)
        size = gathered(batch, range(BASE_OFFSET + number + 1))[0].size_bytes
        if size >= bytes_max:
            break
    assert messages_of(run) == expected
    assert upper == (expected[-1][1] if size >= bytes_max else BASE_OFFSET + len(made))


@given(damaged_batches())
@settings(max_examples=300, deadline=None)
def test_damaged_batch_is_corrupt_and_nothing_else(batch: bytes) -> None:
    try:
        header = read_header(batch)
        body = opened(header, batch)
    except StreamlogError:
        return
    run = MessageRun()
    try:
        run.add_records(body, header, range(2**62), bytes_max=LARGE)
    except CorruptBatch:
        pass
    else:
        # A header's name that is no UTF-8 stays as it is.
        expected = [shown(stored_message(it)) for it in iter_records(batch)]
        assert list(map(readable, messages_of(run))) == list(map(readable, expected))


@given(records, st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_encoding_is_corrupt_and_nothing_else(
    made: list[HandRecord], data: st.DataObject
) -> None:
    run, _ = gathered(hand_batch(made, BASE_OFFSET), range(BASE_OFFSET + 10))
    encoded = bytearray(run.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.sampled_from(b"\0\1\x7f\x80\xff"))
    cut = bytes(encoded[: data.draw(st.none() | st.integers(0, len(encoded)))])
    try:
        found = MessageRun.decode(cut)
    except CorruptData:
        return
    assert found.encode() == cut
    messages_of(found)


# What clients get

texts = st.sampled_from(["a", "orders.eu", ""])
blocks = st.sampled_from([b"", b"NATS/1.0\r\nX: 1\r\n\r\n"])
stored = st.lists(
    st.tuples(
        texts, st.integers(1, 3), st.sampled_from([-5, 0, 9, 1_764_360_000_000, 2**62]), blocks, st.binary(max_size=9)
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip
counters = st.sampled_from([0, 1, 8, 9, 10, 99, 12_345])


def run_from(made: list[tuple[str, int, int, bytes, bytes]]) -> list[StoredMessage]:
    sequence, found = 0, []
    for subject, step, timestamp_ms, block, data in made:
        sequence += step
        found.append(StoredMessage(subject, sequence, timestamp_ms, block, data))
    return found


@given(stored, st.data(), counters, counters, st.integers(0, 3), st.integers(1, 99))
@settings(max_examples=400, deadline=None)
def test_clients_get_each_message_of_a_run_by_itself(
    made: list[tuple[str, int, int, bytes, bytes]],
    data: st.DataObject,
    sequence: int,
    pending: int,
    partition: int,
    created_ms: int,
) -> None:
    messages = run_from(made)
    start = data.draw(st.integers(0, len(messages) - 1))
    stop = data.draw(st.integers(start, len(messages)))
    left = data.draw(st.integers(0, 7))
    """After so many messages its subscription ends."""
    router = Router()
    client = ClientConnection(router)
    client.session = Session()
    client.verbose = client.pedantic = False
    client.is_open = client.headers = True
    client.subscribe(b"inbox", b"", b"7")
    if left:
        client.unsubscribe(b"7", left)
    mark = mark_of(created_ms)
    count = deliver_run(
        router, b"inbox", run_of(messages), start, stop,
        head=b"$JS.ACK.s.c.1.", sequence=sequence + 1, time_mark_ns=partition * 100 + mark,
        pending=pending, unnamed=b"s",
    )  # fmt: skip
    sent = messages[start:stop][: left or None]
    assert count == len(sent)
    expected = []
    for number, it in enumerate(sent):
        reply = AckSubject(
            "s", "c", 1, it.sequence, sequence + 1 + number, it.timestamp_ms,
            max(0, pending - number), partition, mark,
        ).subject()  # fmt: skip
        acked = read_ack_subject(reply)
        assert acked is not None and (acked.partition, acked.mark) == (partition, mark)
        subject = it.subject.encode() or b"s"
        expected.append((subject, b"7", reply.encode(), it.header_block, it.data))
    assert list(frames(client.take_output())) == expected


@given(stored, st.data(), counters, counters, st.integers(1, 400))
@settings(max_examples=400, deadline=None)
def test_window_takes_messages_up_to_the_one_that_fills_it(
    made: list[tuple[str, int, int, bytes, bytes]],
    data: st.DataObject,
    sequence: int,
    pending: int,
    bytes_max: int,
) -> None:
    messages = run_from(made)
    start = data.draw(st.integers(0, len(messages) - 1))
    stop = data.draw(st.integers(start, len(messages)))
    count = size = 0
    for it in messages[start:stop]:
        if size >= bytes_max:
            break
        reply = AckSubject(
            "s", "c", 1, it.sequence, sequence + 1 + count, it.timestamp_ms,
            max(0, pending - count), 0, 0,
        ).subject()  # fmt: skip
        size += len(it.subject) + len(reply) + len(it.header_block) + len(it.data)
        count += 1
    assert fitting(
        run_of(messages), start, stop, head_bytes=len("$JS.ACK.s.c.1."),
        sequence=sequence + 1, pending=pending, bytes_max=bytes_max,
    ) == (count, size)  # fmt: skip


def test_index_outside_a_run_is_refused() -> None:
    run = run_of([StoredMessage("a", 1, 0, b"", b"")])
    with pytest.raises(IndexError):
        run.message(1)
    with pytest.raises(IndexError):
        run.offsets(0, 2)
    with pytest.raises(ValueError, match="does not rise"):
        run_of([StoredMessage("a", 2, 0, b"", b""), StoredMessage("a", 2, 0, b"", b"")])
