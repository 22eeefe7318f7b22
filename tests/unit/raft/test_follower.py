import pytest

from streamlog.errors import CorruptData
from streamlog.model import EpochEnd, NodeId
from streamlog.raft import events as raft
from streamlog.raft.events import Role
from streamlog.raft.follower import FollowerState
from streamlog.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    Fault,
    FetchAnswer,
    RaftFetchRequest,
    SnapshotId,
    VoteRequest,
)
from streamlog.raft.settings import RaftSettings
from tests.quorum_log import Entry, MemoryLog, encode
from tests.unit.lone_member import (
    TIMEOUT_MS,
    LoneMember,
    entries,
    key,
    only,
    records,
    sent,
    voters,
)

NEW = Entry(3, "new")


def fetches(effects: list[raft.Effect]) -> list[RaftFetchRequest]:
    found = [send.request for send in sent(effects, RaftFetchRequest)]
    return [request for request in found if isinstance(request, RaftFetchRequest)]


def follower(*epochs: int, committed: int = 0) -> tuple[LoneMember, RaftFetchRequest]:
    """Of node 2 in epoch 3; its first fetch is under way."""
    member = LoneMember(log=entries(*epochs), high_watermark=committed)
    return member, member.follow(2, epoch=3)


def diverging(request: RaftFetchRequest, epoch: int, end_offset: int) -> FetchAnswer:
    return FetchAnswer(request.epoch, NodeId(2), diverging=EpochEnd(epoch, end_offset))


def test_the_first_fetch_says_what_is_there_and_does_not_wait() -> None:
    member, request = follower(1, 1)
    assert request == RaftFetchRequest(3, key(1), 2, 1, wait_ms=0)
    (then,) = fetches(member.answered(2, request, records(request, 2)))
    assert then == RaftFetchRequest(3, key(1), 2, 1, wait_ms=500)


def test_the_next_fetch_waits_until_all_is_synced() -> None:
    member, request = follower(1)
    effects = member.answered(2, request, records(request, 2, NEW, committed=1))
    assert only(effects, raft.Committed) == [raft.Committed(1)]
    assert fetches(effects) == []
    assert fetches(member.tick(10)) == []
    effects = member.take_append(effects)
    assert fetches(effects) == [RaftFetchRequest(3, key(1), 2, 3, wait_ms=500)]


def test_it_commits_what_it_has_and_no_more() -> None:
    member, request = follower(1)
    effects = member.answered(2, request, records(request, 2, NEW, committed=9))
    assert only(effects, raft.Committed) == [raft.Committed(1)], "the new one is not synced yet"
    assert only(member.take_append(effects), raft.Committed) == [raft.Committed(2)]


def test_the_high_watermark_does_not_fall() -> None:
    """A new leader may know less of it."""
    member, request = follower(1, 1, committed=2)
    effects = member.answered(2, request, records(request, 2, committed=1))
    assert only(effects, raft.Committed) == []
    assert member.raft.high_watermark == 2


def test_a_fetch_that_failed_is_tried_again_after_a_pause() -> None:
    member, request = follower()
    effects = member.step(raft.Failed(NodeId(2), request))
    assert fetches(effects) == []
    assert member.raft.deadline_ms == member.now_ms + 50
    assert fetches(member.wait()) == [request]


def test_only_the_answer_to_the_last_fetch_counts() -> None:
    member, request = follower()
    member.step(raft.Failed(NodeId(2), request))
    (again,) = fetches(member.wait())
    assert again == request
    late = member.answered(2, request, records(request, 2, NEW))
    assert only(late, raft.Append) == []
    assert only(member.answered(2, again, records(again, 2, NEW)), raft.Append) != []
    assert only(member.answered(2, again, records(again, 2, NEW)), raft.Append) == [], "twice"


def test_a_fetch_that_is_never_answered_is_given_up() -> None:
    """Whoever drives the core should say that it failed; if not, it goes on all the same."""
    member = LoneMember(4)
    member.follow(2)
    member.step(raft.Received("token", BeginEpochRequest(1, NodeId(2))))
    assert member.raft.deadline_ms == member.now_ms + member.settings.request_timeout_ms
    assert len(fetches(member.wait())) == 1


def test_an_answer_of_the_leader_before_is_void() -> None:
    member, request = follower(1)
    member.step(raft.Received("token", BeginEpochRequest(4, NodeId(3))))
    effects = member.answered(2, request, records(request, 2, NEW, committed=1))
    assert only(effects, raft.Append) == []
    assert member.raft.high_watermark == 0


def test_who_answers_at_once_and_nothing_is_not_asked_at_once() -> None:
    member, request = follower()
    (request,) = fetches(member.answered(2, request, records(request, 2)))
    effects = member.answered(2, request, records(request, 2))
    assert fetches(effects) == []
    assert member.raft.deadline_ms == member.now_ms + 50
    (request,) = fetches(member.wait())
    member.now_ms += 500
    assert len(fetches(member.answered(2, request, records(request, 2)))) == 1, "it had waited"


# Cutting off what parts from the leader's log


@pytest.mark.parametrize(
    ("end", "cut_to"),
    [
        (EpochEnd(1, 1), 1),
        (EpochEnd(1, 2), 2),
        (EpochEnd(1, 9), 2),
        (EpochEnd(2, 3), 3),
        (EpochEnd(0, 0), 0),
        (EpochEnd(-1, 0), 0),
    ],
)
def test_cuts_to_where_histories_part(end: EpochEnd, cut_to: int) -> None:
    """KIP-101: the smaller end of the newest epoch that both may have."""
    member, request = follower(1, 1, 2, 2)
    effects = member.answered(2, request, diverging(request, *end))
    assert only(effects, raft.Truncate) == [raft.Truncate(cut_to)]
    assert fetches(effects) == [], "its end shows when it has been cut"
    assert member.raft.deadline_ms <= member.now_ms
    (then,) = fetches(member.wait())
    assert (then.offset, then.last_epoch) == (cut_to, member.log.last_epoch)


def test_never_cuts_what_is_committed() -> None:
    member, request = follower(1, 1, 2, committed=2)
    member.answered(2, request, diverging(request, 1, 2))
    (request,) = fetches(member.wait())
    with pytest.raises(CorruptData, match="committed"):
        member.answered(2, request, diverging(request, 1, 1))


def test_a_parting_beyond_the_end_is_nonsense() -> None:
    member, request = follower(1, 1)
    effects = member.answered(2, request, diverging(request, 1, 2))
    assert only(effects, raft.Truncate) == []
    assert member.raft.deadline_ms == member.now_ms + 50


# Snapshots


def too_far_behind() -> tuple[LoneMember, list[raft.Effect]]:
    member, request = follower(1)
    snapshot = SnapshotId(20, 2)
    return member, member.answered(2, request, FetchAnswer(3, NodeId(2), snapshot=snapshot))


def test_a_snapshot_is_installed_first() -> None:
    member, effects = too_far_behind()
    assert only(effects, raft.InstallSnapshot) == [
        raft.InstallSnapshot(NodeId(2), SnapshotId(20, 2))
    ]
    assert fetches(member.tick(10)) == []
    member.log.entries, member.log.start_offset = [], 20
    member.log.snapshot = SnapshotId(20, 2)
    effects = member.step(raft.SnapshotInstalled(SnapshotId(20, 2)))
    assert fetches(effects) == [RaftFetchRequest(3, key(1), 20, 2)]
    assert member.raft.high_watermark == 20
    assert only(effects, raft.Committed) == [], "whoever installed it knows"


def test_a_snapshot_that_could_not_be_had_is_asked_for_again() -> None:
    member, _ = too_far_behind()
    member.step(raft.SnapshotFailed())
    assert len(fetches(member.wait())) == 1


def test_who_installs_a_snapshot_does_not_stand() -> None:
    """It lacks what is committed, and its log is about to be another one."""
    member, _ = too_far_behind()
    member.step(raft.PeerGone(NodeId(2)))
    assert sent(member.tick(5 * TIMEOUT_MS), VoteRequest) == []
    assert member.raft.role is Role.UNATTACHED
    member.step(raft.SnapshotFailed())
    assert member.raft.role is Role.PROSPECTIVE


def test_a_snapshot_of_what_is_committed_here_is_of_no_use() -> None:
    member, request = follower(1, 1, committed=2)
    answer = FetchAnswer(3, NodeId(2), snapshot=SnapshotId(2, 1))
    assert only(member.answered(2, request, answer), raft.InstallSnapshot) == []


# Losing the leader


def test_a_leader_that_has_resigned_is_missed_at_once_and_its_successor_stands_first() -> None:
    member, request = follower()
    effects = member.answered(2, request, FetchAnswer(3, None, Fault.NOT_LEADER))
    assert raft.RoleChanged(Role.UNATTACHED, 3, None) in effects
    assert 100 <= member.raft.deadline_ms - member.now_ms <= 150
    member.ask(EndEpochRequest(3, NodeId(2), (NodeId(1), NodeId(3))))
    assert member.raft.role is Role.CANDIDATE, "this is the successor"


def test_a_leader_that_is_gone_is_missed_at_once() -> None:
    member, _ = follower()
    member.step(raft.PeerGone(NodeId(3)))
    assert member.raft.leader == 2
    effects = member.step(raft.PeerGone(NodeId(2)))
    assert raft.RoleChanged(Role.UNATTACHED, 3, None) in effects
    assert member.raft.deadline_ms - member.now_ms <= 50


def test_a_silent_leader_is_missed_after_the_timeout_and_a_little_more() -> None:
    for random in (0.0, 0.999):
        member = LoneMember(random=random)
        request = member.follow(2, epoch=3)
        member.step(raft.Failed(NodeId(2), request))
        began_ms = member.now_ms
        while member.raft.role is Role.FOLLOWER:
            for request in fetches(member.wait()):
                member.step(raft.Failed(NodeId(2), request))
        waited_ms = member.now_ms - began_ms
        due_ms = TIMEOUT_MS * (1 + random / 8)
        assert due_ms - 1 <= waited_ms <= due_ms + 50


def test_fetching_keeps_a_leader() -> None:
    member, request = follower()
    for _ in range(20):
        member.now_ms += 500
        (request,) = fetches(member.answered(2, request, records(request, 2)))
    assert member.raft.role is Role.FOLLOWER


def test_a_slow_leader_is_followed_again() -> None:
    member, request = follower()
    member.tick(3 * TIMEOUT_MS)
    assert member.raft.role is Role.PROSPECTIVE
    effects = member.answered(2, request, records(request, 2))
    assert raft.RoleChanged(Role.FOLLOWER, 3, NodeId(2)) in effects


# Observers


def test_an_observer_asks_one_after_the_other_who_leads() -> None:
    member = LoneMember(4, acquaintances=(1, 2, 3, 5))
    asked, effects = [], member.tick()
    for _ in range(5):
        (send,) = sent(effects, RaftFetchRequest)
        asked.append(send.peer)
        member.answered(send.peer, send.request, FetchAnswer(0, None, Fault.NOT_LEADER))
        effects = member.wait()
    assert asked == [1, 2, 3, 5, 1]
    (send,) = sent(effects, RaftFetchRequest)
    effects = member.answered(send.peer, send.request, FetchAnswer(7, NodeId(3), Fault.NOT_LEADER))
    assert effects[:2] == [raft.SaveVote(7, None), raft.RoleChanged(Role.OBSERVER, 7, NodeId(3))]
    assert sent(effects, RaftFetchRequest)[0].peer == 3


def test_an_observer_of_a_leader_that_fails_asks_the_others() -> None:
    member = LoneMember(4)
    request = member.follow(1, epoch=3)
    member.step(raft.Failed(NodeId(1), request))
    assert member.raft.leader is None
    assert sent(member.wait(), RaftFetchRequest)[0].peer == 2


def test_an_observer_copies_the_log_and_never_stands() -> None:
    member = LoneMember(4, log=entries(1))
    request = member.follow(2, epoch=3)
    effects = member.answered(2, request, records(request, 2, NEW, committed=2))
    assert only(member.take_append(effects), raft.Committed) == [raft.Committed(2)]
    member.step(raft.PeerGone(NodeId(2)))
    for _ in range(20):
        assert sent(member.tick(TIMEOUT_MS), VoteRequest) == []
    assert member.raft.role is Role.OBSERVER


def test_a_voter_in_another_folder_is_an_observer() -> None:
    assert LoneMember(1).raft.role is Role.UNATTACHED
    assert LoneMember(1, directory=11).raft.role is Role.OBSERVER
    unrecorded = voters(1, 2, 3, recorded=False)
    assert LoneMember(1, unrecorded, directory=11).raft.role is Role.UNATTACHED


def test_what_another_leader_said_is_committed_counts_no_more() -> None:
    log = MemoryLog()
    state = FollowerState(key(1), log, RaftSettings())
    state.turn(0)
    assert state.fetch_from(NodeId(2), epoch=1, wait_ms=30, now_ms=0) is not None
    answer = FetchAnswer(1, NodeId(2), high_watermark=1, end_offset=1, records=encode(entries(1)))
    state.take(answer, 0, 0)
    state.turn(0)
    log.append(entries(1))
    state.synced(1)
    assert state.committed_offset == -1


def test_an_answer_that_could_not_wait_is_no_reason_to_ask_again_at_once() -> None:
    settings = RaftSettings()
    state = FollowerState(key(1), MemoryLog(), settings)
    state.turn(0)
    for now_ms in (0, 1):
        assert state.fetch_from(NodeId(2), epoch=1, wait_ms=0, now_ms=now_ms) is not None
        state.take(FetchAnswer(1, NodeId(2), high_watermark=0), 0, now_ms)
    assert state.deadline_ms == 1 + settings.moment_ms


def test_a_leader_that_names_itself_is_not_lost_by_that() -> None:
    """It takes this replica for itself; to ask for votes would not help."""
    member, request = follower()
    member.answered(2, request, FetchAnswer(3, NodeId(2), Fault.NOT_LEADER))
    assert member.raft.leader == 2
    member.answered(2, request, FetchAnswer(3, NodeId(2), Fault.NOT_LEADER))
