"""The mark of what came over NATS: who has it, and what leaves it where it is."""

from types import ModuleType

import pytest

from streamlog.errors import InvalidRecord
from streamlog.record import codec
from streamlog.record.batch import PUBLISHED, check_batch
from streamlog.record.compacted import emptied, gap, left_over
from streamlog.record.compression import Compression
from streamlog.record.produced import check_outside
from streamlog.record.published import asked
from tests.oracles import codec as codec_oracle

TWINS = [codec, codec_oracle]


def batch_of(twin: ModuleType, attributes: int, compression: int = 0) -> bytes:
    run = twin.RecordRun(attributes=attributes)
    run.append(None, b"v", [(b"Nats-Msg-Id", b"1")])
    sealed: bytes = run.seal(base_offset=3, leader_epoch=1, timestamp_ms=5, compression=compression)
    return sealed


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("compression", list(Compression))
def test_a_run_marks_its_batches(twin: ModuleType, compression: int) -> None:
    marked, plain = (batch_of(twin, mark, compression) for mark in (PUBLISHED, 0))
    assert check_batch(marked).is_published and not check_batch(plain).is_published
    assert check_batch(marked).compression == compression
    assert check_batch(marked).is_log_append_time
    assert list(codec.iter_records(marked)) == list(codec.iter_records(plain))
    assert batch_of(codec_oracle, PUBLISHED, compression) == marked


def test_no_producer_may_say_so() -> None:
    with pytest.raises(InvalidRecord, match="bit 13"):
        check_outside(batch_of(codec, PUBLISHED))


def test_what_is_left_of_a_batch_keeps_it() -> None:
    batch = batch_of(codec, PUBLISHED)
    header = check_batch(batch)
    for left in (left_over(header, batch[61:], 1, horizon_ms=9), emptied(header)):
        assert check_batch(left).is_published
    assert not check_batch(gap(3, 4, leader_epoch=1, max_timestamp_ms=5)).is_published


def test_of_headers_of_one_name_the_first_in_one_line_asks() -> None:
    headers = [("subject", b"s"), ("Nats-A", b"x\n"), ("Nats-A", b" y"), ("Nats-A", b"z")]
    more = [("nats-a", b"q"), ("Streamlog-Ack", None), ("other", b"o")]
    assert asked([*headers, *more]) == {"Nats-A": b"y", "Streamlog-Ack": b""}
