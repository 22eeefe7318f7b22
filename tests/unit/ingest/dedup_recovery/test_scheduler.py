"""An ingest stays shut until the ids in its log are known, where that is a matter of time."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from streamlog.errors import CorruptBatch, StorageFull, StreamlogError
from streamlog.ingest.dedup_recovery.hops import BYTES_MAX, CALLS_MAX, SharedHops
from streamlog.ingest.dedup_recovery.scheduler import HOPS_AT_ONCE, DedupRecoveryScheduler
from streamlog.ingest.dedup_recovery.snapshots import DedupSnapshots
from streamlog.ingest.partition_ingest import PartitionIngest
from streamlog.partition.state import UNAWAITED
from streamlog.record.batch import PUBLISHED
from streamlog.record.codec import RecordRun
from tests.ingest_way import Way, message
from tests.led_partition import as_partition


class World:
    """A partition with one id in its log, whose reading fails as long as ``fault`` is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: StreamlogError) -> None:
        self.way, self.opened = Way(rollups=True), list[PartitionIngest]()
        self.fault: StreamlogError | None = fault
        partition = self.way.partition
        run = RecordRun(attributes=PUBLISHED)
        for headers in ([(b"Nats-Msg-Id", b"1")], [(b"Nats-Rollup", b"all")]):
            run.append(None, b"x", [(b"subject", b"orders"), *headers])
        batch = run.seal(base_offset=10, leader_epoch=0, timestamp_ms=self.way.now_ms)
        partition.batches, partition.log_end_offset = [batch], 12
        partition.high_watermark = 12
        read = partition.read_appended

        async def failing(offset: int, max_bytes: int) -> Any:
            if self.fault is not None:
                raise self.fault
            return await read(offset, max_bytes)

        monkeypatch.setattr(partition, "read_appended", failing)
        self.openings = DedupRecoveryScheduler(
            self._open, snapshots=DedupSnapshots(list), now_ms=lambda: self.way.now_ms
        )
        self.openings.add(self.way.ingest, as_partition(partition))

    def _open(self, ingest: PartitionIngest) -> None:
        ingest.erase_owed()
        ingest.opened = True
        self.opened.append(ingest)

    async def look(self) -> bool:
        self.openings.try_again()
        await self.openings.drain()
        return bool(self.opened)


async def test_it_opens_when_its_log_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, StorageFull("no room to mend an index"))
    assert not await world.look() and world.openings.count == 1
    world.fault = None
    assert await world.look() and world.openings.count == 0
    assert 10 in world.way.partition.erased, "what a rollup supersedes"
    world.way.read(message("again", Nats_Msg_Id="1"))
    world.way.partition.commit()
    assert [answer["seq"] for _, answer in world.way.told()] == [11]


async def test_it_opens_when_no_id_counts_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, StorageFull("no room"))
    assert not await world.look()
    world.way.now_ms += 120_000
    assert await world.look()
    assert world.way.ingest.deduplicator.complete_since_ms > world.way.now_ms


async def test_it_opens_at_once_where_the_log_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await World(monkeypatch, CorruptBatch("flipped")).look()


async def test_who_leads_no_more_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, StorageFull("no room"))
    assert not await world.look()
    world.way.ingest.close()
    assert not await world.look() and world.openings.count == 0


class Hops(ThreadPoolExecutor):
    """The loop's worker threads; counts what it is handed."""

    count = 0

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        self.count += 1
        return super().submit(call, *arguments, **more)


async def test_small_logs_share_their_hops_to_threads() -> None:
    asyncio.get_running_loop().set_default_executor(hops := Hops(4))
    ways, opened = [Way() for _ in range(300)], list[PartitionIngest]()
    openings = DedupRecoveryScheduler(
        opened.append, snapshots=DedupSnapshots(list), now_ms=lambda: 1_000_000
    )
    for number, way in enumerate(ways):
        run = RecordRun(attributes=PUBLISHED)
        headers = [(b"subject", b"orders"), (b"Nats-Msg-Id", b"%d" % number)]
        run.append(None, b"x", headers)
        way.partition.append(run, UNAWAITED)
        way.partition.commit()
        openings.add(way.ingest, as_partition(way.partition))
    await openings.drain()
    assert len(opened) == len(ways) and openings.count == 0
    # Two calls of each, one for its snapshot and one for its log, go about CALLS_MAX together.
    assert hops.count <= len(ways) // 5
    for number, way in enumerate(ways):
        slots, last = way.ingest.deduplicator.known()
        assert [slot.ids() for slot in slots] == [{b"%d" % number: 10}]
        assert last == (b"%d" % number, 10)


async def test_one_that_fails_does_not_fail_those_it_shares_a_hop_with() -> None:
    hops = SharedHops(1)

    def fail() -> int:
        raise StorageFull("no room")

    async def ask(call: Callable[[], int]) -> int | str:
        try:
            return await hops.run(call, 0)
        except StorageFull as error:
            return str(error)

    calls: list[Callable[[], int]] = [lambda: 1, fail, lambda: 3]
    assert await asyncio.gather(*map(ask, calls)) == [1, "no room", 3]


async def test_what_nobody_waits_for_any_more_is_not_called() -> None:
    asyncio.get_running_loop().set_default_executor(executor := Hops(1))
    hops, called = SharedHops(1), list[int]()
    tasks = [asyncio.create_task(hops.run(lambda at=at: called.append(at), 0)) for at in range(3)]  # type: ignore[misc]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (called, executor.count) == ([0, 2], 1)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([BYTES_MAX] * 6, 6),
        ([10 * BYTES_MAX, 0, 0], 2),
        ([BYTES_MAX // 2] * 5, 3),
        ([0] * (2 * CALLS_MAX), 2),
    ],
)
async def test_large_reads_do_not_share_a_hop(sizes: list[int], expected: int) -> None:
    """The results of a hop are taken up in one turn of the event loop."""
    asyncio.get_running_loop().set_default_executor(executor := Hops(1))
    hops = SharedHops(1)
    await asyncio.gather(*(hops.run(lambda: None, size_bytes) for size_bytes in sizes))
    assert executor.count == expected


async def test_few_calls_run_side_by_side() -> None:
    barrier = threading.Barrier(HOPS_AT_ONCE)
    hops = SharedHops(HOPS_AT_ONCE)
    waits = (hops.run(lambda: barrier.wait(60), 0) for _ in range(HOPS_AT_ONCE))
    assert len(set(await asyncio.gather(*waits))) == HOPS_AT_ONCE
