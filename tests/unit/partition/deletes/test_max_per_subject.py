"""Messages beyond the newest N of their subject go, whoever leads and whenever it is looked."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamlog.errors import Overloaded
from streamlog.partition.deletes import max_per_subject as surplus_module
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.codec import RecordRun
from tests.local_node import until
from tests.partition_world import Told, World, tp


async def put(partition: Partition, *subjects: str, value: bytes = b"v") -> int:
    run = RecordRun()
    for subject in subjects:
        run.append(None, value, [(b"subject", subject.encode())])
    told = Told()
    partition.append(run, told)
    return await told.answer


def there(partition: Partition) -> list[int]:
    """The offsets that are not erased."""
    start, end = partition.log_start_offset, partition.high_watermark
    return [offset for offset in range(start, end) if offset not in partition.erased]


async def trimmed(registry: ReplicaManager, partition: Partition) -> None:
    """Until the log says so."""
    await registry._message_limits.look()
    await until(lambda: not partition.erasing._said)


async def test_the_newest_stay(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", max_messages_per_subject=2)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "b", "a", "a", "c", "a")
        assert there(partition) == [0, 1, 2, 3, 4, 5]
        await partition.surplus.settle()
        assert there(partition) == [1, 3, 4, 5], "before anything is written"
        assert partition.log_end_offset == 6
        await trimmed(registry, partition)
        assert there(partition) == [1, 3, 4, 5]
        assert (partition.log_end_offset, partition.messages_end) == (7, 6)
        await registry._message_limits.look()
        assert partition.log_end_offset == 7, "nothing more is to be said"
        await put(partition, "b", "b")
        await trimmed(registry, partition)
        assert there(partition) == [3, 4, 5, 7, 8]
        assert (await partition.subjects.know()).count(b"b") == 2


async def test_what_was_not_said_before_the_end_is_found_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", max_messages_per_subject=1)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "a", "b")
        await trimmed(registry, partition)
        await put(partition, "b", "b")
        await partition.surplus.settle()
        assert there(partition) == [1, 5]
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert there(partition) == [1, 2, 4, 5], "an erasure, and what it has erased, are known"
        assert partition.messages_end == partition.log_end_offset
        await trimmed(registry, partition)
        assert there(partition) == [1, 5]


async def test_other_limits(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await put(partition, *"abcabcabc")
        await trimmed(registry, partition)
        assert len(there(partition)) == 9, "no limit"
        await world.update("s", max_messages_per_subject=2)
        await trimmed(registry, partition)
        assert there(partition) == [3, 4, 5, 6, 7, 8]
        await world.update("s", max_messages_per_subject=1)
        await trimmed(registry, partition)
        assert there(partition) == [6, 7, 8]
        await world.update("s", max_messages_per_subject=3)
        await put(partition, "a")
        await trimmed(registry, partition)
        assert there(partition) == [6, 7, 8, 11]
        await world.update("s", max_messages_per_subject=1, sealed=True)
        await trimmed(registry, partition)
        assert there(partition) == [6, 7, 8, 11], "for ever"
        assert not partition.subjects.is_followed


async def test_a_front_that_is_gone_frees_its_segments(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", max_messages_per_subject=1, segment_bytes=4096)
        partition = registry.partition(tp("s"))
        for _ in range(20):  # what the node itself says meanwhile has offsets, too
            last = await put(partition, "a", value=bytes(1000))
        async with asyncio.timeout(30):
            while partition.state.log.segment_count > 1:  # a look has the log say so, a later one
                await trimmed(registry, partition)  # frees the front
        assert partition.log_start_offset > 10
        assert there(partition) == [last]


@pytest.mark.parametrize("at_once", [1, 7, 20_000])
async def test_against_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(surplus_module, "FOUND_AT_ONCE", at_once)
    world, chosen = World(tmp_path), random.Random(at_once)
    messages: dict[int, str] = {}
    async with world.node() as registry:
        await world.create("s", max_messages_per_subject=3)
        partition = registry.partition(tp("s"))
        for _ in range(30):
            subjects = [f"s.{chosen.randrange(9)}" for _ in range(chosen.randrange(1, 20))]
            base = await put(partition, *subjects)
            messages |= {base + place: subject for place, subject in enumerate(subjects)}
            if chosen.random() < 0.5:
                await trimmed(registry, partition)
        await trimmed(registry, partition)
        assert there(partition) == newest(messages, 3)


def newest(messages: dict[int, str], count: int) -> list[int]:
    by_subject: dict[str, list[int]] = {}
    for offset, subject in sorted(messages.items()):
        by_subject.setdefault(subject, []).append(offset)
    return sorted(at for offsets in by_subject.values() for at in offsets[-count:])


async def test_a_leader_that_goes_forgets_what_it_foresaw(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", max_messages_per_subject=1)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "a")
        await partition.surplus.settle()
        assert there(partition) == [1]
        partition.state.follow(partition.leader_epoch + 1)
        await registry._message_limits.look()
        assert there(partition) == [0, 1]
        assert (await partition.subjects.know()).count(b"a") == 2


async def test_an_erasure_that_found_no_room_is_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", max_messages_per_subject=1)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "a")
        monkeypatch.setattr(partition.state, "is_short", True)
        await registry._message_limits.look()
        assert (there(partition), partition.log_end_offset) == ([1], 2)
        monkeypatch.undo()
        await trimmed(registry, partition)
        assert (there(partition), partition.log_end_offset) == ([1], 3)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Overloaded("indexes take all"), "messages are not trimmed"),
        (KeyError("a bug"), "messages could not be trimmed"),
    ],
)
async def test_what_hinders_it_is_told_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    text: str,
) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", max_messages_per_subject=1)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "a")

        def full(_bytes_max: int = 0) -> Sequence[int]:
            raise error

        monkeypatch.setattr(type(partition.subjects), "at_hand", lambda *_: full())
        await registry._message_limits.look()
        await registry._message_limits.look()
        assert [it.message for it in caplog.records].count(text) == 1
        monkeypatch.undo()
        await trimmed(registry, partition)
        assert there(partition) == [1]


async def test_many_subjects_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", max_messages_per_subject=1, sync="os")
        partition = registry.partition(tp("s"))
        for _ in range(2):
            await put(partition, *(f"s.{number}" for number in range(30_000)))
        await trimmed(registry, partition)
        assert partition.erased.count(0, 60_000) == 30_000
        assert partition.log_end_offset == 60_001
