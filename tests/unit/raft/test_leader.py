import pytest

from streamlog.model import EpochEnd, NodeId
from streamlog.raft import events as raft
from streamlog.raft.events import Role
from streamlog.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    Fault,
    FetchAnswer,
    RaftFetchRequest,
    SnapshotId,
)
from tests.unit.lone_member import TIMEOUT_MS, LoneMember, entries, key, only, sent, voters


def leader(*epochs: int) -> LoneMember:
    """Of the epoch after the last of its log, with its first record written."""
    member = LoneMember(log=entries(*epochs))
    member.lead()
    member.append()
    return member


def answers(effects: list[raft.Effect]) -> list[FetchAnswer]:
    found = [reply.answer for reply in only(effects, raft.Reply)]
    return [answer for answer in found if isinstance(answer, FetchAnswer)]


# Serving


def test_a_fetch_gets_what_comes_after_it() -> None:
    member = leader(1, 1)
    (answer,) = answers(member.fetched_by(2, 1))
    assert (answer.epoch, answer.leader, answer.fault) == (2, 1, Fault.NONE)
    assert answer.end_offset == 3


def test_who_has_all_waits_for_more() -> None:
    member = leader()
    assert answers(member.fetched_by(2)) != [], "the first tells what is committed"
    assert answers(member.fetched_by(2)) == []
    assert answers(member.append(sync=False))[0].end_offset == 2, "also what is not synced here"


def test_who_waits_hears_at_once_what_is_committed() -> None:
    member = leader()
    member.fetched_by(9)
    assert answers(member.fetched_by(9)) == []
    effects = member.fetched_by(3)
    assert only(effects, raft.Committed) == [raft.Committed(1)]
    assert [answer.high_watermark for answer in answers(effects)] == [1, 1]


def test_nobody_waits_for_longer_than_it_wants() -> None:
    member = leader()
    member.fetched_by(2)
    member.fetched_by(2, wait_ms=300)
    assert member.raft.deadline_ms == member.now_ms + 300
    assert answers(member.tick(299)) == []
    assert answers(member.tick(1))[0].high_watermark == 1


def test_one_fetch_of_each_waits() -> None:
    member = leader()
    member.fetched_by(2)
    member.fetched_by(2, token="first")
    effects = member.fetched_by(2, token="second")
    assert [reply.token for reply in only(effects, raft.Reply)] == ["first"]
    assert [reply.token for reply in only(member.append(), raft.Reply)] == ["second"]


def test_who_has_hung_up_is_not_answered() -> None:
    member = leader()
    member.fetched_by(2)
    member.fetched_by(2, token="token")
    assert member.step(raft.Abandoned("token")) == []
    assert answers(member.append()) == []


def test_an_older_epoch_is_fenced_a_newer_one_ends_leadership() -> None:
    member = leader(4)
    answer = member.ask(RaftFetchRequest(4, key(2), 0))
    assert answer == FetchAnswer(5, key(1).node_id, Fault.FENCED_EPOCH)
    effects = member.step(raft.Received("token", RaftFetchRequest(6, key(2), 0)))
    assert effects[:2] == [raft.SaveVote(6, None), raft.RoleChanged(Role.UNATTACHED, 6, None)]
    assert answers(effects) == [FetchAnswer(6, None, Fault.NOT_LEADER)]


def test_who_waits_hears_that_the_leader_is_none_any_more() -> None:
    member = leader()
    member.fetched_by(2)
    member.fetched_by(2)
    effects = member.step(raft.Received("token", BeginEpochRequest(2, key(3).node_id)))
    assert FetchAnswer(2, None, Fault.NOT_LEADER) in answers(effects)


def test_a_follower_names_the_leader() -> None:
    member = LoneMember()
    member.follow(3)
    assert member.ask(RaftFetchRequest(1, key(2), 0)) == FetchAnswer(1, NodeId(3), Fault.NOT_LEADER)


# Where histories part


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (0, -1, None),
        (2, 1, None),
        (3, 3, None),
        (4, 3, None),
        (3, 1, EpochEnd(1, 2)),
        (3, 2, EpochEnd(1, 2)),
        (9, 3, EpochEnd(3, 4)),
        (9, 8, EpochEnd(4, 5)),
        (9, -1, EpochEnd(-1, 0)),
    ],
)
def test_where_histories_part(offset: int, last_epoch: int, diverging: EpochEnd | None) -> None:
    member = leader(1, 1, 3, 3)  # and its own record, of epoch 4
    (answer,) = answers(member.fetched_by(2, offset, last_epoch=last_epoch))
    assert answer.diverging == diverging


def test_what_parts_is_not_counted() -> None:
    member = leader(1, 1)
    member.fetched_by(2, 9, last_epoch=1)
    assert member.raft.high_watermark == 0


def compacted(*, keep_log: bool) -> LoneMember:
    """Leader of epoch 6; the last snapshot ends at 4, after epoch 3, the one before at 2."""
    member = LoneMember(log=entries(1, 1, 3, 3, 5), high_watermark=4)
    member.log.take_snapshot(2, keep_log=True)
    member.log.take_snapshot(4, keep_log=keep_log)
    member.lead()
    member.append()
    return member


@pytest.mark.parametrize(
    ("offset", "last_epoch"), [(0, -1), (1, 1), (3, 2), (3, 3), (9, 2), (9, 0)]
)
def test_who_is_too_far_behind_gets_a_snapshot(offset: int, last_epoch: int) -> None:
    """Also who may have another history below where the log begins."""
    member = compacted(keep_log=False)
    (answer,) = answers(member.fetched_by(2, offset, last_epoch=last_epoch))
    assert answer.snapshot == SnapshotId(4, 3)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [(4, 3, None), (5, 5, None), (6, 3, EpochEnd(3, 4)), (6, 4, EpochEnd(3, 4))],
)
def test_who_has_the_snapshot_needs_no_other(
    offset: int, last_epoch: int, diverging: EpochEnd | None
) -> None:
    member = compacted(keep_log=False)
    (answer,) = answers(member.fetched_by(2, offset, last_epoch=last_epoch))
    assert (answer.snapshot, answer.diverging) == (None, diverging)


def test_epochs_that_ended_where_the_log_begins_cannot_be_told_apart() -> None:
    """The record before offset 2 is of epoch 1, which a log from 2 on does not know."""
    member = compacted(keep_log=True)
    assert member.log.start_offset == 2
    for last_epoch in (0, 1, 2):
        (answer,) = answers(member.fetched_by(2, 2, last_epoch=last_epoch))
        assert answer.snapshot == SnapshotId(4, 3)
    (answer,) = answers(member.fetched_by(2, 3, last_epoch=3))
    assert (answer.snapshot, answer.diverging) == (None, None)


def test_without_a_snapshot_there_is_nothing_to_give() -> None:
    member = compacted(keep_log=False)
    member.log.snapshot = None
    (answer,) = answers(member.fetched_by(2, 1, last_epoch=1))
    assert answer.fault is Fault.OUT_OF_RANGE


# Being known, and being in touch


def test_voters_that_do_not_fetch_are_told_again() -> None:
    member = leader()
    member.fetched_by(2, after_ms=450)
    effects = member.tick(100)
    assert [send.peer for send in sent(effects, BeginEpochRequest)] == [3]
    assert sent(member.tick(100), BeginEpochRequest) == []
    assert [send.peer for send in sent(member.tick(500), BeginEpochRequest)] == [2, 3]


def test_who_is_out_of_touch_with_a_majority_leads_no_more() -> None:
    member = leader()
    member.fetched_by(2, after_ms=500)
    assert member.raft.role is Role.LEADER
    member.tick(1_499)
    assert member.raft.role is Role.LEADER
    effects = member.tick(1)
    assert raft.RoleChanged(Role.RESIGNED, 1, None) in effects
    assert member.raft.leader is None


def test_one_follower_of_two_is_enough() -> None:
    member = leader()
    for _ in range(20):
        member.fetched_by(2, after_ms=400)
    assert member.raft.role is Role.LEADER


def test_observers_keep_nobody_in_office() -> None:
    member = leader()
    for _ in range(4):
        member.fetched_by(9, after_ms=400)
    assert member.raft.role is Role.RESIGNED


def test_another_folder_keeps_nobody_in_office() -> None:
    member = leader()
    for _ in range(4):
        member.fetched_by(key(2, directory=22), after_ms=400)
    assert member.raft.role is Role.RESIGNED


def test_who_has_other_records_is_in_touch() -> None:
    member = leader(1)
    for _ in range(20):
        member.fetched_by(2, 9, last_epoch=1, after_ms=400)
    assert member.raft.role is Role.LEADER


def test_who_cannot_write_leads_no_more_and_does_not_stand_soon() -> None:
    """A full disk: without a record of its epoch it will never commit anything."""
    member = LoneMember()
    member.lead()
    member.fetched_by(2, after_ms=900)
    effects = member.tick(100)
    assert raft.RoleChanged(Role.RESIGNED, 1, None) in effects
    assert sent(effects, EndEpochRequest) != []
    assert member.raft.deadline_ms - member.now_ms >= 9 * TIMEOUT_MS


# Handing over


def test_who_resigns_says_so_to_all_the_one_most_caught_up_first() -> None:
    member = leader(1, 1)
    member.fetched_by(2, 1)
    member.fetched_by(3, 2)
    effects = member.step(raft.Resign())
    ends = sent(effects, EndEpochRequest)
    assert {send.peer for send in ends} == {2, 3}
    assert {send.request for send in ends} == {
        EndEpochRequest(2, NodeId(1), (NodeId(3), NodeId(2)))
    }
    assert raft.RoleChanged(Role.RESIGNED, 2, None) in effects


def test_a_successor_first_gets_all_of_the_log() -> None:
    member = leader(1, 1)
    member.fetched_by(3)
    member.step(raft.Resign(key(2).node_id))
    assert member.raft.role is Role.LEADER
    assert member.raft.change_voters_refusal() is not None
    member.fetched_by(2, 2)
    assert member.raft.role is Role.LEADER
    effects = member.fetched_by(2, after_ms=10)
    assert sent(effects, EndEpochRequest)[0].request == EndEpochRequest(
        2, NodeId(1), (NodeId(2), NodeId(3))
    )


def test_a_successor_that_is_there_gets_its_turn_in_the_end() -> None:
    member = leader(1, 1)
    member.step(raft.Resign(key(2).node_id))
    member.fetched_by(2, 2, after_ms=400)
    assert member.raft.role is Role.LEADER
    assert sent(member.tick(100), EndEpochRequest)[0].request == EndEpochRequest(
        2, NodeId(1), (NodeId(2), NodeId(3))
    )


def test_a_successor_that_is_silent_gets_nothing() -> None:
    member = leader(1, 1)
    member.fetched_by(3)
    member.step(raft.Resign(key(2).node_id))
    member.fetched_by(3, after_ms=600)
    assert member.raft.role is Role.LEADER
    assert member.raft.change_voters_refusal() is None


def test_whoever_is_alone_has_nobody_to_resign_for() -> None:
    member = LoneMember(among=voters(1))
    member.tick()
    assert member.step(raft.Resign()) == []
    assert member.raft.role is Role.LEADER


def test_after_resigning_it_answers_as_one_that_does_not_lead() -> None:
    member = leader(1)
    member.fetched_by(2)
    member.fetched_by(2)
    effects = member.step(raft.Resign())
    assert answers(effects) == [FetchAnswer(2, None, Fault.NOT_LEADER)]
    assert member.ask(RaftFetchRequest(2, key(3), 0)) == FetchAnswer(2, None, Fault.NOT_LEADER)
    assert only(member.step(raft.Synced(2)), raft.Committed) == []


def test_nobody_fetches_from_itself() -> None:
    member = leader()
    assert answers(member.fetched_by(1)) == [FetchAnswer(1, NodeId(1), Fault.NOT_LEADER)]


def test_looks_again_in_time_for_whatever_it_waits() -> None:
    member = LoneMember()
    member.lead()
    member.fetched_by(2, after_ms=600)
    assert member.raft.deadline_ms == member.now_ms + 400, "until it must have written something"
    member.append(2)
    member.step(raft.Resign(key(2).node_id))
    assert member.raft.deadline_ms <= member.now_ms + 500, "until the successor has had its time"


def test_a_leader_knows_for_how_long_nobody_has_confirmed_it() -> None:
    member = leader()
    member.fetched_by(2)
    member.fetched_by(2, wait_ms=500, after_ms=100)
    assert member.raft.unconfirmed_ms(member.now_ms) == 100, "since the answer to the first fetch"
    assert member.raft.is_confirmed(member.now_ms)
    member.tick(500)
    assert member.raft.unconfirmed_ms(member.now_ms) == 600
    member.fetched_by(2, after_ms=10)
    assert member.raft.unconfirmed_ms(member.now_ms) == 10
    assert member.raft.unconfirmed_ms(member.now_ms + 30_000) == 30_010, "it stood still"
    given_up_ms = member.settings.timeout_ms_min - 10
    assert member.raft.is_confirmed(member.now_ms + given_up_ms - 1)
    assert not member.raft.is_confirmed(member.now_ms + given_up_ms)
    follower = LoneMember()
    follower.follow(2)
    assert not follower.raft.is_confirmed(follower.now_ms)
    assert follower.raft.unconfirmed_ms(follower.now_ms) is None


def end_offsets(member: LoneMember) -> dict[int, int]:
    return {it.key.node_id: it.end_offset for it in member.raft.replicas(member.now_ms)}


def test_what_a_replica_has_that_parts_is_not_known() -> None:
    member = leader(1, 1, 2)
    member.fetched_by(2)
    effects = member.fetched_by(2, 3, last_epoch=1)
    assert answers(effects)[0].diverging == EpochEnd(1, 2)
    assert only(effects, raft.WentBack) == [raft.WentBack(key(2), 4, 3)]
    assert end_offsets(member)[2] == -1


def test_what_a_replica_has_that_needs_a_snapshot_is_known() -> None:
    member = leader(1, 1, 2)
    member.fetched_by(2)
    member.log.take_snapshot(3, keep_log=False)
    effects = member.fetched_by(2, 1, last_epoch=1)
    assert answers(effects)[0].snapshot == SnapshotId(3, 2)
    assert end_offsets(member)[2] == 1
