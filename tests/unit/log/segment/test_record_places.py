import pytest

from streamlog.log.log import PartitionLog
from streamlog.log.segment.record_places import BATCH_BYTES, STEP, RecordPlaces, slice_of
from streamlog.record.batch import Record, batches
from streamlog.record.codec import record_at
from tests.log_folder import append


def look(places: RecordPlaces, log: PartitionLog, offset: int) -> Record | None:
    """By what is known of the batch."""
    segment = log.segment_for_read(offset)
    assert segment is not None
    batch = places.find(segment, offset)
    if batch is None:
        return None
    with slice_of(segment, batch, offset) as part:
        return batch.record_in(part.read(), offset)


def read(places: RecordPlaces, log: PartitionLog, offset: int) -> Record | None:
    """All of the batch, which is known afterwards."""
    segment = log.segment_for_read(offset)
    assert segment is not None
    with log.read(offset, 1, log.log_end_offset) as part:
        header, batch = next(batches(part.read()))
        places.note(segment, part.position, header, batch)
    return record_at(batch, offset)


def values(count: int, length: int = 5) -> list[bytes]:
    return [b"%d:" % number + b"x" * (number % length) for number in range(count)]


@pytest.mark.parametrize("count", [1, STEP - 1, STEP, STEP + 1, 10 * STEP + 3])
def test_each_record_of_a_batch_is_found_where_it_lies(log: PartitionLog, count: int) -> None:
    places = RecordPlaces()
    append(log, values(3))
    append(log, values(count))
    append(log, values(2))
    for offset in range(log.log_end_offset):
        assert look(places, log, offset) is None or offset not in (0, 3, 3 + count)
        found = read(places, log, offset)
        assert found is not None and found.offset == offset
        assert look(places, log, offset) == found
    assert places.size_bytes > 3 * BATCH_BYTES


def test_batches_may_be_looked_into_in_any_order(log: PartitionLog) -> None:
    places = RecordPlaces()
    for _ in range(3):
        append(log, values(20))
    for offset in (45, 5, 25):
        read(places, log, offset)
    assert [look(places, log, it) is not None for it in (0, 19, 20, 39, 40, 59)] == [True] * 6


def test_nothing_is_known_of_what_was_cut_and_written_again(log: PartitionLog) -> None:
    places = RecordPlaces()
    append(log, values(20))
    append(log, values(20))
    read(places, log, 5)
    read(places, log, 25)
    log.truncate_to(20)
    append(log, [b"another"] * 20)
    assert look(places, log, 25) is None and places.size_bytes == 0
    found = read(places, log, 25)
    assert found is not None and found.value == b"another"
    assert look(places, log, 25) == found


def test_of_another_segment_nothing_is_known(log: PartitionLog) -> None:
    places = RecordPlaces()
    append(log, values(20))
    read(places, log, 5)
    log.roll()
    append(log, values(20))
    assert look(places, log, 5) is not None
    assert look(places, log, 25) is None


def test_what_was_used_longest_ago_gives_way(log: PartitionLog) -> None:
    places = RecordPlaces(3 * BATCH_BYTES)
    for _ in range(3):
        append(log, values(20))
        log.roll()
    for offset in (5, 25):
        read(places, log, offset)
    assert look(places, log, 5) is not None
    read(places, log, 45)
    assert [look(places, log, it) is not None for it in (5, 25, 45)] == [True, False, True]
    assert places.size_bytes <= 3 * BATCH_BYTES
