"""What consumers empty: hidden at once, and gone by the start of the log where that can be."""

from pathlib import Path

import pytest

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.partition.deletes.message_deletes import WAITS
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.codec import RecordRun
from streamlog.record.offset_set import OffsetSet
from tests.local_node import until
from tests.partition_world import Told, World, tp


async def put(partition: Partition, count: int) -> None:
    run, told = RecordRun(), Told()
    for _ in range(count):
        run.append(None, b"v")
    partition.append(run, told)
    await told.answer


async def look(registry: ReplicaManager, times: int = 1) -> None:
    for _ in range(times):
        await registry._message_limits.look()


async def test_log_begins_behind_what_is_gone_and_no_erasure_names_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", retention="workqueue")
        partition = registry.partition(tp("s"))
        await put(partition, 10)
        partition.erasing.foresee(OffsetSet((0, 1, 2, 5)), later=True)
        assert [it for it in range(10) if it in partition.erased] == [0, 1, 2, 5]
        await look(registry)
        assert (partition.log_start_offset, partition.log_end_offset) == (3, 10)
        partition.erasing.foresee(OffsetSet((3, 4)), later=True)
        await look(registry, WAITS)
        assert (partition.log_start_offset, partition.log_end_offset) == (6, 10)
        partition.erasing.foresee(OffsetSet(range(6, 10)), later=True)
        await look(registry, 2 * WAITS)
        assert (partition.log_start_offset, partition.log_end_offset) == (10, 10)
        assert not partition.erasing.foresees


async def test_what_waits_for_long_is_erased(tmp_path: Path) -> None:
    """Behind a message that stays."""
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", retention="interest")
        partition = registry.partition(tp("s"))
        await put(partition, 10)
        partition.erasing.foresee(OffsetSet((1, 2, 3)), later=True)
        await look(registry, WAITS)
        assert partition.log_end_offset == 10, "the log may yet begin behind it"
        await look(registry, WAITS)
        await until(lambda: not partition.erasing.foresees)
        assert (partition.log_start_offset, partition.log_end_offset) == (0, 11)
        assert [it for it in range(11) if it in partition.erased] == [1, 2, 3, 10]


async def test_what_is_settled_is_committed_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", retention="workqueue")
        partition = registry.partition(tp("s"))
        await put(partition, 4)
        partition.erasing.foresee(OffsetSet((2,)), later=True)
        await partition.erasing.settle()
        assert not partition.erasing.foresees
        assert [it for it in range(5) if it in partition.erased] == [2, 4]


def test_compacted_streams_are_not_emptied_by_consumers() -> None:
    with pytest.raises(InvalidStreamConfig, match="compacted"):
        StreamConfig.of(name="s", retention="interest", cleanup_policy="compact")
    assert not StreamConfig.of(name="s", retention="interest", sealed=True).is_consumed
