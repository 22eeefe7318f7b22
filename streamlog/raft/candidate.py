"""A voter that stands for election: whom it asks, when again, and when to stop. Pure."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from uuid import UUID

from streamlog.model import NodeId
from streamlog.raft.candidacy import Candidacy
from streamlog.raft.events import Effect, Send
from streamlog.raft.log import RaftLog
from streamlog.raft.messages import Request, VoteAnswer, VoteRequest
from streamlog.raft.settings import RaftSettings
from streamlog.raft.voters import ReplicaKey, VoterSet


class CandidateState:
    """One election at a time: first whether others would vote for it, then whether they do."""

    def __init__(
        self,
        me: ReplicaKey,
        log: RaftLog,
        *,
        voters_id: UUID,
        settings: RaftSettings,
        random: Callable[[], float],
    ) -> None:
        self._me = me
        self._log = log
        self._voters_id = voters_id
        self._settings = settings
        self._random = random
        self._election: Candidacy | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When to look again, in an election."""
        return None if self._election is None else self._election.deadline_ms

    @property
    def is_running(self) -> bool:
        return self._election is not None

    def ask_beforehand(self, epoch: int) -> None:
        """Goes on until it is stopped."""
        self._begin(epoch, pre_vote=True, ends_ms=None)

    def stand(self, epoch: int, now_ms: int) -> None:
        half_ms = self._settings.election_timeout_ms // 2
        self._begin(epoch, pre_vote=False, ends_ms=now_ms + half_ms + int(half_ms * self._random()))

    def go_on(
        self, voters: VoterSet, acquaintances: AbstractSet[NodeId], now_ms: int
    ) -> list[Effect]:
        """The next round, if it is time. Others than voters are asked beforehand only: they may
        know a leader.
        """
        election = self._election
        if election is None or now_ms < election.next_round_ms:
            return []
        asked = election.begin_round(voters, now_ms, self._random())
        if election.request.pre_vote:
            asked += sorted(acquaintances - voters.ids)
        return [Send(node_id, election.request) for node_id in asked]

    def stop(self) -> None:
        self._election = None

    def count(self, peer: NodeId, request: VoteRequest, answer: VoteAnswer) -> None:
        if self._election is None or self._election.request != request:
            return
        if answer.granted and answer.voter.node_id == peer:
            self._election.granted(answer.voter)
        else:
            self._election.refused(peer)

    def fail(self, peer: NodeId, request: Request | None = None) -> None:
        """No answer to ``request``, or to any."""
        if self._election is not None and request in (None, self._election.request):
            self._election.failed(peer)

    def has_support(self, voters: VoterSet) -> bool:
        """A majority would vote for this one."""
        election = self._election
        return election is not None and election.request.pre_vote and election.is_won(voters)

    def is_won(self, voters: VoterSet) -> bool:
        election = self._election
        return election is not None and not election.request.pre_vote and election.is_won(voters)

    def electors(self, voters: VoterSet) -> list[ReplicaKey]:
        """Who has voted for this one."""
        return [] if self._election is None else self._election.electors(voters)

    def is_lost(self, voters: VoterSet, now_ms: int) -> bool:
        election = self._election
        if election is None or election.request.pre_vote:
            return False
        return election.is_over(now_ms) or election.is_lost(voters)

    def _begin(self, epoch: int, *, pre_vote: bool, ends_ms: int | None) -> None:
        log = self._log
        request = VoteRequest(
            epoch, self._me, log.last_epoch, log.end_offset, pre_vote, self._voters_id
        )
        self._election = Candidacy(request, round_ms=self._settings.moment_ms, ends_ms=ends_ms)
