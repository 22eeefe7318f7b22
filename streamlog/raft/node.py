"""One member of the metadata quorum (Kafka's KafkaRaftClient): events in, effects out. Pure.

Its roles, and what leads from one to another::

    OBSERVER     does not vote: follows, or looks for a leader; a voter as soon as the log says so
    UNATTACHED   knows no leader; when its time comes -> PROSPECTIVE
    FOLLOWER     follows; when the leader is gone -> UNATTACHED, when it is silent -> PROSPECTIVE
    PROSPECTIVE  asks who would vote for it; when a majority would -> CANDIDATE, in the next epoch
    CANDIDATE    when a majority does -> LEADER; when none can, or after a while -> UNATTACHED
    LEADER       out of touch with a majority, asked to, or no voter any more -> RESIGNED
    RESIGNED     as UNATTACHED, but in no hurry

A higher epoch makes any of them UNATTACHED (OBSERVER, who does not vote), the leader of the epoch,
once it is known, FOLLOWER.
"""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from streamlog.errors import InvalidRequest, NoController
from streamlog.model import NodeId
from streamlog.raft import events
from streamlog.raft.candidate import CandidateState
from streamlog.raft.election_state import ElectionState
from streamlog.raft.events import Effect, Event, Reply, Role, Send, Token
from streamlog.raft.follower import FollowerState
from streamlog.raft.leader import LeaderState
from streamlog.raft.log import RaftLog
from streamlog.raft.messages import (
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    Fault,
    FetchAnswer,
    RaftFetchRequest,
    Request,
    VoteAnswer,
    VoteRequest,
)
from streamlog.raft.replica_tracker import ReplicaProgress
from streamlog.raft.settings import RaftSettings
from streamlog.raft.vote_handler import VoteHandler
from streamlog.raft.voters import ReplicaKey, VoterSet

__all__ = ["RaftLog", "RaftNode", "RaftSettings"]

IDLE_MS: Final = 60_000
"""Between Ticks when there is nothing to wait for."""
UNFIT_TIMEOUTS: Final = 10
"""Election timeouts; a leader that cannot write does not stand again for so long."""


class RaftNode:
    """The driver carries out the effects of a step, in order, before the next step.

    Each event is a look at the clock as well: a Tick is only needed when nothing else happens.
    """

    def __init__(
        self,
        me: ReplicaKey,
        log: RaftLog,
        *,
        epoch: int,
        voted_for: ReplicaKey | None,
        voters: VoterSet,
        voters_offset: int,
        voters_id: UUID,
        high_watermark: int,
        settings: RaftSettings,
        random: Callable[[], float],
        now_ms: int,
        acquaintances: Iterable[NodeId] = (),
    ) -> None:
        """Of what is durable; all that is in the log is synced. ``random``: from 0 up to 1.
        ``acquaintances``: nodes that may know who leads, such as the voters of the configuration.
        """
        self.me = me
        self.log = log
        self.voters = voters
        self.high_watermark = high_watermark
        """All below is committed. Never falls."""
        self._voters_offset = voters_offset
        self._settings = settings
        self._now_ms = now_ms
        self._election = ElectionState(
            me, epoch=epoch, voted_for=voted_for, settings=settings, random=random, now_ms=now_ms
        )
        self._follower = FollowerState(me, log, settings)
        self._vote_handler = VoteHandler(me, log, self._election, voters_id)
        self._candidate = CandidateState(
            me, log, voters_id=voters_id, settings=settings, random=random
        )
        """Running while prospective or candidate."""
        self._leader_state: LeaderState | None = None
        """While leader."""
        self.electors: tuple[ReplicaKey, ...] = ()
        """The voters that have elected this node when it last became leader, itself among them."""
        self.electors_silence_ms = 0
        """For so long at least none of them had heard from any leader then."""
        self.predecessor: NodeId | None = None
        """The leader that this node followed before it became one itself, last."""
        self._unfit_until_ms = now_ms
        """This node could not write when it led: it does not stand before."""
        self._acquaintances = (frozenset(acquaintances) | voters.ids) - {me.node_id}
        """Also voters of the past: this log's end may know none who still is one."""
        self._followed: NodeId | None = None
        """The leader that was followed last."""
        self._asked: NodeId | None = None
        """The one that was asked last who leads."""
        self._out: list[Effect] = []
        self._election.begin(is_voter=self._is_voter, is_alone=len(voters) == 1, now_ms=now_ms)

    # What it is

    @property
    def role(self) -> Role:
        return self._election.role

    @property
    def epoch(self) -> int:
        return self._election.epoch

    @property
    def leader(self) -> NodeId | None:
        """Of this epoch, if it is known."""
        return self._election.leader

    @property
    def epoch_start_offset(self) -> int:
        """Where the leader's epoch begins; -1 on all others."""
        return -1 if self._leader_state is None else self._leader_state.replicas.epoch_start_offset

    @property
    def is_active(self) -> bool:
        """Leads, and knows all that was committed before: a record of its epoch is committed."""
        return self._leader_state is not None and self.high_watermark > self.epoch_start_offset

    @property
    def deadline_ms(self) -> int:
        """When a Tick is due at the latest."""
        if self._leader_state is not None:
            return self._leader_state.deadline_ms(self.voters, self._now_ms)
        times = [self._now_ms + IDLE_MS]
        if self._fetch_target() is not None and self._follower.deadline_ms is not None:
            times.append(self._follower.deadline_ms)
        if self._candidate.deadline_ms is not None:
            times.append(self._candidate.deadline_ms)
        elif self._is_eligible and self._follower.is_settled:
            times.append(max(self._election.stands_ms, self._unfit_until_ms))
        return min(times)

    def replicas(self, now_ms: int) -> list[ReplicaProgress]:
        """As the leader sees them, itself first, then by when they fetched; empty elsewhere."""
        if self._leader_state is None:
            return []
        myself = ReplicaProgress(self.me, self.log.end_offset, 0, 0)
        return [myself, *self._leader_state.replicas.replicas(now_ms)]

    def unconfirmed_ms(self, now_ms: int) -> int | None:
        """For how long another may have led already, unknown to this leader; None elsewhere."""
        if self._leader_state is None:
            return None
        return now_ms - self._leader_state.replicas.confirmed_ms(self.voters, now_ms)

    def is_confirmed(self, now_ms: int) -> bool:
        """This node leads, and no other can lead by now: a majority followed it so short a time ago
        that a voter which heard nothing since has not given it up (the lease of thesis 6.4.1).
        """
        unconfirmed_ms = self.unconfirmed_ms(now_ms)
        return unconfirmed_ms is not None and unconfirmed_ms < self._settings.timeout_ms_min

    def change_voters_refusal(self, *, voters_offset: int = -1) -> str | None:
        """Why the voters cannot be changed now, by one: two changes at a time, or one before
        anything of the epoch is committed, could make two majorities without a common voter
        (thesis 4.1, and Ongaro's correction of 2015).

        ``voters_offset``: where the voters stand in the image that is decided on; it may have
        records that are not written yet.
        """
        if self._leader_state is None:
            return "this node does not lead the quorum"
        if not self.is_active:
            return "nothing of the leader's epoch is committed yet"
        if max(self._voters_offset, voters_offset) >= self.high_watermark:
            return "the last change of the voters is not committed yet"
        if self._leader_state.successor is not None:
            return "another node is about to lead"
        return None

    def check_voters_change(self, voters: VoterSet) -> None:
        """To be asked before a leader writes them. Raises NoController where it is not the time,
        InvalidRequest where a majority of these need not know what one of the last has decided.
        """
        if not self.voters.is_recorded:
            self._check_first_voters(voters)
            return
        refusal = self.change_voters_refusal()
        if refusal is not None:
            raise NoController(refusal)
        self._check_majorities(voters)

    def _check_first_voters(self, voters: VoterSet) -> None:
        """In place of the configured ones, which all have voted for this leader: by these folders,
        and no other node by others. So no voter is known by another folder than it has acted with.
        """
        if self._leader_state is None:
            raise NoController("this node does not lead the quorum")
        if not voters.is_recorded or voters.replicas != frozenset(self.electors):
            raise InvalidRequest("the first voters are those that have elected the first leader")

    def _check_majorities(self, voters: VoterSet) -> None:
        if not (voters.is_recorded and self.voters.shares_majorities(voters)):
            raise InvalidRequest(
                f"a majority of {_names(voters)} need not know what one of {_names(self.voters)}"
                " has decided: add or remove one replica at a time"
            )

    def replaced_voters(self) -> list[ReplicaKey]:
        """Replicas in a new folder, with all that is committed, of voters whose recorded folder
        is silent. That is removed first, and the new one is added when the removal is committed:
        in one step, both could be counted, in majorities that know nothing of each other (KIP-853).
        """
        if self._leader_state is None:
            return []
        return self._leader_state.replicas.replaced(
            self.voters,
            high_watermark=self.high_watermark,
            silent_since_ms=self._now_ms - self._settings.patience_ms,
        )

    # Steps

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """What to do about ``event``: a vote is saved first of all, then what is committed and
        the role are told, then come the messages and changes of the log.
        """
        election = self._election
        self._now_ms = max(self._now_ms, now_ms)
        vote = election.epoch, election.voted_for
        role = election.role, election.epoch, election.leader
        high_watermark = self.high_watermark
        self._follower.begin_step()
        self._take(event)
        self._do_what_is_due()
        effects: list[Effect] = []
        if vote != (election.epoch, election.voted_for):
            effects.append(events.SaveVote(election.epoch, election.voted_for))
        if self.high_watermark > high_watermark and not isinstance(event, events.SnapshotInstalled):
            effects.append(events.Committed(self.high_watermark))
        if role != (election.role, election.epoch, election.leader):
            effects.append(events.RoleChanged(election.role, election.epoch, election.leader))
        effects += self._out
        self._out = []
        return effects

    def _take(self, event: Event) -> None:
        match event:
            case events.Received(token, request):
                self._receive(token, request)
            case events.Abandoned(token):
                if self._leader_state is not None:
                    self._leader_state.abandon(token)
            case events.Answered(peer, request, answer):
                self._learn(answer.epoch, answer.leader, said_by=peer)
                self._take_answer(peer, request, answer)
            case events.Failed(peer, request):
                self._take_failure(peer, request)
            case events.PeerGone(peer):
                self._take_absence(peer)
            case events.Synced(end_offset):
                self._follower.synced(end_offset)
                self._commit()
            case events.VotersCommitted(voters, offset):
                self._change_voters(voters, offset)
            case events.SnapshotInstalled(snapshot):
                self._follower.installed(snapshot.end_offset, self._now_ms)
                self.high_watermark = max(self.high_watermark, snapshot.end_offset)
            case events.SnapshotFailed():
                self._follower.not_installed(self._now_ms)
            case events.Resign(successor):
                self._be_asked_to_resign(successor)
            case events.StoodStill(by_ms):
                self._election.stood_still(by_ms, self._now_ms)
            case events.Tick() | events.Appended():
                pass

    def _do_what_is_due(self) -> None:
        if self._leader_state is None:
            self._elect()
        if self._leader_state is None:
            self._fetch()
        else:
            self._tend(self._leader_state)

    # Epochs and leaders

    def _learn(self, epoch: int, leader: NodeId | None, *, said_by: NodeId | None = None) -> None:
        """A newer epoch ends whatever this node did in its own."""
        election = self._election
        if epoch > election.epoch:
            election.enter(epoch, self._now_ms)
            self._turn()
        if epoch < election.epoch or leader is None:
            return
        is_direct = said_by == leader
        if election.may_follow(leader, directly=is_direct, now_ms=self._now_ms):
            election.follow(leader, directly=is_direct, now_ms=self._now_ms)
            self._followed = leader
            self._turn()

    def _turn(self) -> None:
        """Whatever was under way is void: another epoch, another leader, or none."""
        self._candidate.stop()
        self._follower.turn(self._now_ms)
        if self._leader_state is not None:
            leader, self._leader_state = self._leader_state, None
            self._out += leader.close(self._not_leader())

    def _lose_leader(self, *, turn: int = 0) -> None:
        self._election.lose_leader(turn=turn, now_ms=self._now_ms)
        self._turn()

    def _not_leader(self) -> FetchAnswer:
        return FetchAnswer(self.epoch, self.leader, Fault.NOT_LEADER)

    # Requests

    def _receive(self, token: Token, request: Request) -> None:
        match request:
            case VoteRequest():
                self._out.append(Reply(token, self._answer_vote(request)))
            case BeginEpochRequest():
                self._out.append(Reply(token, self._begin_epoch(request)))
            case EndEpochRequest():
                self._out.append(Reply(token, self._end_epoch(request)))
            case RaftFetchRequest():
                self._answer_fetch(token, request)

    def _answer_vote(self, request: VoteRequest) -> VoteAnswer:
        if self._vote_handler.is_foreign(request):
            return self._vote_handler.refuse(Fault.WRONG_VOTERS, self._now_ms)
        # A node that asks beforehand is in the epoch before; to join the others, they must be there.
        self._learn(request.epoch - 1 if request.pre_vote else request.epoch, None)
        answer = self._vote_handler.answer(request, self._now_ms)
        if answer.granted and not request.pre_vote:
            self._candidate.stop()
        return answer

    def _begin_epoch(self, request: BeginEpochRequest) -> EpochAnswer:
        self._learn(request.epoch, request.leader, said_by=request.leader)
        if request.epoch < self.epoch:
            return EpochAnswer(self.epoch, self.leader, Fault.FENCED_EPOCH)
        if request.leader != self.leader or self._leader_state is not None:
            return EpochAnswer(self.epoch, self.leader, Fault.NOT_LEADER)
        self._election.hear(self._now_ms)
        return EpochAnswer(self.epoch, self.leader)

    def _end_epoch(self, request: EndEpochRequest) -> EpochAnswer:
        """The first successor asks no voter whether to stand: there is no leader to be kept."""
        self._learn(request.epoch, None)
        if request.epoch < self.epoch:
            return EpochAnswer(self.epoch, self.leader, Fault.FENCED_EPOCH)
        if self.leader in (None, request.leader) and self._leader_state is None:
            successors = request.successors
            mine = self.me.node_id
            turn = successors.index(mine) if mine in successors else len(successors)
            self._lose_leader(turn=turn)
            if turn == 0 and self._may_stand:
                self._stand()
        return EpochAnswer(self.epoch, self.leader)

    def _answer_fetch(self, token: Token, request: RaftFetchRequest) -> None:
        """A leader that is behind the one who asks cannot serve it, and leads no more."""
        self._learn(request.epoch, None)
        if request.epoch < self.epoch:
            answer = FetchAnswer(self.epoch, self.leader, Fault.FENCED_EPOCH)
            self._out.append(Reply(token, answer))
        elif self._leader_state is None:
            self._out.append(Reply(token, self._not_leader()))
        else:
            self._out += self._leader_state.serve(
                token, request, self.voters, self.high_watermark, self._now_ms
            )
            self._commit()

    # Answers

    def _take_answer(self, peer: NodeId, request: Request, answer: Answer) -> None:
        match request, answer:
            case VoteRequest(), VoteAnswer():
                self._candidate.count(peer, request, answer)
                self._conclude()
            case RaftFetchRequest(), FetchAnswer() if self._follower.awaits(peer, request):
                self._take_fetched(peer, answer)

    def _take_fetched(self, peer: NodeId, answer: FetchAnswer) -> None:
        now_ms = self._now_ms
        is_leaders = peer == self.leader and answer.epoch == self.epoch
        if is_leaders and answer.fault is Fault.NONE:
            self._election.hear(now_ms)
            self._out += self._follower.take(answer, self.high_watermark, now_ms)
            self._commit()
        elif is_leaders and answer.fault is Fault.NOT_LEADER and answer.leader != peer:
            # It has resigned, or does not remember that it led. A resigned leader's successor stands first: its
            # notice may be on the way for longer than this answer was.
            self._lose_leader(turn=1)
        else:
            self._follower.failed(now_ms)

    def _take_failure(self, peer: NodeId, request: Request) -> None:
        if isinstance(request, VoteRequest):
            self._candidate.fail(peer, request)
            self._conclude()
        elif isinstance(request, RaftFetchRequest) and self._follower.awaits(peer, request):
            if self.role is Role.OBSERVER and peer == self.leader:
                self._lose_leader()  # others may know a better one
            self._follower.failed(self._now_ms)

    def _take_absence(self, peer: NodeId) -> None:
        self._candidate.fail(peer)
        self._conclude()
        if peer == self.leader and self._leader_state is None:
            self._election.leader_gone(self._now_ms)
            self._turn()

    # Elections

    @property
    def _is_voter(self) -> bool:
        return self.me in self.voters

    @property
    def _is_eligible(self) -> bool:
        """Until a change of the voters is committed, one whom it leaves out may be the only one who
        can be elected, by the votes of the others (thesis 4.2.2).
        """
        return self._is_voter or self._voters_offset >= self.high_watermark

    @property
    def _may_stand(self) -> bool:
        """A log that is being changed is about to be another one."""
        is_fit = self._now_ms >= self._unfit_until_ms
        return self._is_eligible and is_fit and self._follower.is_settled

    def _elect(self) -> None:
        if self._candidate.is_running:
            self._ask_around()
        elif self._now_ms >= self._election.stands_ms and self._may_stand:
            self._election.ask()
            self._turn()
            silence_ms = self._election.silence_ms(self._now_ms)
            self._candidate.ask_beforehand(self.epoch + 1, silence_ms)
            self._ask_around()

    def _stand(self) -> None:
        self._election.stand(self._now_ms)
        self._turn()
        silence_ms = self._election.silence_ms(self._now_ms)
        self._candidate.stand(self.epoch, silence_ms, self._now_ms)
        self._ask_around()

    def _ask_around(self) -> None:
        self._out += self._candidate.go_on(self.voters, self._acquaintances, self._now_ms)
        self._conclude()

    def _conclude(self) -> None:
        """Whatever the election has come to."""
        candidate, voters = self._candidate, self.voters
        if candidate.has_support(voters):
            self._stand()
        elif candidate.is_won(voters):
            self._lead()
        elif candidate.is_lost(voters, self._now_ms):
            self._election.lost_election(self._now_ms)
            self._turn()

    # Leading

    def _lead(self) -> None:
        self.electors = tuple(self._candidate.electors(self.voters))
        self.electors_silence_ms = self._candidate.silence_ms(self.voters)
        self.predecessor = self._followed
        self._turn()
        self._election.lead()
        self._leader_state = LeaderState(
            self.me, self.log, self._settings, self.epoch, self._now_ms
        )

    def _tend(self, leader: LeaderState) -> None:
        now_ms, voters = self._now_ms, self.voters
        self._out += leader.answer_waiting(self.high_watermark, now_ms)
        self._out += leader.announce(voters, now_ms)
        is_removed = not self._is_voter and self._voters_offset < self.high_watermark
        if leader.is_stuck(now_ms):
            self._unfit_until_ms = now_ms + UNFIT_TIMEOUTS * self._settings.election_timeout_ms
            self._resign(leader)
        elif is_removed or leader.is_to_end(voters, now_ms):
            self._resign(leader)

    def _be_asked_to_resign(self, successor: NodeId | None) -> None:
        if self._leader_state is None or self.voters.ids <= {self.me.node_id}:
            return  # no other node could lead
        if successor is None or successor not in self.voters.ids - {self.me.node_id}:
            self._resign(self._leader_state)
        else:
            self._leader_state.hand_over(successor, self._now_ms)

    def _resign(self, leader: LeaderState) -> None:
        """For good in this epoch; the others need not wait until they miss the leader."""
        successors = leader.replicas.by_progress(self.voters)
        if leader.successor in successors:
            successors.remove(leader.successor)
            successors.insert(0, leader.successor)
        request = EndEpochRequest(self.epoch, self.me.node_id, tuple(successors))
        self._election.resign(self._now_ms)
        self._out += [Send(node_id, request) for node_id in successors]
        self._turn()

    def _commit(self) -> None:
        """A leader counts a majority; others believe the leader, as far as they have it."""
        if self._leader_state is None:
            reached = self._follower.committed_offset
        else:
            synced_end = self._follower.synced_end
            reached = self._leader_state.replicas.committed_offset(self.voters, synced_end)
        self.high_watermark = max(self.high_watermark, reached)

    def _change_voters(self, voters: VoterSet, offset: int) -> None:
        if self._leader_state is not None:
            if self.voters.is_recorded:
                self._check_majorities(voters)
            self._leader_state.replicas.voters_since_ms = self._now_ms
        self.voters = voters
        self._voters_offset = offset
        self._acquaintances |= voters.ids - {self.me.node_id}
        self._election.voters_changed(is_voter=self._is_voter, now_ms=self._now_ms)
        if not self._is_voter:
            self._candidate.stop()
        self._commit()

    # Following

    def _fetch_target(self) -> NodeId | None:
        """The leader; a voter without one asks for votes, any other asks around who leads."""
        if self.leader is not None or self._is_voter or self._candidate.is_running:
            return self.leader
        others = sorted(self._acquaintances)
        later = [it for it in others if self._asked is not None and it > self._asked]
        return next(iter(later or others), None)

    def _wait_ms(self, target: NodeId) -> int:
        if target != self.leader:
            return 0
        return self._settings.wait_ms if self._is_voter else self._settings.observer_wait_ms

    def _fetch(self) -> None:
        target = self._fetch_target()
        if target is None:
            return
        fetch = self._follower.fetch_from(
            target, epoch=self.epoch, wait_ms=self._wait_ms(target), now_ms=self._now_ms
        )
        if fetch is not None:
            self._asked = target
            self._out.append(fetch)


def _names(voters: VoterSet) -> str:
    """For an error: each replica by its node and the beginning of its folder's id."""
    return ", ".join(
        f"{it.node_id}@{it.directory_id.hex[:8] if it.directory_id else '?'}"
        for it in voters.by_id.values()
    )
