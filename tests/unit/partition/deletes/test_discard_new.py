"""Limits that hold for what comes: nothing goes for it, and Kafka producers hear of them, too."""

import pytest

from streamlog.errors import StreamFull
from streamlog.partition.deletes.discard_new import RoomLeft, room_left
from streamlog.partition.maintenance.retention_task import retain
from streamlog.record.produced import check_inside, check_outside
from streamlog.wire.errors import code_of
from tests.partition_world import Told, World, publish, tp, values_of
from tests.record_batches import HandRecord, hand_batch

TIME_MS = 1_700_000_000_000


def produced(sequence: int, *values: bytes) -> object:
    data = hand_batch(
        [HandRecord(value) for value in values],
        base_timestamp_ms=TIME_MS,
        max_timestamp_ms=TIME_MS,
        producer=(7, 0, sequence),
    )
    return check_inside(check_outside(data), data)


async def test_without_bounds_there_is_always_room(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", retention_messages=1, retention_bytes=1)
        assert room_left(registry.partition(tp("s"))) == RoomLeft()


async def test_what_is_there_stays(world: World) -> None:
    async with world.node() as registry:
        await world.create(
            "s", discard="new", retention_messages=3, retention_bytes=10_000, segment_bytes=4096
        )
        partition = registry.partition(tp("s"))
        for value in (b"0", b"1", b"2", b"3"):  # who appends has looked before
            await publish(partition, value * 3000)
        retain(partition, TIME_MS * 2)
        assert len(await values_of(partition)) == 4
        assert room_left(partition).messages == -1
        assert room_left(partition).size_bytes < 0
        await partition.purge(2)
        retain(partition, TIME_MS * 2)
        assert room_left(partition).messages == 1
        assert 3_000 < room_left(partition).size_bytes < 4_000


async def test_a_producers_batch_is_taken_whole_or_not_at_all(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", discard="new", retention_messages=3)
        partition = registry.partition(tp("s"))
        await partition.know_producers()
        first = produced(0, b"a", b"b")
        told = Told()
        partition.produce(first, told)  # type: ignore[arg-type]
        assert await told.answer == 0
        with pytest.raises(StreamFull, match="maximum messages exceeded") as caught:
            partition.produce(produced(2, b"c", b"d"), Told())  # type: ignore[arg-type]
        assert code_of(caught.value).name == "policy_violation"
        again = Told()
        assert partition.produce(first, again).is_repetition  # type: ignore[arg-type]
        assert await again.answer == 0
        told = Told()
        partition.produce(produced(2, b"c"), told)  # type: ignore[arg-type]
        assert await told.answer == 2
        await world.update("s", retention_bytes=partition.size_bytes, retention_messages=-1)
        with pytest.raises(StreamFull, match="maximum bytes exceeded"):
            partition.produce(produced(3, b"d"), Told())  # type: ignore[arg-type]
