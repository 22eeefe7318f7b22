"""What is written to the manifest, and when nothing is."""

import errno

import pytest

from streamlog.log.manifest import LogManifest, ManifestFile, SealedSegment, SyncedManifest
from tests.log_folder import FOLDER
from tests.simulation.disk import SimDisk

SEALED = (SealedSegment(0, 8, 80), SealedSegment(8, 16, 80), SealedSegment(16, 24, 80))


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(str(FOLDER))
    return disk


def opened(disk: SimDisk) -> ManifestFile:
    file = ManifestFile(disk, str(FOLDER))
    file.load()
    return file


@pytest.fixture
def file(disk: SimDisk) -> ManifestFile:
    """Three sealed segments; it has been written once."""
    made = opened(disk)
    made._write(LogManifest(0, 24, 20, SEALED))
    assert made.stored is not None
    assert made.stored.generation == 1
    return made


def stored(disk: SimDisk) -> LogManifest:
    found = opened(disk).stored
    assert found is not None
    return found


@pytest.mark.parametrize(("start", "count"), [(0, 3), (7, 3), (8, 2), (16, 1), (23, 1), (24, 0)])
def test_segments_below_the_start_need_not_be_there(
    disk: SimDisk, file: ManifestFile, start: int, count: int
) -> None:
    file.begin_at(start)
    assert stored(disk).sealed == SEALED[3 - count :]
    assert stored(disk).log_start_offset == start
    file.begin_at(0)
    assert stored(disk).log_start_offset == start, "it does not fall"


def test_the_start_falls_only_if_it_is_to(disk: SimDisk, file: ManifestFile) -> None:
    file.begin_at(8)
    for same in (8, 9):
        file.lower_start(same)
        assert stored(disk) == LogManifest(8, 24, 20, SEALED[1:], 2)
    file.lower_start(7)
    assert stored(disk) == LogManifest(7, 24, 20, SEALED[1:], 3)


@pytest.mark.parametrize(
    ("offset", "active_offset", "synced_end", "count"),
    [(22, 16, 20, 2), (20, 16, 20, 2), (19, 16, 16, 2), (8, 8, 8, 1)],
)
def test_a_cut_leaves_what_was_synced_before_it(
    disk: SimDisk, file: ManifestFile, offset: int, active_offset: int, synced_end: int, count: int
) -> None:
    file.end_at(offset, active_offset)
    assert stored(disk) == LogManifest(0, active_offset, synced_end, SEALED[:count], 2)


def test_a_sync_that_began_before_a_cut_tells_nothing_of_the_log_after_it(
    disk: SimDisk, file: ManifestFile
) -> None:
    late = SyncedManifest(file.era, 0, 32, 40, (*SEALED, SealedSegment(24, 32, 80)))
    file.end_at(16, 16)
    file.note_synced(late)
    assert stored(disk) == LogManifest(0, 16, 16, SEALED[:2], 2)
    file.begin_anew(50)
    file.note_synced(late._replace(era=late.era + 1))
    assert stored(disk).synced_end == 50
    file.note_synced(late._replace(era=file.era, log_start_offset=50, sealed=()))
    assert stored(disk).synced_end == 40


def test_nothing_new_is_not_written(disk: SimDisk, file: ManifestFile) -> None:
    file.begin_at(0)
    assert stored(disk).generation == 1


def test_on_a_full_disk_there_is_no_manifest_rather_than_an_older_one(
    disk: SimDisk, file: ManifestFile
) -> None:
    file.begin_at(8)
    for operation in ("create", "write"):
        disk.fail(operation, errno.ENOSPC)
    file.lower_start(7)
    assert file.stored is None
    disk.faults.clear()
    assert opened(disk).stored is None
    file.lower_start(3)
    assert opened(disk).stored is None, "there is nothing to lower"


def test_another_fault_of_the_disk_is_raised(disk: SimDisk, file: ManifestFile) -> None:
    file.begin_at(8)
    for operation in ("create", "write"):
        disk.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input"):
        file.lower_start(7)
    disk.faults.clear()
    assert stored(disk).log_start_offset == 8
