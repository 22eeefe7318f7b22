"""What is damaged is copied before it is cut off; the copy is worth no failure."""

import errno

import pytest

from streamlog.log.log import PartitionLog
from streamlog.log.recovery.quarantine import KEPT_MAX
from streamlog.log.settings import LogSettings
from tests.log_folder import FOLDER, append, open_log, read_batches, sync
from tests.simulation.disk import Fault, SimDisk, SimFile


def path(base_offset: int) -> str:
    return f"{FOLDER}/{base_offset:020d}.log"


def damaged(disk: SimDisk, *base_offsets: int) -> PartitionLog:
    """Twelve records in six segments; the middle of some is flipped."""
    log = open_log(disk)
    for _ in range(6):
        append(log, 2)
        log.roll()
    sync(log)
    log.close()
    for base_offset in base_offsets:
        data = bytearray(disk.content(path(base_offset)))
        data[-1] ^= 1
        disk.replace(path(base_offset), bytes(data))
    log = open_log(disk, recovery_point=12)
    for segment in log.segments:
        segment.verify()
    return log


def kept(disk: SimDisk) -> list[str]:
    return [name for name in disk.names(str(FOLDER)) if name.endswith(".damaged")]


def test_damaged_segments_are_kept_as_they_were_and_the_log_ends_before_them(disk: SimDisk) -> None:
    log = damaged(disk, 4, 8)
    before = disk.content(path(4))
    log.cut_damage()
    assert log.log_end_offset == 4
    assert log.damaged_from is None
    assert [header.base_offset for header, _ in read_batches(log)] == [0, 2]
    assert kept(disk) == [f"{4:020d}.log.damaged", f"{8:020d}.log.damaged"]
    assert disk.content(f"{path(4)}.damaged") == before
    disk.crash()
    assert disk.content(f"{path(4)}.damaged") == before
    log = open_log(disk, recovery_point=4)
    assert log.log_end_offset == 4
    append(log, 2)


def test_no_file_is_left_open_by_a_copy(disk: SimDisk) -> None:
    log = damaged(disk, 4, 8)
    log.cut_damage()
    log.close()
    assert disk.open_files == 0


def test_a_sound_log_is_not_cut(disk: SimDisk) -> None:
    log = damaged(disk)
    log.cut_damage()
    assert log.log_end_offset == 12
    assert kept(disk) == []


@pytest.mark.parametrize("operation", ["create", "pwrite", "sync", "rename"])
def test_without_room_for_a_copy_the_log_is_cut_all_the_same(
    disk: SimDisk, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = damaged(disk, 4)
    disk.faults.append(Fault(operation, errno.ENOSPC, part=".damaged"))
    log.cut_damage()
    assert log.log_end_offset == 4
    assert kept(disk) == []
    assert not [name for name in disk.names(str(FOLDER)) if name.endswith(".tmp")]
    assert "not kept aside" in caplog.text


def test_no_more_than_a_few_are_kept(disk: SimDisk) -> None:
    log = damaged(disk, 0, 2, 4, 6, 8)
    log.cut_damage()
    assert len(kept(disk)) == KEPT_MAX
    assert log.log_end_offset == 0


def test_a_large_segment_is_copied_in_pieces(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start has no memory for whole segments of a gigabyte."""
    settings = LogSettings(segment_bytes=8 << 20)
    log = open_log(disk, settings)
    for _ in range(4):
        append(log, [bytes(600 << 10)])
    log.roll()
    sync(log)
    log.close()
    content = disk.content(path(0))[:-1] + b"\xff"
    disk.replace(path(0), content)
    log = open_log(disk, settings, recovery_point=4)
    for segment in log.segments:
        segment.verify()
    lengths: list[int] = []
    read = SimFile.pread

    def pread(self: SimFile, length: int, position: int) -> bytes:
        lengths.append(length)
        return read(self, length, position)

    monkeypatch.setattr(SimFile, "pread", pread)
    log.cut_damage()
    assert disk.content(f"{path(0)}.damaged") == content
    assert max(lengths) <= 1 << 20
