"""Leaders of a share partition that are replaced, and go on all the same; a coordinator that is killed; saves that
come late, twice, or never. A member is told of what the coordinator has in its log, and of nothing else.
"""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from streamlog.coordination.effects import NONE
from streamlog.groups.records import ShareState, StateKey
from streamlog.shares.share_partition import (
    AcknowledgeType,
    BatchRange,
    ReadBatches,
    ShareAcknowledgement,
    SharePartition,
    Wish,
)
from tests.group_world import GroupWorld, Token

LOCK_MS, COUNT_MAX, LOCKS_MAX = 1_000, 4, 10_000


@dataclass
class Leader:
    """One that has taken the state over, and does not know whether it leads still."""

    owner: UUID
    share: SharePartition
    saved: int = 0
    is_closed: bool = False
    delivered: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    """Offsets with their counts, to be told once this version is saved."""
    accepted: list[tuple[int, set[int]]] = field(default_factory=list)
    asked: list[tuple[int, Token]] = field(default_factory=list)
    """Saves that the coordinator has yet to answer."""
    held: set[int] = field(default_factory=set)
    """What its member has."""


class ShareFailoverStory(RuleBasedStateMachine):
    """No record comes again that counts as accepted, no delivery is forgotten, and none is lost."""

    @initialize()
    def begin(self) -> None:
        self.world = GroupWorld()
        self.world.topics.make("t", 1)
        self.world.topics_changed()
        self.world.share_beat("m", 0)
        self.world.commits = False
        self.key = StateKey("g", self.world.topics.known["t"].topic_id, 0)
        self.leaders: list[Leader] = []
        self.network: list[tuple[Leader, ShareState]] = []
        self.end = 0
        self.epoch = 0
        self.done: set[int] = set()
        self.counts: dict[int, int] = {}
        self.answered: set[int] = set()
        """Accepted, whether that counts or the answer was lost."""
        self.last_time: set[int] = set()
        """Delivered as often as may be, whether a member was told or not."""
        self.take_over()

    @rule()
    def take_over(self) -> None:
        """Another node leads. What it was told is in the log, and all before."""
        self.epoch += 1
        owner = UUID(int=self.epoch)
        token = self.world.ask_shares(
            lambda it, token, now: it.take_over(self.key, self.epoch, owner, token, now)
        )
        self.world.commit_log()
        self.settle()
        answer = token.result
        assert answer.error is NONE
        if answer.state.delivery:
            share = SharePartition.restored(answer.state.delivery, 0, LOCK_MS, COUNT_MAX, LOCKS_MAX)
        else:
            share = SharePartition.starting(0, LOCK_MS, COUNT_MAX, LOCKS_MAX)
        self.leaders.append(Leader(owner, share))
        self.leaders = [it for it in self.leaders if not it.is_closed]

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count

    @precondition(lambda self: self.end)
    @rule(data=st.data(), records_max=st.integers(1, 4))
    def acquire(self, data: st.DataObject, records_max: int) -> None:
        leader = data.draw(st.sampled_from(self.leaders))
        start = leader.share.wanted_offset
        if leader.is_closed or start is None or start >= self.end:
            return
        read = ReadBatches(start, self.end, [BatchRange(it, it) for it in range(start, self.end)])
        found = leader.share.acquire("m", read, Wish(records_max), 0)
        counts = {at: it.count for it in found for at in range(it.first, it.last + 1)}
        leader.delivered.append((leader.share.version, counts))
        self.last_time.update(at for at, count in counts.items() if count == COUNT_MAX)

    @rule(data=st.data(), type_=st.sampled_from([AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE]))
    def answer(self, data: st.DataObject, type_: AcknowledgeType) -> None:
        """Of something that a member was told of."""
        leader = data.draw(st.sampled_from(self.leaders))
        if leader.is_closed or not leader.held:
            return
        offset = data.draw(st.sampled_from(sorted(leader.held)))
        leader.held.discard(offset)
        leader.share.acknowledge("m", [ShareAcknowledgement(offset, offset, [type_])], 0)
        if type_ is AcknowledgeType.ACCEPT:
            leader.accepted.append((leader.share.version, {offset}))
            self.answered.add(offset)

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        leader = data.draw(st.sampled_from(self.leaders))
        share = leader.share
        if not leader.is_closed and share.version > leader.saved:
            progress = share.progress
            state = ShareState(0, leader.owner, share.version, *progress, share.state(0))
            self.network.append((leader, state))

    @precondition(lambda self: self.network)
    @rule(data=st.data(), again=st.booleans())
    def arrive(self, data: st.DataObject, again: bool) -> None:
        """One of the saves that are on their way, in any order; perhaps it comes once more later."""
        at = data.draw(st.integers(0, len(self.network) - 1))
        leader, state = self.network[at] if again else self.network.pop(at)
        self.ask(leader, state)
        self.settle()

    def ask(self, leader: Leader, state: ShareState) -> None:
        token = self.world.ask_shares(lambda it, token, now: it.save(self.key, state, token, now))
        leader.asked.append((state.version, token))

    @rule(data=st.data())
    def save(self, data: st.DataObject) -> None:
        """As it mostly goes."""
        self.send(data)
        if self.network:
            leader, state = self.network.pop()
            self.ask(leader, state)
            self.world.commit_log()
            self.settle()

    @rule(at_most=st.integers(1, 3))
    def commit(self, at_most: int) -> None:
        self.world.commit_log(at_most)
        self.settle()

    @rule(kept=st.integers(0, 3))
    def kill_the_coordinator(self, kept: int) -> None:
        """Who waits for its answer gets none, and begins again."""
        self.world.crash(kept)
        for leader in self.leaders:
            if leader.asked:
                leader.is_closed = True
        if all(it.is_closed for it in self.leaders):
            self.take_over()

    def settle(self) -> None:
        for leader in self.leaders:
            waiting = []
            for version, token in leader.asked:
                if not token.is_answered:
                    waiting.append((version, token))
                elif token.result.error is NONE:
                    leader.saved = max(leader.saved, version)
                else:
                    leader.is_closed = True
            leader.asked = waiting
            if not leader.is_closed:
                self.tell(leader)

    def tell(self, leader: Leader) -> None:
        """The members of what is saved."""
        for version, offsets in leader.accepted:
            if version <= leader.saved:
                self.done |= offsets
        leader.accepted = [it for it in leader.accepted if it[0] > leader.saved]
        for version, counts in leader.delivered:
            if version > leader.saved:
                continue
            for offset, count in counts.items():
                assert offset not in self.done, "it comes again"
                assert count > self.counts.get(offset, 0), "a delivery is forgotten"
                self.counts[offset] = count
                leader.held.add(offset)
        leader.delivered = [it for it in leader.delivered if it[0] > leader.saved]

    def teardown(self) -> None:
        """The last leader of all has whatever is not done with."""
        self.world.commits = True
        self.world.crash()
        self.take_over()
        leader = self.leaders[-1]
        pending: set[int] = set()
        while (start := leader.share.wanted_offset) is not None and start < self.end:
            batches = [BatchRange(it, it) for it in range(start, self.end)]
            for it in leader.share.acquire("m", ReadBatches(start, self.end, batches), Wish(0), 0):
                pending.update(range(it.first, it.last + 1))
        assert not pending & self.done
        assert set(range(self.end)) - pending <= self.answered | self.last_time


TestShareFailover = ShareFailoverStory.TestCase
TestShareFailover.settings = settings(stateful_step_count=40, max_examples=200, deadline=None)
