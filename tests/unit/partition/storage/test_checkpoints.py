import logging
from contextlib import suppress
from itertools import product
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.log.checkpoint import encode_checkpoint
from streamlog.log.storage.disk import OsDisk
from streamlog.model import LogId, TopicPartition
from streamlog.partition.storage.checkpoints import (
    ERASURES,
    HIGH_WATERMARK,
    LOG_START,
    NOTHING,
    RECOVERY_POINT,
    Checkpoints,
    Offsets,
)
from tests.simulation.disk import PowerCut, SimDisk

A, B = LogId(TopicPartition("a", 0), UUID(int=1), 2), LogId(TopicPartition("b", 1))
A_LINE, B_LINE = "a 0 {} AAAAAAAAAAAAAAAAAAAAAQ 2", "b 1 {} AAAAAAAAAAAAAAAAAAAAAA -1"


def at(path: Path) -> Checkpoints:
    checkpoints = Checkpoints(path, OsDisk())
    checkpoints.load()
    return checkpoints


def test_round_trip(tmp_path: Path) -> None:
    checkpoints = at(tmp_path)
    assert checkpoints.get(A) == NOTHING
    checkpoints.write({A: Offsets(5, 1, 6), B: Offsets(7, 0, 7)})
    again = at(tmp_path)
    assert again.get(A) == Offsets(5, 1, 6)
    assert again.get(B) == Offsets(7, 0, 7)
    lines = encode_checkpoint([A_LINE.format(5), B_LINE.format(7)])
    assert (tmp_path / HIGH_WATERMARK).read_bytes() == lines


def test_only_what_changes_is_written(tmp_path: Path) -> None:
    checkpoints = at(tmp_path)
    checkpoints.write({A: Offsets(5, 0, 5)})
    before = {name: (tmp_path / name).stat().st_ino for name in (HIGH_WATERMARK, LOG_START)}
    checkpoints.write({A: Offsets(6, 0, 6)})
    after = {name: (tmp_path / name).stat().st_ino for name in (HIGH_WATERMARK, LOG_START)}
    assert before[LOG_START] == after[LOG_START]
    assert at(tmp_path).get(A) == Offsets(6, 0, 6)


def test_what_was_read_outlives_a_power_cut() -> None:
    """The process before was killed between a new file's name and the sync of the folder: this one
    deletes and reports by what it reads.
    """
    for seed, calls in product(range(4), range(40)):
        disk, folder = SimDisk(seed), Path("/data")
        disk.make_directory(str(folder))
        Checkpoints(folder, disk).write({A: Offsets(1, 1, 1)})
        disk.calls_left = calls
        with suppress(PowerCut):
            Checkpoints(folder, disk).write({A: Offsets(9, 9, 9)})
        disk.kill()
        read, again = Checkpoints(folder, disk), Checkpoints(folder, disk)
        read.load()
        disk.crash()
        again.load()
        assert again.get(A) == read.get(A)


@pytest.mark.parametrize("name", [HIGH_WATERMARK, LOG_START, RECOVERY_POINT])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n1\na 0 5\n",
        encode_checkpoint([A_LINE.format(5)])[:-1],
        encode_checkpoint([A_LINE.format(5)]).replace(b" 5 ", b" 4 "),
        b"\x00" * 20,
        encode_checkpoint([A_LINE.format(-5)]),
    ],
)
def test_a_damaged_file_counts_as_empty_and_that_is_said(
    tmp_path: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    at(tmp_path).write({A: Offsets(5, 1, 6)})
    (tmp_path / name).write_bytes(content)
    with caplog.at_level(logging.ERROR):
        found = at(tmp_path).get(A)
    assert "checkpoint damaged" in caplog.text
    whole = dict(zip((HIGH_WATERMARK, LOG_START, RECOVERY_POINT), (5, 1, 6), strict=True))
    assert found == Offsets(*({**whole, name: 0}.values()))


def test_the_end_of_the_erasures_that_are_kept_is_known_again(tmp_path: Path) -> None:
    at(tmp_path).write({A: Offsets(5, 1, 6, erasures_end=4), B: Offsets(7, 0, 7)})
    assert (tmp_path / ERASURES).read_bytes() == encode_checkpoint([A_LINE.format(4)])
    again = at(tmp_path)
    assert (again.get(A).erasures_end, again.get(B).erasures_end) == (4, 0)
