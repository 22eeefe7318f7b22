import errno

import pytest

from streamlog.errors import CorruptBatch, StorageFailed, StorageFull
from streamlog.log.settings import CompactionSettings, LogSettings
from streamlog.record.batch import read_header
from streamlog.record.codec import iter_records
from streamlog.record.compacted import delete_horizon_ms, is_gap
from streamlog.record.compiled.keys import KeyOffsets
from streamlog.record.compression import Compression, compress
from tests.compacted_log import COMPACTED, RULES, SCOPE, Kept, KeyedLog, view
from tests.log_folder import FOLDER, read_batches
from tests.record_batches import HandRecord, hand_batch
from tests.simulation.disk import SimDisk

FIRST = f"{FOLDER}/00000000000000000000.log"


@pytest.fixture
def keyed() -> KeyedLog:
    return KeyedLog(SimDisk())


def put(log: KeyedLog, batch: bytes) -> None:
    log.log.append(batch, read_header(batch).max_timestamp_ms)


def headers(log: KeyedLog) -> list[tuple[int, int, int]]:
    """Base offset, next offset and count of records of each batch."""
    found = [it for it, _ in read_batches(log.log)]
    return [(it.base_offset, it.next_offset, it.record_count) for it in found]


def test_the_last_record_of_each_key_stays_where_it_was(keyed: KeyedLog) -> None:
    for number in range(30):
        keyed.append((b"a", b"%d" % number), (b"k%d" % number, b"v"))
    keyed.append((b"a", b"last"))
    cleaning = keyed.seal_and_clean()
    kept = keyed.kept()
    assert [it.offset for it in kept] == [*range(1, 60, 2), 60]
    assert kept[-1] == Kept(60, b"a", b"last")
    assert keyed.log.first_dirty_offset == cleaning.upper_offset == keyed.log.log_end_offset == 61
    assert cleaning.removed_bytes > 0


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_keep_their_codec_headers_and_times(keyed: KeyedLog, codec: Compression) -> None:
    records = [
        HandRecord(b"old", b"a", [(b"h", b"1")]),
        HandRecord(b"other", b"b", [(b"h", b"2"), (b"n", None)], timestamp_delta=77),
        HandRecord(None, b"c", timestamp_delta=78),
    ]
    put(
        keyed,
        hand_batch(
            records,
            attributes=codec,
            producer=(7, 1, 40),
            leader_epoch=3,
            compress=lambda body: compress(codec, body),
        ),
    )
    before = read_header(next(iter(read_batches(keyed.log)))[1])
    keyed.append((b"a", b"new"), epoch=3)
    keyed.seal_and_clean(now_ms=50_000)
    header, batch = next(iter(read_batches(keyed.log)))
    assert header.compression is codec
    same = ("base_offset", "last_offset_delta", "leader_epoch", "max_timestamp_ms", "producer_id",
            "producer_epoch", "base_sequence")  # fmt: skip
    assert [getattr(header, it) for it in same] == [getattr(before, it) for it in same]
    assert delete_horizon_ms(header) == 51_000
    assert [tuple(it) for it in iter_records(batch)] == [
        (1, 1_077, b"b", b"other", (("h", b"2"), ("n", None))),
        (2, 1_078, b"c", None, ()),
    ]


def test_a_tombstone_stays_for_its_time_and_no_older_value_comes_back(keyed: KeyedLog) -> None:
    keyed.append((b"a", b"1"), (b"b", b"1"))
    keyed.append((b"a", None))
    first = keyed.seal_and_clean(now_ms=50_000)
    assert first.horizon_ms == 51_000
    assert keyed.kept() == [Kept(1, b"b", b"1"), Kept(2, b"a", None)]
    keyed.clean(50_999)
    assert len(keyed.kept()) == 2
    assert keyed.clean(51_000, may_drop_tombstones=False).horizon_ms == 51_000
    assert len(keyed.kept()) == 2
    assert keyed.clean(51_000).horizon_ms is None
    assert keyed.kept() == [Kept(1, b"b", b"1")]
    assert keyed.log.log_end_offset == 3


def test_a_key_that_was_deleted_may_have_a_value_again(keyed: KeyedLog) -> None:
    keyed.append((b"a", None))
    keyed.seal_and_clean(now_ms=1)
    keyed.append((b"a", b"2"))
    keyed.seal_and_clean(now_ms=9_000)
    assert view(keyed.kept()) == {b"a": b"2"}


def test_what_is_above_the_bound_is_left_alone(keyed: KeyedLog) -> None:
    for number in range(6):
        keyed.append((b"a", b"%d" % number))
        keyed.log.roll()
    keyed.sync()
    cleaning = keyed.clean(upper=3)
    assert [it.offset for it in keyed.kept()] == [2, 3, 4, 5]
    assert cleaning.upper_offset == 3


def test_young_segments_wait(keyed: KeyedLog) -> None:
    rules = CompactionSettings(min_lag_ms=500)
    keyed.log.settings = LogSettings(segment_bytes=1_500, compaction=rules)
    keyed.append((b"a", b"1"), timestamp_ms=1_000)
    keyed.log.roll()
    keyed.append((b"a", b"2"), timestamp_ms=2_000)
    keyed.seal_and_clean(now_ms=2_499)
    assert keyed.log.first_dirty_offset == 1
    keyed.clean(2_500)
    assert [it.offset for it in keyed.kept()] == [1]


def test_the_active_segment_is_never_touched(keyed: KeyedLog) -> None:
    keyed.append((b"a", b"1"))
    keyed.append((b"a", b"2"))
    keyed.sync()
    keyed.clean()
    assert len(keyed.kept()) == 2
    assert keyed.log.first_dirty_offset == 0


def test_small_segments_become_one(keyed: KeyedLog) -> None:
    for number in range(40):
        keyed.append((b"k%d" % (number % 10), b"x" * 60))
        keyed.log.roll()
    keyed.sync()
    assert keyed.log.segment_count == 41
    keyed.clean()
    assert keyed.log.segment_count == 2
    assert headers(keyed)[0] == (0, 30, 0)
    assert [it.offset for it in keyed.kept()] == list(range(30, 40))
    names = keyed.disk.names(str(FOLDER))
    assert sum(name.endswith(".log") for name in names) == 2
    assert not any("cleaned" in name or "swap" in name for name in names)


def test_a_large_log_stays_in_several_segments(keyed: KeyedLog) -> None:
    for number in range(60):
        keyed.append((b"k%d" % number, b"x" * 100))
    keyed.append((b"k0", b"y"))
    keyed.seal_and_clean()
    sizes = [segment.size_bytes for segment in keyed.log.segments]
    assert len(sizes) > 3
    assert max(sizes) <= COMPACTED.segment_bytes
    assert len(keyed.kept()) == 60


def test_a_cleaning_without_an_effect_changes_no_file(keyed: KeyedLog) -> None:
    keyed.append((b"a", b"1"), (b"b", b"1"))
    keyed.seal_and_clean()
    renames = keyed.disk.calls.get("rename", 0)
    cleaning = keyed.clean()
    assert keyed.disk.calls.get("rename", 0) == renames
    assert cleaning.removed_bytes == 0


def test_gaps_keep_the_history_of_epochs(keyed: KeyedLog) -> None:
    for epoch in range(4):
        keyed.append((b"a", b"%d" % epoch), (b"b", b"x"), epoch=epoch)
        keyed.append((b"a", b"x"), epoch=epoch)
    before = keyed.log.epochs.entries
    keyed.seal_and_clean()
    assert headers(keyed) == [(0, 3, 0), (3, 6, 0), (6, 9, 0), (9, 11, 1), (11, 12, 1)]
    keyed.log.close()
    keyed.disk.remove(f"{FOLDER}/leader-epoch-checkpoint")
    keyed.open()
    assert keyed.log.epochs.entries == before


def test_the_last_batch_of_a_producer_stays_though_it_is_empty(keyed: KeyedLog) -> None:
    one = [HandRecord(b"v", b"a")]
    put(keyed, hand_batch(one, 0, producer=(7, 0, 0)))
    put(keyed, hand_batch(one, 1, producer=(7, 0, 1)))
    put(keyed, hand_batch(one, 2, producer=(8, 0, 0), max_timestamp_ms=0))
    keyed.append((b"a", b"last"))
    keyed.seal_and_clean(now_ms=5_000, producer_expiration_ms=4_000)
    found = [
        (it.base_offset, it.producer_id, it.base_sequence) for it, _ in read_batches(keyed.log)
    ]
    assert found == [(0, -1, -1), (1, 7, 1), (2, -1, -1), (3, -1, -1)]
    keyed.clean(50_000_000, producer_expiration_ms=4_000)
    assert [it.producer_id for it, _ in read_batches(keyed.log)] == [-1, -1]


def test_records_without_a_key_and_control_batches_stay(keyed: KeyedLog) -> None:
    put(keyed, hand_batch([HandRecord(b"v", None), HandRecord(b"v", b"a")]))
    put(keyed, hand_batch([HandRecord(b"commit", b"mark")], 2, attributes=0x20))
    put(keyed, hand_batch([HandRecord(b"v", b"mark"), HandRecord(b"v", b"a")], 3))
    keyed.seal_and_clean()
    headers = {header.base_offset: header for header, _ in read_batches(keyed.log)}
    assert headers[2].record_count == 1
    assert [it.offset for it in keyed.kept()] == [0, 3, 4]


def test_a_table_that_is_full_takes_several_cleanings(keyed: KeyedLog) -> None:
    for number in range(30):
        keyed.append(*((b"k%d" % key, b"%d" % number) for key in range(7)))
    keyed.log.roll()
    keyed.sync()
    reached = []
    while keyed.log.first_dirty_offset < keyed.log.log_end_offset:
        keyed.clean(memory_bytes=3 * KeyOffsets.BYTES_FOR_KEY)
        reached.append(keyed.log.first_dirty_offset)
        assert view(keyed.kept()) == {b"k%d" % key: b"29" for key in range(7)}
    assert reached == sorted(set(reached))
    assert len(reached) > 10


def test_damage_is_not_made_good(keyed: KeyedLog) -> None:
    keyed.append((b"a", b"1"), (b"b", b"1"))
    keyed.append((b"a", b"2"))
    keyed.log.roll()
    keyed.sync()
    data = bytearray(keyed.disk.content(FIRST))
    data[70] ^= 1
    keyed.disk.replace(FIRST, bytes(data))
    with pytest.raises(CorruptBatch, match="checksum"):
        keyed.clean()
    assert keyed.disk.content(FIRST) == data
    assert keyed.log.first_dirty_offset == 0
    assert not any("cleaned" in name for name in keyed.disk.names(str(FOLDER)))


@pytest.mark.parametrize("operation", ["create", "pwrite", "rename"])
def test_a_full_disk_leaves_all_as_it_was(keyed: KeyedLog, operation: str) -> None:
    keyed.append((b"a", b"1"))
    keyed.append((b"a", b"2"))
    keyed.log.roll()
    keyed.sync()
    before = keyed.disk.content(FIRST)
    keyed.disk.fail(operation, errno.ENOSPC, part=".cleaned")
    with pytest.raises(StorageFull):
        keyed.clean()
    assert keyed.disk.content(FIRST) == before
    assert not keyed.log.failed
    assert not keyed.log.is_swapping
    assert not any("cleaned" in name for name in keyed.disk.names(str(FOLDER)))
    keyed.clean()
    assert [it.offset for it in keyed.kept()] == [1]


def test_no_room_for_the_indexes_is_no_failure(keyed: KeyedLog) -> None:
    for number in range(20):
        keyed.append((b"k%d" % (number % 15), b"x" * 50))
    keyed.log.roll()
    keyed.sync()
    keyed.disk.fail("write_small", errno.ENOSPC, part="index", times=2)
    keyed.clean()
    assert len(keyed.kept()) == 15
    keyed.log.close()
    keyed.open(keyed.log.recovery_point)
    assert len(keyed.kept()) == 15


@pytest.mark.parametrize("operation", ["unlink", "sync_directory"])
def test_a_disk_that_fails_amid_a_swap_fails_the_log(keyed: KeyedLog, operation: str) -> None:
    for number in range(3):
        keyed.append((b"a", b"%d" % number))
        keyed.log.roll()
    keyed.sync()
    keyed.disk.fail(operation, errno.EIO)
    with pytest.raises(StorageFailed):
        keyed.clean()
    assert keyed.log.failed
    keyed.log.close()
    keyed.open()
    assert view(keyed.kept()) == {b"a": b"2"}


def test_who_reads_an_old_segment_goes_on_reading_it(keyed: KeyedLog) -> None:
    keyed.append((b"a", b"1"))
    keyed.append((b"a", b"2"))
    keyed.log.roll()
    keyed.sync()
    with keyed.log.read(0, 10_000, 2) as piece:
        keyed.clean()
        assert [it.value for it in iter_records(piece.read())] == [b"1"]
    assert keyed.kept() == [Kept(1, b"a", b"2")]


def test_a_follower_in_the_midst_of_a_gap_goes_on(keyed: KeyedLog) -> None:
    follower = KeyedLog(SimDisk())
    for number in range(8):
        keyed.append((b"a", b"%d" % number), (b"b", b"%d" % number))
    with keyed.log.read(0, 200, 6) as piece:
        data = memoryview(piece.read())
    while data:
        data = data[follower.log.append_fetched(data) :]
    end = follower.log.log_end_offset
    assert 0 < end < 14
    keyed.seal_and_clean()
    assert headers(keyed)[0] == (0, 14, 0)
    with keyed.log.read(end, 10_000, 16) as piece:
        data = memoryview(piece.read())
    while data:
        data = data[follower.log.append_fetched(data) :]
    assert follower.log.log_end_offset == 16
    assert (end, 14, 0) in headers(follower)
    assert view(follower.kept()) == view(keyed.kept()) == {b"a": b"7", b"b": b"7"}
    follower.seal_and_clean()
    assert [it.offset for it in follower.kept()] == [14, 15]


def test_times_are_found_where_records_are_left(keyed: KeyedLog) -> None:
    for number in range(5):
        keyed.append((b"a", b"x"), (b"k%d" % number, b"x"), timestamp_ms=1_000 + number)
    keyed.seal_and_clean()
    end = keyed.log.log_end_offset
    assert keyed.log.offset_for_timestamp(1_000, end) == (1, 1_000)
    assert keyed.log.offset_for_timestamp(1_003, end) == (7, 1_003)
    keyed.append((b"k0", b"x"), (b"k1", b"x"), timestamp_ms=2_000)
    keyed.seal_and_clean()
    assert is_gap(next(iter(read_batches(keyed.log)))[0])
    assert keyed.log.offset_for_timestamp(1_000, keyed.log.log_end_offset) == (5, 1_002)
    assert keyed.log.first_timestamp_ms() is not None


def test_truncation_makes_what_comes_after_dirty_again(keyed: KeyedLog) -> None:
    for number in range(10):
        keyed.append((b"a", b"%d" % number))
        keyed.log.roll()
    keyed.sync()
    keyed.clean(upper=8)
    assert keyed.log.first_dirty_offset == 8
    keyed.log.truncate_to(4)  # into a gap: where that begins
    assert keyed.log.log_end_offset == keyed.log.first_dirty_offset == 0
    assert COMPACTED.compaction == RULES


def test_a_segment_that_is_encrypted_by_a_cleaning_is_bound_to_its_partition() -> None:
    keyed = KeyedLog(SimDisk())
    for number in range(6):
        keyed.append((b"k", b"%d" % number * 20))
    keyed.encrypt(True)
    keyed.seal_and_clean()
    wanted, end = keyed.kept(), keyed.log.log_end_offset
    keyed.log.close()
    keyed.open(end)
    assert keyed.log.segments.first.key is not None
    assert keyed.log.segments.first.key.wrapped().scope == SCOPE
    assert keyed.kept() == wanted
