import errno
import logging
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.errors import CorruptData, StorageFailed, StorageFull
from streamlog.log.disk import Disk, OsDisk
from streamlog.log.files import FilePool
from streamlog.metadata import controller
from streamlog.metadata.image import Image
from streamlog.metadata.records import MetadataRecord
from streamlog.metadata.snapshot import find_snapshots
from streamlog.metadata.store import MetadataStore
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId
from tests.failing_disk import FailingDisk

DISK = OsDisk()


class Node:
    """A store and the image it makes, as the service keeps them."""

    def __init__(self, directory: Path, disk: Disk = DISK) -> None:
        self.store = MetadataStore(directory, "c", disk=disk, files=FilePool(disk, 16))
        self.image = self.store.open()

    def write(self, *records: MetadataRecord) -> None:
        offset = self.store.append(records, 0)
        assert offset == self.image.offset
        self.image = self.image.apply_all(records, offset=offset, epoch=self.store.epoch)

    def register(self, run: int) -> None:
        self.write(
            *controller.register_node(
                self.image,
                node_id=NodeId(1),
                incarnation=UUID(int=run),
                host="h",
                port=1,
                rack=None,
            ).records
        )

    def create(self, name: str, partitions: int = 1) -> None:
        config = StreamConfig.of(name=name, partitions=partitions)
        stream_id = UUID(int=self.image.offset)
        self.write(
            *controller.create_stream(self.image, config, new_id=stream_id, now_ms=0).records
        )

    def delete(self, name: str) -> None:
        self.write(*controller.delete_stream(self.image, name).records)


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], Node]:
    return lambda: Node(tmp_path)


def segment(tmp_path: Path) -> Path:
    return max((tmp_path / "log").glob("*.log"))


def test_a_new_store_is_empty(start: Callable[[], Node]) -> None:
    node = start()
    assert node.image == Image("c")
    assert node.store.epoch == 1


def test_what_was_appended_is_replayed(start: Callable[[], Node]) -> None:
    node = start()
    node.register(1)
    node.create("s", partitions=3)
    again = start()  # without a close: as after kill -9
    assert again.image == node.image
    assert again.store.epoch == 2


def test_the_epoch_grows_at_each_start_even_when_nothing_is_written(
    start: Callable[[], Node],
) -> None:
    for epoch in (1, 2, 3):
        node = start()
        assert node.store.epoch == epoch
        node.store.close()


def test_deletions_that_were_replayed_are_told(start: Callable[[], Node]) -> None:
    node = start()
    node.register(1)
    node.create("s")
    stream_id = node.image.stream("s").stream_id
    node.delete("s")
    node.create("s")
    assert start().store.deleted == {stream_id}


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
    node.store.close()
    path = segment(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptData, match="synced"):
        start()


def test_a_damaged_epoch_file_is_made_up_for_by_the_log(
    start: Callable[[], Node], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for run in (1, 2, 3):
        node = start()
        node.register(run)
    (tmp_path / "quorum-state").write_text("{")
    with caplog.at_level(logging.ERROR):
        assert start().store.epoch == 4
    assert "epoch file damaged" in caplog.text


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
    node.store.snapshot(node.image)
    node.create("later")
    again = start()
    assert again.image == node.image
    assert again.store.deleted == frozenset()


def test_old_snapshots_go_and_the_log_below_them(start: Callable[[], Node], tmp_path: Path) -> None:
    node = start()
    filled(node, 2)
    for i in range(4):
        node.create(f"more{i}")
        node.store.snapshot(node.image)
    kept = find_snapshots(DISK, tmp_path)
    assert len(kept) == 2
    assert kept[0][0] == node.image.offset
    assert start().image == node.image


def test_the_older_snapshot_stands_in_for_a_damaged_one(
    start: Callable[[], Node], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    filled(node, 3)
    node.store.snapshot(node.image)
    node.create("t")
    node.store.snapshot(node.image)
    node.create("u")
    newest = find_snapshots(DISK, tmp_path)[0][1]
    newest.write_bytes(newest.read_bytes()[:-5])
    with caplog.at_level(logging.ERROR):
        assert start().image == node.image
    assert "snapshot damaged" in caplog.text


def test_without_any_snapshot_a_shortened_log_is_refused(
    start: Callable[[], Node], tmp_path: Path
) -> None:
    node = start()
    filled(node, 3)
    for _ in range(2):
        node.create(f"more{node.image.offset}")
        node.store.snapshot(node.image)
    node.store.close()
    for _, path in find_snapshots(DISK, tmp_path):
        path.unlink()
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
    node.store.snapshot(node.image)
    node.store.close()
    store = MetadataStore(tmp_path, "other", disk=DISK, files=FilePool(DISK, 16))
    with pytest.raises(CorruptData, match="cluster"):
        store.open()


def test_snapshots_come_due_with_the_number_of_records(start: Callable[[], Node]) -> None:
    node = start()
    node.register(1)
    assert not node.store.snapshot_due(node.image)
    node.create("s", partitions=1_001)
    assert node.store.snapshot_due(node.image)
    node.store.snapshot(node.image)
    assert not node.store.snapshot_due(node.image)


def test_a_closed_store_refuses(start: Callable[[], Node]) -> None:
    node = start()
    node.store.close()
    node.store.close()
    with pytest.raises(StorageFailed):
        node.register(1)


@pytest.mark.parametrize("operation", ["write_small", "unlink"])
def test_a_snapshot_that_fails_changes_nothing(
    tmp_path: Path, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    node = Node(tmp_path, disk)
    filled(node, 3)
    for _ in range(2):
        node.create(f"more{node.image.offset}")
        node.store.snapshot(node.image)
    disk.faults.break_(operation, code=errno.ENOSPC)
    with caplog.at_level(logging.WARNING):
        node.create("last")
        node.store.snapshot(node.image)
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
