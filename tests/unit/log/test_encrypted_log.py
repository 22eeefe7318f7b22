"""A log that is encrypted, whole or in part, as its owner and its readers see it."""

import errno
from dataclasses import replace
from typing import Any

import pytest

from streamlog.errors import CorruptBatch, EncryptionKeyMissing, StorageFailed, StorageFull
from streamlog.log.encryption.cipher import OVERHEAD_BYTES
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.log import PartitionLog
from streamlog.log.segment.file_slice import DECRYPTED_BYTES_MAX
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import CRC_START, ENCRYPTED, read_header
from tests.log_folder import (
    FOLDER,
    SMALL,
    a_key_ring,
    append,
    make_batch,
    open_log,
    read_batches,
    sync,
)
from tests.simulation.disk import SimDisk

HIDDEN = replace(SMALL, encrypts=True)
ALWAYS = replace(HIDDEN, encrypts_all=True)
SECRET = b"nobody is to read this"


def keys_on(disk: SimDisk) -> list[str]:
    return [name for name in disk.names(str(FOLDER)) if name.endswith(".key")]


def opened_with(disk: SimDisk, keys: KeyRing, **known: Any) -> PartitionLog:
    files = FilePool(disk, 16, keys)
    return PartitionLog.open(FOLDER, ALWAYS, disk=disk, files=files, **known)


def filled(disk: SimDisk, count: int = 40) -> list[bytes]:
    """Several segments, closed."""
    log = open_log(disk, HIDDEN)
    batches = [append(log, [SECRET, b"%d" % at]) for at in range(count)]
    sync(log)
    assert log.segment_count > 2
    log.close()
    return batches


def test_nothing_of_it_is_on_the_disk(disk: SimDisk) -> None:
    batches = filled(disk)
    for name in disk.names(str(FOLDER)):
        assert SECRET not in disk.content(f"{FOLDER}/{name}")
    log = open_log(disk, HIDDEN)
    assert [data for _, data in read_batches(log)] == batches
    assert len(keys_on(disk)) == log.segment_count


def test_a_clean_start_reads_nothing_of_the_sealed_segments(disk: SimDisk) -> None:
    filled(disk)
    log = open_log(disk, HIDDEN, recovery_point=80)
    assert not any(segment.verified for segment in log.segments)
    assert log.damaged_from is None


def test_a_sealed_segment_without_its_data_key_is_damaged(disk: SimDisk) -> None:
    filled(disk)
    key = keys_on(disk)[1]
    disk.remove(f"{FOLDER}/{key}")
    log = open_log(disk, HIDDEN, recovery_point=80)
    assert log.damaged_from == int(key.partition(".")[0])


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_end_is_not_believed_without_its_data_key(disk: SimDisk, is_lost: bool) -> None:
    filled(disk)
    key = f"{FOLDER}/{keys_on(disk)[-1]}"
    start = int(keys_on(disk)[-1].partition(".")[0])
    if is_lost:
        disk.remove(key)
    else:
        disk.replace(key, disk.content(key)[:-1])
    log = open_log(disk, HIDDEN, recovery_point=80)
    assert log.recovery.scanned_segments == 1
    assert start in (log.log_end_offset, log.damaged_from)


def test_records_in_the_clear_at_the_end_of_an_encrypted_log_are_refused(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, [SECRET])
    log.close()
    with pytest.raises(StorageFailed, match="in the clear"):
        open_log(disk, ALWAYS, recovery_point=1)


def test_without_a_key_a_log_that_is_to_be_encrypted_is_not_opened(disk: SimDisk) -> None:
    for is_new in (False, True):
        with pytest.raises(EncryptionKeyMissing):
            opened_with(disk, KeyRing(), is_new=is_new)


def test_a_torn_header_does_not_pass_for_records_in_the_clear(disk: SimDisk) -> None:
    """The power was lost while a log's first batch was written: neither its key nor all of it is on the disk."""
    log = open_log(disk, ALWAYS)
    append(log, [SECRET])
    file, (key,) = log.segments.last.path, keys_on(disk)
    log.close()
    data = bytearray(disk.content(file))
    data[CRC_START:] = bytes(len(data) - CRC_START)  # from the attributes on
    disk.replace(file, bytes(data))
    disk.remove(f"{FOLDER}/{key}")
    disk.crash()
    log = open_log(disk, ALWAYS)
    assert (log.log_end_offset, log.damaged_from) == (0, None)
    append(log, [SECRET])
    assert len(keys_on(disk)) == 1


def test_each_segment_has_a_key_of_its_own(disk: SimDisk) -> None:
    filled(disk)
    keys = [disk.content(f"{FOLDER}/{name}") for name in keys_on(disk)]
    assert len(set(keys)) == len(keys)


def test_segments_are_as_long_as_their_limit(disk: SimDisk) -> None:
    """Of what is on the disk; and a follower's are the leader's."""
    filled(disk)
    leader = open_log(disk, HIDDEN)
    sizes = [it.size_bytes for it in leader.segments]
    assert (
        max(sizes) <= HIDDEN.segment_bytes < max(sizes) + len(make_batch(0, [SECRET, b"10"])) + 32
    )
    follower = open_log(SimDisk(), HIDDEN)
    data = memoryview(b"".join(batch for _, batch in read_batches(leader)))
    while data:
        data = data[follower.append_fetched(data) :]
    assert [it.size_bytes for it in follower.segments] == sizes


def test_a_slice_is_no_file(disk: SimDisk) -> None:
    log = open_log(disk, HIDDEN)
    batch = append(log, [SECRET])
    with log.read(0, 1_000, 1) as part:
        assert part.is_encrypted
        with pytest.raises(AssertionError, match="encrypted"):
            part.fileno()
        part.decrypt()
        assert (part.held, len(part)) == (batch, len(batch))
        part.decrypt()
        with pytest.raises(AssertionError):
            part.fileno()


def test_a_disk_that_does_not_give_it_is_named(disk: SimDisk) -> None:
    log = open_log(disk, HIDDEN)
    append(log, [SECRET])
    with log.read(0, 1_000, 1) as part:
        disk.fail("pread", errno.EIO)
        with pytest.raises(StorageFailed, match=f"{0:020d}.log"):
            part.decrypt()


def test_a_slice_is_not_more_than_can_be_held(disk: SimDisk) -> None:
    log = open_log(disk, replace(HIDDEN, segment_bytes=1 << 30))
    for _ in range(6):
        append(log, [bytes(300_000)])
    with log.read(0, 1 << 30, 6) as part:
        assert 0 < len(part) <= DECRYPTED_BYTES_MAX
    append(log, [bytes(2 * DECRYPTED_BYTES_MAX)])
    with log.read(6, 1, 7) as part:
        assert len(part.read()) > DECRYPTED_BYTES_MAX


def test_a_stream_is_encrypted_from_some_day_on(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    first = append(log, [b"open"])
    log.settings = HIDDEN
    second = append(log, [SECRET])
    log.settings = SMALL
    third = append(log, [b"open again"])
    log.close()
    log = open_log(disk, SMALL)
    assert [data for _, data in read_batches(log)] == [first, second, third]
    mixed, clear = sorted(name for name in disk.names(str(FOLDER)) if name.endswith(".log"))
    stored = disk.content(f"{FOLDER}/{mixed}")
    assert first in stored
    assert SECRET not in stored
    assert disk.content(f"{FOLDER}/{clear}") == third, "beside a key it would count as forged"


def test_an_empty_segment_with_a_key_may_be_written_in_the_clear(disk: SimDisk) -> None:
    log = open_log(disk, HIDDEN)
    append(log, [SECRET])
    log.truncate_to(0)
    log.settings = SMALL
    clear = [append(log, [b"open"]), append(log, [b"again"])]
    sync(log)
    log.close()
    disk.crash()
    log = open_log(disk, SMALL)
    assert [data for _, data in read_batches(log)] == clear


def test_records_are_found_by_time(disk: SimDisk) -> None:
    log = open_log(disk, HIDDEN)
    for at in range(30):
        append(log, [SECRET], timestamp_ms=1_000 + 10 * at)
    assert log.offset_for_timestamp(1_095, 30) == (10, 1_100)
    assert log.latest_timestamp(30) == (29, 1_290)


@pytest.mark.parametrize("ring", [KeyRing(), a_key_ring("k2")])
def test_without_its_key_a_log_is_not_opened(disk: SimDisk, ring: KeyRing) -> None:
    filled(disk)
    before = {name: disk.content(f"{FOLDER}/{name}") for name in disk.names(str(FOLDER))}
    with pytest.raises(EncryptionKeyMissing):
        opened_with(disk, ring, recovery_point=80)
    disk.kill()
    assert {n: disk.content(f"{FOLDER}/{n}") for n in disk.names(str(FOLDER))} == before
    assert open_log(disk, HIDDEN, recovery_point=80).log_end_offset == 80


def test_a_key_that_is_gone_is_asked_for_when_it_is_needed(disk: SimDisk) -> None:
    """Of an older segment; its file is as good as ever."""
    filled(disk)
    ring = KeyRing({"k1": a_key(), "k2": bytes(32)}, "k2")
    log = opened_with(disk, ring, recovery_point=80)
    log.roll()
    append(log, [SECRET])
    log.close()
    log = opened_with(disk, KeyRing({"k2": bytes(32)}, "k2"), recovery_point=81)
    with pytest.raises(EncryptionKeyMissing, match="'k1'"), log.read(0, 100, 81) as part:
        part.read()
    with log.read(80, 100, 81) as part:
        assert SECRET in part.read()
    assert log.damaged_from is None


def a_key() -> bytes:
    return b"k1".ljust(32, b".")


@pytest.mark.parametrize("harm", ["missing", "torn", "rotten"])
def test_what_has_lost_its_key_is_damage(disk: SimDisk, harm: str) -> None:
    """It is not served, and who has replicas has it fetched again."""
    filled(disk)
    first, *_ = sorted(keys_on(disk))
    path, content = f"{FOLDER}/{first}", disk.content(f"{FOLDER}/{first}")
    if harm == "missing":
        disk.unlink(path)
    else:
        disk.replace(path, content[:50] if harm == "torn" else content.replace(b"k1", b"k2"))
    log = open_log(disk, HIDDEN, recovery_point=80)
    end = list(log.segments)[1].base_offset
    with pytest.raises(CorruptBatch, match="data key is"), log.read(0, 100, 80):
        pass
    assert log.damaged_from == 0
    (damage,) = log.segments.first.damages
    assert (damage.offset, damage.end_offset) == (0, end)
    with log.read(end, 100, 80) as part:
        assert part.read()


def test_unsynced_records_whose_key_a_power_cut_took_are_cut(disk: SimDisk) -> None:
    """Nobody was told that they are kept."""
    log = open_log(disk, HIDDEN)
    append(log, [SECRET])
    log.close()
    (name,) = keys_on(disk)
    disk.replace(f"{FOLDER}/{name}", bytes(100))
    log = open_log(disk, HIDDEN, recovery_point=0)
    assert log.log_end_offset == 0
    assert "data key is damaged" in log.recovery.cut_problem
    assert keys_on(disk) == []
    batch = append(log, [SECRET])
    sync(log)
    disk.crash()
    log = open_log(disk, HIDDEN, recovery_point=1)
    assert [data for _, data in read_batches(log)] == [batch]


def test_a_key_is_on_the_disk_before_what_it_encrypts_counts(disk: SimDisk) -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        log = open_log(disk, HIDDEN)
        written = [append(log, [SECRET]) for _ in range(40)]
        sync(log)
        disk.crash()
        log = open_log(disk, HIDDEN, recovery_point=40)
        assert [data for _, data in read_batches(log)] == written


def test_so_is_its_name_in_a_segment_that_was_there_before() -> None:
    """Nothing else has the folder synced then."""
    for seed in range(20):
        disk = SimDisk(seed)
        log = open_log(disk, SMALL)
        written = [append(log, [b"open"])]
        sync(log)
        log.settings = HIDDEN
        written.append(append(log, [SECRET]))
        sync(log)
        disk.crash()
        log = open_log(disk, HIDDEN, recovery_point=2)
        assert [data for _, data in read_batches(log)] == written


def test_a_key_that_cannot_be_written_fails_the_append(disk: SimDisk) -> None:
    log = open_log(disk, HIDDEN)
    disk.fail("create", errno.EIO)
    with pytest.raises(StorageFailed):
        append(log, [SECRET])
    disk.faults.clear()
    assert log.failed
    assert open_log(disk, HIDDEN).log_end_offset == 0


def test_nothing_is_left_of_a_key_for_which_there_is_no_room(disk: SimDisk) -> None:
    log = open_log(disk, HIDDEN)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(StorageFull):
        append(log, [SECRET])
    assert keys_on(disk) == []
    disk.capacity_bytes = None
    append(log, [SECRET])
    log.close()
    assert not disk.open_files


def test_an_encrypted_batch_never_comes_in(disk: SimDisk) -> None:
    """Neither by a leader that sends what is on its disk, nor by one whose log is in the clear."""
    log = open_log(disk, HIDDEN)
    append(log, [SECRET])
    segment = log.segments.last
    stored = disk.content(segment.path)[: segment.size_bytes]
    assert read_header(stored).attributes & ENCRYPTED
    for settings in (HIDDEN, SMALL):
        other = open_log(SimDisk(), settings)
        with pytest.raises(CorruptBatch, match="encrypted"):
            other.append_fetched(memoryview(stored))
        assert other.log_end_offset == 0


def test_keys_go_with_their_segments(disk: SimDisk) -> None:
    filled(disk)
    log = open_log(disk, HIDDEN, recovery_point=80)
    log.advance_log_start(60)
    assert len(keys_on(disk)) == log.segment_count
    log.truncate_to(61)
    assert len(keys_on(disk)) == log.segment_count
    log.truncate_fully_to(5)
    assert keys_on(disk) == []


def test_a_stray_key_is_swept_up(disk: SimDisk) -> None:
    filled(disk)
    disk.replace(f"{FOLDER}/{999:020d}.key", b"x")
    log = open_log(disk, HIDDEN, recovery_point=80)
    assert len(keys_on(disk)) == log.segment_count


def test_a_batch_is_32_bytes_longer() -> None:
    assert HIDDEN.overhead_bytes == OVERHEAD_BYTES == 32
    assert SMALL.overhead_bytes == 0


def test_a_key_that_found_room_when_its_batch_did_not_is_synced_with_the_next(
    disk: SimDisk,
) -> None:
    """The next process finds its file, which nobody has synced, and encrypts by it."""
    log = open_log(disk, HIDDEN)
    disk.fail("pwrite", errno.ENOSPC, part=".log")
    with pytest.raises(StorageFull):
        append(log, [SECRET])
    log.close()
    assert keys_on(disk)
    log = open_log(disk, HIDDEN)
    batch = append(log, [SECRET])
    sync(log)
    disk.crash()
    log = open_log(disk, HIDDEN, recovery_point=1)
    assert [data for _, data in read_batches(log)] == [batch]
