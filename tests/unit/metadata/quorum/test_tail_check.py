from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.errors import CorruptData
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.quorum.store import check_tail
from streamlog.record.codec import RecordRun

DISK = OsDisk()
BATCHES = 12


@pytest.fixture
def segments(tmp_path: Path) -> list[Path]:
    """Several, the last one with more than one batch."""
    settings = LogSettings(segment_bytes=1000)
    log = PartitionLog.open(tmp_path, settings, disk=DISK, files=FilePool(DISK, 8))
    run = RecordRun()
    for offset in range(BATCHES):
        run.append(None, b"x" * 150)
        log.append(run.seal(base_offset=offset, leader_epoch=1, timestamp_ms=0), 0)
    log.close()
    return sorted(tmp_path.glob("*.log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_whole_log_passes(tmp_path: Path, segments: list[Path]) -> None:
    assert len(segments) > 2
    check_tail(DISK, tmp_path, synced_end=BATCHES, power_lost=True)


def test_no_log_passes_unless_something_was_synced(tmp_path: Path) -> None:
    check_tail(DISK, tmp_path / "none", synced_end=0, power_lost=True)
    with pytest.raises(CorruptData, match="synced"):
        check_tail(DISK, tmp_path / "none", synced_end=1, power_lost=True)


@pytest.mark.parametrize(
    "tear",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-100] + bytes(100)),
        lambda path: path.write_bytes(path.read_bytes() + b"\x00" * 512),
        lambda path: flip(path, -1),
    ],
)
def test_a_torn_end_passes(
    tmp_path: Path, segments: list[Path], tear: Callable[[Path], None]
) -> None:
    tear(segments[-1])
    check_tail(DISK, tmp_path, synced_end=BATCHES - 1, power_lost=True)


def test_a_torn_end_that_was_synced_is_refused(tmp_path: Path, segments: list[Path]) -> None:
    flip(segments[-1], -1)
    with pytest.raises(CorruptData, match="synced"):
        check_tail(DISK, tmp_path, synced_end=BATCHES, power_lost=True)


@pytest.mark.parametrize("position", [0, 8, 16, 30, 61, 100])
def test_damage_before_a_whole_batch_is_refused(
    tmp_path: Path, segments: list[Path], position: int
) -> None:
    flip(segments[-1], position)
    with pytest.raises(CorruptData, match=r"byte 0"):
        check_tail(DISK, tmp_path, synced_end=0, power_lost=True)


def test_damage_in_a_sealed_segment_is_refused(tmp_path: Path, segments: list[Path]) -> None:
    flip(segments[0], -1)
    with pytest.raises(CorruptData, match=segments[0].name):
        check_tail(DISK, tmp_path, synced_end=0, power_lost=True)


def test_a_missing_segment_is_refused(tmp_path: Path, segments: list[Path]) -> None:
    segments[1].unlink()
    with pytest.raises(CorruptData, match="missing"):
        check_tail(DISK, tmp_path, synced_end=0, power_lost=True)


@pytest.mark.parametrize("position", [-1, -40, 0, 3, 8, 10, 11, 16, 17, 20, 23, 60, 61])
def test_a_last_batch_that_was_damaged_is_not_a_torn_one(tmp_path: Path, position: int) -> None:
    """It may have been synced, and counted by the quorum, after the checkpoint was written."""
    path = one_segment(tmp_path)
    start = path.stat().st_size // BATCHES * (BATCHES - 1)
    flip(path, position if position < 0 else start + position)
    check_tail(DISK, tmp_path, synced_end=0, power_lost=True)
    with pytest.raises(CorruptData, match="no power was lost"):
        check_tail(DISK, tmp_path, synced_end=0, power_lost=False)


@pytest.mark.parametrize("kept", [1, 60, 61, 62, 100, 200])
def test_a_killed_process_leaves_the_beginning_of_a_batch(tmp_path: Path, kept: int) -> None:
    path = one_segment(tmp_path)
    start = path.stat().st_size // BATCHES * (BATCHES - 1)
    path.write_bytes(path.read_bytes()[: start + kept])
    check_tail(DISK, tmp_path, synced_end=BATCHES - 1, power_lost=False)


def test_a_write_back_that_failed_leaves_zeros(tmp_path: Path) -> None:
    path = one_segment(tmp_path, last=b"x" * 9_000)
    data = path.read_bytes()
    path.write_bytes(data[:8192] + bytes(len(data) - 8192))
    check_tail(DISK, tmp_path, synced_end=BATCHES - 1, power_lost=False)
    with pytest.raises(CorruptData, match="synced"):
        check_tail(DISK, tmp_path, synced_end=BATCHES, power_lost=False)
    path.write_bytes(data[:-2] + bytes(2))
    with pytest.raises(CorruptData, match="no power was lost"):
        check_tail(DISK, tmp_path, synced_end=BATCHES - 1, power_lost=False)


def one_segment(tmp_path: Path, last: bytes = b"x" * 150) -> Path:
    log = PartitionLog.open(tmp_path, LogSettings(), disk=DISK, files=FilePool(DISK, 8))
    run = RecordRun()
    for offset in range(BATCHES):
        run.append(None, b"x" * 150 if offset < BATCHES - 1 else last)
        log.append(run.seal(base_offset=offset, leader_epoch=1, timestamp_ms=0), 0)
    log.close()
    return next(tmp_path.glob("*.log"))
