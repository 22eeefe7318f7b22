"""What is known of producers, against a twin that forgets nothing; the two surveys of a batch."""

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import (
    CorruptBatch,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    StreamlogError,
    UnknownProducer,
)
from streamlog.record.batch import HEADER_BYTES, BatchHeader, read_header
from streamlog.record.compiled import codec as _codec
from streamlog.replication.producer_state import BATCHES_KEPT
from streamlog.replication.producer_table import ProducerTable
from tests.oracles import codec as codec_oracle
from tests.record_batches import HandRecord, hand_batch

Sent = tuple[int, int, int, int]
"""Producer, epoch, first sequence, count of records."""


class NaiveProducers:
    """Every record that was ever stored, by the book."""

    def __init__(self, first_id: int = 0) -> None:
        self.first_id = first_id
        """Lower ids are another cluster's."""
        self.stored: dict[int, list[tuple[Sent, int]]] = defaultdict(list)

    def check_sequence(self, sent: Sent) -> int | type[StreamlogError] | None:
        """The offset of the first one, the error, or None: to be stored."""
        producer, epoch, sequence, _ = sent
        log = self.stored[producer]
        if not log:
            return UnknownProducer if producer < self.first_id and sequence else None
        newest = max(it[1] for it, _ in log)
        if epoch < newest:
            return InvalidProducerEpoch
        if epoch > newest:
            last, _ = log[-1]
            next_sequence = (last[2] + last[3]) % 2**31
            return None if sequence in (0, next_sequence) else OutOfOrderSequence
        same = [(it, offset) for it, offset in log if it[1] == epoch]
        for it, offset in same[-BATCHES_KEPT:]:
            if it == sent:
                return offset
        last, _ = same[-1]
        follows = (last[2] + last[3]) % 2**31
        return None if sequence == follows else OutOfOrderSequence


def header_of(sent: Sent, base_offset: int) -> BatchHeader:
    producer, epoch, sequence, count = sent
    return BatchHeader(
        base_offset, 100, 0, 2, 0, 0, count - 1, 0, 0, producer, epoch, sequence, count
    )


def judged(table: ProducerTable, sent: Sent, first_id: int = 0) -> Any:
    try:
        kept = table.check_sequence(header_of(sent, 0), first_id=first_id)
    except StreamlogError as error:
        return type(error)
    return None if kept is None else kept.base_offset


@st.composite
def wishes(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Producer, step of the epoch, step of the sequence (0: as it should be), count."""
    one = st.tuples(
        st.integers(0, 2),
        st.sampled_from([0] * 8 + [1, -1]),
        st.sampled_from([0] * 6 + [-1, -2, -3, -4, -5, -6, -7, 1, 9]),
        st.integers(1, 3),
    )
    return draw(st.lists(one, max_size=60))


@settings(deadline=None)
@given(wishes(), st.sampled_from([0, 2**31 - 4]), st.integers(0, 3))
def test_the_table_judges_as_the_twin(asked: list[Sent], start: int, first_id: int) -> None:
    table, naive, offset = ProducerTable(expiration_ms=10), NaiveProducers(first_id), 0
    for producer, epoch_step, step, count in asked:
        log = naive.stored[producer]
        if not log:
            sent: Sent = (producer, 1, start, count)
        elif step < 0 and len(log) >= -step:
            sent = log[step][0]  # once more
        else:
            last, _ = log[-1]
            epoch = max(0, last[1] + epoch_step)
            sequence = 0 if epoch_step and step else (last[2] + last[3] + step) % 2**31
            sent = (producer, epoch, sequence, count)
        expected = naive.check_sequence(sent)
        assert judged(table, sent, first_id) == expected
        if expected is None:
            table.note(header_of(sent, offset), offset, 0)
            naive.stored[producer].append((sent, offset))
            offset += count


def test_who_wrote_to_a_lost_cluster_begins_anew_or_is_refused() -> None:
    """Java's clients begin a new epoch then, those of librdkafka report a fatal error."""
    table = ProducerTable(expiration_ms=10)
    assert judged(table, (5, 0, 3, 1), first_id=6) is UnknownProducer
    assert judged(table, (6, 0, 3, 1), first_id=6) is None
    again = (5, 1, 0, 1)
    assert judged(table, again, first_id=6) is None
    table.note(header_of(again, 0), 0, 0)
    assert judged(table, (5, 1, 1, 1), first_id=6) is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=80))
def test_memory_is_bounded_by_time_and_number(writes: list[tuple[int, int]]) -> None:
    """Those are left that wrote last, and not too long ago."""
    table, now_ms = ProducerTable(expiration_ms=10, producers_max=5), 0
    seen: dict[int, int] = {}
    for producer, pause_ms in writes:
        now_ms += pause_ms
        table.note(header_of((producer, 0, 0, 1), 0), 0, now_ms)
        seen.pop(producer, None)
        seen[producer] = now_ms
        young = [it for it, at in seen.items() if at + 10 >= now_ms][-5:]
        assert len(table) == len(young)
        known = {it for it in seen if judged(table, (it, 0, 7, 1)) is OutOfOrderSequence}
        assert known == set(young)


maybe = st.none() | st.binary(max_size=20)
records = st.builds(
    HandRecord,
    maybe,
    maybe,
    st.lists(st.tuples(st.binary(max_size=5), maybe), max_size=3),
    st.none() | st.integers(-1, 3),
    st.integers(-(2**40), 2**40),
)


def surveyed(twin: Any, body: bytes, count: int, base_ms: int) -> Any:
    try:
        return twin.survey_records(body, count, base_ms)
    except CorruptBatch:
        return None


def sizes_of(twin: Any, body: bytes) -> Any:
    try:
        return twin.record_sizes(body)
    except CorruptBatch:
        return None


@settings(deadline=None)
@given(
    st.lists(records, max_size=5), st.integers(-1, 1), st.integers(-(2**63), 2**63 - 1), st.data()
)
def test_the_surveys_are_equal(
    made: list[HandRecord], more: int, base_ms: int, data: st.DataObject
) -> None:
    body = bytearray(hand_batch(made, base_timestamp_ms=0)[HEADER_BYTES:])
    if body and data.draw(st.booleans()):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    count = max(0, len(made) + more)
    found = surveyed(_codec, bytes(body), count, base_ms)
    assert found == surveyed(codec_oracle, bytes(body), count, base_ms)
    sizes = sizes_of(_codec, bytes(body))
    assert sizes == sizes_of(codec_oracle, bytes(body))
    assert sizes is None or sum(sizes) == len(body)


@settings(deadline=None)
@given(st.lists(st.integers(-1, 2), max_size=6), st.integers(0, 70))
def test_both_find_the_batches_of_producers(ids: list[int], cut: int) -> None:
    data, offset = b"", 10
    for number in ids:
        data += hand_batch([HandRecord()] * 3, offset, producer=(number, 0, 0))
        offset += 3
    data = data[: max(0, len(data) - cut)]
    found = _codec.marked_batches(data)
    assert found == codec_oracle.marked_batches(data)
    assert all(read_header(data, position).producer_id >= 0 for position in found[0])
