"""Compaction of a log with transactions: what is aborted goes first, and markers when nothing needs them."""

from random import Random

import pytest

from streamlog.record.batch import read_header
from streamlog.record.codec import iter_records
from streamlog.record.transaction_marker import marker_of
from tests.compacted_log import COMPACTED
from tests.log_folder import read_batches
from tests.simulation.disk import SimDisk
from tests.transactional_log import TransactionalLog

DAY_MS = 86_400_000
LATER_MS = 3 * DAY_MS


class CompactedLog(TransactionalLog):
    def __init__(self, seed: int = 1) -> None:
        super().__init__(SimDisk(seed))
        self.settings = COMPACTED
        self.log.settings = COMPACTED

    def compact(self, now_ms: int = 10_000) -> None:
        self.log.roll()
        self.sync()
        end = self.log.log_end_offset
        self.commit(end)
        self.clean(now_ms, upper=self.log.transactions.stable_offset(end, 0))

    def markers(self) -> list[int]:
        return [
            header.base_offset
            for header, batch in read_batches(self.log)
            if marker_of(batch, header) is not None
        ]

    def committed(self) -> dict[bytes, bytes | None]:
        """The last committed value of each key."""
        gone, found = set(self.log.erasures.erased), {}
        for _, batch in read_batches(self.log):
            for it in iter_records(batch):
                if it.offset not in gone:
                    found[it.key or b""] = it.value
        return found


@pytest.fixture
def log() -> CompactedLog:
    return CompactedLog()


def test_an_aborted_record_does_not_take_the_place_of_a_committed_one(log: CompactedLog) -> None:
    log.write(7, key=b"a")
    log.mark(7, is_commit=True)
    log.write(7, key=b"a")
    log.mark(7, is_commit=False)
    log.commit(4)
    before = log.committed()
    assert before == {b"a": b"0"}
    log.compact(LATER_MS)
    assert log.committed() == before
    assert [it.offset for it in log.kept() if it.key == b"a"] == [0]
    assert log.log.transactions.aborted == []


def test_what_is_open_is_not_looked_at(log: CompactedLog) -> None:
    log.append((b"a", b"old"))
    log.write(7, key=b"a")
    log.append((b"a", b"new"))
    log.compact()
    assert [it.offset for it in log.kept()] == [0, 1, 2]
    log.mark(7, is_commit=True)
    log.compact()
    assert [it.offset for it in log.kept() if it.key == b"a"] == [2]


def test_a_marker_stays_as_long_as_something_of_its_transaction(log: CompactedLog) -> None:
    log.write(7, key=b"a")
    log.mark(7, is_commit=True)
    log.write(8, key=b"b")
    log.mark(8, is_commit=False)
    log.append((b"c", b"x"))
    log.compact(LATER_MS)
    assert log.markers() == [1, 3]
    log.append((b"c", b"y"))
    log.compact(LATER_MS + 500)  # the time of tombstones is a second
    assert log.markers() == [1, 3]
    log.append((b"c", b"z"))
    log.compact(LATER_MS + 2_000)
    assert log.markers() == [1]
    log.append((b"a", b"z"))
    log.compact(LATER_MS + 3_000)
    assert log.markers() == [1]
    log.append((b"c", b"a"))
    log.compact(LATER_MS + 9_000)
    assert log.markers() == []
    log.come_back(0, log.log.log_end_offset)
    assert log.log.transactions.open == {}


@pytest.mark.parametrize("seed", range(30))
def test_readers_of_committed_records_find_the_same_as_before(seed: int) -> None:
    rng, log, now_ms = Random(seed), CompactedLog(seed), LATER_MS
    for _ in range(12):
        for _ in range(rng.randrange(1, 12)):
            producer_id, key = rng.randrange(3), b"%d" % rng.randrange(4)
            match rng.randrange(4):
                case 0:
                    log.append((key, b"plain %d" % rng.randrange(1000)))
                case 1:
                    log.mark(producer_id, is_commit=rng.random() < 0.5)
                case _:
                    log.write(producer_id, rng.randrange(1, 3), key=key)
        end = log.log.log_end_offset
        log.commit(end)
        stable = log.log.transactions.stable_offset(end, 0)
        before, first = log.committed(), log.log.transactions.first_unstable_offset
        now_ms += rng.choice([1, 2_000, 2 * DAY_MS])
        log.compact(now_ms)
        assert log.committed() == before
        assert log.log.transactions.first_unstable_offset == first
        log.come_back(0, end)
        assert log.committed() == before
        assert log.log.transactions.first_unstable_offset == first
        assert log.log.transactions.stable_offset(end, 0) == stable
    for producer_id in range(3):
        log.mark(producer_id, is_commit=False)
    headers = [read_header(batch) for _, batch in read_batches(log.log)]
    assert headers
