from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.log import PartitionLog
from streamlog.log.manifest import MANIFEST_NAME
from streamlog.log.segment.end_checksums import OTHER_BATCHES
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.tools.verify import Aside, CheckedFolder, FolderFinding, Unopened, verify
from tests.log_folder import a_key_ring, append

SETTINGS = LogSettings(segment_bytes=1_100, index_interval_bytes=4096)


@pytest.fixture(params=["clear", "encrypted"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A partition of three segments, two batches in each."""
    return made(tmp_path, encrypts=request.param == "encrypted")


def made(tmp_path: Path, *, encrypts: bool) -> Path:
    folder = tmp_path / "streams" / "orders" / "0"
    disk = OsDisk()
    settings, files = replace(SETTINGS, encrypts=encrypts), FilePool(disk, 16, a_key_ring())
    log = PartitionLog.open(folder, settings, disk=disk, files=files)
    for _ in range(6):
        append(log, [b"x" * 400])
    log.close()
    assert len(list(folder.glob("*.log"))) == 3
    return folder


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def findings(path: Path) -> list[FolderFinding]:
    return [item for item in verify(path) if isinstance(item, FolderFinding)]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_sound_log_has_no_findings_and_is_read_whole(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "node.log").write_text("not a segment")
    checked = [item for item in verify(tmp_path) if isinstance(item, CheckedFolder)]
    assert findings(tmp_path) == []
    assert [item.file for item in checked] == segments(folder)
    assert [item.size_bytes for item in checked] == [f.stat().st_size for f in segments(folder)]


def test_a_flipped_byte_is_named_by_file_position_and_offset(folder: Path) -> None:
    segment = segments(folder)[1]
    half = segment.stat().st_size // 2
    flip(segment, half + 100)
    [found] = findings(folder)
    assert (found.file, found.position, found.offset) == (segment, half, 3)
    assert "checksum" in found.problem


def test_what_a_node_has_kept_aside_is_told_and_is_no_finding(folder: Path) -> None:
    kept = folder / f"{segments(folder)[0].name}.damaged"
    kept.write_bytes(b"whatever")
    assert findings(folder) == []
    assert [item for item in verify(folder) if isinstance(item, Aside)] == [Aside(kept, 8)]


def test_a_torn_tail_is_told_from_a_damaged_middle(folder: Path) -> None:
    last = segments(folder)[-1]
    last.write_bytes(last.read_bytes()[:-10])
    [found] = findings(folder)
    assert (found.file, found.offset) == (last, 5)
    assert "the next start cuts it" in found.problem


def test_a_segment_cut_at_a_batch_is_noticed_by_the_next_one(folder: Path) -> None:
    first = segments(folder)[0]
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    found, by_manifest = findings(folder)
    assert (found.file, found.offset) == (first, 1)
    assert "missing" in found.problem
    assert (by_manifest.file, by_manifest.offset) == (first, 0)
    assert "were stored" in by_manifest.problem


def test_one_segment_file_alone(folder: Path) -> None:
    assert findings(segments(folder)[0]) == []
    flip(segments(folder)[0], 100)
    assert findings(segments(folder)[1]) == []
    assert len(findings(segments(folder)[0])) == 1


def test_an_index_that_lies(folder: Path) -> None:
    index = segments(folder)[0].with_suffix(".timeindex")
    flip(index, 5)
    assert [found.file for found in findings(folder)] == [index]


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "high-watermark-checkpoint"])
def test_a_damaged_checkpoint(folder: Path, name: str) -> None:
    (folder / name).write_text("0\n7\nnonsense\n")
    assert [found.file for found in findings(folder)] == [folder / name]


def test_a_file_that_is_no_segment(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    [found] = findings(path)
    assert found.problem == "the name is not a segment's"


def test_without_the_key_only_checksums_are_looked_at_and_that_is_told(tmp_path: Path) -> None:
    folder = made(tmp_path, encrypts=True)
    for keys in (None, a_key_ring("k2")):
        found = [item for item in verify(tmp_path, keys) if not isinstance(item, CheckedFolder)]
        assert found == [Unopened(segment, "k1") for segment in segments(folder)]
    assert {type(item) for item in verify(tmp_path, a_key_ring())} == {CheckedFolder}


def test_a_change_that_hides_behind_a_right_checksum_is_found_with_the_key(tmp_path: Path) -> None:
    segment = segments(made(tmp_path, encrypts=True))[1]
    data = bytearray(segment.read_bytes())
    half = len(data) // 2
    data[-1] ^= 1
    data[half + 17 : half + 21] = crc32c(data[half + 21 :]).to_bytes(4, "big")
    segment.write_bytes(data)
    (segment.parent / MANIFEST_NAME).unlink()  # which knows the checksum
    assert findings(tmp_path) == []
    found = [item for item in verify(tmp_path, a_key_ring()) if isinstance(item, FolderFinding)]
    assert [(it.file, it.position, it.offset) for it in found] == [(segment, half, 3)]
    assert "does not decrypt" in found[0].problem


def test_a_data_key_that_is_gone_or_damaged_is_a_finding_without_any_key(tmp_path: Path) -> None:
    first, second, _ = segments(made(tmp_path, encrypts=True))
    first.with_suffix(".key").unlink()
    second.with_suffix(".key").write_bytes(b"nonsense")
    found = findings(tmp_path)
    assert [it.file for it in found] == [first, second]
    assert "is missing" in found[0].problem
    assert "is damaged" in found[1].problem


def test_another_key_of_that_name_is_a_finding(tmp_path: Path) -> None:
    made(tmp_path, encrypts=True)
    keys = KeyRing({"k1": bytes(32)}, None)
    problems = [item.problem for item in verify(tmp_path, keys) if isinstance(item, FolderFinding)]
    assert len(problems) == 3
    assert all("another one had that name" in problem for problem in problems)


def test_a_segment_of_another_log_with_the_same_size_is_found_by_the_manifest(
    tmp_path: Path,
) -> None:
    segment = segments(made(tmp_path, encrypts=False))[1]
    data = bytearray(segment.read_bytes())
    data[-2] ^= 1
    half = len(data) // 2
    data[half + 17 : half + 21] = crc32c(data[half + 21 :]).to_bytes(4, "big")
    segment.write_bytes(data)
    [found] = findings(tmp_path)
    assert (found.file, found.problem) == (segment, OTHER_BATCHES)


def test_a_segment_that_is_missing_or_emptied_is_found_by_the_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "streams" / "s" / "0"
    disk = OsDisk()
    settings = LogSettings(segment_bytes=200)
    log = PartitionLog.open(folder, settings, disk=disk, files=FilePool(disk, 16))
    for _ in range(12):
        append(log, 2)
    log.close()
    assert not [it for it in verify(tmp_path) if isinstance(it, FolderFinding)]
    first, second = sorted(folder.glob("*.log"))[:2]
    first.unlink()
    second.write_bytes(b"")
    found = {(it.file, it.problem) for it in verify(tmp_path) if isinstance(it, FolderFinding)}
    assert (first, "the file is missing") in found
    assert any(file == second and "were stored" in problem for file, problem in found)
