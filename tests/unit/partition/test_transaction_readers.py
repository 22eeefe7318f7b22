"""What NATS clients find in a partition with transactions: nothing that is open or aborted, and no markers."""

import pytest

from streamlog.control.messages.message_query import MessageQuery
from streamlog.control.messages.ordered_read import (
    PassageQuery,
    count_from,
    messages_from,
    read_passage,
    read_run,
)
from streamlog.control.messages.stored_messages import find_message, last_of_many, message_at
from streamlog.errors import MessageErased, MessageNotStored
from streamlog.partition.partition import Partition
from tests.partition_world import World, tp
from tests.unit.kafka.test_committed_readers import end, fill


async def seen(partition: Partition, pattern: str = "") -> list[bytes]:
    return [it.data async for it in messages_from(partition, pattern, 0)]


async def test_messages_in_order(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await fill(partition)
        decided = [b"a", b"b", b"committed", b"c"]
        assert await seen(partition) == decided
        assert await seen(partition, "s.*") == decided
        assert [
            it.data for it in (await read_passage(partition, PassageQuery())).messages
        ] == decided
        run, _ = await read_run(partition, range(partition.stable_offset), bytes_max=1 << 20)
        assert run.count == 4
        assert await count_from(partition, "", 0) == 4
        assert await count_from(partition, "s.*", 0) == 4
        await end(partition, 9, is_commit=False)
        assert await seen(partition) == [*decided, b"d"]
        assert await seen(partition, "s.*") == [*decided, b"d"]
        assert await count_from(partition, "", 0) == await count_from(partition, "s.*", 0) == 5
        assert partition.committed_messages_end == 10


async def test_single_messages(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await fill(partition)
        assert (await message_at(partition, 1)).data == b"a"
        for sequence in (2, 3, 5, 7):  # aborted, aborted, and two markers
            with pytest.raises(MessageErased):
                await message_at(partition, sequence)
        for sequence in (9, 10):  # open, and what comes after it
            with pytest.raises(MessageNotStored):
                await message_at(partition, sequence)
        assert (await find_message(partition, MessageQuery(last="s.>"))).data == b"c"
        assert await last_of_many(partition, ["s.>"], limit=10) == [1, 4, 6, 8]
        await end(partition, 9, is_commit=True)
        assert (await find_message(partition, MessageQuery(last="s.>"))).data == b"d"
        assert (await message_at(partition, 9)).data == b"late"


@pytest.mark.parametrize("is_late", [False, True])
async def test_the_index_of_subjects_forgets_what_is_aborted(world: World, is_late: bool) -> None:
    """Whether it has read the marker when that was written, or is made long after."""
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        if not is_late:
            await partition.subjects.know()
        await fill(partition)
        if not is_late:
            await partition.subjects.know()
        await end(partition, 9, is_commit=False)
        index = await partition.subjects.know()
        assert index.subject_count(partition.stable_offset) == 5
        assert index.last(b"s.aborted", partition.stable_offset) == -1
        assert index.last(b"s.late", partition.stable_offset) == -1
    async with world.node() as registry:
        index = await registry.partition(tp("s")).subjects.know()
        assert index.subject_count(11) == 5
