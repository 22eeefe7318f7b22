"""An inlet stays shut until the ids in its log are known, where that is a matter of time."""

import pytest

from streamlog.errors import CorruptBatch, StorageFull, StreamlogError
from streamlog.ingest.dedup_recovery.scheduler import DedupRecoveryScheduler
from streamlog.ingest.dedup_recovery.snapshots import DedupSnapshots
from streamlog.ingest.partition_ingest import PartitionIngest
from streamlog.record.batch import PUBLISHED
from streamlog.record.codec import RecordRun
from tests.inlet_way import Way, message
from tests.led_partition import FakeSlice


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

        async def failing(offset: int, max_bytes: int) -> FakeSlice:
            if self.fault is not None:
                raise self.fault
            return await read(offset, max_bytes)

        monkeypatch.setattr(partition, "read_appended", failing)
        self.openings = DedupRecoveryScheduler(
            self.opened.append, snapshots=DedupSnapshots(list), now_ms=lambda: self.way.now_ms
        )
        self.openings.add(self.way.inlet, partition)

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
    assert world.way.inlet.sequencer.complete_since_ms > world.way.now_ms


async def test_it_opens_at_once_where_the_log_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await World(monkeypatch, CorruptBatch("flipped")).look()


async def test_who_leads_no_more_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, StorageFull("no room"))
    assert not await world.look()
    world.way.inlet.close()
    assert not await world.look() and world.openings.count == 0
