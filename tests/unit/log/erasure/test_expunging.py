import random
from dataclasses import replace

import pytest

from streamlog.log.erasure.expunging import removable_end
from streamlog.record.batch import batches, read_header
from streamlog.record.codec import iter_records
from streamlog.record.compacted import is_gap
from tests.compacted_log import RULES
from tests.erased_log import ErasedLog
from tests.log_folder import read_batches
from tests.record_batches import HandRecord, hand_batch
from tests.simulation.disk import SimDisk


@pytest.fixture
def log() -> ErasedLog:
    return ErasedLog(SimDisk(1))


def fill(log: ErasedLog, count: int = 20, codec: int = 0) -> None:
    """Three records in each batch."""
    for number in range(count):
        value = b"%d" % number
        log.append((b"a", value), (b"b", value), (b"c", value * 30), codec=codec)


def commit(log: ErasedLog) -> int:
    log.log.roll()
    log.sync()
    log.log.erasures.commit(log.log.log_end_offset)
    return log.log.log_end_offset


def offsets(log: ErasedLog) -> list[int]:
    return [it.offset for it in log.kept()]


@pytest.mark.parametrize("codec", range(5))
def test_erased_records_go_and_others_stay_as_they_are(log: ErasedLog, codec: int) -> None:
    fill(log, codec=codec)
    before = log.kept()
    log.erase([1, 2, 30, 31, 32])
    done = log.expunge(commit(log))
    assert log.kept() == [it for it in before if it.offset not in {1, 2, 30, 31, 32}]
    assert done.removed_bytes > 0
    assert not log.log.erasures.unremoved
    assert {1, 2, 30, 31, 32, 60} == set(log.log.erasures.erased)
    (gap,) = [header for header, _ in read_batches(log.log) if is_gap(header)]
    assert (gap.base_offset, gap.next_offset) == (30, 33)


def test_only_what_is_touched_is_written_again(log: ErasedLog) -> None:
    fill(log, 60)
    before = {segment.base_offset: segment for segment in log.log.segments}
    log.erase([1])
    log.expunge(commit(log))
    after = {segment.base_offset: segment for segment in log.log.segments}
    assert [base for base in before if before[base] is not after[base]] == [0]


def test_what_is_not_committed_or_not_sealed_stays(log: ErasedLog) -> None:
    fill(log)
    log.erase([1])
    log.sync()
    log.log.erasures.commit(log.log.log_end_offset)
    last = log.log.log_end_offset
    log.append((b"z", b"in the active segment"))
    log.erase([last])
    log.sync()
    log.log.erasures.commit(log.log.log_end_offset)
    log.expunge(log.log.log_end_offset)
    assert 1 not in offsets(log)
    assert last in offsets(log)
    assert list(log.log.erasures.unremoved) == [last]


def test_half_of_a_segment_is_worth_it(log: ErasedLog) -> None:
    fill(log, 60)
    first, second = log.log.segments.sealed()[:2]
    log.erase([first.base_offset, *range(second.base_offset, second.next_offset - 1)])
    upper = commit(log)
    log.expunge(upper, overdue=False)
    assert offsets(log)[0] == first.base_offset
    assert second.base_offset not in offsets(log)
    log.expunge(upper)
    assert first.base_offset not in offsets(log)


def test_a_producers_batch_that_is_emptied_is_known_by_its_header(log: ErasedLog) -> None:
    for number in range(3):
        batch = hand_batch([HandRecord(b"v" * 700)] * 2, number * 2, producer=(number, 0, 0))
        log.log.append(batch, 1_000)
    log.erase([0, 1, 2, 3])
    log.expunge(commit(log), producer_expiration_ms=10_000)
    headers = [header for header, _ in read_batches(log.log)]
    assert [(it.producer_id, it.record_count) for it in headers] == [
        (0, 0), (1, 0), (2, 2), (-1, 1),
    ]  # fmt: skip


def test_erasures_stay_and_tell_who_begins_at_the_start(log: ErasedLog) -> None:
    fill(log)
    log.erase([1, 5])
    log.expunge(commit(log))
    other = ErasedLog(SimDisk(2))
    at = 0
    while at < log.log.log_end_offset:
        with log.log.read(at, 10_000, log.log.log_end_offset) as part:
            data = part.read()
        other.fetch(memoryview(data))
        at = other.log.log_end_offset
    other.log.erasures.commit(at)
    assert other.log.erasures.erased == log.log.erasures.erased
    assert other.kept() == log.kept()
    other.sync()
    other.log.roll()
    other.sync()
    other.expunge(at)  # there is nothing left to do
    assert other.kept() == log.kept()


def test_a_thinned_out_batch_is_sound(log: ErasedLog) -> None:
    fill(log, 1)
    log.erase([1])
    log.expunge(commit(log))
    with log.log.read(0, 10_000, 4) as part:
        data = part.read()
    header = read_header(data)
    assert (header.record_count, header.next_offset) == (2, 3)
    assert [it.offset for _, batch in batches(data) for it in iter_records(batch)] == [0, 2]


@pytest.mark.parametrize("seed", range(12))
def test_replicas_that_clean_at_different_times_keep_the_same(seed: int) -> None:
    """Each compacts and removes when it likes; keys' newest records are erased meanwhile."""
    rng = random.Random(seed)
    replicas = [ErasedLog(SimDisk(seed)), ErasedLog(SimDisk(seed + 1))]
    for it in replicas:
        it.settings = it.log.settings = replace(it.settings, compaction=RULES)
    newest: dict[bytes, int] = {}
    gone: set[int] = set()
    for number in range(120):
        key, offset = b"k%d" % rng.randrange(6), replicas[0].log.log_end_offset
        erased = newest.pop(key, None) if rng.random() < 0.4 else None
        for it in replicas:
            if erased is not None:
                it.erase([erased])
            else:
                it.append((key, b"%d" % number * 20))
        if erased is None:
            newest[key] = offset
        else:
            gone.add(erased)
        for it in replicas:
            if rng.random() < 0.15:
                commit(it)
                clean_or_expunge(it, first_cleans=rng.random() < 0.5)
    for _ in range(3):
        for it in replicas:
            commit(it)
            clean_or_expunge(it, first_cleans=True)
            clean_or_expunge(it, first_cleans=False)
    one, two = (it.kept() for it in replicas)
    assert one == two
    assert {it.key: it.offset for it in one} == newest, "nothing that is older is back"
    assert not gone & {it.offset for it in one}


def clean_or_expunge(log: ErasedLog, *, first_cleans: bool) -> None:
    upper = min(log.log.log_end_offset, log.log.recovery_point)
    if first_cleans:
        log.clean()
    else:
        log.expunge(removable_end(log.log, upper_offset=upper, is_whole=True))
