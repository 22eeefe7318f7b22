"""What is erased is known again after a start, at the least cost."""

import logging

import pytest

from streamlog.log.control_load import history_of, load, read_again
from streamlog.log.erasure.erasures import Erasures
from streamlog.log.erasure.erasures_file import FILE_NAME, encode
from tests.erased_log import ErasedLog
from tests.log_folder import FOLDER
from tests.simulation.disk import SimDisk


def start_again(
    log: ErasedLog, known_offset: int, high_watermark: int, *, kept_end: int = 0
) -> list[int]:
    log.log.close()
    log.open(recovery_point=log.log.recovery_point)
    log.log.erasures, log.log.transactions = load(
        log.log, known_offset=known_offset, erasures_end=kept_end
    )
    log.log.erasures.commit(high_watermark)
    return list(log.log.erasures.erased)


@pytest.fixture
def log() -> ErasedLog:
    return ErasedLog(SimDisk(1))


def append(log: ErasedLog, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        log.append((b"k", b"v" * 100), epoch=epoch)


def test_out_of_the_log_where_there_is_no_file(log: ErasedLog) -> None:
    append(log, 30)
    log.erase([3, 4])
    append(log, 30)
    log.erase([40])
    assert start_again(log, 0, 100) == [3, 4, 30, 40, 61]
    assert log.log.erasures.unkept_offset == 30


def test_a_history_ends_with_the_newest_epoch(log: ErasedLog) -> None:
    assert history_of(log.log) == (0, -1, 0)
    append(log, 3, epoch=2)
    append(log, 3, epoch=5)
    assert history_of(log.log) == (6, 5, 3)


def test_what_is_read_again_is_newer_than_what_was_known(log: ErasedLog) -> None:
    append(log, 3)
    log.erase([1])
    versions = log.log.erasures.version, log.log.transactions.version
    erasures, transactions = read_again(log.log)
    assert (erasures.version, transactions.version) == (versions[0] + 1, versions[1] + 1)
    erasures.commit(4)
    assert list(erasures.erased) == [1, 3]


def test_the_file_is_not_written_again_for_what_it_has(log: ErasedLog) -> None:
    append(log, 5)
    log.erase([3])
    log.keep()
    start_again(log, 6, 5, kept_end=6)
    assert log.log.erasures.kept_end == 6


def test_the_file_knows_what_is_below_the_checkpoint(log: ErasedLog) -> None:
    append(log, 30)
    log.erase([3])
    log.log.erasures.commit(31)
    log.keep()
    append(log, 30)
    log.erase([40])
    assert start_again(log, 61, 100) == [3, 30, 40, 61]
    assert log.log.erasures.unkept_offset == 61
    log.keep()
    assert start_again(log, log.log.log_end_offset, 100) == [3, 30, 40, 61]
    assert log.log.erasures.unkept_offset is None


@pytest.mark.parametrize("loss", ["removed", "emptied", "older", "another's"])
def test_a_file_that_is_lost_forgets_no_erasure(
    log: ErasedLog, loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = str(FOLDER / FILE_NAME)
    append(log, 10)
    log.erase([3])
    log.log.erasures.commit(11)
    log.keep()
    older = log.disk.content(file)
    append(log, 10)
    log.erase([12])
    log.log.erasures.commit(22)
    log.keep()
    end, kept_end = log.log.log_end_offset, log.log.erasures.kept_end
    match loss:
        case "removed":
            log.disk.remove(file)
        case "emptied":
            log.disk.cut(file)
        case "older":
            log.disk.replace(file, older)
        case _:
            log.disk.replace(file, encode(Erasures(), b"s/1"))
    with caplog.at_level(logging.WARNING):
        assert start_again(log, end, end, kept_end=kept_end) == [3, 10, 12, 21]
    assert "erasures are read from the log" in caplog.text
    log.keep()
    assert start_again(log, end, end, kept_end=kept_end) == [3, 10, 12, 21]


def test_what_waits_for_its_commit_is_in_the_file(log: ErasedLog) -> None:
    append(log, 5)
    log.erase([3])
    log.keep()
    assert start_again(log, 6, 5) == []
    log.log.erasures.commit(6)
    assert list(log.log.erasures.erased) == [3, 5]


def test_an_erasure_that_was_cut_off_after_the_file_was_written_counts_for_nothing(
    log: ErasedLog,
) -> None:
    append(log, 5)
    log.erase([3])
    log.keep()
    log.log.truncate_to(5)
    append(log, 5, epoch=1)
    assert start_again(log, 5, 10) == []


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("has_file", [False, True])
def test_a_checkpoint_that_is_older_than_a_cut_hides_no_erasure(
    log: ErasedLog, cut: bool, has_file: bool
) -> None:
    append(log, 30)
    if has_file:
        log.erase([3])
        log.log.erasures.commit(31)
        log.keep()
    append(log, 30)
    log.sync()
    checkpoint = log.checkpoint
    log.log.truncate_to(40)
    append(log, 5, epoch=1)
    log.erase([7], epoch=1)
    append(log, 30, epoch=1)
    log.sync()
    if cut:
        log.disk.crash()
    else:
        log.disk.kill()
    log.come_back(checkpoint, 100)
    assert list(log.log.erasures.erased) == ([3, 7, 30, 45] if has_file else [7, 45])
    assert log.checkpoint == 45


def test_a_file_of_another_log_is_not_used(
    log: ErasedLog, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, 5)
    log.erase([3])
    log.log.erasures.commit(6)
    log.keep()
    log.log.truncate_to(2)
    append(log, 2, epoch=1)
    log.erase([1], epoch=1)
    append(log, 5, epoch=1)
    with caplog.at_level(logging.WARNING):
        assert start_again(log, 10, 10) == [1, 4]
    assert "no erasure at 5 of epoch 0" in caplog.records[-1].problem  # type: ignore[attr-defined]


@pytest.mark.parametrize("data", [b"x", b"SLER\0\0\0\1\0\0\0\0"])
def test_a_damaged_file_costs_reading_the_log(log: ErasedLog, data: bytes) -> None:
    append(log, 5)
    log.erase([3])
    append(log, 5)
    log.log.beside.write(FILE_NAME, data)
    assert start_again(log, 11, 11) == [3, 5]


def test_what_is_below_the_start_is_forgotten(log: ErasedLog) -> None:
    append(log, 30)
    log.erase([3, 29])
    log.log.erasures.commit(31)
    log.keep()
    append(log, 5)
    log.log.advance_log_start(20)
    log.log.close()
    log.open(recovery_point=log.log.recovery_point)
    log.log.log_start_offset = 20
    assert list(load(log.log, known_offset=36).erasures.erased) == [29, 30]


def test_damage_hides_no_more_than_the_rest_of_its_segment(log: ErasedLog) -> None:
    append(log, 30)
    log.erase([3])
    append(log, 30)
    log.erase([40])
    log.sync()
    path = log.log.segments.first.path
    content = bytearray(log.disk.content(path))
    content[16] = 9  # the first batch's magic
    log.disk.replace(path, bytes(content))
    assert 40 in start_again(log, 0, 100)
