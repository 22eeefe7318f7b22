import errno
import logging
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from streamlog.errors import (
    CorruptData,
    NotLeader,
    PartitionNotFound,
    StorageFailed,
    StreamlogError,
    StreamNotFound,
    Unavailable,
)
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.storage.disk import OsDisk
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.partition.storage.checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from streamlog.partition.storage.log_opener import LogOpener
from tests.partition_world import Told, World, publish, run_of, tp, values_of
from tests.unit.failing_disk import FailingDisk
from tests.unit.partition.replica_world import until


async def test_a_created_stream_is_led_at_once(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", partitions=3)
        for number in range(3):
            partition = registry.partition(tp("s", number))
            assert partition.is_leader
            assert partition.leader_epoch == 0
        assert len(list(registry.partitions())) == 3
        with pytest.raises(PartitionNotFound):
            registry.partition(tp("s", 3))
        with pytest.raises(PartitionNotFound):
            registry.partition(tp("t"))


async def test_records_and_offsets_survive_a_clean_stop(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        assert await publish(registry.partition(tp("s")), b"a", b"b") == 0
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert await values_of(partition) == [b"a", b"b"]
        assert partition.leader_epoch == 2
        assert await publish(partition, b"c") == 2
        assert partition.epoch_end(1) == (0, 2)
        assert partition.epoch_end(2) == (2, 3)
        assert partition.epoch_end(3) == (-1, -1)


async def test_records_survive_a_kill_and_all_recovered_is_committed(world: World) -> None:
    registry = await world.started()
    await world.create("s")
    partition = registry.partition(tp("s"))
    await publish(partition, b"a", b"b")
    partition.append(run_of(b"c"), Told())  # killed before its sync
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert partition.high_watermark == partition.log_end_offset == 3
        assert await values_of(partition) == [b"a", b"b", b"c"]


async def test_nothing_is_led_before_the_node_has_registered(world: World) -> None:
    async with world.node():
        await world.create("s")
    registry = world.registry()
    await registry.open(world.image)
    partition = registry.partition(tp("s"))
    assert not partition.is_leader
    with pytest.raises(NotLeader):
        partition.append(run_of(b"x"), Told())
    await registry.close()


async def test_epochs_without_records_end_where_the_one_before_ends(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a")
    for _ in range(2):
        async with world.node():
            pass
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert partition.leader_epoch == 6
        assert partition.epoch_end(5) == (0, 1)
        assert partition.epoch_end(6) == (6, 1)


async def test_delete_fails_what_waits_and_leaves_nothing(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        seen: list[bool] = []
        partition.add_watcher(lambda: seen.append(partition.is_leader))
        told = Told()
        partition.append(run_of(b"x"), told)
        await world.delete("s")
        with pytest.raises(StreamNotFound):
            await told.answer
        assert seen == [False]
        with pytest.raises(NotLeader):
            await partition.read(0, 100)
        with pytest.raises(StreamNotFound):
            partition.append(run_of(b"x"), Told())
        with pytest.raises(PartitionNotFound):
            registry.partition(tp("s"))
        assert not (world.data_dir / "streams" / "s").exists()
    assert list((world.data_dir / "deleted").iterdir()) == []


async def test_a_stream_created_anew_is_empty(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"old", b"old")
        await world.delete("s")
        await world.create("s")
        partition = registry.partition(tp("s"))
        assert partition.log_end_offset == 0
        assert await publish(partition, b"new") == 0
        assert await values_of(partition) == [b"new"]
    async with world.node() as registry:
        assert await values_of(registry.partition(tp("s"))) == [b"new"]


async def test_checkpoints_of_a_namesake_do_not_touch_a_new_stream(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, *[b"old"] * 9)
        await partition.purge(9)
    assert world.checkpoint(LOG_START) == {world.log_id("s"): 9}
    await world.started()
    await world.delete("s")
    await world.create("s")  # killed right after this
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert partition.log_start_offset == partition.log_end_offset == 0


async def test_a_deletion_that_a_kill_cut_short_is_carried_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"old")
    stream_id = world.image.stream("s").stream_id
    world.registries.clear()  # killed after the record was synced
    await world.delete("s")
    await world.create("s")
    world.deleted = frozenset({stream_id})
    with caplog.at_level(logging.ERROR):
        async with world.node() as registry:
            assert registry.partition(tp("s")).log_end_offset == 0
    assert not (world.data_dir / "orphans").exists()
    assert not caplog.records, "nothing is lost that belongs to a stream that is there"
    assert world.checkpoint(HIGH_WATERMARK) == {}


async def test_a_high_watermark_of_a_deleted_stream_commits_nothing_of_its_namesake(
    world: World,
) -> None:
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a", b"b")
    here = world.log_id("s")
    for log_id in (here._replace(stream_id=uuid4()), here._replace(incarnation=-1)):
        file = OffsetCheckpoint(world.data_dir / HIGH_WATERMARK, OsDisk())
        file.write({log_id: 2})
        registry = world.registry()
        await registry.open(world.image)
        partition = registry.partition(tp("s"))
        assert (partition.high_watermark, partition.log_end_offset) == (0, 2)


async def test_offsets_of_a_replica_that_the_metadata_does_not_know_yet_are_kept(
    world: World,
) -> None:
    """A node may start with older metadata: a later image tells what was lost."""
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a")
    here = world.log_id("s")
    later, former = here._replace(incarnation=1_000), here._replace(stream_id=uuid4())
    file = OffsetCheckpoint(world.data_dir / HIGH_WATERMARK, OsDisk())
    file.write({here: 1, later: 7, former: 9})
    async with world.node():
        pass
    assert world.checkpoint(HIGH_WATERMARK) == {here: 1, later: 7}


async def test_a_removal_that_a_kill_cut_short_is_finished(world: World) -> None:
    leftover = world.data_dir / "deleted" / "s.0.abc"
    leftover.mkdir(parents=True)
    (leftover / "00000000000000000000.log").write_text("x")
    async with world.node():
        pass
    assert not leftover.exists()


async def test_a_folder_of_an_unknown_stream_is_kept_and_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.node() as registry:
        await world.create("s")
        await world.create("t")
        await publish(registry.partition(tp("s")), b"precious")
    world.registries.clear()
    await world.delete("s")  # as if the metadata had never heard of it
    with caplog.at_level(logging.ERROR):
        async with world.node():
            pass
    assert "unknown stream" in caplog.text
    kept = list((world.data_dir / "orphans").iterdir())
    assert len(kept) == 1
    assert b"precious" in (kept[0] / "00000000000000000000.log").read_bytes()


async def test_metadata_that_knows_nothing_touches_nothing(world: World) -> None:
    async with world.node():
        await world.create("s")
    registry = world.registry()
    with pytest.raises(CorruptData, match="metadata knows no stream"):
        await registry.open(MetadataImage("c"))
    assert (world.data_dir / "streams" / "s" / "0").is_dir()
    await registry.close()


async def test_where_the_last_stream_was_deleted_its_folder_is_put_aside(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.node():
        await world.create("s")
    registry = world.registry()
    with caplog.at_level(logging.ERROR):
        await registry.open(MetadataImage("c"), is_log_known=True)
    assert "unknown stream" in caplog.text
    assert len(list((world.data_dir / "orphans").iterdir())) == 1
    await registry.close()


async def test_a_lost_folder_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a")
    shutil.rmtree(world.data_dir / "streams" / "s")
    with caplog.at_level(logging.ERROR):
        async with world.node() as registry:
            assert registry.partition(tp("s")).log_end_offset == 0
    assert "partition folder is gone" in caplog.text


async def test_a_lost_folder_is_known_until_the_controller_has_heard_of_it(world: World) -> None:
    """A node that is killed after it has made the folder anew must not lead with an empty log."""
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a")
    shutil.rmtree(world.data_dir / "streams" / "s")
    disk = FailingDisk()
    disk.faults.break_("create", code=errno.EMFILE, path="streams/s")
    await world.registry(disk).open(world.image)
    for _ in range(2):  # killed before its first heartbeat
        registry = world.registry()
        await registry.open(world.image)
        partition = registry.partition(tp("s"))
        assert partition.following.is_short
        assert (partition.log_start_offset, partition.log_end_offset) == (0, 0)


async def test_a_lost_folder_is_known_by_what_was_synced_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower's first batch is acknowledged before its high watermark is in the checkpoint."""
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a")
    (world.data_dir / HIGH_WATERMARK).unlink()
    shutil.rmtree(world.data_dir / "streams" / "s")
    registry = world.registry()
    with caplog.at_level(logging.ERROR):
        await registry.open(world.image)
    assert "partition folder is gone" in caplog.text
    assert registry.partition(tp("s")).following.is_short


async def test_a_folder_that_cannot_be_read_is_not_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.node() as registry:
        for name in ("s", "t"):
            await world.create(name)
            await publish(registry.partition(tp(name)), b"a")
    before = {name: world.checkpoint(name) for name in (HIGH_WATERMARK, RECOVERY_POINT)}
    real = LogOpener._folder_is_there

    def look(opener: LogOpener, asked: TopicPartition) -> bool | StreamlogError:
        with monkeypatch.context() as patch:
            if asked == tp("s"):
                patch.setattr(Path, "stat", fail)
            return real(opener, asked)

    def fail(_path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(LogOpener, "_folder_is_there", look)
        registry = world.registry()
        await registry.open(world.image)
    assert set(registry.unopened) == {tp("s")}
    assert registry.partition(tp("t")).log_end_offset == 1
    assert {name: world.checkpoint(name) for name in before} == before


@pytest.mark.parametrize("content", [None, b"1\n"])
@pytest.mark.parametrize("name", [HIGH_WATERMARK, LOG_START, RECOVERY_POINT])
async def test_a_lost_checkpoint_is_written_again_though_nothing_is_appended(
    world: World, name: str, content: bytes | None
) -> None:
    """Else each start reads an idle log from its first segment on."""
    async with world.node() as registry:
        await world.create("s")
        await world.create("t")  # which stays empty
        await publish(registry.partition(tp("s")), b"a", b"b")
    file = world.data_dir / name
    before = file.read_bytes()
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    async with world.node():
        pass
    assert file.read_bytes() == before


async def test_what_a_start_has_synced_is_noted(world: World) -> None:
    """Another start without an append in between does not read it again."""
    registry = await world.started()
    await world.create("s")
    await publish(registry.partition(tp("s")), b"a", b"b")
    assert not (world.data_dir / RECOVERY_POINT).exists()  # killed before the first checkpoint
    await world.registry().open(world.image)
    assert world.checkpoint(RECOVERY_POINT) == {world.log_id("s"): 2}


async def test_lost_committed_records_are_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a")
        await publish(registry.partition(tp("s")), b"b")
    log = world.data_dir / "streams" / "s" / "0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-1])
    with caplog.at_level(logging.ERROR):
        async with world.node() as registry:
            assert await values_of(registry.partition(tp("s"))) == [b"a"]
    assert "committed records lost" in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        "high-watermark-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
    ],
)
async def test_a_damaged_checkpoint_stops_nothing(world: World, name: str) -> None:
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a", b"b")
    (world.data_dir / name).write_bytes(b"\x00garbage")
    async with world.node() as registry:
        assert await values_of(registry.partition(tp("s"))) == [b"a", b"b"]


async def test_a_partition_that_cannot_be_opened_is_offline_and_others_go_on(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        await world.create("t")
        await publish(registry.partition(tp("s")), b"a")
    disk = FailingDisk()
    disk.faults.break_("open", path="streams/s/")
    async with world.node(disk) as registry:
        with pytest.raises(StorageFailed):
            registry.partition(tp("s"))
        assert set(registry.unopened) == {tp("s")}
        assert await publish(registry.partition(tp("t")), b"x") == 0
    async with world.node() as registry:
        assert await values_of(registry.partition(tp("s"))) == [b"a"]


async def test_no_room_for_a_new_partition(world: World) -> None:
    disk = FailingDisk()
    async with world.node(disk, disk_check_interval_ms=10) as registry:
        disk.faults.break_("make_directory", code=errno.ENOSPC)
        await world.create("s")
        with pytest.raises(Unavailable):
            registry.partition(tp("s"))
        disk.faults.mend()
        await until(lambda: registry.has_room)
        await world.delete("s")
        await world.create("s")
        assert await publish(registry.partition(tp("s")), b"x") == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
async def test_what_could_not_be_opened_for_want_of_room_or_files_is_opened_later(
    world: World, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what this node leads: nobody else has a replica."""
    monkeypatch.setattr("streamlog.partition.replica_manager.OPEN_AGAIN_S", 0.01)
    async with world.node() as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"a")
    disk = FailingDisk()
    disk.faults.break_("make_directory", code=code, path="streams/s")
    async with world.node(disk, disk_check_interval_ms=10) as registry:
        heard: list[TopicPartition] = []
        registry.add_listener(heard.append)
        with pytest.raises(Unavailable):
            registry.partition(tp("s"))
        disk.faults.mend()
        await until(lambda: heard)
        assert heard == [tp("s")]
        assert not registry.unopened
        assert await publish(registry.partition(tp("s")), b"b") == 1


async def test_a_folder_that_cannot_be_moved_away_is_not_used_again(world: World) -> None:
    disk = FailingDisk()
    async with world.node(disk) as registry:
        await world.create("s")
        await publish(registry.partition(tp("s")), b"old")
        disk.faults.break_("rename", path="streams/s")
        await world.delete("s")
        disk.faults.mend()
        await world.create("s")
        with pytest.raises(Exception, match="belongs to"):
            registry.partition(tp("s"))


async def test_an_updated_configuration_holds_at_once(world: World) -> None:
    async with world.node() as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        assert partition.sync_policy == "commit"
        await world.update("s", sync="os", segment_bytes=4096)
        assert partition.sync_policy == "os"
        for _ in range(10):
            await publish(partition, b"x" * 1000)
        assert partition.statistics().segment_count > 1
        await world.update("s", sync="commit", compression="zstd")
        await publish(partition, b"y" * 1000)
        assert (await values_of(partition))[-1] == b"y" * 1000
        assert partition.recovery_point == 11


async def test_close_is_clean_and_may_be_called_again(world: World) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s")
        partition = registry.partition(tp("s"))
        await publish(partition, b"a")
        assert partition.recovery_point == 0
        await registry.close()
        assert partition.closed
    assert world.checkpoint(RECOVERY_POINT) == {world.log_id("s"): 1}


async def test_reconcile_after_close_opens_nothing(world: World, tmp_path: Path) -> None:
    async with world.node():
        pass
    await world.create("s")
    assert not (tmp_path / "streams" / "s").exists()


async def test_a_lost_folder_that_cannot_be_noted_puts_only_its_partition_offline(
    world: World,
) -> None:
    async with world.node() as registry:
        for name in ("lost", "kept"):
            await world.create(name)
            await publish(registry.partition(tp(name)), b"old", b"old")
            await registry.partition(tp(name)).purge(1)
    shutil.rmtree(world.data_dir / "streams" / "lost")
    disk = FailingDisk()
    disk.faults.break_("write_small", code=errno.ENOSPC, path="offset-checkpoint")
    async with world.node(disk, disk_check_interval_ms=10) as registry:
        with pytest.raises(Unavailable):
            registry.partition(tp("lost"))
        await world.create("new")
        await world.delete("kept")
        await world.create("kept")  # what is written of its namesake does not concern it
        assert set(registry.unopened) == {tp("lost")}
        disk.faults.mend()
        await until(lambda: registry.has_room)
        for name in ("new", "kept"):
            assert await publish(registry.partition(tp(name)), b"x") == 0
