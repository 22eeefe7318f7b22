"""Reading from a log that changes while one of its segments is being checked."""

import asyncio
import errno
import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import CorruptBatch, OffsetOutOfRange, StorageFailed
from streamlog.log.log import PartitionLog
from streamlog.log.segment.segment import Segment
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.partition.reader import Reader, _Check
from tests.record_batches import HandRecord, hand_batch

SETTINGS = LogSettings(segment_bytes=4_096)
BATCHES = 8


class Meanwhile(Executor):
    """Something happens to the log after the work, and before anybody hears that it is done."""

    def __init__(self, happen: Callable[[], object]) -> None:
        self._happen = happen

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*args, **more))
        self._happen()
        return done


@pytest.fixture
def damaged(tmp_path: Path) -> PartitionLog:
    """Opened anew, with a flipped bit in its first segment that nobody has seen yet."""
    disk = OsDisk()
    log = PartitionLog.open(tmp_path, SETTINGS, disk=disk, files=FilePool(disk, 8))
    while log.log_end_offset < BATCHES:
        log.append(hand_batch([HandRecord(bytes(1_500))], log.log_end_offset, leader_epoch=0), 1)
    log.close()
    first = min(tmp_path.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[800] ^= 1
    first.write_bytes(data)
    return PartitionLog.open(
        tmp_path, SETTINGS, disk=disk, files=FilePool(disk, 8), recovery_point=BATCHES
    )


def reader_of(log: PartitionLog, workers: Executor) -> tuple[Reader, list[bool]]:
    told: list[bool] = []
    metrics = NodeMetrics()
    tp = TopicPartition("s", 0)
    return Reader(tp, log, workers, metrics, damaged=lambda: told.append(True)), told


async def test_damage_is_told(damaged: PartitionLog) -> None:
    reader, told = reader_of(damaged, Meanwhile(lambda: None))
    with pytest.raises(CorruptBatch):
        await reader.read(0, 100, lambda: BATCHES)
    assert told == [True]


async def test_damage_that_was_cut_off_meanwhile_is_not_told(damaged: PartitionLog) -> None:
    """There is nothing left to be mended, so nobody would ever say that it is."""
    reader, told = reader_of(damaged, Meanwhile(lambda: damaged.truncate_fully_to(0)))
    with pytest.raises(OffsetOutOfRange):
        await reader.read(1, 100, lambda: BATCHES)
    assert (told, damaged.damaged_from) == ([], None)


async def test_what_a_failed_cut_has_removed_is_not_waited_for(
    damaged: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its check ends without a result, however often it is made."""

    def full(path: str) -> None:
        raise OSError(errno.EIO, "no more", path)

    monkeypatch.setattr(damaged._pool, "create", full)
    with pytest.raises(StorageFailed):
        damaged.truncate_fully_to(0)
    reader, told = reader_of(damaged, Meanwhile(lambda: None))
    async with asyncio.timeout(10):
        with pytest.raises(StorageFailed):
            await reader.read(0, 100, lambda: BATCHES)
    assert told == []


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_scrub_beside_a_swap_complains_of_nothing(
    damaged: PartitionLog,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,
) -> None:
    """It looked for the file under the name that the swap has just taken away."""
    reader, _ = reader_of(damaged, Meanwhile(lambda: None))
    segment = damaged.segments.first
    segment.path, path = segment.path + ".swap", segment.path
    damaged.is_swapping = not is_done

    def recheck(swapped: Segment, _: object) -> None:
        if is_done:
            swapped.path = path
        raise FileNotFoundError(errno.ENOENT, "gone", swapped.path)

    monkeypatch.setattr(Segment, "recheck", recheck)
    assert not await reader._scrub(segment, _Check(math.inf))
    assert not caplog.records
