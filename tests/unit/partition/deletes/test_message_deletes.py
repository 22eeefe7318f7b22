"""Erasures of a leader, where not all of one can be appended."""

import errno
from pathlib import Path

import pytest

from streamlog.errors import StorageFull
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
