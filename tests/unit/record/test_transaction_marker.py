import struct

import pytest

from streamlog.errors import CorruptBatch
from streamlog.record.batch import CONTROL, TRANSACTIONAL, check_batch
from streamlog.record.codec import RecordRun, control_record, iter_records
from streamlog.record.erasure import erased_by, erasure_batches
from streamlog.record.offset_set import OffsetSet
from streamlog.record.transaction_marker import TransactionMarker, marker_batch, marker_of


def marker(*, is_commit: bool = True) -> bytes:
    end = TransactionMarker(7, 3, is_commit, 12)
    return marker_batch(end, base_offset=100, leader_epoch=5, timestamp_ms=1_000)


@pytest.mark.parametrize(("is_commit", "kind"), [(False, 0), (True, 1)])
def test_a_marker_is_kafkas(is_commit: bool, kind: int) -> None:
    batch = marker(is_commit=is_commit)
    header = check_batch(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (100, 101, 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    record = control_record(batch)
    assert struct.unpack(">hh", record.key or b"") == (0, kind)
    assert struct.unpack(">hi", record.value or b"") == (0, 12)
    assert marker_of(batch, header) == TransactionMarker(7, 3, is_commit, 12)
    assert list(iter_records(batch)) == []
    assert erased_by(batch, header) is None


def control(key: bytes, value: bytes, attributes: int = CONTROL | TRANSACTIONAL) -> bytes:
    run = RecordRun(attributes=attributes)
    run.append(key, value)
    return run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0, producer=(7, 3, -1))


def test_other_control_batches_are_no_markers() -> None:
    (erasure,) = erasure_batches(OffsetSet([1]), base_offset=9, leader_epoch=0, timestamp_ms=0)
    assert marker_of(erasure, check_batch(erasure)) is None
    later = control(struct.pack(">hh", 0, 6), struct.pack(">hi", 0, 1))
    assert marker_of(later, check_batch(later)) is None
    plain = control(b"\0\0\0\1", struct.pack(">hi", 0, 1), TRANSACTIONAL)
    assert marker_of(plain, check_batch(plain)) is None


@pytest.mark.parametrize(("key", "value"), [(b"\0\0\0", b"\0" * 6), (b"\0\0\0\1", b"\0" * 5)])
def test_a_cut_marker_is_damage(key: bytes, value: bytes) -> None:
    batch = control(key, value)
    with pytest.raises(CorruptBatch, match="cut"):
        marker_of(batch, check_batch(batch))
