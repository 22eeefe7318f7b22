"""A follower's decisions, over a real log on a simulated disk."""

import pytest

from streamlog.errors import BrokenInvariant, CorruptBatch, CorruptData, StorageFailed
from streamlog.log.log import PartitionLog
from streamlog.model import NO_EPOCH, EpochEnd, NodeId, TopicPartition
from streamlog.partition.replication.partition_follower import (
    FetchPosition,
    PartitionFollower,
    Truncation,
)
from streamlog.partition.state import NOTHING, PartitionState, Step
from tests.log_folder import append, make_batch, open_log, sync
from tests.simulation.disk import Fault, SimDisk

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


class Bench:
    """Node 2, which follows node 1 in epoch 5."""

    def __init__(self, *, isr: tuple[NodeId, ...] = (ONE, TWO), high_watermark: int = 0) -> None:
        self.disk = SimDisk()
        self.log = open_log(self.disk)
        for epoch, count in ((2, 3), (4, 3), (5, 4)):
            append(self.log, 2, epoch=epoch)
            append(self.log, count - 2, epoch=epoch)
        sync(self.log)
        self.state = PartitionState(
            TopicPartition("s", 0), self.log, node_id=TWO, high_watermark=high_watermark
        )
        self.following = PartitionFollower(self.state)
        self.follow(isr)

    def follow(self, isr: tuple[NodeId, ...] = (ONE, TWO), epoch: int = 5) -> None:
        self.state.follow(epoch, isr, leader=ONE, replicas=(ONE, TWO, THREE))

    def cut(self, cut: Truncation) -> int:
        self.following.begin_cut(cut)()
        return self.following.finish_cut()[1]


def fetched(log: PartitionLog, count: int = 1, epoch: int = 5) -> memoryview:
    return memoryview(make_batch(log.log_end_offset, count, epoch=epoch))


def test_a_fetch_says_what_is_here_and_synced() -> None:
    bench = Bench()
    assert bench.following.position() == FetchPosition(10, 5, 5)
    bench.following.append(fetched(bench.log, 3))
    assert bench.following.position() is None, "not synced"
    sync(bench.log)
    assert bench.following.position() == FetchPosition(13, 5, 5)
    bench.state.sync = "os"
    bench.following.append(fetched(bench.log))
    assert bench.following.position() == FetchPosition(14, 5, 5)


def test_nothing_is_fetched_without_a_leader_or_as_one_or_offline() -> None:
    bench = Bench()
    bench.state.follow(6, (TWO,))
    assert bench.following.position() is None
    bench.state.lead(7, (TWO,))
    assert bench.following.position() is None
    bench.follow(epoch=8)
    assert bench.following.position() == FetchPosition(10, 5, 8)
    bench.state.fail(StorageFailed("x"))
    assert bench.following.position() is None


def test_who_has_lost_its_end_asks_when_others_count_without_it() -> None:
    bench = Bench()
    bench.following.is_short = True
    bench.follow((ONE, TWO, THREE))
    assert not bench.following.heard()
    assert bench.following.position() is None
    bench.follow((ONE, THREE))
    assert bench.following.heard()
    assert not bench.following.heard(), "once"
    assert bench.following.position() is not None
    bench.following.is_short = True
    bench.follow((TWO,))
    assert bench.following.heard(), "there is nobody else"


def test_while_the_disk_is_full_nothing_is_fetched() -> None:
    bench = Bench()
    has_room = False
    bench.state._has_room = lambda: has_room
    assert bench.following.position() is None
    has_room = True
    assert bench.following.position() == FetchPosition(10, 5, 5)


def test_an_answer_fits_what_is_still_asked() -> None:
    bench = Bench()
    asked = bench.following.position()
    assert asked is not None
    assert bench.following.fits(asked)
    assert not bench.following.fits(asked._replace(offset=9))
    bench.follow(epoch=6)
    assert not bench.following.fits(asked)
    asked = asked._replace(leader_epoch=6)
    assert bench.following.fits(asked)
    bench.cut(Truncation(6))
    bench.following.append(fetched(bench.log, 4, epoch=6))
    assert not bench.following.fits(asked), "the same end, and another history"
    bench.state.lead(7, (TWO,))
    assert not bench.following.fits(asked._replace(leader_epoch=7))


def test_what_is_shown_is_the_leaders_as_far_as_it_is_here() -> None:
    bench = Bench()
    assert bench.following.advance(7) == Step(high_watermark_moved=True)
    assert bench.state.high_watermark == 7
    assert bench.following.advance(7) == NOTHING
    bench.following.advance(4)
    assert bench.state.high_watermark == 7, "a new leader does not know yet"
    bench.following.advance(99)
    assert bench.state.high_watermark == 10


def test_what_is_gone_at_the_leader_goes_here_below_the_high_watermark() -> None:
    bench = Bench()
    bench.following.advance(4)
    assert bench.following.log_start(9) == 4
    assert bench.log.log_start_offset == 0, "once that is durable"
    bench.following.advance(10)
    assert bench.following.log_start(9) == 9
    bench.log.advance_log_start(9)
    bench.following.advance(10)
    assert bench.following.log_start(3) == 9


@pytest.mark.parametrize(
    ("diverging", "end"),
    [
        (EpochEnd(5, 8), 8),
        (EpochEnd(4, 5), 5),
        (EpochEnd(4, 30), 6),
        (EpochEnd(3, 30), 3),
        (EpochEnd(1, 2), 0),
    ],
)
def test_the_log_is_cut_by_epochs(diverging: EpochEnd, end: int) -> None:
    bench = Bench()
    cut = bench.following.diverged(diverging)
    assert bench.cut(cut) == 0
    assert bench.log.log_end_offset == end
    bench.disk.crash()
    assert open_log(bench.disk).log_end_offset == end


def test_nobody_in_sync_cuts_what_is_committed() -> None:
    bench = Bench(high_watermark=8)
    with pytest.raises(CorruptData, match="committed"):
        bench.following.diverged(EpochEnd(5, 7))
    with pytest.raises(CorruptData, match="committed"):
        bench.following.out_of_range(7)
    assert bench.following.diverged(EpochEnd(5, 8)) == Truncation(8)
    with pytest.raises(CorruptData):
        bench.following.diverged(EpochEnd(-1, -1))
    with pytest.raises(CorruptData):
        bench.following.out_of_range(-1)


def test_after_an_unclean_election_others_cut_and_say_what_it_cost() -> None:
    bench = Bench(isr=(ONE,), high_watermark=8)
    assert bench.cut(bench.following.diverged(EpochEnd(4, 6))) == 2
    assert bench.state.high_watermark == bench.log.log_end_offset == 6


def test_it_begins_anew_where_the_leader_does() -> None:
    bench = Bench(high_watermark=8)
    assert bench.cut(bench.following.out_of_range(40)) == 0
    log = bench.log
    assert (log.log_start_offset, bench.state.high_watermark, log.log_end_offset) == (40, 40, 40)
    assert bench.following.position() == FetchPosition(40, -1, 5)


def test_it_begins_at_0_where_the_leader_does() -> None:
    assert Bench().following.out_of_range(0) == Truncation(0, whole=True)


def test_a_leader_cuts_only_what_the_object_store_has() -> None:
    bench = Bench()
    bench.state.lead(6, (TWO,))
    for cut in (Truncation(4), Truncation(4, whole=True)):
        with pytest.raises(BrokenInvariant, match="only a follower truncates"):
            bench.following.begin_cut(cut)
    bench.state.is_behind_store = True
    with pytest.raises(BrokenInvariant, match="only a follower truncates"):
        bench.following.begin_cut(Truncation(4))
    assert not bench.state.cutting
    bench.following.begin_cut(Truncation(40, whole=True))()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (40, 40)


def test_a_cut_waits_for_the_one_before_it_and_for_a_sync() -> None:
    bench = Bench()
    with pytest.raises(BrokenInvariant, match="no truncation runs"):
        bench.following.finish_cut()
    bench.following.begin_cut(Truncation(6))
    with pytest.raises(BrokenInvariant, match="twice at once"):
        bench.following.begin_cut(Truncation(4))
    bench = Bench()
    bench.following.append(fetched(bench.log))
    assert bench.state.begin_sync() != NOTHING
    with pytest.raises(BrokenInvariant, match="during a sync"):
        bench.following.begin_cut(Truncation(4))


def test_of_a_cut_that_was_not_kept_no_cost_is_told() -> None:
    """The files were cut, and the checkpoint of log starts could not be written: the partition is offline."""
    bench = Bench(isr=(ONE,), high_watermark=8)
    bench.following.begin_cut(Truncation(4))()
    assert bench.following.finish_cut(StorageFailed("x"))[1] == 0
    assert bench.state.high_watermark == 8


def test_while_it_is_cut_nothing_else_happens() -> None:
    bench = Bench()
    run = bench.following.begin_cut(Truncation(4))
    assert bench.state.cutting
    assert bench.following.position() is None
    assert bench.state.begin_sync() == NOTHING
    with pytest.raises(AssertionError):
        bench.follow(epoch=6)
    with pytest.raises(AssertionError):
        bench.state.lead(6, (TWO,))
    run()
    step, _ = bench.following.finish_cut()
    assert step.wants_sync, "one was asked for meanwhile"
    bench.follow(epoch=6)
    assert bench.following.position() == FetchPosition(3, 2, 6), "a batch is kept or goes whole"


def test_a_cut_that_fails_takes_the_partition_offline() -> None:
    bench = Bench()
    run = bench.following.begin_cut(Truncation(4))
    bench.disk.faults.append(Fault("truncate", 5))
    with pytest.raises(StorageFailed) as failed:
        run()
    bench.following.finish_cut(failed.value)
    assert bench.state.failure is failed.value


def test_damaged_records_are_refused_and_a_failing_disk_ends_it() -> None:
    bench = Bench()
    bad = bytearray(fetched(bench.log))
    bad[-1] ^= 1
    with pytest.raises(CorruptBatch):
        bench.following.append(memoryview(bad))
    assert bench.state.failure is None
    bench.disk.faults.append(Fault("pwrite", 5))
    with pytest.raises(StorageFailed):
        bench.following.append(fetched(bench.log))
    assert bench.state.failure is not None


def test_records_of_a_later_epoch_are_not_taken_from_a_deposed_leader() -> None:
    """It has found what to send, is deposed, cuts its log and fetches from the next leader; then
    the bytes that it sends are the next leader's.
    """
    bench = Bench()
    disk = SimDisk()
    deposed = open_log(disk)
    for base_offset, epoch in ((0, 2), (2, 2), (3, 4), (5, 4), (6, 5), (8, 5)):
        count = 1 if base_offset in (2, 5) else 2
        deposed.append(make_batch(base_offset, count, epoch=epoch), 1_000)
    lost = [make_batch(10, 3, epoch=5), make_batch(13, 3, epoch=5)]
    for batch in lost:
        deposed.append(batch, 1_000)
    assert bench.following.append(memoryview(lost[0])) == len(lost[0])
    with deposed.read(13, 1 << 20, 16) as piece:
        deposed.truncate_to(10)
        deposed.append(make_batch(10, 3, epoch=6), 1_000)
        deposed.append(make_batch(13, 3, epoch=6), 1_000)
        sent = piece.read()
    assert len(sent) == len(lost[1])
    assert bench.following.append(memoryview(sent)) == 0
    assert bench.log.epochs.latest == 5, "the next leader would take what is before it for its own"
    bench.follow(epoch=6)
    assert bench.following.diverged(deposed.epochs.end_offset_for(5, 16)) == Truncation(10)


def test_what_comes_before_records_of_a_later_epoch_is_taken() -> None:
    bench = Bench()
    first = make_batch(10, 2, epoch=5)
    records = memoryview(first + make_batch(12, 1, epoch=6))
    assert bench.following.append(records) == len(first)
    assert bench.following.append(records[len(first) :]) == 0
    assert (bench.log.log_end_offset, bench.log.epochs.latest) == (12, 5)


def test_what_is_damaged_is_cut_when_the_leader_does_not_count_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader may have proposed this replica by what it had: the controller adds it soon."""
    bench, damaged_from = Bench(isr=(ONE,)), 7
    monkeypatch.setattr(type(bench.log), "damaged_from", property(lambda _: damaged_from))
    following = bench.following
    before = following.position()
    assert before is not None
    following.is_damaged = True
    assert following.position() == FetchPosition(7, 5, 5)
    assert following.repair() is None
    following.release(before)
    assert following.repair() is None, "that was an answer to an earlier request"
    following.release(FetchPosition(7, 5, 4))
    assert following.repair() is None, "that was another leader's"
    asked = following.position()
    assert asked is not None
    following.release(asked)
    assert following.repair() == Truncation(7, damaged=True)
    damaged_from = 3
    assert following.repair() is None, "the leader counts what was found damaged since"
    assert following.position() == FetchPosition(3, 2, 5)
    bench.follow((ONE, TWO))
    assert following.position() is None
    damaged_from = 0
    bench.follow((ONE,))
    assert following.position() == FetchPosition(0, NO_EPOCH, 5)


def test_damage_is_told_to_each_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(isr=(ONE,))
    monkeypatch.setattr(type(bench.log), "damaged_from", property(lambda _: 7))
    bench.following.is_damaged = True
    bench.following.release(FetchPosition(7, 5, 5))
    assert bench.following.position() is None
    bench.follow((ONE,), epoch=6)
    assert bench.following.repair() is None, "the next leader may count what is damaged"
    assert bench.following.position() == FetchPosition(7, 5, 6)


def test_damage_at_the_log_start_is_after_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(isr=(ONE,), high_watermark=10)
    bench.log.advance_log_start(4)
    monkeypatch.setattr(type(bench.log), "damaged_from", property(lambda _: 4))
    bench.following.is_damaged = True
    assert bench.following.position() == FetchPosition(4, NO_EPOCH, 5)


def test_a_release_is_for_one_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(isr=(ONE,))
    following = bench.following
    with monkeypatch.context() as patch:
        patch.setattr(type(bench.log), "damaged_from", property(lambda _: 7))
        following.is_damaged = True
        following.release(FetchPosition(7, 5, 5))
        assert bench.cut(Truncation(7)) == 0
        following.is_damaged = True
        assert following.repair() is None
        following.release(FetchPosition(7, 5, 5))
        following.is_damaged = False
        assert following.position() == FetchPosition(6, 4, 5), "it was purged"
        following.is_damaged = True
        assert following.repair() is None
