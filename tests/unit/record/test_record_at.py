import pytest

from streamlog.errors import CorruptBatch
from streamlog.record.batch import HEADER_BYTES
from streamlog.record.codec import RecordRun, iter_records, record_at
from streamlog.record.compression import Compression
from tests.record_batches import HandRecord, hand_batch


@pytest.mark.parametrize("codec", list(Compression))
def test_each_record_is_as_when_all_are_decoded(codec: Compression) -> None:
    run = RecordRun()
    for number in range(20):
        run.append(b"key", b"%d" % number, [(b"subject", b"a.%d" % number)])
    batch = run.seal(base_offset=70, leader_epoch=1, timestamp_ms=5, compression=codec)
    assert [record_at(batch, offset) for offset in range(70, 90)] == list(iter_records(batch))
    assert record_at(batch, 69) is record_at(batch, 90) is None


def test_offsets_that_compaction_has_left_out() -> None:
    batch = hand_batch([HandRecord(b"a", offset_delta=1), HandRecord(b"b", offset_delta=4)], 10)
    found = [record_at(batch, offset) for offset in range(10, 15)]
    assert [it and it.value for it in found] == [None, b"a", None, None, b"b"]


def test_control_batches_have_none() -> None:
    assert record_at(hand_batch([HandRecord(b"a")], attributes=0x20), 0) is None


def test_what_is_cut() -> None:
    batch = hand_batch([HandRecord(b"a"), HandRecord(b"b")])
    with pytest.raises(CorruptBatch):
        record_at(batch[:-1], 0)
    with pytest.raises(CorruptBatch):
        record_at(batch[: HEADER_BYTES - 1], 0)
