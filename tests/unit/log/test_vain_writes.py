"""A file that takes nothing of what is written to it, and does not fail, is a failure.

POSIX lets ``write`` return 0; a loop that goes on where it stands would never end.
"""

import itertools
import logging
from pathlib import Path

import pytest

from streamlog.config import LogSection
from streamlog.errors import StorageFailed, StorageFull
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk, OsFile
from streamlog.partition.storage.disk_space import DiskSpace, Spells
from tests.compacted_log import KeyedLog, view
from tests.log_folder import FOLDER, append, open_log, read_batches, sync
from tests.simulation.disk import SimDisk, SimFile


def path(base_offset: int) -> str:
    return f"{FOLDER}/{base_offset:020d}.log"


def written(disk: SimDisk) -> PartitionLog:
    log = open_log(disk)
    append(log, 2)
    append(log, 2)
    return log


def test_an_append(disk: SimDisk) -> None:
    log = written(disk)
    disk.sated = ".log"
    with pytest.raises(StorageFailed, match="nothing of"):
        append(log)


def test_a_start_that_writes_again_what_may_not_be_on_the_disk(disk: SimDisk) -> None:
    written(disk)
    disk.kill()
    disk.sated = ".log"
    with pytest.raises(StorageFailed, match="nothing of"):
        open_log(disk)
    disk.sated = ""
    assert open_log(disk).log_end_offset == 4


def test_a_start_beside_which_another_process_cuts_the_file(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1 << 22))
    for _ in range(3):
        append(log, [bytes(600_000)])
    disk.kill()
    real, calls = SimFile.pwrite, itertools.count()

    def cutting(file: SimFile, data: bytes, position: int) -> int:
        assert next(calls) < 10, "it is written again and again"
        count = real(file, data, position)
        file.truncate(count)
        return count

    monkeypatch.setattr(SimFile, "pwrite", cutting)
    with pytest.raises(StorageFailed, match="shorter"):
        open_log(disk, LogSettings(segment_bytes=1 << 22))


def test_a_cleaning(disk: SimDisk) -> None:
    keyed = KeyedLog(disk)
    for number in range(12):
        keyed.append((b"k%d" % (number % 5), b"%d" % number * 20))
        if number % 3 == 2:
            keyed.log.roll()
    keyed.sync()
    wanted = view(keyed.kept())
    disk.sated = ".cleaned"
    with pytest.raises(StorageFailed, match="nothing of"):
        keyed.clean()
    disk.sated = ""
    assert view(keyed.kept()) == wanted
    keyed.clean()
    assert view(keyed.kept()) == wanted


def test_a_copy_of_what_is_damaged(disk: SimDisk, caplog: pytest.LogCaptureFixture) -> None:
    log = written(disk)
    log.roll()
    append(log, 2)
    sync(log)
    log.close()
    disk.flip(path(0), 8 * (len(disk.content(path(0))) - 1))
    log = open_log(disk, recovery_point=6)
    for segment in log.segments:
        segment.verify()
    disk.sated = ".damaged"
    with caplog.at_level(logging.WARNING):
        log.cut_damage()
    assert "not kept aside" in caplog.text
    assert [header.base_offset for header, _ in read_batches(log)] == [0]


class SatedDisk(OsDisk):
    def create(self, path: str) -> OsFile:
        return _SatedFile(super().create(path).fileno())


class _SatedFile(OsFile):
    __slots__ = ("tries",)

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.tries = 0

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        self.tries += 1
        assert self.tries < 10, "it is written to again and again"
        return 0


async def test_a_look_whether_a_disk_has_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = LogSection(disk_check_interval_ms=10, metadata_reserve_bytes=64 * 1024)
    space = DiskSpace(tmp_path, SatedDisk(), settings, reserve=None, changed=lambda: None)
    space._spells = Spells(0)
    space.ran_out(StorageFull("now"))
    with caplog.at_level(logging.WARNING):
        await space.look()
    assert "nothing of" in str(caplog.records[-1].__dict__["error"])
