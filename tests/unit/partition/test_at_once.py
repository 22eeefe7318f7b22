"""Appends that are committed at once, held against those whose commit has its turn."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import NotLeader, StorageFailed, StorageFull
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.disk import OsDisk, OsFile
from streamlog.partition.state import UNAWAITED
from streamlog.record.produced import ProducedBatch, check_inside, check_outside
from tests.partition_world import Told, World, publish, run_of, tp, values_of
from tests.record_batches import HandRecord, hand_batch
from tests.unit.partition.replica_world import ReplicaWorld

NOT_AT_ONCE = -1


async def settled() -> None:
    """The turn of the loop is over in which partitions settle."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize("sync", ["os", "interval"])
async def test_an_append_at_once_leaves_what_an_append_leaves_after_its_commit(
    world: World, sync: str
) -> None:
    async with world.node(sync=sync, segment_bytes=4096, index_interval_bytes=256) as registry:
        for name in ("once", "usual"):
            await world.create(name)
        once, usual = registry.partition(tp("once")), registry.partition(tp("usual"))
        for number in range(30):
            values = [b"%d" % number * (1 + 70 * (number % 7))] * (1 + number % 3)
            base_offset = usual.log_end_offset
            assert once.append_at_once(run_of(*values)) == base_offset
            assert once.high_watermark == once.log_end_offset == base_offset + len(values)
            await publish(usual, *values)
            for it in (once, usual):
                assert not it.state.pending
                assert it.in_flight_bytes == 0
            assert once.size_bytes == usual.size_bytes
            assert [s.base_offset for s in once.state.log.segments] == [
                s.base_offset for s in usual.state.log.segments
            ]
            for ours, theirs in zip(once.state.log.segments, usual.state.log.segments, strict=True):
                assert (ours.next_offset, ours.size_bytes) == (
                    theirs.next_offset,
                    theirs.size_bytes,
                )
        assert await values_of(once) == await values_of(usual)
        progress = once.state.progress
        assert progress is not None
        assert progress.log_end == progress.high_watermark == once.log_end_offset
        count = world.metrics.registry.get_sample_value
        assert count("streamlog_append_batches_total") == 60
        assert count("streamlog_append_records_total") == 2 * once.log_end_offset
        assert count("streamlog_commit_latency_seconds_count") == 60


async def test_a_record_that_was_appended_at_once_outlives_a_kill(world: World) -> None:
    registry = await world.started(sync="os")
    await world.create("s")
    partition = registry.partition(tp("s"))
    for value in (b"a", b"b", b"c"):
        partition.append_at_once(run_of(value))
    async with world.node(sync="os") as registry:  # after a kill
        assert await values_of(registry.partition(tp("s"))) == [b"a", b"b", b"c"]


async def test_sealed_segments_are_synced_as_after_any_append(world: World) -> None:
    async with world.node(sync="os", segment_bytes=4096) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        for _ in range(20):
            partition.append_at_once(run_of(b"x" * 500))
        sealed_end = partition.state.log.sealed_end
        assert sealed_end > 0
        async with asyncio.timeout(10):
            while partition.recovery_point < sealed_end:
                await partition._wait()  # which asks for no sync by itself


async def test_an_append_is_not_committed_at_once_where_it_must_wait(world: World) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        told = Told()
        partition.append(run_of(b"a"), told)  # it waits for its turn: nothing may overtake it
        run = run_of(b"b")
        assert partition.append_at_once(run) == NOT_AT_ONCE
        assert (run.count, partition.log_end_offset) == (1, 1)
        assert await told.answer == 0
        assert partition.append_at_once(run) == 1


async def test_an_append_is_not_committed_at_once_where_a_sync_is_waited_for(world: World) -> None:
    async with world.node(sync="commit") as registry:
        await world.create("s")
        partition, run = registry.partition(tp("s")), run_of(b"a")
        assert partition.append_at_once(run) == NOT_AT_ONCE
        assert (run.count, partition.log_end_offset, partition.high_watermark) == (1, 0, 0)


async def test_an_append_is_not_committed_at_once_where_somebody_watches(world: World) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition, heard = registry.partition(tp("s")), list[int]()

        def watcher() -> None:
            heard.append(partition.high_watermark)

        partition.add_watcher(watcher)
        assert partition.append_at_once(run_of(b"a")) == NOT_AT_ONCE
        partition.remove_watcher(watcher)
        partition.add_watcher(watcher, end=True)
        assert partition.append_at_once(run_of(b"a")) == 0
        assert heard == [1]  # a follower that waits for the log end
        partition.remove_watcher(watcher)


async def test_an_append_is_not_committed_at_once_while_an_erasure_waits(world: World) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        erased = partition.erased.copy()
        erased.add(0)
        partition.erasing.append(erased, Told())
        assert partition.append_at_once(run_of(b"b")) == NOT_AT_ONCE
        await settled()
        assert partition.append_at_once(run_of(b"b")) == 2
        assert 0 in partition.erased


async def test_an_append_at_once_is_refused_as_any_other(world: World) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        run = run_of(b"a")
        with pytest.raises(NotLeader):
            partition.append_at_once(run, leader_epoch=partition.leader_epoch + 1)
        assert (run.count, partition.log_end_offset) == (0, 0)
        partition.fence(NotLeader("gone"))
        run = run_of(b"a")
        with pytest.raises(NotLeader):
            partition.append_at_once(run)
        assert (run.count, partition.log_end_offset) == (0, 0)


class _RefusingFile(OsFile):
    """Takes nothing."""

    __slots__ = ()
    code = 0

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        raise OSError(self.code, "refused")


@pytest.mark.parametrize("is_produced", [False, True])
@pytest.mark.parametrize(("code", "error"), [(28, StorageFull), (5, StorageFailed)])
async def test_an_append_at_once_that_the_disk_refuses_commits_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    error: type[Exception],
    is_produced: bool,
) -> None:
    class RefusingDisk(OsDisk):
        is_refusing = False

        def open(self, path: str, *, writable: bool = True) -> OsFile:
            return self._refusing(super().open(path, writable=writable), path)

        def create(self, path: str) -> OsFile:
            return self._refusing(super().create(path), path)

        def _refusing(self, file: OsFile, path: str) -> OsFile:
            if not (self.is_refusing and path.endswith(".log")):
                return file
            refusing = _RefusingFile(file.fileno())
            monkeypatch.setattr(_RefusingFile, "code", code)
            return refusing

    disk = RefusingDisk()
    registry = await world.started(disk, sync="os")
    await world.create("s")
    partition = registry.partition(tp("s"))
    assert partition.append_at_once(run_of(b"a")) == 0
    disk.is_refusing = True
    registry._files.close()  # so that the segment is opened again
    run = run_of(b"b")
    with pytest.raises(error):
        if is_produced:
            partition.produce_plain(produced(b"b"), UNAWAITED)
        else:
            partition.append_at_once(run)
    if is_produced:
        run.clear()
    assert (run.count, partition.log_end_offset, partition.high_watermark) == (0, 1, 1)
    assert (partition.failure is not None) is (error is StorageFailed)
    disk.is_refusing = False
    registry._files.close()
    if error is StorageFailed:
        with pytest.raises(StorageFailed):
            partition.append_at_once(run_of(b"c"))
    else:
        registry._space.is_full = False
        assert partition.append_at_once(run_of(b"c")) == 1


def produced(*values: bytes, **header: Any) -> ProducedBatch:
    data = hand_batch(
        [HandRecord(value) for value in values],
        **{"base_timestamp_ms": 1, "max_timestamp_ms": 1, **header},
    )
    return check_inside(check_outside(data), data)


def bytes_of(segment: Segment) -> bytes:
    return Path(segment.path).read_bytes()


@pytest.mark.parametrize("sync", ["os", "interval", "commit"])
async def test_a_plain_batch_lies_in_the_log_as_any_other(world: World, sync: str) -> None:
    async with world.node(sync=sync, segment_bytes=4096, index_interval_bytes=256) as registry:
        for name in ("plain", "usual"):
            await world.create(name)
        plain, usual = registry.partition(tp("plain")), registry.partition(tp("usual"))
        for number in range(30):
            values = [b"%d" % number * (1 + 70 * (number % 7))] * (1 + number % 3)
            batch = produced(*values)
            base_offset = usual.log_end_offset
            heard = Told()
            assert plain.produce_plain(batch, heard) == base_offset
            if sync == "commit":
                assert plain.high_watermark == base_offset, "it is not on disk yet"
                assert not heard.answer.done()
            else:
                assert plain.high_watermark == plain.log_end_offset == base_offset + len(values)
                assert heard.answer.done(), "nothing else is waited for"
            assert await heard.answer == base_offset
            assert plain.high_watermark == plain.log_end_offset
            told = Told()
            usual.produce(batch, told)
            assert await told.answer == base_offset
        if sync == "commit":
            assert plain.state.log.recovery_point == plain.log_end_offset
        segments = [it.state.log.segments for it in (plain, usual)]
        assert len(segments[0]) > 5
        for ours, theirs in zip(*segments, strict=True):
            assert bytes_of(ours) == bytes_of(theirs)
        count = world.metrics.registry.get_sample_value
        assert count("streamlog_append_batches_total") == 60
        assert count("streamlog_append_records_total") == 2 * plain.log_end_offset
        assert count("streamlog_append_bytes_total") == 2 * plain.size_bytes


FUTURE_MS = 10**14


@pytest.mark.parametrize(
    ("batch", "settings"),
    [
        (produced(b"a", producer=(7, 0, 0)), {}),
        (produced(b"a", attributes=8), {}),
        (produced(b"a", max_timestamp_ms=2), {}),
        (produced(b"a", base_timestamp_ms=-1, max_timestamp_ms=-1), {}),
        (produced(b"a", base_timestamp_ms=FUTURE_MS, max_timestamp_ms=FUTURE_MS), {}),
        (produced(b"a"), {"timestamp_type": "LogAppendTime"}),
        (produced(b"a"), {"discard": "new"}),
    ],
)
async def test_where_there_is_more_to_a_batch_nothing_is_done(
    world: World, batch: ProducedBatch, settings: dict[str, Any]
) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s", **settings)
        partition = registry.partition(tp("s"))
        assert partition.produce_plain(batch, UNAWAITED) == NOT_AT_ONCE
        assert partition.log_end_offset == 0


async def test_watchers_of_the_commit_hear_of_a_plain_batch_before_produce_returns(
    world: World,
) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition, seen = registry.partition(tp("s")), list[tuple[str, int]]()

        def first() -> None:
            seen.append(("first", partition.high_watermark))
            assert partition.produce_plain(produced(b"within"), UNAWAITED) == NOT_AT_ONCE

        partition.add_watcher(first, once=True)
        partition.add_watcher(lambda: seen.append(("second", partition.high_watermark)))
        assert partition.produce_plain(produced(b"a"), UNAWAITED) == 0
        assert seen == [("first", 1), ("second", 1)]
        assert partition.produce_plain(produced(b"b"), UNAWAITED) == 1
        assert seen[2:] == [("second", 2)]


async def test_a_plain_batch_does_not_overtake(world: World) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition, committed = registry.partition(tp("s")), list[int]()

        class Heard(Told):
            def committed(self, base_offset: int) -> None:
                committed.append(base_offset)

        partition.append(run_of(b"a"), Heard())
        assert partition.produce_plain(produced(b"b"), Heard()) == 1
        assert committed == [0, 1], "each in its turn"
        assert partition.produce_plain(produced(b"b", b"c"), UNAWAITED) == 2
        partition.fence(NotLeader("gone"))
        with pytest.raises(NotLeader):
            partition.produce_plain(produced(b"d"), UNAWAITED)
        assert partition.log_end_offset == 4


async def test_plain_batches_that_come_during_a_sync_share_the_next_one(world: World) -> None:
    async with world.node(sync="commit") as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        heard = [Told() for _ in range(5)]
        for number, told in enumerate(heard):
            assert partition.produce_plain(produced(b"%d" % number), told) == number
        syncs = world.metrics.registry.get_sample_value
        before = syncs("streamlog_fsync_duration_seconds_count")
        assert before is not None
        assert [await it.answer for it in heard] == [*range(5)]
        after = syncs("streamlog_fsync_duration_seconds_count")
        assert after == before + 2


@pytest.mark.parametrize("sync", ["os", "interval", "commit"])
async def test_what_waits_for_nobody_is_acknowledged_as_it_is_produced(
    world: World, sync: str
) -> None:
    async with world.node(sync=sync) as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        for number in range(3):
            told = Told()
            partition.produce(produced(b"a", b"b"), told)
            assert told.answer.done() == (sync != "commit")
            assert await told.answer == 2 * number
            assert partition.high_watermark == 2 * number + 2


async def test_what_waits_for_another_replica_is_acknowledged_later(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 2) as nodes:
        await nodes.create(sync="os")
        told = Told()
        nodes.leader.partition().produce(produced(b"a"), told)
        assert not told.answer.done()
        assert await told.answer == 0
