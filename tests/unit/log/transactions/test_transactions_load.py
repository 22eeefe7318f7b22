"""Transactions are known again after a start, at the least cost."""

import logging

import pytest

from streamlog.log.transactions.transactions_file import FILE_NAME
from tests.log_folder import FOLDER
from tests.simulation.disk import SimDisk
from tests.transactional_log import TransactionalLog


@pytest.fixture
def log() -> TransactionalLog:
    return TransactionalLog(SimDisk(1))


def open_ones(log: TransactionalLog) -> dict[int, int]:
    return {it: known.first_offset for it, known in log.log.transactions.open.items()}


def start_again(log: TransactionalLog, known_offset: int, kept: tuple[int, int] = (0, 0)) -> None:
    log.log.close()
    log.come_back(known_offset, 2**62, kept)


def test_out_of_the_log_where_there_is_no_file(log: TransactionalLog) -> None:
    log.write(7, 2)
    log.write(8)
    log.mark(8, is_commit=False)
    start_again(log, 0)
    assert open_ones(log) == {7: 0}
    assert [tuple(it) for it in log.log.transactions.aborted] == [(8, 2, 3, 0)]
    assert set(log.log.erasures.erased) == {2, 3}
    assert log.log.transactions.unkept_offset == 0


def test_the_file_knows_what_is_below_the_checkpoint(log: TransactionalLog) -> None:
    log.write(7)
    log.sync()
    log.keep()
    log.append(*((b"k", b"v" * 100) for _ in range(30)))
    log.sync()
    kept = log.known
    start_again(log, log.log.log_end_offset, kept)
    assert open_ones(log) == {7: 0}
    assert log.log.transactions.unkept_offset is None


def test_what_was_aborted_below_the_log_start_is_forgotten(log: TransactionalLog) -> None:
    log.write(7, 2)
    log.mark(7, is_commit=False)
    log.write(8, 2)
    end = log.mark(8, is_commit=False) + 1
    log.sync()
    log.log.transactions.commit(end)
    log.keep()
    kept = log.known
    log.log.advance_log_start(4)
    start_again(log, log.log.log_end_offset, kept)
    assert log.log.log_start_offset == 4
    assert [it.producer_id for it in log.log.transactions.aborted] == [8]


@pytest.mark.parametrize("loss", ["removed", "emptied", "older", "damaged"])
def test_a_file_that_is_lost_forgets_no_transaction(
    log: TransactionalLog, loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = str(FOLDER / FILE_NAME)
    log.write(7)
    log.keep()
    older = log.disk.content(file)
    log.write(8)
    log.sync()
    log.keep()
    end, kept = log.log.log_end_offset, log.known
    match loss:
        case "removed":
            log.disk.remove(file)
        case "emptied":
            log.disk.cut(file)
        case "older":
            log.disk.replace(file, older)
        case _:
            log.disk.replace(file, older[:-1] + b"x")
    with caplog.at_level(logging.WARNING):
        start_again(log, end, kept)
    assert open_ones(log) == {7: 0, 8: 1}
    assert (
        "SL-0325" in {getattr(it, "code", None) or it.message for it in caplog.records}
        or caplog.text
    )


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_file_of_what_was_cut_off_is_not_believed(log: TransactionalLog, more: int) -> None:
    """The marker that it knows is gone: the transaction is open again."""
    log.write(7)
    log.mark(7, is_commit=True)
    log.write(8)
    log.sync()
    log.keep()
    kept = log.known
    log.log.truncate_to(1)
    for _ in range(more):
        log.append((b"k", b"v"), epoch=1)
    log.sync()
    start_again(log, log.log.log_end_offset, kept)
    assert open_ones(log) == {7: 0}


def test_a_file_of_more_than_was_synced_is_of_this_log(log: TransactionalLog) -> None:
    log.write(7)
    log.sync()
    log.mark(7, is_commit=True)
    log.write(8)
    log.keep()
    kept = log.known
    log.disk.calls_left = None
    log.log.truncate_to(1)  # as a power cut may leave it
    log.disk.kill()
    log.come_back(1, 1, kept)
    assert open_ones(log) == {7: 0}
    log.append((b"k", b"v"), epoch=1)
    assert log.log.transactions.stable_offset(2, 0) == 0


def test_what_is_below_the_log_start_holds_up_nobody(log: TransactionalLog) -> None:
    log.write(7)
    log.append((b"k", b"v"))
    log.sync()
    log.keep()
    kept = log.known
    log.log.advance_log_start(1)
    assert log.log.transactions.stable_offset(2, 1) == 1
    log.log.advance_log_start(2)
    start_again(log, 2, kept)
    assert open_ones(log) == {}
    assert log.log.transactions.stable_offset(2, 2) == 2
