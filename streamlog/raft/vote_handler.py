"""A replica's answers to candidates: it grants or refuses its vote, in pre-votes and in elections. Pure.

One vote an epoch (Raft, section 5.2), and only for a log that is at least as long as its own (5.4.1).
``ElectionState`` keeps the vote; ``metadata.quorum.quorum_state_file`` has it on the disk.
"""

from uuid import UUID

from streamlog.raft.election_state import ElectionState
from streamlog.raft.log import RaftLog
from streamlog.raft.messages import Fault, VoteAnswer, VoteRequest
from streamlog.raft.voters import ReplicaKey


class VoteHandler:
    """The candidate counts the answers of voters only, so that every replica may give one: one that
    has become a voter may not know it yet (KIP-853).
    """

    def __init__(
        self, me: ReplicaKey, log: RaftLog, election: ElectionState, voters_id: UUID
    ) -> None:
        self._me = me
        self._log = log
        self._election = election
        self._voters_id = voters_id

    def is_foreign(self, request: VoteRequest) -> bool:
        """While nothing is known but the configuration, that must be the same."""
        return self._log.end_offset == 0 and request.voters_id != self._voters_id

    def answer(self, request: VoteRequest, now_ms: int) -> VoteAnswer:
        """Its epoch has been heard of."""
        election = self._election
        own = election.epoch
        if request.epoch < own or (request.pre_vote and request.epoch == own):
            return self.refuse(Fault.FENCED_EPOCH, now_ms)
        if not self._may_elect(request, now_ms):
            return self.refuse(Fault.NONE, now_ms)
        log = self._log
        if (request.last_epoch, request.end_offset) < (log.last_epoch, log.end_offset):
            if not election.hears(now_ms):
                election.hurry(now_ms)
            return self.refuse(Fault.NONE, now_ms)
        if request.pre_vote:
            election.make_way(now_ms)
        else:
            election.vote(request.candidate, now_ms)
        return VoteAnswer(own, None, True, self._me, silence_ms=election.silence_ms(now_ms))

    def refuse(self, fault: Fault, now_ms: int) -> VoteAnswer:
        """A leader that has been silent is not recommended to anybody."""
        election = self._election
        leader = election.leader if election.hears(now_ms) else None
        return VoteAnswer(election.epoch, leader, False, self._me, fault)

    def _may_elect(self, request: VoteRequest, now_ms: int) -> bool:
        """Whether there is no leader to be kept (thesis 9.6), nor a vote already given (5.2)."""
        election = self._election
        if request.pre_vote:
            leader_asks = election.leader == request.candidate.node_id != self._me.node_id
            return leader_asks or election.would_elect(now_ms)
        return election.leader is None and election.voted_for in (None, request.candidate)
