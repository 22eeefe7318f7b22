from pathlib import Path
from uuid import UUID

import pytest

from streamlog.errors import CorruptFile
from streamlog.log.layout import METADATA_NAME, PartitionMetadata
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.removal import Removal
from streamlog.model import TopicPartition
from streamlog.partition.storage.folder import Folders

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
