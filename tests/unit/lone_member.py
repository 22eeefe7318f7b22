"""One member of a quorum, driven by hand: what is said to it, and what it wants then."""

import uuid
from collections.abc import Iterable
from typing import TypeVar

from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.messages import (
    Answer,
    BeginEpochRequest,
    FetchAnswer,
    RaftFetchRequest,
    Request,
    VoteAnswer,
    VoteRequest,
)
from streamlog.raft.node import RaftNode, RaftSettings
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet
from tests.quorum_log import Entry, MemoryLog, decode, encode

VOTERS_ID = uuid.UUID(int=99)
TIMEOUT_MS = 1_000
T = TypeVar("T", bound=raft.Effect)


def key(node_id: int, directory: int | None = None) -> ReplicaKey:
    """``directory`` is told apart by a number, by default the node's own."""
    return ReplicaKey(NodeId(node_id), uuid.UUID(int=directory or node_id))


def voters(*ids: int, recorded: bool = True) -> VoterSet:
    return VoterSet.of(
        Voter(NodeId(it), f"n{it}", 1, key(it).directory_id if recorded else None) for it in ids
    )


def entries(*epochs: int) -> list[Entry]:
    """One of each of these epochs."""
    return [Entry(epoch, number) for number, epoch in enumerate(epochs)]


class LoneMember:
    """Node 1 of the voters 1, 2 and 3, unless it is said otherwise. Time stands still by itself."""

    def __init__(
        self,
        node_id: int = 1,
        among: VoterSet | None = None,
        *,
        directory: int | None = None,
        log: Iterable[Entry] = (),
        epoch: int = 0,
        voted_for: ReplicaKey | None = None,
        high_watermark: int = 0,
        voters_offset: int = -1,
        random: float = 0.5,
        acquaintances: Iterable[int] = (),
    ) -> None:
        self.log = MemoryLog()
        self.log.append(list(log))
        self.log.sync()
        self.me = key(node_id, directory)
        self.now_ms = 10_000
        self.settings = RaftSettings(election_timeout_ms=TIMEOUT_MS)
        self.raft = RaftNode(
            self.me,
            self.log,
            epoch=max(epoch, self.log.last_epoch),
            voted_for=voted_for,
            voters=voters(1, 2, 3) if among is None else among,
            voters_offset=voters_offset,
            voters_id=VOTERS_ID,
            high_watermark=high_watermark,
            settings=self.settings,
            random=lambda: random,
            now_ms=self.now_ms,
            acquaintances=[NodeId(it) for it in acquaintances],
        )

    def step(self, event: raft.Event, *, after_ms: int = 0) -> list[raft.Effect]:
        self.now_ms += after_ms
        effects = self.raft.step(event, self.now_ms)
        for effect in effects:
            if isinstance(effect, raft.Truncate):
                self.log.truncate(effect.end_offset)
        return effects

    def tick(self, after_ms: int = 0) -> list[raft.Effect]:
        return self.step(raft.Tick(), after_ms=after_ms)

    def wait(self) -> list[raft.Effect]:
        """Until it is due to look again."""
        return self.tick(max(0, self.raft.deadline_ms - self.now_ms))

    def ask(self, request: Request, *, after_ms: int = 0, token: object = "token") -> Answer | None:
        """What it answers at once."""
        effects = self.step(raft.Received(token, request), after_ms=after_ms)
        return next((it.answer for it in only(effects, raft.Reply) if it.token is token), None)

    def vote(self, request: VoteRequest, *, after_ms: int = 0) -> VoteAnswer:
        answer = self.ask(request, after_ms=after_ms)
        assert isinstance(answer, VoteAnswer)
        return answer

    def answered(self, peer: int, request: Request, answer: Answer) -> list[raft.Effect]:
        return self.step(raft.Answered(NodeId(peer), request, answer))

    # Ways to where a test begins

    def stand(self) -> list[raft.Effect]:
        """Candidate, in the next epoch."""
        asked = sent(self.tick(3 * TIMEOUT_MS), VoteRequest)
        request = asked[0].request
        assert isinstance(request, VoteRequest)
        assert request.pre_vote
        return self.answered(asked[0].peer, request, grant(asked[0].peer, request))

    def stand_with(self, *peers: int) -> list[raft.Effect]:
        """Candidate, when these have said that they would vote for it."""
        request = sent(self.tick(3 * TIMEOUT_MS), VoteRequest)[0].request
        assert isinstance(request, VoteRequest)
        return [it for peer in peers for it in self.answered(peer, request, grant(peer, request))]

    def lead(self) -> list[raft.Effect]:
        """With the vote of one other."""
        send = sent(self.stand(), VoteRequest)[0]
        assert isinstance(send.request, VoteRequest)
        effects = self.answered(send.peer, send.request, grant(send.peer, send.request))
        assert self.raft.role is raft.Role.LEADER
        return effects

    def append(self, count: int = 1, *, sync: bool = True) -> list[raft.Effect]:
        """As the leader's shell does."""
        self.log.append([Entry(self.raft.epoch, "own") for _ in range(count)])
        effects = self.step(raft.Appended(self.log.end_offset))
        if sync:
            self.log.sync()
            effects += self.step(raft.Synced(self.log.end_offset))
        return effects

    def fetched_by(
        self,
        replica: ReplicaKey | int,
        offset: int | None = None,
        *,
        last_epoch: int | None = None,
        token: object = None,
        wait_ms: int = 500,
        after_ms: int = 0,
    ) -> list[raft.Effect]:
        """By default by one who has all of it."""
        offset = self.log.end_offset if offset is None else offset
        if last_epoch is None:
            last_epoch = self.log.at(offset - 1).epoch if offset > self.log.start_offset else -1
        replica = key(replica) if isinstance(replica, int) else replica
        request = RaftFetchRequest(self.raft.epoch, replica, offset, last_epoch, wait_ms)
        return self.step(raft.Received(token or object(), request), after_ms=after_ms)

    def follow(self, leader: int, epoch: int = 1) -> RaftFetchRequest:
        """The first fetch that goes to it."""
        effects = self.step(raft.Received("begin", BeginEpochRequest(epoch, NodeId(leader))))
        assert self.raft.leader == leader
        request = sent(effects, RaftFetchRequest)[0].request
        assert isinstance(request, RaftFetchRequest)
        return request

    def take_append(self, effects: list[raft.Effect]) -> list[raft.Effect]:
        """Write what was fetched, and sync it."""
        (append,) = only(effects, raft.Append)
        self.log.append(decode(append.records))
        self.log.sync()
        return self.step(raft.Synced(self.log.end_offset))


def only(effects: Iterable[raft.Effect], kind: type[T]) -> list[T]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(effects: Iterable[raft.Effect], kind: type[Request]) -> list[raft.Send]:
    return [send for send in only(effects, raft.Send) if isinstance(send.request, kind)]


def vote_request(
    epoch: int,
    candidate: int | ReplicaKey,
    *,
    last_epoch: int = -1,
    end_offset: int = 0,
    pre_vote: bool = False,
    voters_id: uuid.UUID = VOTERS_ID,
) -> VoteRequest:
    replica = key(candidate) if isinstance(candidate, int) else candidate
    return VoteRequest(epoch, replica, last_epoch, end_offset, pre_vote, voters_id)


def grant(voter: int | ReplicaKey, request: VoteRequest) -> VoteAnswer:
    replica = key(voter) if isinstance(voter, int) else voter
    epoch = request.epoch - 1 if request.pre_vote else request.epoch
    return VoteAnswer(epoch, None, True, replica)


def refusal(voter: int, request: VoteRequest, leader: int | None = None) -> VoteAnswer:
    epoch = request.epoch - 1 if request.pre_vote else request.epoch
    return VoteAnswer(epoch, NodeId(leader) if leader else None, False, key(voter))


def records(
    request: RaftFetchRequest, leader: int, *found: Entry, committed: int = -1
) -> FetchAnswer:
    return FetchAnswer(
        request.epoch,
        NodeId(leader),
        high_watermark=committed,
        end_offset=request.offset + len(found),
        records=encode(list(found)),
    )
