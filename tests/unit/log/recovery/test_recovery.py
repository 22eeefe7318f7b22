import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest

from streamlog.errors import CorruptBatch, StorageFailed, StorageFull
from streamlog.log.checkpoint import encode_checkpoint
from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.log.log import PartitionLog
from streamlog.log.manifest import MANIFEST_NAME
from streamlog.log.recovery.recovery import DeferredSyncs
from streamlog.log.settings import LogSettings
from streamlog.log.storage.file_pool import FilePool
from tests.log_folder import FOLDER, a_key_ring, append, make_batch, open_log, read_batches, sync
from tests.simulation.disk import SimDisk

SIZE = len(make_batch(0, 2))
SETTINGS = LogSettings(segment_bytes=4 * SIZE, index_interval_bytes=SIZE)


@pytest.fixture
def disk() -> SimDisk:
    """Ten batches of two records in segments 0, 8 and 16; epochs 0 from 0, 1 from 10; closed.

    Nothing of it is known to be synced but what the recovery point says: it has no manifest.
    """
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    for i in range(10):
        append(log, 2, timestamp_ms=1_000 + i, epoch=int(i >= 5))
    log.close()
    disk.remove(f"{FOLDER}/{MANIFEST_NAME}")
    return disk


def path(base_offset: int, suffix: str = ".log") -> str:
    return f"{FOLDER}/{base_offset:020d}{suffix}"


def reopen(disk: SimDisk, recovery_point: int, **known: Any) -> PartitionLog:
    disk.kill()
    return open_log(disk, SETTINGS, recovery_point=recovery_point, **known)


def bases(log: PartitionLog) -> list[int]:
    return [header.base_offset for header, _ in read_batches(log)]


def flip(disk: SimDisk, file: str, position: int) -> None:
    data = bytearray(disk.content(file))
    data[position] ^= 0x10
    disk.replace(file, bytes(data))


# What is read


def test_after_a_clean_stop_only_the_last_segment_is_touched(disk: SimDisk) -> None:
    reopen(disk, 20).close()  # has a manifest from here on
    disk.calls.clear()
    log = reopen(disk, 20)
    assert log.recovery.scanned_segments == 0
    assert disk.calls["open"] == 1
    assert "pwrite" not in disk.calls
    assert (log.log_end_offset, log.recovery_point) == (20, 20)
    assert bases(log) == list(range(0, 20, 2))


@pytest.mark.parametrize(("recovery_point", "count"), [(0, 3), (7, 3), (8, 2), (15, 2), (16, 1)])
def test_after_a_crash_the_segments_past_the_recovery_point_are_read(
    disk: SimDisk, recovery_point: int, count: int
) -> None:
    log = reopen(disk, recovery_point)
    assert log.recovery.scanned_segments == count
    assert log.recovery_point == 20
    assert not log.recovery.rebuilt
    assert bases(log) == list(range(0, 20, 2))


def test_start_up_does_not_grow_with_the_log() -> None:
    counts = []
    for segments in (10, 200):
        disk = SimDisk()
        log = open_log(disk, LogSettings(segment_bytes=100))
        for _ in range(segments):
            append(log, 5)
        log.close()
        disk.kill()
        disk.calls.clear()
        open_log(disk, LogSettings(segment_bytes=100), recovery_point=5 * segments)
        counts.append(disk.calls)
    assert counts[0] == counts[1]


def test_the_times_of_a_resumed_segment_are_known_at_once(disk: SimDisk) -> None:
    log = reopen(disk, 20)
    assert log.recovery.scanned_segments == 0
    assert log.last_timestamp_ms() == 1_009


def test_what_was_synced_is_not_written_again(disk: SimDisk) -> None:
    disk.replace(path(16, ".index"), b"garbled")  # so that all is read
    disk.calls.clear()
    log = reopen(disk, 20)
    assert log.recovery.scanned_segments == 1
    assert disk.calls["pwrite"] == disk.calls["write_small"]


def test_a_new_log_has_no_epochs_to_store(disk: SimDisk) -> None:
    folder = FOLDER.with_name("new")
    disk.make_directory(str(folder))
    log = open_log(disk, SETTINGS, folder=folder, is_new=True)
    sync(log)
    assert not disk.has_file(f"{folder}/leader-epoch-checkpoint")


def test_logs_that_are_opened_together_share_the_open_files() -> None:
    disk = SimDisk()
    folders = [FOLDER.with_name(str(number)) for number in range(10)]
    for folder in folders:
        log = open_log(disk, SETTINGS, folder=folder)
        append(log)
        sync(log)
        log.close()
    disk.kill()
    files = FilePool(disk, 2, a_key_ring())
    for folder in folders:
        log = PartitionLog.open(folder, SETTINGS, disk=disk, files=files, recovery_point=1)
        assert log.log_end_offset == 1
    assert disk.open_files <= 2


@pytest.mark.parametrize("seed", range(8))
def test_a_name_that_a_killed_process_removed_stays_removed(seed: int) -> None:
    """The kernel has forgotten the name, and the disk has not: without a sync of the folder it could come back after
    offsets had been given anew.
    """
    disk = SimDisk(seed)
    log = open_log(disk, SETTINGS)
    for _ in range(6):
        append(log, 2)
    sync(log)
    for base in (8, 0):
        disk.unlink(path(base))
    disk.unlink(f"{FOLDER}/{MANIFEST_NAME}")
    disk.kill()
    log = open_log(disk, SETTINGS)
    assert log.log_end_offset == 0
    disk.crash()
    assert not disk.has_file(path(8))


def test_logs_that_are_opened_together_leave_the_checkpoint_of_epochs_to_the_next_sync(
    disk: SimDisk,
) -> None:
    file = f"{FOLDER}/leader-epoch-checkpoint"
    disk.replace(file, LACKING)
    disk.kill()
    log = open_log(disk, SETTINGS, recovery_point=20, syncs=DeferredSyncs())
    assert log.epochs.entries == ((0, 0), (1, 10))
    assert disk.content(file) == LACKING
    append(log, 2, epoch=1)
    sync(log)
    assert LeaderEpochs.decode(disk.content(file), file).entries == ((0, 0), (1, 10))


@pytest.mark.parametrize("seed", range(4))
def test_logs_that_are_opened_together_are_synced_together(seed: int) -> None:
    disk = SimDisk(seed)
    log = open_log(disk, SETTINGS)
    sync(log)
    for _ in range(3):
        append(log, 2)
    disk.kill()
    syncs, files = DeferredSyncs(), FilePool(disk, 16, a_key_ring())
    PartitionLog.open(FOLDER, SETTINGS, disk=disk, files=files, syncs=syncs, power_lost=False)
    assert syncs.run(disk, files, lambda: False) == {}
    disk.crash()
    assert open_log(disk, SETTINGS).log_end_offset == 6


def test_few_files_are_open_however_many_segments() -> None:
    disk = SimDisk()
    log = open_log(disk, LogSettings(segment_bytes=100))
    for _ in range(100):
        append(log, 5)
        sync(log)
    assert list(read_batches(log))
    assert log.offset_for_timestamp(2_000, 500) is None
    assert disk.open_files <= 16


# A torn tail


@pytest.mark.parametrize("left", [1, 11, 12, 60, 61, SIZE - 1])
def test_a_torn_batch_is_cut(disk: SimDisk, left: int) -> None:
    disk.replace(path(16), disk.content(path(16))[: SIZE + left])
    log = reopen(disk, 16)
    report = log.recovery
    assert (report.cut_at, report.cut_bytes) == (18, left)
    assert (report.cut_file, report.cut_position) == (path(16), SIZE)
    assert report.cut_problem
    assert (log.log_end_offset, report.lost_synced) == (18, 0)
    assert len(disk.content(path(16))) == SIZE
    append(log, 2, epoch=1)
    assert bases(log) == list(range(0, 20, 2))


@pytest.mark.parametrize("position", [3, 9, 16, 17, 30, 61, SIZE - 1])
def test_the_log_is_cut_at_the_first_batch_that_is_wrong(disk: SimDisk, position: int) -> None:
    flip(disk, path(8), SIZE + position)
    log = reopen(disk, 8)
    assert log.log_end_offset == 10
    assert (log.recovery.cut_at, log.recovery.cut_position) == (10, SIZE)
    assert log.recovery.cut_bytes == 5 * SIZE
    assert log.recovery.removed == [f"{16:020d}.log"]
    assert path(16).rpartition("/")[2] not in disk.sizes(str(FOLDER))
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0)]
    assert bases(log) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("junk", [bytes(5_000), b"\xff" * 61, make_batch(0), make_batch(99)])
def test_junk_after_the_end_is_cut(disk: SimDisk, junk: bytes) -> None:
    disk.replace(path(16), disk.content(path(16)) + junk)
    log = reopen(disk, 20)
    assert (log.log_end_offset, log.recovery.cut_bytes) == (20, len(junk))
    assert log.recovery.lost_synced == 0


def test_a_batch_of_an_older_epoch_is_what_a_truncation_had_cut_off(disk: SimDisk) -> None:
    disk.replace(path(16), disk.content(path(16)) + make_batch(20, epoch=0))
    log = reopen(disk, 20)
    assert log.log_end_offset == 20
    assert "epoch 0" in log.recovery.cut_problem


def test_a_new_segment_without_what_came_before_it_is_removed(disk: SimDisk) -> None:
    disk.replace(path(8), disk.content(path(8))[: 2 * SIZE])
    log = reopen(disk, 8)
    assert (log.log_end_offset, log.recovery.cut_at) == (12, 16)
    assert log.segment_count == 2
    assert (log.recovery.cut_file, log.recovery.cut_position) == (path(8), 2 * SIZE)


def test_what_goes_on_into_the_next_segment_is_cut(disk: SimDisk) -> None:
    """A truncation to 8 was forgotten by the disk, the segment begun there was not."""
    disk.replace(path(0), disk.content(path(0)) + make_batch(8, [b"old"] * 2))
    log = reopen(disk, 0)
    assert bases(log) == list(range(0, 20, 2))
    assert len(disk.content(path(0))) == 4 * SIZE


def test_an_empty_log_after_a_power_cut(disk: SimDisk) -> None:
    for base in (8, 16):
        disk.remove(path(base))
    disk.replace(path(0), b"")
    log = reopen(disk, 0)
    assert (log.log_end_offset, log.recovery.lost_synced) == (0, 0)
    file = f"{FOLDER}/leader-epoch-checkpoint"
    assert LeaderEpochs.decode(disk.content(file), file).entries == ()
    append(log)
    assert bases(log) == [0]


# What was synced and is damaged all the same


@pytest.mark.parametrize("position", [3, 9, 16, 17, 30, 61, SIZE - 1])
def test_damage_below_the_recovery_point_is_kept_and_not_served(
    disk: SimDisk, position: int
) -> None:
    flip(disk, path(16), position)
    log = reopen(disk, 19)
    assert log.log_end_offset == 20
    [(file, damage)] = log.recovery.damages
    assert (file, damage.position, damage.offset, damage.end_offset) == (path(16), 0, 16, 18)
    for offset in (16, 17):
        with pytest.raises(CorruptBatch, match=f"{path(16)} position 0: offsets "):
            log.read(offset, 10_000, 20)
    assert [header.base_offset for header, _ in read_batches(log, 18)] == [18]


def test_a_damage_is_told_once(disk: SimDisk, caplog: pytest.LogCaptureFixture) -> None:
    reopen(disk, 20).close()  # has a manifest from here on
    disk.replace(path(0), disk.content(path(0))[:SIZE])  # of another size, so that it is not read
    disk.replace(path(8), b"")
    log = reopen(disk, 20)
    assert [file for file, _ in log.recovery.damages] == [path(0), path(8)]
    for file in (path(0), path(8)):
        assert sum(getattr(it, "file", "") == file for it in caplog.records) == 1


def test_a_damage_that_reading_has_told_is_told_once(
    disk: SimDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.replace(path(8), disk.content(path(8))[:SIZE])
    log = reopen(disk, 20)
    assert [file for file, _ in log.recovery.damages] == [path(8)]
    assert sum(getattr(it, "file", "") == path(8) for it in caplog.records) == 1


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_synced_last_batch_with_a_wrong_count_is_not_cut(disk: SimDisk, power_lost: bool) -> None:
    """Where it ended is told by its last offset alone, and by the recovery point."""
    flip(disk, path(16), SIZE + 60)  # in the count of records
    log = reopen(disk, 19, power_lost=power_lost)
    [(file, damage)] = log.recovery.damages
    assert (file, damage.offset, damage.end_offset) == (path(16), 18, 20)
    assert log.log_end_offset == 20


def test_a_last_batch_that_may_be_torn_is_cut(disk: SimDisk) -> None:
    flip(disk, path(16), SIZE + 60)
    log = reopen(disk, 18, power_lost=False)
    assert (log.log_end_offset, log.recovery.damages) == (18, [])
    assert log.recovery.cut_at == 18


def test_records_that_were_synced_and_are_gone_are_told_of(
    disk: SimDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.replace(path(16), disk.content(path(16))[:SIZE])
    log = reopen(disk, 20)
    assert (log.log_end_offset, log.recovery.lost_synced) == (18, 2)
    assert "synced records are missing" in caplog.text


def test_a_missing_folder_is_told_of(disk: SimDisk) -> None:
    for name in list(disk.sizes(str(FOLDER))):
        disk.remove(f"{FOLDER}/{name}")
    log = reopen(disk, 20, log_start_offset=4)
    assert (log.log_start_offset, log.log_end_offset, log.recovery.lost_synced) == (4, 4, 16)


def test_a_hole_in_what_was_synced_is_damage(disk: SimDisk) -> None:
    disk.replace(path(8), disk.content(path(8))[:SIZE])
    log = reopen(disk, 20)
    assert log.log_end_offset == 20
    assert [header.base_offset for header, _ in read_batches(log, 16)] == [16, 18]
    with pytest.raises(CorruptBatch, match="missing"):
        log.read(10, 10_000, 20)
    log = reopen(disk, 17)
    with pytest.raises(CorruptBatch, match="missing"):
        log.read(10, 10_000, 20)


def test_a_missing_segment_is_damage_of_the_one_before(disk: SimDisk) -> None:
    disk.remove(path(8))
    log = reopen(disk, 20)
    with pytest.raises(CorruptBatch, match="missing"):
        log.read(8, 10_000, 20)
    assert [header.base_offset for header, _ in read_batches(log, 16)] == [16, 18]


# Indexes and epochs


def emptied(data: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def overlong(data: bytes) -> bytes:
    return data + data


def zeroed(data: bytes) -> bytes:
    return bytes(max(len(data), 24))


def garbled(data: bytes) -> bytes:
    return b"\xff\x00garbage\n" * 7


def shifted(data: bytes) -> bytes:
    """Well-formed, and every entry a lie."""
    return b"".join(
        struct.pack(">II", a + 1, b + 3)
        for a, b in struct.iter_unpack(">II", data[: len(data) & ~7])
    )


DAMAGES = [emptied, cut, overlong, zeroed, garbled, shifted, None]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("recovery_point", [0, 17, 20])
def test_damaged_indexes_are_made_anew(
    disk: SimDisk, suffix: str, damage: Callable[[bytes], bytes] | None, recovery_point: int
) -> None:
    before = {base: disk.content(path(base, suffix)) for base in (0, 8)}
    for base in (0, 8):  # the active one is too short for an index
        if damage is None:
            disk.remove(path(base, suffix))
        else:
            disk.replace(path(base, suffix), damage(before[base]))
    log = reopen(disk, recovery_point)
    assert log.log_end_offset == 20
    assert bases(log) == list(range(0, 20, 2))
    for i in range(10):
        assert log.offset_for_timestamp(1_000 + i, 20) == (2 * i, 1_000 + i)
        with log.read(2 * i + 1, 1, 20) as piece:
            assert len(piece) == SIZE
    append(log, 2, epoch=1, timestamp_ms=1_010)
    log.close()
    for base in (0, 8):
        assert disk.content(path(base, suffix)) == before[base]


LACKING = encode_checkpoint(["0 0"])
"""Without the newest epoch."""


@pytest.mark.parametrize("content", [b"", b"1\n", LACKING, encode_checkpoint([]), bytes(20), None])
@pytest.mark.parametrize("recovery_point", [0, 17, 20])
def test_damaged_epochs_are_read_from_the_batches(
    disk: SimDisk, content: bytes | None, recovery_point: int
) -> None:
    file = f"{FOLDER}/leader-epoch-checkpoint"
    before = disk.content(file)
    if content is None:
        disk.remove(file)
    else:
        disk.replace(file, content)
    log = reopen(disk, recovery_point)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 10)]
    assert disk.content(file) == before


@pytest.mark.parametrize("recovery_point", [0, 8])
def test_batches_that_are_read_belie_the_checkpoint_of_epochs(
    disk: SimDisk, recovery_point: int
) -> None:
    disk.replace(f"{FOLDER}/leader-epoch-checkpoint", encode_checkpoint(["0 0", "1 12"]))
    log = reopen(disk, recovery_point)
    assert log.epochs.entries == ((0, 0), (1, 10))


def test_an_epoch_is_known_by_a_header_whose_records_are_damaged(disk: SimDisk) -> None:
    disk.replace(f"{FOLDER}/leader-epoch-checkpoint", b"")
    flip(disk, path(8), 2 * SIZE - 1)
    log = reopen(disk, 20)
    assert log.epochs.entries == ((0, 0), (1, 10))


def test_epochs_of_an_empty_active_segment_are_those_of_the_one_before(disk: SimDisk) -> None:
    log = reopen(disk, 20)
    log.roll()
    sync(log)
    disk.replace(f"{FOLDER}/leader-epoch-checkpoint", LACKING)
    log = reopen(disk, 20)
    assert log.epochs.latest == 1


def test_epochs_below_a_log_start_that_is_forgotten_are_known_again() -> None:
    """Else epoch 2, which this log never had, would end at 12 here, and a follower that wrote
    record 10 in it would keep that record.
    """
    disk = SimDisk()
    settings = LogSettings(segment_bytes=100 * SIZE)
    log = open_log(disk, settings)
    for epoch in (0, 0, 0, 0, 0, 1, 3, 3):
        append(log, 2, epoch=epoch)
    log.advance_log_start(13)  # within the only segment, so that no file goes
    append(log, 2, epoch=3)
    sync(log)
    assert log.epochs.entries == ((3, 12),)
    disk.kill()
    disk.remove(f"{FOLDER}/{MANIFEST_NAME}")  # with the checkpoint of log starts
    log = open_log(disk, settings, recovery_point=18)
    assert log.epochs.end_offset_for(2, 18) == (1, 12)
    assert log.epochs.entries == ((0, 0), (1, 10), (3, 12))
    log = reopen(disk, 18, log_start_offset=13)
    assert log.epochs.entries == ((3, 12),)


def test_a_purged_log_knows_its_epoch(disk: SimDisk) -> None:
    log = reopen(disk, 20)
    log.advance_log_start(20)
    log.close()
    log = reopen(disk, 20, log_start_offset=20)
    assert log.epochs.end_offset_for(1, 20) == (1, 20)


MANY = LogSettings(segment_bytes=1_000 * SIZE, index_interval_bytes=SIZE)


def entries_of(disk: SimDisk, suffix: str) -> list[tuple[int, int]]:
    size = {".index": 8, ".timeindex": 12}[suffix]
    data = disk.content(path(0, suffix))
    return [
        struct.unpack(">II" if size == 8 else ">QI", data[at : at + size])
        for at in range(0, len(data), size)
    ]


@pytest.mark.parametrize(
    ("suffix", "at", "change"),
    [
        (
            ".index",
            -1,
            (1, 0),
        ),  # the offset of the last batch: too many entries for each to be compared
        (".index", 69, (1, 0)),  # one of those that are compared
        (".timeindex", -1, (-1, 0)),
        (".timeindex", 69, (1, 0)),
    ],
)
def test_an_index_of_the_active_segment_that_lies_is_made_anew(
    suffix: str, at: int, change: tuple[int, int]
) -> None:
    disk = SimDisk()
    log = open_log(disk, MANY)
    for number in range(260):
        append(log, 2, timestamp_ms=1_000 + number)
    log.close()
    entries = entries_of(disk, suffix)
    assert len(entries) > 100
    disk.kill()
    assert open_log(disk, MANY, recovery_point=520).recovery.scanned_segments == 0
    first, second = entries[at]
    entries[at] = first + change[0], second + change[1]
    form = ">II" if suffix == ".index" else ">QI"
    disk.replace(path(0, suffix), b"".join(struct.pack(form, *entry) for entry in entries))
    disk.kill()
    log = open_log(disk, MANY, recovery_point=520)
    assert log.recovery.scanned_segments == 1
    assert log.recovery.rebuilt == [path(0, suffix)]
    assert log.offset_for_timestamp(1_259, 520) == (518, 1_259)


def test_a_lying_entry_at_the_recovery_point_is_not_the_end() -> None:
    disk = SimDisk()
    log = open_log(disk, MANY)
    for number in range(260):
        append(log, 2, timestamp_ms=1_000 + number)
    log.close()
    entries = entries_of(disk, ".index")
    last, position = entries[-1]
    entries[-1] = last + 1, position
    disk.replace(path(0, ".index"), b"".join(struct.pack(">II", *entry) for entry in entries))
    disk.kill()
    log = open_log(disk, MANY, recovery_point=last - 1)
    assert log.log_end_offset == 520


def test_a_damaged_index_of_the_active_segment_is_removed(disk: SimDisk) -> None:
    disk.replace(path(16, ".index"), b"garbled")
    log = reopen(disk, 20)
    assert log.recovery.rebuilt == [path(16, ".index")]
    assert not disk.has_file(path(16, ".index"))


def test_a_damaged_manifest_of_one_segment_is_written_again() -> None:
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    append(log, 2)
    log.close()
    manifest = f"{FOLDER}/{MANIFEST_NAME}"
    disk.replace(manifest, b"garbled")
    assert reopen(disk, 2).recovery.rebuilt == [manifest]
    assert reopen(disk, 2).recovery.rebuilt == []


def test_files_of_no_segment_are_removed(disk: SimDisk) -> None:
    disk.replace(path(77, ".index"), b"")
    disk.replace(f"{FOLDER}/leader-epoch-checkpoint.tmp", b"half")
    disk.replace(f"{FOLDER}/partition.metadata", b"kept")
    disk.replace(f"{FOLDER}/notes.index", b"kept")
    log = reopen(disk, 20)
    assert sorted(log.recovery.removed) == [f"{77:020d}.index", "leader-epoch-checkpoint.tmp"]
    assert {"partition.metadata", "notes.index"} <= disk.sizes(str(FOLDER)).keys()


# The log start


def test_segments_below_the_log_start_are_removed(disk: SimDisk) -> None:
    log = reopen(disk, 20, log_start_offset=9)
    assert (log.log_start_offset, log.segment_count) == (9, 2)
    assert path(0).rpartition("/")[2] not in disk.sizes(str(FOLDER))


def test_a_segment_below_the_log_start_is_not_missed(disk: SimDisk) -> None:
    reopen(disk, 20).close()  # has a manifest from here on
    disk.remove(path(0))
    log = reopen(disk, 20, log_start_offset=8)
    assert log.damaged_from is None
    assert f"{0:020d}.log" not in log.recovery.removed


def test_a_folder_of_which_nothing_is_known_begins_where_it_does(disk: SimDisk) -> None:
    disk.remove(path(0))
    assert reopen(disk, 0).log_start_offset == 8


def test_a_log_start_never_moves_because_a_file_is_missing(disk: SimDisk) -> None:
    disk.remove(path(0))
    log = reopen(disk, 20)
    assert (log.log_start_offset, log.damaged_from) == (0, 0)
    with pytest.raises(CorruptBatch, match="missing"):
        log.read(0, 10_000, 20)


def test_the_manifest_names_the_segment_that_begins_at_a_start_past_the_end(disk: SimDisk) -> None:
    log = reopen(disk, 20)
    log.manifest.begin_at(30)
    log.close()
    for _ in range(2):
        log = reopen(disk, 20)
        assert (log.log_start_offset, log.log_end_offset) == (30, 30)
        assert log.manifest.stored is not None
        assert (log.manifest.stored.active_offset, log.manifest.stored.sealed) == (30, ())


def test_offsets_below_the_log_start_are_not_given_again(disk: SimDisk) -> None:
    log = reopen(disk, 20, log_start_offset=30)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (30, 30, 0)
    assert log.epochs.latest == 1


# A disk that fails meanwhile


@pytest.mark.parametrize("operation", ["sizes", "make_directory", "open", "pread", "sync"])
def test_a_failing_disk_is_named(disk: SimDisk, operation: str) -> None:
    disk.kill()
    disk.fail(operation, errno.EIO)
    with pytest.raises(StorageFailed, match=str(FOLDER)):
        open_log(disk, SETTINGS)


def test_a_checkpoint_of_epochs_that_cannot_be_written_is_named(disk: SimDisk) -> None:
    disk.replace(f"{FOLDER}/leader-epoch-checkpoint", b"")
    disk.kill()
    disk.fail("create", errno.EIO, part="leader-epoch-checkpoint")
    disk.fail("write", errno.EIO, part="leader-epoch-checkpoint")
    with pytest.raises(StorageFailed, match=str(FOLDER)):
        open_log(disk, SETTINGS, recovery_point=20)


def test_a_full_disk_is_no_reason_not_to_open(disk: SimDisk) -> None:
    for base in (0, 8):
        disk.replace(path(base, ".index"), b"")
    disk.replace(f"{FOLDER}/leader-epoch-checkpoint", b"")
    for recovery_point in (0, 20):
        disk.kill()
        disk.capacity_bytes = 0
        log = open_log(disk, SETTINGS, recovery_point=recovery_point)
        assert bases(log) == list(range(0, 20, 2))
        assert log.epochs.latest == 1
        with pytest.raises(StorageFull):
            append(log, epoch=1)


@pytest.mark.parametrize("recovery_point", [4, 6], ids=["read", "resumed"])
@pytest.mark.parametrize("seed", range(8))
def test_a_cut_counts_only_once_it_is_on_the_disk(seed: int, recovery_point: int) -> None:
    """The sync of the start that cut a torn batch off failed, and the next start found it cut off
    already: a longer file than the manifest names would be damage once it is sealed.
    """
    disk = SimDisk(seed)
    log = open_log(disk, SETTINGS)
    for epoch in (0, 0, 1):
        append(log, 2, epoch=epoch)
    sync(log)
    file = path(0)
    disk.replace(file, disk.content(file) + bytes(SIZE // 2))  # as a power cut may leave it
    disk.kill()
    disk.fail("sync", errno.EIO, part=file)
    with pytest.raises(StorageFailed):
        open_log(disk, SETTINGS, recovery_point=recovery_point)
    disk.kill()
    log = open_log(disk, SETTINGS, recovery_point=recovery_point)
    assert log.log_end_offset == 6
    assert log.recovery.scanned_segments == int(recovery_point == 4)
    log.roll()
    append(log, 2, epoch=2)
    sync(log)
    disk.crash()
    log = open_log(disk, SETTINGS, recovery_point=6)
    assert (log.log_end_offset, log.damaged_from) == (8, None)
