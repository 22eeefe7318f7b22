"""When a log is synced, over real files."""

import asyncio
import threading

from streamlog.log.storage.disk import OsDisk
from streamlog.partition.partition import Partition
from tests.partition_world import World, publish, tp
from tests.unit.partition.replica_world import until


class GatedDisk(OsDisk):
    """The machine's disk; a sync of a folder waits while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.is_waiting = threading.Event()

    def sync_directory(self, path: str) -> None:
        if not self.gate.is_set():
            self.is_waiting.set()
        self.gate.wait()
        super().sync_directory(path)


async def syncing_while(partition: Partition, disk: GatedDisk, *values: bytes) -> None:
    """Publish and sync; publish ``values`` and ask for a sync again while the first one runs."""
    disk.gate.clear()
    await publish(partition, b"first")
    partition.sync_soon()
    await asyncio.to_thread(disk.is_waiting.wait)
    for value in values:
        await publish(partition, value)
    partition.sync_soon()
    await asyncio.sleep(0)
    disk.gate.set()


async def test_a_sync_that_is_asked_for_during_another_one_comes(world: World) -> None:
    """Nothing else would ask: under ``interval`` the next time would be the next append."""
    disk = GatedDisk()
    async with world.node(disk) as registry:
        await world.create("s", sync="interval")
        partition = registry.partition(tp("s"))
        await syncing_while(partition, disk, b"second")
        await until(lambda: partition.state.log.recovery_point == 2)


async def test_a_segment_that_is_sealed_during_a_sync_is_synced(world: World) -> None:
    disk = GatedDisk()
    async with world.node(disk, segment_bytes=16_384) as registry:
        await world.create("s", sync="os")
        partition = registry.partition(tp("s"))
        await syncing_while(partition, disk, *(b"x" * 8_000 for _ in range(6)))
        log = partition.state.log
        assert log.sealed_end > 1
        await until(lambda: log.recovery_point >= log.sealed_end)
