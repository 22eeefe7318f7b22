import struct
from itertools import pairwise

import pytest

from streamlog.errors import CorruptBatch
from streamlog.record.batch import batches, check_batch, read_header
from streamlog.record.codec import RecordRun, control_record, iter_records, marked_batches
from streamlog.record.erasure import CHUNKS_MAX, erased_by, erasure_batches
from streamlog.record.offset_set import CHUNK, OffsetSet
from tests.oracles import codec as codec_oracle


def erasure(offsets: OffsetSet, base_offset: int = 100) -> list[bytes]:
    found = erasure_batches(offsets, base_offset=base_offset, leader_epoch=3, timestamp_ms=5)
    return list(found)


def plain(base_offset: int) -> bytes:
    run = RecordRun()
    run.append(None, b"x", [(b"subject", b"a")])
    return run.seal(base_offset=base_offset, leader_epoch=3, timestamp_ms=5)


def test_a_batch_that_kafka_knows_for_a_control_batch() -> None:
    (batch,) = erasure(OffsetSet([1, 2, 50]))
    header = check_batch(batch)
    assert header.is_control
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (100, 101, 3)
    assert (header.record_count, header.producer_id, header.compression) == (1, -1, 0)
    version, kind = struct.unpack(">hh", control_record(batch).key or b"")
    assert version == 0
    assert kind > 100  # Kafka's own count up from 0
    assert list(erased_by(batch, header) or ()) == [1, 2, 50]


def test_it_holds_no_records_for_who_reads_them() -> None:
    (batch,) = erasure(OffsetSet([1]))
    assert list(iter_records(batch)) == []
    assert list(iter_records(plain(0))) != []
    with pytest.raises(CorruptBatch, match="no control batch"):
        control_record(plain(0))


def test_others_erase_nothing() -> None:
    batch = plain(7)
    assert erased_by(batch, read_header(batch)) is None


def test_one_that_says_something_impossible_is_damage() -> None:
    (batch,) = erasure(OffsetSet([100]))
    with pytest.raises(CorruptBatch, match="what comes after it"):
        erased_by(batch, read_header(batch))


def test_millions_of_scattered_offsets_take_several_batches() -> None:
    wanted = OffsetSet(at * CHUNK for at in range(2 * CHUNKS_MAX + 1))
    found = erasure(wanted, base_offset=2**40)
    headers = [check_batch(batch) for batch in found]
    assert len(headers) == 3
    assert all(a.next_offset == b.base_offset for a, b in pairwise(headers))
    together = OffsetSet()
    for batch, header in zip(found, headers, strict=True):
        together.update(erased_by(batch, header) or OffsetSet())
    assert together == wanted


def test_both_twins_find_it_among_others() -> None:
    data = plain(99) + b"".join(erasure(OffsetSet([1]))) + plain(101)
    positions, next_offset = marked_batches(data)
    assert [read_header(data, at).base_offset for at in positions] == [100]
    assert next_offset == 102
    assert codec_oracle.marked_batches(data) == (positions, next_offset)
    assert len(list(batches(data))) == 3
