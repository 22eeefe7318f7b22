"""The state alone, over a real log; the test is the clock, the loop and the worker thread."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamlog.config import SyncPolicy
from streamlog.errors import (
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    StaleNode,
    StaleReplica,
    StorageFailed,
    StorageFull,
    StreamlogError,
    UnknownReplica,
)
from streamlog.log.leader_epochs import EpochStart
from streamlog.log.log import PartitionLog, SyncTicket
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.model import NO_EPOCH, EpochEnd, NodeId, TopicPartition
from streamlog.partition.state import NOTHING, PartitionState, Step
from streamlog.replication.isr import ReplicaStanding
from tests.partition_world import run_of
from tests.steps import acknowledge

ONE = NodeId(1)


class Heard:
    """An acknowledgement that notes what it hears in a list."""

    def __init__(self, story: list[object], name: str) -> None:
        self.story = story
        self.name = name

    def committed(self, base_offset: int) -> None:
        self.story.append((self.name, base_offset))

    def failed(self, error: StreamlogError) -> None:
        self.story.append((self.name, type(error).__name__))


class Bench:
    def __init__(self, directory: Path, sync: SyncPolicy, *, lead: bool = True) -> None:
        disk = OsDisk()
        self.log = PartitionLog.open(directory, LogSettings(), disk=disk, files=FilePool(disk, 16))
        self.state = PartitionState(
            TopicPartition("s", 0), self.log, node_id=ONE, high_watermark=0, sync=sync
        )
        self.story: list[object] = []
        if lead:
            acknowledge(self.state.lead(0, (ONE,)))

    def append(self, name: str, count: int = 1) -> int:
        run = run_of(*[b"x"] * count)
        try:
            return self.state.append(run, 5, Heard(self.story, name))
        except StorageFailed as error:
            acknowledge(self.state.disk_failed(error))
            raise

    def settle(self) -> Step:
        step = self.state.settle()
        acknowledge(step)
        return step

    def begin_sync(self) -> SyncTicket:
        ticket = self.state.begin_sync()
        assert isinstance(ticket, SyncTicket)
        return ticket

    def sync(self) -> None:
        self.begin_sync().run()
        acknowledge(self.state.finish_sync())


def test_committed_means_synced_and_comes_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    assert [bench.append("a", 3), bench.append("b")] == [0, 3]
    bench.settle()
    assert bench.story == []
    assert bench.state.high_watermark == 0
    assert bench.state.in_flight_bytes == bench.log.size_bytes > 0
    bench.sync()
    assert bench.story == [("a", 0), ("b", 3)]
    assert bench.state.high_watermark == 4
    assert bench.state.in_flight_bytes == 0


def test_a_sync_commits_what_was_there_when_it_began(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a")
    ticket = bench.begin_sync()
    bench.append("b")
    assert bench.state.begin_sync() == NOTHING, "one at a time"
    ticket.run()
    step = bench.state.finish_sync()
    assert step.wants_sync
    acknowledge(step)
    assert bench.story == [("a", 0)]
    bench.sync()
    assert bench.story == [("a", 0), ("b", 1)]


@pytest.mark.parametrize("sync", ["interval", "os"])
def test_lazy_policies_commit_without_a_sync_but_not_inside_append(
    tmp_path: Path, sync: SyncPolicy
) -> None:
    bench = Bench(tmp_path, sync)
    bench.append("a", 2)
    assert bench.story == []
    bench.settle()
    assert bench.story == [("a", 0)]
    assert bench.state.high_watermark == 2
    assert bench.log.recovery_point == 0


def test_a_stricter_policy_takes_nothing_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "os")
    bench.append("a")
    bench.settle()
    bench.state.sync = "commit"
    bench.append("b")
    bench.settle()
    assert bench.story == [("a", 0)]
    assert bench.state.high_watermark == 1
    bench.sync()
    assert bench.story == [("a", 0), ("b", 1)]


def test_only_a_leader_appends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit", lead=False)
    run = run_of(b"x")
    with pytest.raises(NotLeader):
        bench.state.append(run, 5, Heard(bench.story, "a"))
    assert run.count == 0
    assert bench.log.log_end_offset == 0


def test_batches_carry_the_epoch_they_were_written_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a", 2)
    bench.state.lead(3, (ONE,))
    bench.append("b")
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(0, 0), (3, 2)]
    with pytest.raises(AssertionError):
        bench.state.lead(2, (ONE,))


def test_a_full_disk_keeps_what_waits_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a")

    def full(_log: PartitionLog, _batch: bytes, _now_ms: int, _sealed: object) -> None:
        raise StorageFull("full")

    run = run_of(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append", full)
        with pytest.raises(StorageFull):
            bench.state.append(run, 5, Heard(bench.story, "b"))
    assert run.count == 0
    assert bench.append("c") == 1
    bench.sync()
    assert bench.story == [("a", 0), ("c", 1)]


def test_a_failed_append_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("kept")
    bench.sync()
    bench.append("a")

    def broken(_log: PartitionLog, _batch: bytes, _now_ms: int, _sealed: object) -> None:
        raise StorageFailed("broken")

    monkeypatch.setattr(PartitionLog, "append", broken)
    with pytest.raises(StorageFailed):
        bench.append("b")
    assert bench.story == [("kept", 0), ("a", "StorageFailed")]
    monkeypatch.undo()
    with pytest.raises(StorageFailed):
        bench.append("c")
    assert bench.state.begin_sync() == NOTHING
    assert bench.state.high_watermark == 1
    assert bench.state.in_flight_bytes == 0


def test_the_first_failure_of_a_write_is_the_one_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, "commit")
    failures = [StorageFailed("first"), StorageFailed("second")]

    def broken(_log: PartitionLog, _batch: bytes, _now_ms: int) -> None:
        raise failures[len(told)]

    told: list[StorageFailed] = []
    monkeypatch.setattr(PartitionLog, "append", broken)
    for _ in failures:
        with pytest.raises(StorageFailed) as failed:
            bench.state.write(b"batch", 5)
        told.append(failed.value)
    assert told == failures
    assert bench.state.failure is failures[0]


def test_a_failed_sync_fails_all_that_waits_and_nothing_is_acknowledged_after_it(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a")
    bench.begin_sync()
    bench.append("b")
    step = bench.state.sync_failed(StorageFailed("broken"))
    assert step.is_offline
    acknowledge(step)
    assert bench.story == [("a", "StorageFailed"), ("b", "StorageFailed")]
    assert bench.state.high_watermark == 0
    assert bench.log.failed
    with pytest.raises(StorageFailed):
        bench.append("c")


def test_a_sync_that_ends_after_a_failure_acknowledges_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a")
    ticket = bench.begin_sync()
    acknowledge(bench.state.fail(StorageFailed("broken")))
    acknowledge(bench.state.fail(StorageFailed("again")))
    ticket.run()
    step = bench.state.finish_sync()
    assert (step.commits, step.high_watermark_moved, step.wants_sync) == ((), False, False)
    assert bench.story == [("a", "StorageFailed")]
    assert bench.state.high_watermark == 0


def test_the_high_watermark_starts_where_it_was_known_to_be(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a", 5)
    bench.sync()
    state = PartitionState(
        TopicPartition("s", 0), bench.log, node_id=ONE, high_watermark=3, sync="commit"
    )
    assert state.high_watermark == 3
    state.lead(1, (ONE,))
    assert state.high_watermark == 5, "an ISR of one: what is recovered is committed"
    beyond = PartitionState(
        TopicPartition("s", 0), bench.log, node_id=ONE, high_watermark=9, sync="commit"
    )
    assert beyond.high_watermark == 5


TWO, THREE = NodeId(2), NodeId(3)


def leading(directory: Path, isr: tuple[NodeId, ...] = (ONE, TWO), **more: Any) -> Bench:
    bench = Bench(directory, "commit", lead=False)
    bench.state.lead(4, isr, replicas=(ONE, TWO, THREE), partition_epoch=7, **more)
    return bench


def test_an_acknowledgement_waits_for_followers_and_for_the_own_disk(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    bench.append("a", 2)
    assert bench.state.follower_fetch(TWO, 9, 2, 4, 0) == Step([])
    assert bench.settle().commits == []
    bench.sync()
    assert bench.story == [("a", 0)]
    bench.append("b")
    bench.sync()
    assert bench.story == [("a", 0)]
    step = bench.state.follower_fetch(TWO, 9, 3, 4, 0)
    assert isinstance(step, Step)
    assert step.high_watermark_moved
    acknowledge(step)
    assert bench.story == [("a", 0), ("b", 2)]


def test_each_that_waits_is_told_once_in_order(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    state = bench.state
    heard, other = Heard(bench.story, "heard"), Heard(bench.story, "other")
    for count, ack in ((2, heard), (3, other), (4, heard)):
        state.append(run_of(*[b"x"] * count), 5, ack)
    in_flight_bytes, last = state.in_flight_bytes, state.appended_bytes
    assert in_flight_bytes == bench.log.size_bytes
    bench.sync()
    step = state.follower_fetch(TWO, 9, 5, 4, 0)
    assert isinstance(step, Step)
    assert [item.end_offset for item in step.commits] == [2, 5]
    acknowledge(step)
    assert (bench.story, state.in_flight_bytes) == ([("heard", 0), ("other", 2)], last)
    acknowledge(state.resign("gone"))
    assert bench.story == [("heard", 0), ("other", 2), ("heard", "NotLeader")]
    assert (len(state.pending), state.in_flight_bytes) == (0, 0)


def test_many_that_tell_the_same_one_do_not_pile_up(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    state = bench.state
    nobody, heard = Heard(bench.story, "nobody"), Heard(bench.story, "heard")
    for _ in range(1000):
        state.append(run_of(b"x"), 5, nobody)
    state.append(run_of(b"x"), 5, heard)
    assert (len(state.pending), state.in_flight_bytes) == (2, bench.log.size_bytes)
    bench.sync()
    step = state.follower_fetch(TWO, 9, 999, 4, 0)
    assert isinstance(step, Step)
    assert (step.commits, step.high_watermark_moved) == ([], True)
    step = state.follower_fetch(TWO, 9, 1001, 4, 0)
    assert isinstance(step, Step)
    assert [item.base_offset for item in step.commits] == [0, 1000]
    acknowledge(step)
    assert (bench.story, state.in_flight_bytes) == ([("nobody", 0), ("heard", 1000)], 0)


def test_who_leads_no_more_fails_what_waits_at_once(tmp_path: Path) -> None:
    ways: list[Callable[[Any], Any]] = [
        lambda state: state.follow(5, (TWO, ONE), leader=TWO, replicas=(ONE, TWO)),
        lambda state: state.resign("stops"),
        lambda state: state.lead(6, (ONE, TWO), partition_epoch=9),
    ]
    for lose in ways:
        bench = leading(tmp_path / str(id(lose)))
        bench.append("a")
        bench.sync()
        acknowledge(lose(bench.state))
        assert bench.story == [("a", "NotLeader")]
        bench.settle()
        assert (bench.state.high_watermark, bench.state.in_flight_bytes) == (0, 0)
        assert len(bench.story) == 1


def test_a_smaller_isr_commits_what_it_held_back(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    bench.append("a")
    bench.sync()
    acknowledge(bench.state.lead(4, (ONE,), replicas=(ONE, TWO), partition_epoch=8))
    assert bench.story == [("a", 0)]
    acknowledge(bench.state.lead(4, (ONE,), replicas=(ONE, TWO), partition_epoch=9, min_isr=2))
    assert bench.state.is_short
    bench.append("b")
    bench.sync()
    assert bench.story == [("a", 0)]


def test_an_append_is_for_an_epoch(tmp_path: Path) -> None:
    bench = leading(tmp_path, (ONE,))
    heard = Heard(bench.story, "a")
    run = run_of(b"x")
    with pytest.raises(NotLeader):
        bench.state.append(run, 5, heard, leader_epoch=3)
    assert run.count == 0
    assert bench.state.append(run_of(b"x"), 5, heard, leader_epoch=4) == 0


def test_without_the_lease_nothing_is_appended_shown_or_acknowledged(tmp_path: Path) -> None:
    held = True
    bench = Bench(tmp_path, "commit", lead=False)
    bench.state = PartitionState(
        TopicPartition("s", 0), bench.log, node_id=ONE, high_watermark=0, may_act=lambda: held
    )
    bench.state.lead(0, (ONE,))
    bench.append("a")
    held = False
    bench.sync()
    assert (bench.story, bench.state.high_watermark) == ([], 0)
    with pytest.raises(NotLeader):
        bench.append("b")
    held = True
    bench.settle()
    assert bench.story == [("a", 0)]


def test_a_fetch_counts_once_its_history_is_ours(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    bench.append("a", 4)
    bench.sync()
    state = bench.state
    assert state.follower_fetch(TWO, 9, 3, 2, 0) == EpochEnd(2, 0)
    with pytest.raises(OffsetOutOfRange):
        state.follower_fetch(TWO, 9, 5, -1, 0)
    assert state.follower_fetch(TWO, 9, 5, 4, 0) == EpochEnd(4, 4)
    state.settle()
    assert state.high_watermark == 0
    assert isinstance(state.follower_fetch(TWO, 9, 4, 4, 0), Step)
    state.settle()
    assert state.high_watermark == 4
    with pytest.raises(StaleNode):
        state.follower_fetch(TWO, 8, 4, 4, 0)
    with pytest.raises(NotLeader):
        state.follower_fetch(NodeId(4), 1, 4, 4, 0)
    with pytest.raises(NotLeader):
        state.follower_fetch(ONE, 1, 4, 4, 0)
    state.follow(5, (TWO,), leader=TWO)
    with pytest.raises(NotLeader):
        state.follower_fetch(THREE, 9, 4, 4, 0)


def test_a_follower_of_a_purged_log_is_told_where_it_starts(tmp_path: Path) -> None:
    bench = leading(tmp_path, (ONE,))
    bench.append("a", 6)
    bench.sync()
    bench.log.advance_log_start(6)
    log = PartitionLog.open(
        tmp_path, LogSettings(), disk=OsDisk(), files=FilePool(OsDisk(), 4), log_start_offset=6
    )
    state = PartitionState(TopicPartition("s", 0), log, node_id=ONE, high_watermark=6)
    state.lead(5, (ONE,), replicas=(ONE, TWO))
    log.epochs.truncate(0)
    assert state.follower_fetch(TWO, 9, 6, 3, 0) == Step([]), "nothing is here to differ from"
    for offset in (5, 7):
        with pytest.raises(OffsetOutOfRange):
            state.follower_fetch(TWO, 9, offset, 3, 0)


def test_a_new_leader_knows_what_is_committed_when_its_epoch_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a", 3)
    bench.sync()
    bench.state.lead(4, (ONE, TWO), replicas=(ONE, TWO))
    assert bench.state.knows_high_watermark, "what it led alone was committed"
    state = PartitionState(TopicPartition("s", 0), bench.log, node_id=ONE, high_watermark=1)
    state.lead(5, (ONE, TWO), replicas=(ONE, TWO))
    assert not state.knows_high_watermark
    state.follower_fetch(TWO, 9, 3, 0, 0)
    state.settle()
    assert state.knows_high_watermark


def test_it_tells_how_far_its_followers_are_behind(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    bench.append("a", 5)
    bench.state.follower_fetch(TWO, 9, 0, -1, 0)
    assert bench.state.replica_lags() == {TWO: 5, THREE: 5}
    bench.state.follower_fetch(TWO, 9, 5, 4, 0)
    assert bench.state.replica_lags() == {TWO: 0, THREE: 5}
    bench.state.resign("x")
    assert bench.state.replica_lags() == {}


def test_proposals_end_with_the_leadership(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    bench.append("a")
    bench.sync()
    bench.state.follower_fetch(TWO, 9, 1, 4, 10)
    bench.state.follower_fetch(THREE, 8, 1, 4, 10)
    known = {
        ONE: ReplicaStanding(7, True),
        TWO: ReplicaStanding(9, True),
        THREE: ReplicaStanding(8, True),
    }
    proposal = bench.state.isr_proposal(11, lag_time_ms=100, standings=known.__getitem__)
    assert proposal is not None
    assert tuple(proposal) == (4, 7, ((ONE, 7), (TWO, 9), (THREE, 8)))
    assert bench.state.proposes(proposal)
    bench.state.lead(6, (ONE, TWO), replicas=(ONE, TWO, THREE), partition_epoch=9)
    assert not bench.state.proposes(proposal)
    bench.state.isr_refused(proposal, 12)
    bench.state.isr_unanswered(proposal, 12)
    bench.state.resign("x")
    assert bench.state.isr_proposal(11, lag_time_ms=1, standings=known.__getitem__) is None


def test_what_removes_messages_waits_for_the_replicas_to_begin_where_this_one_does(
    tmp_path: Path,
) -> None:
    """They may have what it does not know any more, and so does not name."""
    bench = Bench(tmp_path, "os", lead=False)
    state, log = bench.state, bench.log
    acknowledge(state.lead(0, (ONE, TWO), replicas=(ONE, TWO)))
    bench.append("a", 4)
    acknowledge(fetched(state, 4, log_start=0))
    assert state.high_watermark == 4
    log.advance_log_start(3)
    bench.append("roll")
    state.hold_removals(4)
    bench.append("another")
    state.hold_removals(5)
    assert len(state._barriers) == 1, "they do not pile up"
    assert fetched(state, 6, log_start=0).high_watermark_moved
    assert (state.high_watermark, state.removals_end) == (6, 4)
    step = fetched(state, 6, log_start=2)
    assert (step.high_watermark_moved, state.removals_end) == (False, 4)
    step = fetched(state, 6, log_start=3)
    assert step.high_watermark_moved, "watchers are told"
    assert state.removals_end == 6
    state.hold_removals(5)
    assert state.removals_end == 6, "they begin there by now"
    state.follow(1, (TWO,), leader=TWO)
    state.hold_removals(5)
    assert state.removals_end == 6, "a follower holds nothing"


def test_a_leader_that_goes_holds_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "os", lead=False)
    state, log = bench.state, bench.log
    acknowledge(state.lead(0, (ONE, TWO), replicas=(ONE, TWO)))
    bench.append("a", 4)
    acknowledge(fetched(state, 4, log_start=0))
    log.advance_log_start(3)
    bench.append("roll")
    state.hold_removals(4)
    acknowledge(state.lead(1, (ONE,), replicas=(ONE,)))
    assert state.removals_end == state.high_watermark == 5


def fetched(state: PartitionState, offset: int, *, log_start: int) -> Step:
    step = state.follower_fetch(TWO, 1, offset, NO_EPOCH, 0, log_start=log_start)
    assert isinstance(step, Step)
    return step


def test_what_a_newer_epoch_says_takes_the_place_of_what_was_said(tmp_path: Path) -> None:
    two, three = NodeId(2), NodeId(3)
    bench = Bench(tmp_path, "commit", lead=False)
    state = bench.state
    assert (state.min_isr, state.failure, state.appended_bytes) == (1, None, 0)
    assert state.knows_high_watermark, "as a follower it knows what its leader told"
    state.lead(1, (ONE, two), replicas=(ONE, two, three), incarnations={two: 5}, min_isr=2)
    assert (state.incarnations, state.min_isr, state.is_short) == ({two: 5}, 2, False)
    bench.append("a")
    bench.sync()
    state.follower_fetch(three, 7, 0, NO_EPOCH, 0)
    assert state.progress is not None
    assert three in state.progress.followers
    acknowledge(state.lead(1, (ONE,), replicas=(ONE, two)))
    assert three not in state.progress.followers, "it is no replica any more"
    assert state.incarnations == {}
    acknowledge(state.lead(2, (ONE, two)))
    assert (state.progress.leader_epoch, state.progress.epoch_start) == (2, 1)
    state.follow(3, (two,), leader=two, incarnations={two: 6}, min_isr=2)
    assert (state.incarnations, state.is_short, state.leader) == ({two: 6}, True, two)
    state.follow(4, (two,), leader=two)
    assert (state.incarnations, state.is_short) == ({}, False)


def test_after_a_failure_of_the_disk_a_leader_answers_no_follower(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    bench.append("a")
    bench.sync()
    acknowledge(bench.state.disk_failed(StorageFailed("gone")))
    with pytest.raises(StorageFailed):
        bench.state.follower_fetch(TWO, 9, 1, 4, 10)
    with pytest.raises(StorageFailed):
        bench.state.await_start(1, Heard(bench.story, "purge"))


def test_a_replica_of_another_assignment_does_not_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "os", lead=False)
    state = bench.state
    acknowledge(state.lead(0, (ONE, TWO), replicas=(ONE, TWO), incarnations={TWO: 5}))
    with pytest.raises(UnknownReplica, match="was assigned at 6"):
        state.follower_fetch(TWO, 1, 0, NO_EPOCH, 0, incarnation=6)
    with pytest.raises(StaleReplica, match="was assigned again at 5"):
        state.follower_fetch(TWO, 1, 0, NO_EPOCH, 0, incarnation=4)
    bench.append("a")
    acknowledge(state.settle())
    assert state.high_watermark == 0
    step = state.follower_fetch(TWO, 1, 1, 0, 0, incarnation=5)
    assert isinstance(step, Step)
    assert state.high_watermark == 1


def test_a_leader_knows_nothing_of_later_epochs(tmp_path: Path) -> None:
    bench = leading(tmp_path)
    bench.append("a")
    epoch = bench.state.leader_epoch
    assert bench.state.shared_end([EpochStart(epoch, 0)], 1) == 1
    assert bench.state.shared_end([], 1) == bench.log.epochs.shared_end([], 1, 1)
    with pytest.raises(NotLeader, match=f"epoch {epoch + 1} has begun, and this is {epoch}"):
        bench.state.shared_end([EpochStart(epoch, 0), EpochStart(epoch + 1, 1)], 1)


def test_a_refused_proposal_lets_commit_what_waited_for_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "os", lead=False)
    state = bench.state
    acknowledge(state.lead(4, (ONE, TWO), replicas=(ONE, TWO, THREE), partition_epoch=7))
    bench.append("a")
    known = {node_id: ReplicaStanding(9, True) for node_id in (ONE, TWO, THREE)}
    for node_id in (TWO, THREE):
        acknowledge(state.follower_fetch(node_id, 9, 1, 4, 10))  # type: ignore[arg-type]
    proposal = state.isr_proposal(11, lag_time_ms=100, standings=known.__getitem__)
    assert proposal is not None
    bench.append("b")
    acknowledge(state.follower_fetch(TWO, 9, 2, 4, 12))  # type: ignore[arg-type]
    assert state.high_watermark == 1, "the new one may be in sync"
    step = state.isr_refused(proposal, 13)
    acknowledge(step)
    assert step.high_watermark_moved
    assert bench.story == [("a", 0), ("b", 1)]


def test_a_sync_moves_the_recovery_point(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "interval")
    assert bench.state.statistics().follower_lag == 0
    bench.append("a")
    bench.begin_sync().run()
    step = bench.state.finish_sync()
    assert (step.recovery_point_moved, step.wants_sync) == (True, False)
    assert bench.log.recovery_point == 1


def test_what_is_committed_is_acknowledged_also_while_the_lease_is_over(tmp_path: Path) -> None:
    """A retry of it, say: no later leader can be without it."""
    held = True
    bench = Bench(tmp_path, "commit", lead=False)
    bench.state = PartitionState(
        TopicPartition("s", 0), bench.log, node_id=ONE, high_watermark=0, may_act=lambda: held
    )
    bench.state.lead(0, (ONE,))
    bench.append("a")
    bench.sync()
    held = False
    bench.state.await_commit(0, 0, 0.0, Heard(bench.story, "again"))
    bench.settle()
    assert bench.story == [("a", 0), ("again", 0)]


def test_a_sync_that_runs_is_not_asked_for_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "os")
    bench.append("a")
    bench.log.roll()
    assert bench.settle().wants_sync
    bench.begin_sync().run()
    assert not bench.settle().wants_sync
    acknowledge(bench.state.finish_sync())
    assert not bench.settle().wants_sync


def test_no_start_is_awaited_where_too_few_are_in_sync(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit", lead=False)
    acknowledge(bench.state.lead(0, (ONE,), replicas=(ONE, TWO), min_isr=2))
    with pytest.raises(NotEnoughReplicas):
        bench.state.await_start(0, Heard(bench.story, "start"))
    assert (bench.state.starts, bench.story) == ([], [])
