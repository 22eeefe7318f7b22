import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.errors import CorruptFile
from streamlog.log.layout import METADATA_NAME, PartitionMetadata
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.removal import Removal
from streamlog.model import LogId, TopicPartition
from streamlog.partition.storage.folder import Folders
from tests.simulation.disk import PowerCut, SimDisk
from tests.unit.failing_disk import FailingDisk

TP = TopicPartition("orders", 3)
ID, OTHER = UUID(int=1), UUID(int=2)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path, OsDisk())


def test_the_mark_is_as_kafka_writes_it(folders: Folders, tmp_path: Path) -> None:
    folders.claim(TP, ID, 5)
    path = tmp_path / "streams" / "orders" / "3"
    assert folders.path(TP) == path
    assert (
        path / METADATA_NAME
    ).read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\nincarnation: 5\n"
    assert folders.mark(path) == PartitionMetadata(ID, 5)
    folders.claim(TP, ID, 5)


def test_another_streams_folder_is_not_taken(folders: Folders) -> None:
    folders.claim(TP, ID, 5)
    with pytest.raises(CorruptFile, match="belongs to"):
        folders.claim(TP, OTHER, 5)


def test_a_half_made_folder_is_taken(folders: Folders) -> None:
    folders.path(TP).mkdir(parents=True)
    assert folders.mark(folders.path(TP)) is None
    folders.claim(TP, ID, 5)
    assert folders.mark(folders.path(TP)) == PartitionMetadata(ID, 5)


@pytest.mark.parametrize(
    "content", [b"", b"version: 1\ntopic_id: x\n", b"\xff", b"version: 0\n", b"x"]
)
def test_a_damaged_mark_is_told_and_made_anew(folders: Folders, content: bytes) -> None:
    folders.claim(TP, ID, 5)
    mark = folders.path(TP) / METADATA_NAME
    mark.write_bytes(content)
    with pytest.raises(CorruptFile):
        folders.mark(folders.path(TP))
    folders.claim(TP, ID, 5)
    assert folders.mark(folders.path(TP)) == PartitionMetadata(ID, 5)


def test_present_are_numbered_folders_only(folders: Folders, tmp_path: Path) -> None:
    assert folders.present() == []
    folders.claim(TP, ID, 5)
    folders.claim(TopicPartition("a", 0), ID, 5)
    (tmp_path / "streams" / "a" / "x").mkdir()
    (tmp_path / "streams" / "file").write_text("")
    assert [tp for tp, _ in folders.present()] == [TopicPartition("a", 0), TP]


def test_discard_moves_at_once_and_remove_removes(folders: Folders, tmp_path: Path) -> None:
    folders.claim(TP, ID, 5)
    (folders.path(TP) / "00000000000000000000.log").write_text("x")
    moved = folders.discard(TP, ID)
    assert not (tmp_path / "streams" / "orders").exists()
    assert folders.leftovers() == [moved]
    folders.claim(TP, OTHER, 5)
    assert folders.mark(folders.path(TP)) == PartitionMetadata(OTHER, 5)
    removal = Removal(OsDisk())
    removal.remove_folder(str(moved))
    removal.stop(10)
    assert folders.leftovers() == []


def test_a_stream_folder_stays_while_other_partitions_need_it(folders: Folders) -> None:
    folders.claim(TP, ID, 5)
    folders.claim(TopicPartition("orders", 0), ID, 5)
    folders.discard(TP, ID)
    assert [tp for tp, _ in folders.present()] == [TopicPartition("orders", 0)]


def test_names_do_not_clash(folders: Folders) -> None:
    moved = []
    for _ in range(3):
        folders.claim(TP, ID, 5)
        moved.append(folders.orphan(TP, ID))
    assert len(set(moved)) == 3
    assert all(path.is_dir() for path in moved)


def test_a_folder_of_another_replica_is_refused_and_stays(folders: Folders) -> None:
    folders.claim(TP, ID, 5)
    for other in (4, 6):
        with pytest.raises(CorruptFile, match="assigned at metadata offset 5"):
            folders.claim(TP, ID, other)
    assert folders.mark(folders.path(TP)) == PartitionMetadata(ID, 5)


def test_a_mark_that_tells_no_replica_is_completed(folders: Folders) -> None:
    folders.claim(TP, ID, 5)
    mark = folders.path(TP) / METADATA_NAME
    mark.write_bytes(b"".join(mark.read_bytes().splitlines(keepends=True)[:2]))
    assert folders.mark(folders.path(TP)) == PartitionMetadata(ID, None)
    folders.claim(TP, ID, 6)
    assert folders.mark(folders.path(TP)) == PartitionMetadata(ID, 6)


NEW = [LogId(TopicPartition(name, number), ID, 5) for name in ("a", "b") for number in range(2)]


def _one_by_one(_count: int) -> bool:
    return False


def test_new_folders_have_their_marks_and_those_that_are_there_are_left_alone(
    folders: Folders,
) -> None:
    folders.claim(NEW[1].tp, OTHER, 4)
    made = folders.make_new(NEW, _one_by_one)
    assert made == {it: None for it in NEW if it != NEW[1]}
    assert folders.sync_new(made, _one_by_one) == {}
    marks = [folders.mark(folders.path(it.tp)) for it in NEW]
    assert marks == [
        PartitionMetadata(OTHER if it == NEW[1] else ID, 4 + (it != NEW[1])) for it in NEW
    ]
    assert [path.name for path in folders.path(NEW[0].tp).iterdir()] == [METADATA_NAME]


@pytest.mark.parametrize("operation", ["make_directory", "create", "pwrite", "sync", "rename"])
def test_what_the_disk_refuses_of_one_new_folder_is_told_of_that_one_alone(
    tmp_path: Path, operation: str
) -> None:
    disk = FailingDisk()
    folders = Folders(tmp_path, disk)
    disk.faults.break_(operation, path=f"{NEW[2].tp.stream}/{NEW[2].tp.partition}")
    made = folders.make_new(NEW, _one_by_one)
    assert [it for it, error in made.items() if error is not None] == [NEW[2]]
    disk.faults.mend()
    folders.claim(NEW[2].tp, ID, 5)
    assert folders.mark(folders.path(NEW[2].tp)) == PartitionMetadata(ID, 5)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("befalls", [SimDisk.crash, SimDisk.kill])
def test_whenever_it_ends_new_folders_have_a_whole_mark_or_none(
    befalls: Callable[[SimDisk], None], is_shared: bool
) -> None:
    """A process is killed, or the power is cut, before each call in turn; the power is cut again once the next
    process has claimed the folders.
    """
    for calls in itertools.count():
        disk = SimDisk(seed=calls)
        disk.make_directory("/d")
        folders = Folders(Path("/d"), disk)

        def sync_all(_count: int, disk: SimDisk = disk) -> bool:
            if is_shared:
                disk.sync_file_system()
            return is_shared

        disk.calls_left, is_done = calls, False
        with contextlib.suppress(PowerCut):
            made = folders.make_new(NEW, sync_all)
            assert made == dict.fromkeys(NEW)
            for it in NEW:
                disk.create(f"{folders.path(it.tp)}/0.log").close()
            assert folders.sync_new(made, sync_all) == {}
            is_done = True
        befalls(disk)
        disk.calls_left = None
        for it in NEW:
            path = str(folders.path(it.tp))
            if is_done:
                disk.crash()
                assert disk.names(path) == ["0.log", METADATA_NAME]
            elif disk.has_file(f"{path}/{METADATA_NAME}"):
                assert folders.mark(Path(path)) == PartitionMetadata(ID, 5)
            folders.claim(it.tp, ID, 5)
        for it in NEW:
            disk.sync_directory(str(folders.path(it.tp)))  # as the opening of its log does
        disk.crash()
        assert [folders.mark(folders.path(it.tp)) for it in NEW] == [PartitionMetadata(ID, 5)] * 4
        if is_done:
            break
