"""Sequences, epochs and markers of a partition's producers, one rule at a time."""

import pytest

from streamlog.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    UnknownProducer,
)
from streamlog.record.batch import BatchHeader
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.replication.producer_state import SEQUENCE_MAX, KeptBatch, ProducerState
from streamlog.replication.producer_table import ProducerTable

PRODUCER = 7


def header(
    sequence: int, *, epoch: int = 3, count: int = 2, producer_id: int = PRODUCER
) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, 0, count - 1, 0, 0, producer_id, epoch, sequence, count)


def marker(epoch: int, *, coordinator: int = 5, version: int = 2) -> TransactionMarker:
    return TransactionMarker(PRODUCER, epoch, True, coordinator, version)


@pytest.fixture
def table() -> ProducerTable:
    """The producer has written the sequences 0 to 3 in epoch 3, at the offsets 10 to 13."""
    made = ProducerTable(expiration_ms=1_000)
    made.note(header(0), 10, now_ms=0)
    made.note(header(2), 12, now_ms=0)
    return made


def state(table: ProducerTable) -> ProducerState:
    return dict(table.items())[PRODUCER]


def test_a_repeated_batch_is_known(table: ProducerTable) -> None:
    assert table.check_sequence(header(0)) == KeptBatch(0, 2, 10, 12)
    assert table.check_sequence(header(2)) == KeptBatch(2, 4, 12, 14)
    assert table.check_sequence(header(4)) is None
    for wrong in (header(0, count=1), header(1), header(5)):
        with pytest.raises(OutOfOrderSequence, match="where 4 is next"):
            table.check_sequence(wrong)


def test_a_new_epoch_begins_or_goes_on(table: ProducerTable) -> None:
    assert table.check_sequence(header(0, epoch=4)) is None
    assert table.check_sequence(header(4, epoch=4)) is None
    for wrong in (header(1, epoch=4), header(2, epoch=4)):
        with pytest.raises(OutOfOrderSequence):
            table.check_sequence(wrong)
    with pytest.raises(InvalidProducerEpoch, match="epoch 2, where 3 has written"):
        table.check_sequence(header(4, epoch=2))
    table.note(header(0, epoch=4), 14, now_ms=0)
    assert state(table).batches[-1] == KeptBatch(0, 2, 14, 16)
    assert len(state(table).batches) == 1, "those of the epoch before are not this one's"
    with pytest.raises(OutOfOrderSequence, match="where 2 is next"):
        table.check_sequence(header(4, epoch=4))


def test_a_marker_begins_an_epoch_with_the_sequence_0(table: ProducerTable) -> None:
    table.note_marker(marker(4), 14, now_ms=0)
    assert (state(table).epoch, state(table).end_offset) == (4, 15)
    with pytest.raises(OutOfOrderSequence, match="where 0 is next"):
        table.check_sequence(header(4, epoch=4))
    with pytest.raises(OutOfOrderSequence, match="where 0 is next"):
        table.check_sequence(header(1, epoch=5))
    assert table.check_sequence(header(0, epoch=4)) is None
    table.note(header(0, epoch=4), 15, now_ms=0)
    assert table.check_sequence(header(2, epoch=4)) is None


def test_a_marker_of_the_same_epoch_changes_no_sequence(table: ProducerTable) -> None:
    table.note_marker(marker(3, version=1), 14, now_ms=0)
    assert table.check_sequence(header(4)) is None
    assert table.check_sequence(header(2)) == KeptBatch(2, 4, 12, 14)


def test_a_batch_without_numbers_ends_what_was_known_of_an_older_epoch(
    table: ProducerTable,
) -> None:
    table.note(header(-1), 14, now_ms=0)
    assert (state(table).end_offset, len(state(table).batches)) == (16, 2)
    table.note(header(-1, epoch=4), 16, now_ms=0)
    assert (state(table).epoch, state(table).end_offset) == (4, 18)
    assert not state(table).batches
    assert table.check_sequence(header(9, epoch=4)) is None, "what came before is not known"
    table.note_marker(marker(5), 18, now_ms=0)
    table.note(header(-1, epoch=5), 19, now_ms=0)
    assert table.check_sequence(header(9, epoch=5)) is None


def test_an_older_coordinator_or_epoch_writes_no_marker(table: ProducerTable) -> None:
    assert not table.check_marker(marker(4))
    table.note_marker(marker(4, coordinator=5), 14, now_ms=0)
    assert table.check_marker(marker(4, coordinator=5)), "written already"
    assert not table.check_marker(marker(4, coordinator=5, version=1)), "that may be another one"
    assert not table.check_marker(marker(5, coordinator=6))
    with pytest.raises(CoordinatorFenced, match="coordinator epoch 4, where 5"):
        table.check_marker(marker(4, coordinator=4))
    with pytest.raises(InvalidProducerEpoch):
        table.check_marker(marker(3, coordinator=6))
    table.note_marker(
        marker(5, coordinator=4), 15, now_ms=0
    )  # from a log: whether it should be is not asked
    with pytest.raises(CoordinatorFenced):
        table.check_marker(marker(5, coordinator=4))


def test_a_marker_of_an_unknown_producer_makes_it_known() -> None:
    table = ProducerTable(expiration_ms=1_000)
    assert not table.check_marker(marker(4))
    table.note_marker(marker(4), 20, now_ms=50)
    found = state(table)
    assert (found.epoch, found.first_offset, found.end_offset, found.seen_ms) == (4, 20, 21, 50)
    assert table.check_sequence(header(9, epoch=4)) is None, "what came before is not known"


def test_an_epoch_is_checked_of_known_producers(table: ProducerTable) -> None:
    table.check_epoch(PRODUCER, 3)
    table.check_epoch(PRODUCER, 4)
    table.check_epoch(8, 0)
    with pytest.raises(InvalidProducerEpoch):
        table.check_epoch(PRODUCER, 2)


def test_one_of_another_cluster_begins(table: ProducerTable) -> None:
    assert table.check_sequence(header(0, producer_id=5), first_id=6) is None
    assert table.check_sequence(header(9, producer_id=6), first_id=6) is None
    with pytest.raises(UnknownProducer):
        table.check_sequence(header(1, producer_id=5), first_id=6)


@pytest.mark.parametrize("last", [SEQUENCE_MAX - 1, SEQUENCE_MAX])
def test_sequences_go_on_from_0(last: int) -> None:
    table = ProducerTable(expiration_ms=1_000)
    table.note(header(last), 14, now_ms=0)
    following = last + 1 - SEQUENCE_MAX
    assert table.check_sequence(header(following)) is None
    with pytest.raises(OutOfOrderSequence, match=f"where {following} is next"):
        table.check_sequence(header(following + 1))


def test_those_are_forgotten_that_have_not_written_for_longest() -> None:
    table = ProducerTable(expiration_ms=1_000, producers_max=2)
    for producer_id, now_ms in ((1, 0), (2, 10), (1, 20)):
        table.note(header(0, producer_id=producer_id), 0, now_ms=now_ms)
    table.note(header(0, producer_id=3), 0, now_ms=30)
    assert [producer_id for producer_id, _ in table.items()] == [1, 3]
    table.note(header(2, producer_id=3), 2, now_ms=1_020)
    assert 1 in table, "it may be as old as that"
    table.note_marker(marker(4), 4, now_ms=1_021)
    assert [producer_id for producer_id, _ in table.items()] == [3, PRODUCER]
    assert table.reaches(4)
    assert not table.reaches(5)
