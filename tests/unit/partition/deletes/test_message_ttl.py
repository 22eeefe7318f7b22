"""Messages go when they have said, under whatever leader, and not before."""

import asyncio
import random
from pathlib import Path

import pytest

from streamlog.partition.deletes import message_limits_task as trimming_module
from streamlog.partition.deletes import message_ttl as expiry_module
from streamlog.partition.deletes.message_limits_task import MessageLimitsTask
from streamlog.partition.deletes.message_ttl import TtlDeadlines
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.batch import PUBLISHED, read_header
from streamlog.record.codec import RecordRun
from tests.local_node import until
from tests.partition_world import Told, World, tp


async def put(partition: Partition, *lifetimes: str | None) -> int:
    run = RecordRun(attributes=PUBLISHED)
    for lifetime in lifetimes:
        headers = [(b"subject", b"s")]
        if lifetime is not None:
            headers.append((b"Nats-TTL", lifetime.encode()))
        run.append(None, b"v", headers)
    told = Told()
    partition.append(run, told)
    return await told.answer


def there(partition: Partition) -> list[int]:
    start, end = partition.log_start_offset, partition.high_watermark
    return [offset for offset in range(start, end) if offset not in partition.erased]


async def stored_ms(partition: Partition, offset: int) -> int:
    with await partition.read(offset, 1) as part:
        return read_header(part.read()).max_timestamp_ms


async def at(registry: ReplicaManager, now_ms: int) -> None:
    """What is due then is gone, and the log says so."""
    trimming = MessageLimitsTask(now_ms=lambda: now_ms)
    for partition in registry.partitions():
        trimming.heard(partition)
    await trimming.look()
    for partition in registry.partitions():
        await until(lambda partition=partition: not partition.erasing._said)  # type: ignore[misc]


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_over_a_restart(tmp_path: Path, codec: str) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", allow_ttl=True, compression=codec)
        partition = registry.partition(tp("s"))
        await put(partition, None, "10", "1h", "never", "20s", "00", "bad", "10")
        then = await stored_ms(partition, 0)
        await at(registry, then + 9_999)
        assert there(partition) == list(range(8))
        await at(registry, then + 10_100)
        assert there(partition) == [0, 2, 3, 4, 5, 6]
        assert (await partition.subjects.know()).count(b"s") == 6
        await put(partition, "60")
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        await at(registry, then + 12_000)
        assert there(partition) == [0, 2, 3, 4, 5, 6, 9]
        await at(registry, then + 21_000)
        assert there(partition) == [0, 2, 3, 5, 6, 9]
        assert partition.log_end_offset == 11
        await at(registry, then + 30_000)
        assert partition.log_end_offset == 11, "nothing more is to be said"
        await at(registry, then + 10_000_000)
        assert there(partition) == [0, 3, 5, 6]


async def test_what_was_foreseen_and_forgotten_goes(tmp_path: Path) -> None:
    """As where a leader lost its office, and has it again before anybody looked."""
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", allow_ttl=True)
        partition = registry.partition(tp("s"))
        await put(partition, "10", "20")
        then = await stored_ms(partition, 0)
        await partition.expiry.settle(then + 10_100)
        assert there(partition) == [1]
        partition.erasing._forget()
        assert there(partition) == [0, 1]
        await at(registry, then + 10_100)
        assert there(partition) == [1]


async def test_due_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming_module, "LOOK_S", 3_600.0)
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", allow_ttl=True)
        partition = registry.partition(tp("s"))
        await put(partition, None, "10", "1h")
        now_ms = await stored_ms(partition, 0) + 9_900
        trimming = MessageLimitsTask(now_ms=lambda: now_ms)
        trimming.heard(partition)
        await trimming.look()
        running = asyncio.create_task(trimming.run())
        await asyncio.sleep(0)
        assert there(partition) == [0, 1, 2]
        now_ms += 200
        await until(lambda: there(partition) == [0, 2])
        running.cancel()
        assert partition.log_end_offset == 3, "the log does not say so yet"


async def test_of_streams_that_do_not_allow_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await put(partition, "1")
        await at(registry, 2**50)
        assert there(partition) == [0]
        await world.update("s", allow_ttl=True)
        await world.update("s", sealed=True)
        await at(registry, 2**50)
        assert there(partition) == [0], "a sealed stream keeps what it has"


async def test_records_of_others_stay(tmp_path: Path) -> None:
    """A Kafka producer's header of that name means nothing, also in a copy of a NATS message."""
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", allow_ttl=True)
        partition = registry.partition(tp("s"))
        run = RecordRun()
        run.append(None, b"v", [(b"subject", b"s"), (b"Nats-TTL", b"1")])
        told = Told()
        partition.append(run, told)
        await told.answer
        await at(registry, 2**50)
        assert there(partition) == [0]


@pytest.mark.parametrize("known_max", [1, 5, 50, 10_000])
def test_deadlines_against_a_dictionary(known_max: int) -> None:
    chosen, naive = random.Random(known_max), dict[int, int]()
    deadlines, offset = TtlDeadlines(known_max), 0
    for now_s in range(200):
        for _ in range(chosen.randrange(6)):
            naive[offset] = now_s + chosen.randrange(1, 60)
            deadlines.add((naive[offset], offset))
            offset += 1
        if deadlines.is_passed(now_s):  # as Expiry does: all is read again
            deadlines = TtlDeadlines(known_max)
            for known, second in naive.items():
                deadlines.add((second, known))
        due = sorted(it for it, second in naive.items() if second <= now_s)
        assert deadlines.take(now_s) == due
        naive = {it: second for it, second in naive.items() if it not in due}
        of_one_second = max([*map(list(naive.values()).count, naive.values()), 1])
        assert deadlines.count <= known_max + of_one_second


async def test_more_than_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry_module.TtlDeadlines.__init__, "__defaults__", (10,))
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", allow_ttl=True)
        partition = registry.partition(tp("s"))
        for lifetime in range(1, 61):
            await put(partition, f"{lifetime * 10}")
        then = await stored_ms(partition, 59)
        for tens in range(1, 61):
            await at(registry, then + tens * 10_000 + 1_000)
            assert [it for it in there(partition) if it < 60] == list(range(tens, 60))
