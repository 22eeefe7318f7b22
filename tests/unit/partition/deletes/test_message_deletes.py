"""Erasures of a leader, where not all of one can be appended."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from streamlog.control.messages.purge import purge
from streamlog.errors import StorageFull
from streamlog.partition.state import UNAWAITED
from streamlog.record import erasure as erasure_module
from streamlog.record.codec import RecordRun
from streamlog.record.offset_set import CHUNK, OffsetSet
from tests.local_node import until
from tests.partition_world import Told, World, tp
from tests.unit.failing_disk import FailingDisk, Faults


class RoomForOne(Faults):
    """The disk takes one more write to a log."""

    room: int | None = None

    def check(self, operation: str, path: str) -> None:
        if operation == "pwrite" and path.endswith(".log") and self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            self.room -= 1
        super().check(operation, path)


class SyncsWait(Faults):
    """Nothing is synced while the gate is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def check(self, operation: str, path: str) -> None:
        if operation == "sync":
            self.gate.wait()
        super().check(operation, path)


async def test_who_finds_nothing_to_erase_waits_for_what_is_erased(tmp_path: Path) -> None:
    """The index of subjects knows an erasure that a leader to come may not have."""
    world, disk = World(tmp_path), FailingDisk()
    disk.faults = syncs = SyncsWait()
    async with world.node(disk) as registry:
        await world.create("s", subjects=("s", "s.>"), sync="commit")
        partition = registry.partition(tp("s"))
        run, told = RecordRun(), Told()
        for subject in (b"s.a", b"s.b"):
            run.append(None, b"", [(b"subject", subject)])
        partition.append(run, told)
        await told.answer
        syncs.gate.clear()
        partition.erasing.append(OffsetSet([1]), UNAWAITED)
        purging = asyncio.create_task(purge(partition, pattern="s.b"))
        done, _ = await asyncio.wait({purging}, timeout=0.1)
        syncs.gate.set()
        assert not done
        assert await purging == 0
        assert 1 in partition.erased


async def test_what_there_was_room_for_is_synced_and_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure_module, "CHUNKS_MAX", 1)
    world, disk = World(tmp_path), FailingDisk()
    disk.faults = faults = RoomForOne()
    async with world.node(disk) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        run, told = RecordRun(), Told()
        for _ in range(CHUNK + 2):
            run.append(None, b"")
        partition.append(run, told)
        await told.answer
        faults.room = 1
        with pytest.raises(StorageFull):
            await partition.erasing.erase(OffsetSet.in_order((0, CHUNK)))
        assert partition.log_end_offset == CHUNK + 3, "one of the two"
        await until(lambda: partition.high_watermark == partition.log_end_offset)
        assert [it for it in (0, 1, CHUNK) if it in partition.erased] == [0]
        faults.room = None
