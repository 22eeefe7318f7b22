from pathlib import Path

import pytest

from streamlog.log.disk import OsDisk
from streamlog.log.files import FilePool
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.verify import Aside, Checked, Finding, verify
from tests.log_folder import append

SETTINGS = LogSettings(segment_bytes=1_000, index_interval_bytes=4096)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition of three segments, two batches in each."""
    folder = tmp_path / "streams" / "orders" / "0"
    disk = OsDisk()
    log = PartitionLog.open(folder, SETTINGS, disk=disk, files=FilePool(disk, 16))
    for _ in range(6):
        append(log, [b"x" * 400])
    log.close()
    assert len(list(folder.glob("*.log"))) == 3
    return folder


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def findings(path: Path) -> list[Finding]:
    return [item for item in verify(path) if isinstance(item, Finding)]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_sound_log_has_no_findings_and_is_read_whole(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "node.log").write_text("not a segment")
    checked = [item for item in verify(tmp_path) if isinstance(item, Checked)]
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
    [found] = findings(folder)
    assert (found.file, found.offset) == (first, 1)
    assert "missing" in found.problem


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
