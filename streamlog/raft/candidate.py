"""A voter that stands for election: which voters it asks, when again, what they answer. Pure."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

from streamlog.model import NodeId
from streamlog.raft.events import Effect, Send
from streamlog.raft.log import RaftLog
from streamlog.raft.messages import Request, VoteAnswer, VoteRequest
from streamlog.raft.settings import RaftSettings
from streamlog.raft.voters import ReplicaKey, VoterSet

DOUBLINGS_MAX: Final = 4


class Candidacy:
    """Of one epoch, or the asking beforehand. Votes are counted by voter, each once.

    A vote given is given for good. One refused is final too; a pre-vote refused may be granted in
    the next round, for a voter that refused may have lost sight of the leader meanwhile.
    """

    def __init__(self, request: VoteRequest, *, round_ms: int, ends_ms: int | None) -> None:
        self.request = request
        self.next_round_ms = 0
        self._ends_ms = ends_ms
        """A candidate gives up then; who only asks goes on asking."""
        self._round_ms = round_ms
        self._rounds = 0
        self._granted: dict[ReplicaKey, int] = {}
        """The silence of leaders that each one has told of."""
        self._refused: set[NodeId] = set()
        self._failed: set[NodeId] = set()

    def granted(self, voter: ReplicaKey, silence_ms: int) -> None:
        self._granted[voter] = silence_ms

    def refused(self, voter: NodeId) -> None:
        self._refused.add(voter)

    def failed(self, voter: NodeId) -> None:
        """It does not answer, and will be asked again in the next round."""
        self._failed.add(voter)

    @property
    def deadline_ms(self) -> int:
        """When to look again."""
        ends_ms = self.next_round_ms if self._ends_ms is None else self._ends_ms
        return min(self.next_round_ms, ends_ms)

    def is_over(self, now_ms: int) -> bool:
        return self._ends_ms is not None and now_ms >= self._ends_ms

    def begin_round(self, voters: VoterSet, now_ms: int, random: float) -> list[NodeId]:
        """Which voters to ask now. The pause after a round doubles, and is no one else's."""
        pause_ms = self._round_ms * (1 << min(self._rounds, DOUBLINGS_MAX))
        self.next_round_ms = now_ms + 1 + int(pause_ms * (0.5 + random))
        self._rounds += 1
        self._failed.clear()
        if self.request.pre_vote:
            self._refused.clear()
        return self._unanswered(voters)

    def electors(self, voters: VoterSet) -> list[ReplicaKey]:
        """Who has granted it; of each node one replica, the one that answered first."""
        found = {key.node_id: key for key in reversed(self._granted) if key in voters}
        return [found[node_id] for node_id in sorted(found)]

    def silence_ms(self, voters: VoterSet) -> int:
        """For so long at least none of those who granted it had heard from any leader."""
        return min((it for key, it in self._granted.items() if key in voters), default=0)

    def is_won(self, voters: VoterSet) -> bool:
        return len(self._votes(voters)) >= voters.majority

    def is_lost(self, voters: VoterSet) -> bool:
        """Not even all who may still answer make it a majority."""
        hopes = [it for it in self._unanswered(voters) if it not in self._failed]
        return len(self._votes(voters)) + len(hopes) < voters.majority

    def _votes(self, voters: VoterSet) -> set[NodeId]:
        """A replica counts while it is a voter, under its directory id."""
        return {key.node_id for key in self._granted if key in voters}

    def _unanswered(self, voters: VoterSet) -> list[NodeId]:
        done = self._votes(voters) | self._refused | {self.request.candidate.node_id}
        return sorted(voters.ids - done)


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

    def ask_beforehand(self, epoch: int, silence_ms: int) -> None:
        """Goes on until it is stopped. ``silence_ms``: for how long the node itself has heard from no leader."""
        self._begin(epoch, silence_ms, pre_vote=True, ends_ms=None)

    def stand(self, epoch: int, silence_ms: int, now_ms: int) -> None:
        half_ms = self._settings.election_timeout_ms // 2
        ends_ms = now_ms + half_ms + int(half_ms * self._random())
        self._begin(epoch, silence_ms, pre_vote=False, ends_ms=ends_ms)

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
            self._election.granted(answer.voter, answer.silence_ms)
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

    def silence_ms(self, voters: VoterSet) -> int:
        """For so long at least no elector had heard from any leader."""
        return 0 if self._election is None else self._election.silence_ms(voters)

    def is_lost(self, voters: VoterSet, now_ms: int) -> bool:
        election = self._election
        if election is None or election.request.pre_vote:
            return False
        return election.is_over(now_ms) or election.is_lost(voters)

    def _begin(self, epoch: int, silence_ms: int, *, pre_vote: bool, ends_ms: int | None) -> None:
        log = self._log
        request = VoteRequest(
            epoch, self._me, log.last_epoch, log.end_offset, pre_vote, self._voters_id
        )
        self._election = Candidacy(request, round_ms=self._settings.moment_ms, ends_ms=ends_ms)
        self._election.granted(self._me, silence_ms)
