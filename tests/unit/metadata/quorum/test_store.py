import errno
import logging
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.errors import (
    CorruptData,
    CorruptFile,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
)
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import (
    encode_snapshot,
    find_snapshots,
    snapshot_id,
    snapshot_path,
)
from streamlog.metadata.quorum.quorum_state_file import StoredVote
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.model import NO_EPOCH, EpochEnd, NodeId
from streamlog.raft.messages import SnapshotId
from streamlog.raft.voters import ReplicaKey
from tests.simulation.disk import SimDisk
from tests.unit.failing_disk import FailingDisk
from tests.unit.metadata_folder import DISK, Node


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], Node]:
    return lambda: Node(tmp_path)


def segment(tmp_path: Path) -> Path:
    return max((tmp_path / "log").glob("*.log"))


def test_a_new_store_is_empty(start: Callable[[], Node]) -> None:
    node = start()
    assert node.image == MetadataImage("c")
    assert (node.store.start_offset, node.store.end_offset) == (0, 0)
    assert node.store.last_epoch == NO_EPOCH
    assert node.store.vote is None
    assert node.store.snapshot is None


def test_what_was_appended_is_replayed(start: Callable[[], Node]) -> None:
    node = start()
    node.register(1)
    node.create("s", partitions=3)
    again = start()  # without a close: as after kill -9
    assert again.image == node.image
    assert again.store.last_epoch == 1


def test_a_vote_waits_for_file_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the voter would take no part until it is started again."""
    disk, vote = FailingDisk(), StoredVote(UUID(int=1), 4)
    node = Node(tmp_path, disk=disk)
    disk.faults.break_("write_small", code=errno.EMFILE)
    monkeypatch.setattr("streamlog.log.storage.disk.sleep", lambda _: disk.faults.mend())
    node.store.save_vote(vote)
    assert Node(tmp_path).store.vote == vote


def test_the_vote_is_kept(start: Callable[[], Node]) -> None:
    vote = StoredVote(UUID(int=1), 4, ReplicaKey(NodeId(2), UUID(int=2)))
    start().store.save_vote(vote)
    assert start().store.vote == vote


def test_a_damaged_vote_is_told(start: Callable[[], Node], tmp_path: Path) -> None:
    start().store.save_vote(StoredVote(UUID(int=1), 4))
    (tmp_path / "quorum-state").write_text("{")
    store = start().store
    assert store.vote is None
    assert "checksum" in store.vote_damage


def test_how_far_all_is_committed_is_kept_as_a_lower_bound(start: Callable[[], Node]) -> None:
    node = start()
    node.register(1)
    assert start().store.high_watermark == 0
    node.store.checkpoint(1)
    assert start().store.high_watermark == 1


def test_epochs_end_where_the_next_one_begins(start: Callable[[], Node]) -> None:
    node = start()
    node.register(1)
    node.epoch = 4
    node.register(2)
    node.register(3)
    store = node.store
    assert [store.epoch_end(epoch) for epoch in (1, 2, 4, 9)] == [
        EpochEnd(1, 2), EpochEnd(1, 2), EpochEnd(4, 6), EpochEnd(4, 6),
    ]  # fmt: skip


def test_what_another_wrote_is_taken_as_it_is(start: Callable[[], Node], tmp_path: Path) -> None:
    leader, follower = start(), Node(tmp_path / "other")
    leader.register(1)
    leader.create("s")
    data = leader.store.read(0, leader.store.end_offset, 1 << 20)
    for batch in follower.store.append_fetched(memoryview(data), 0):
        follower.take(batch)
    assert follower.image == leader.image
    assert Node(tmp_path / "other").image == leader.image


def test_what_was_damaged_on_the_way_is_not_written(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    leader, follower = start(), Node(tmp_path / "other")
    leader.register(1)
    data = bytearray(leader.store.read(0, leader.store.end_offset, 1 << 20))
    data[-1] ^= 1
    with pytest.raises(CorruptData):
        list(follower.store.append_fetched(memoryview(data), 0))
    assert follower.store.end_offset == 0


def test_what_is_cut_off_is_gone_for_good(start: Callable[[], Node]) -> None:
    node = start()
    node.register(1)
    kept = node.image
    node.create("s")
    node.store.checkpoint(1)  # also notes that all of it is synced
    node.store.truncate(kept.offset)
    assert start().image == kept


def test_a_snapshot_of_the_leader_replaces_the_log(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    leader, follower = start(), Node(tmp_path / "other")
    filled(leader, 3)
    filled(follower, 1)
    follower.store.checkpoint(0)
    at = snapshot_id(leader.image)
    image = follower.store.install_snapshot(at, encode_snapshot(leader.image))
    assert image == leader.image
    store = follower.store
    assert (store.start_offset, store.end_offset, store.last_epoch) == (*2 * (at[0],), at.epoch)
    again = Node(tmp_path / "other")
    assert again.image == leader.image
    again.create("t")
    assert Node(tmp_path / "other").image == again.image


@pytest.mark.parametrize(
    ("call", "file"),
    [
        ("create", "fetched"),
        ("pwrite", "fetched"),
        ("sync", "fetched"),
        ("rename", "fetched"),
        ("write_small", "installing"),
        ("unlink", ".log"),
        ("create", ".log"),
        ("write_small", "recovery-point"),
        ("unlink", "installing"),
    ],
)
def test_a_snapshot_half_installed_is_installed_at_the_next_start(
    start: Callable[[], Node], tmp_path: Path, call: str, file: str
) -> None:
    leader = start()
    filled(leader, 3)
    disk = FailingDisk()
    follower = Node(tmp_path / "other", disk)
    filled(follower, 1)
    before = follower.image
    follower.store.checkpoint(0)
    disk.faults.break_(call, path=file)
    with pytest.raises(StorageFailed):
        follower.store.install_snapshot(snapshot_id(leader.image), encode_snapshot(leader.image))
    assert Node(tmp_path / "other").image in (before, leader.image)


def test_what_came_of_a_snapshot_before_a_crash_is_gone(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    """Half of one in a file that is never looked at would take room for ever."""
    node = start()
    node.register(1)
    node.store.take_piece(0, b"half of")
    node.store.take_piece(7, b" a snapshot")
    (tmp_path / "prepared-snapshot").write_bytes(b"half of another")
    assert (tmp_path / "fetched-snapshot").read_bytes() == b"half of a snapshot"
    node.store.close()
    assert start().image == node.image
    assert {"prepared-snapshot", "fetched-snapshot"}.isdisjoint(
        it.name for it in tmp_path.iterdir()
    )


def test_a_snapshot_in_pieces_of_which_one_is_damaged_changes_nothing(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    leader, follower = start(), Node(tmp_path / "other")
    filled(leader, 3)
    filled(follower, 1)
    before = follower.image
    data, at = bytearray(encode_snapshot(leader.image)), snapshot_id(leader.image)

    def take() -> None:
        for position in range(0, len(data), 100):
            follower.store.take_piece(position, bytes(data[position : position + 100]))

    data[len(data) // 2] ^= 1
    take()
    with pytest.raises(CorruptFile, match="checksum"):
        follower.store.install_snapshot(at)
    assert follower.store.end_offset == before.offset
    data[len(data) // 2] ^= 1
    take()
    assert follower.store.install_snapshot(at) == leader.image
    follower.store.close()
    assert Node(tmp_path / "other").image == leader.image


def test_a_snapshot_made_before_a_newer_one_was_installed_is_not_kept(tmp_path: Path) -> None:
    """It was encoded meanwhile. As the newest it would say of the log, which is empty, that it ends
    in an older epoch: this voter would elect who lacks what is committed; and as a leader it would
    give out, for ever, a snapshot that ends before its log begins.
    """
    leader, follower = Node(tmp_path / "a"), Node(tmp_path / "b")
    follower.register(1)
    older = follower.image
    for run in range(1, 6):
        leader.register(run)
        leader.epoch += 1
    newer = snapshot_id(leader.image)
    store = follower.store
    store.install_snapshot(newer, encode_snapshot(leader.image))
    store.add_snapshot(older)
    assert store.snapshot == newer
    assert (store.last_epoch, store.end_offset) == (newer.epoch, newer.end_offset)
    assert store.snapshots() == [newer]


def test_a_torn_last_batch_is_cut(start: Callable[[], Node], tmp_path: Path) -> None:
    node = start()
    node.register(1)
    before = node.image
    node.create("s")
    path = segment(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    again = start()
    assert again.image == before
    again.create("t")
    assert start().image == again.image


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_damaged_middle_is_refused_and_left_alone(
    start: Callable[[], Node], tmp_path: Path, part: float
) -> None:
    node = start()
    node.register(1)
    for i in range(20):
        node.create(f"s{i}")
    path = segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[int(len(data) * part)] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptData, match=str(path)):
        start()
    assert path.read_bytes() == data


def test_a_log_cut_below_what_was_synced_is_refused(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    node = start()
    node.register(1)
    node.create("s")
    node.stop()
    path = segment(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptData, match="synced"):
        start()


def test_a_damaged_recovery_checkpoint_is_done_without(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    node = start()
    node.register(1)
    node.store.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n7\n")
    assert start().image == node.image


def filled(node: Node, count: int) -> None:
    node.register(1)
    for i in range(count):
        node.create(f"s{i}")


def test_a_snapshot_stands_for_the_log_below_it(start: Callable[[], Node]) -> None:
    node = start()
    filled(node, 5)
    node.snapshot()
    node.create("later")
    again = start()
    assert again.image == node.image


def test_old_snapshots_go_and_the_log_below_them(start: Callable[[], Node], tmp_path: Path) -> None:
    node = start()
    filled(node, 2)
    for i in range(4):
        node.create(f"more{i}")
        node.snapshot()
    kept = find_snapshots(DISK, tmp_path)
    assert len(kept) == 2
    assert kept[0].end_offset == node.image.offset
    assert start().image == node.image


def test_the_older_snapshot_stands_in_for_a_damaged_one(
    start: Callable[[], Node], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    filled(node, 3)
    node.snapshot()
    node.create("t")
    node.snapshot()
    node.create("u")
    newest = snapshot_path(tmp_path, find_snapshots(DISK, tmp_path)[0])
    newest.write_bytes(newest.read_bytes()[:-5])
    with caplog.at_level(logging.ERROR):
        assert start().image == node.image
    assert "snapshot damaged" in caplog.text


def test_an_older_snapshot_under_a_later_name_is_none(
    start: Callable[[], Node], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a node that began at it would forget what was decided in between."""
    node = start()
    filled(node, 3)
    node.snapshot()
    older = encode_snapshot(node.image)
    node.create("t")
    node.snapshot()
    later = node.store.snapshot
    assert later is not None
    snapshot_path(tmp_path, later).write_bytes(older)
    with caplog.at_level(logging.ERROR):
        again = start()
    assert again.image == node.image
    assert again.store.snapshot != later
    with pytest.raises(CorruptFile, match="it is the snapshot at"):
        again.store.install_snapshot(later, older)


def test_without_any_snapshot_a_shortened_log_is_refused(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    node = start()
    filled(node, 3)
    for _ in range(2):
        node.create(f"more{node.image.offset}")
        node.snapshot()
    node.stop()
    for it in find_snapshots(DISK, tmp_path):
        snapshot_path(tmp_path, it).unlink()
    for path in (tmp_path / "log").glob("*.log"):
        path.unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    (tmp_path / "log" / "00000000000000000005.log").write_bytes(b"")
    with pytest.raises(CorruptData, match="metadata is missing"):
        start()


def test_a_snapshot_of_another_cluster_is_refused(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    node = start()
    filled(node, 1)
    node.snapshot()
    node.store.close()
    store = MetadataStore(tmp_path, "other", disk=DISK, files=FilePool(DISK, 16))
    with pytest.raises(CorruptData, match="cluster"):
        store.open()


def test_a_closed_store_refuses(start: Callable[[], Node]) -> None:
    node = start()
    node.store.close()
    node.store.close()
    with pytest.raises(StorageFailed):
        node.register(1)


@pytest.mark.parametrize("operation", ["create", "pwrite", "sync", "rename", "unlink"])
def test_a_snapshot_that_fails_changes_nothing(
    tmp_path: Path, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    node = Node(tmp_path, disk)
    filled(node, 3)
    for _ in range(2):
        node.create(f"more{node.image.offset}")
        node.snapshot()
    path = "" if operation == "unlink" else "prepared"
    disk.faults.break_(operation, code=errno.ENOSPC, path=path)
    with caplog.at_level(logging.WARNING):
        node.create("last")
        node.snapshot()
    assert "snapshot failed" in caplog.text
    disk.faults.mend()
    assert Node(tmp_path).image == node.image


def test_a_full_disk_keeps_nothing_and_a_failed_sync_ends_it(tmp_path: Path) -> None:
    disk = FailingDisk()
    node = Node(tmp_path, disk)
    node.register(1)
    disk.faults.break_("pwrite", code=errno.ENOSPC)
    with pytest.raises(StorageFull):
        node.create("s")
    disk.faults.mend()
    node.create("s")
    disk.faults.break_("sync")
    with pytest.raises(StorageFailed):
        node.create("t")
    disk.faults.mend()
    with pytest.raises(StorageFailed):
        node.create("u")
    node.store.close()
    assert set(Node(tmp_path).image.streams) >= {"s"}


def test_a_snapshot_is_read_in_pieces(start: Callable[[], Node]) -> None:
    node = start()
    node.register(1)
    node.snapshot()
    assert node.store.snapshot is not None
    at = node.store.snapshot
    whole = snapshot_path(node.store.directory, at).read_bytes()
    pieces = [node.store.read_snapshot_piece(at, it, 50) for it in range(0, len(whole) + 50, 50)]
    assert b"".join(piece for piece, _ in pieces) == whole
    assert {size for _, size in pieces} == {len(whole)}
    with pytest.raises(OffsetOutOfRange):
        node.store.read_snapshot_piece(SnapshotId(9, 9), 0, 50)


@pytest.mark.slow
def test_a_cluster_of_many_streams_starts_from_its_snapshot(start: Callable[[], Node]) -> None:
    """Of more than 64 MiB, with the log below it gone."""
    node = start()
    node.register(1)
    for count in range(2):  # the log begins at the end of the older one
        for number in range(30):
            node.create(f"{count}-{number}", partitions=10_000)
        node.snapshot()
    newest = snapshot_path(node.store.directory, snapshot_id(node.image))
    assert newest.stat().st_size > 65 << 20
    assert node.store.start_offset > 0
    again = start()
    assert again.store.snapshot == snapshot_id(node.image)
    assert again.image == node.image


@pytest.mark.parametrize("befalls", ["nothing", "kill", "power cut"])
@pytest.mark.parametrize("damaged", ["neither", "newest", "older"])
def test_a_log_that_was_shortened_on_a_full_disk_opens(befalls: str, damaged: str) -> None:
    """The manifest could not be written, and names what has gone: a snapshot has all of that."""
    for seed in range(10):
        disk = SimDisk(seed)
        disk.make_directory("/m")
        node = Node(Path("/m"), disk, segment_bytes=600)
        for run in range(1, 20):
            node.register(run)
            if run % 6 == 0:
                if run == 18:
                    disk.fail("create", errno.ENOSPC, part="segment-manifest", times=10**6)
                node.snapshot()
        assert node.store.start_offset > 0
        if befalls == "nothing":
            node.stop()
        disk.faults.clear()
        disk.crash() if befalls == "power cut" else disk.kill()
        snapshots = sorted(it for it in disk.names("/m") if it.endswith(".checkpoint"))
        assert len(snapshots) >= 2  # a power cut may bring an old one back
        if damaged != "neither":
            disk.flip(f"/m/{snapshots[-1 if damaged == 'newest' else -2]}", 4_000)
        again = Node(Path("/m"), disk, segment_bytes=600)
        assert again.image == node.image
        again.register(100)
        again.snapshot()
        assert Node(Path("/m"), disk, segment_bytes=600).image == again.image
