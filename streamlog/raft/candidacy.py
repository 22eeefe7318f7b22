"""One candidacy: who was asked, and what they said. Pure."""

from typing import Final

from streamlog.model import NodeId
from streamlog.raft.messages import VoteRequest
from streamlog.raft.voters import ReplicaKey, VoterSet

DOUBLINGS_MAX: Final = 4


class Candidacy:
    """Of one epoch, or the asking beforehand. Votes are counted by voter, each once.

    A vote given is given for good. One refused is final too; a pre-vote refused may be granted in
    the next round, for whoever refused may have lost sight of the leader meanwhile.
    """

    def __init__(self, request: VoteRequest, *, round_ms: int, ends_ms: int | None) -> None:
        self.request = request
        self.next_round_ms = 0
        self._ends_ms = ends_ms
        """A candidate gives up then; who only asks goes on asking."""
        self._round_ms = round_ms
        self._rounds = 0
        self._granted: dict[ReplicaKey, None] = {request.candidate: None}
        self._refused: set[NodeId] = set()
        self._failed: set[NodeId] = set()

    def granted(self, voter: ReplicaKey) -> None:
        self._granted[voter] = None

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
