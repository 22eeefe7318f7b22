"""Stories of consumer groups of KIP-848: members that come, go, stall and lose answers; topics that change;
coordinators that crash; classic members among them.

At no time do two members have the same partition, as far as they keep to what they are told; and when they are left
in peace, every partition has a reader. The coordinator's state is what its log says.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamlog.coordination.effects import NONE
from streamlog.groups.records import Assigned
from streamlog.groups.replay import GroupReplay
from streamlog.groups.requests import GroupCaller, Joined, SyncedMember
from streamlog.wire.consumer_protocol import read_assignment
from streamlog.wire.error_codes import ErrorCode
from tests.consumer_world import WorldMember, settle
from tests.group_world import GroupWorld, subscription

NAMES = ("a", "b", "c", "d")
names = st.sampled_from(NAMES)
TOPICS = ("t", "t-2", "u")


class ConsumerGroupStory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld()
        self.world.topics.make("t", 3)
        self.world.topics_changed()
        self.members: dict[str, WorldMember] = {}
        self.last_beat: dict[str, int] = {}

    def _heard(self, name: str) -> None:
        self.last_beat[name] = self.world.ms

    @rule(
        name=names,
        says=st.sampled_from(
            [
                {},
                {"topics": ("t", "u")},
                {"regex": "t.*"},
                {"assignor": "range"},
                {"topics": ("u",)},
            ]
        ),
    )
    def joins(self, name: str, says: dict[str, Any]) -> None:
        if name not in self.members:
            self.members[name] = WorldMember(self.world, name, **says)
            self.members[name].beat()
            self._heard(name)

    @rule(name=names, reconciles=st.booleans())
    def beats(self, name: str, reconciles: bool) -> None:
        if name in self.members:
            self.members[name].beat()
            self._heard(name)
            if reconciles:
                self.members[name].reconcile()

    @rule(name=names)
    def loses_an_answer(self, name: str) -> None:
        if name in self.members and self.members[name].epoch:
            member = self.members[name]
            self.world.consumer_beat(name, member.epoch, member.owned)
            member.has_missed_answer = True
            self._heard(name)

    @rule(name=names)
    def leaves(self, name: str) -> None:
        if member := self.members.pop(name, None):
            self.world.consumer_beat(name, -1)
            del member

    @rule(name=names)
    def cannot_write(self, name: str) -> None:
        if name in self.members:
            self.world.refuse = ErrorCode.coordinator_not_available
            self.members[name].beat()
            self.world.refuse = None

    @rule(ms=st.sampled_from([1, 1_000, 20_000]))
    def time_goes_by(self, ms: int) -> None:
        """Clients notice themselves that their sessions are over, and give up what they had."""
        self.world.wait(ms)
        session_ms = self.world.settings.consumer_session_timeout_ms
        for name, member in self.members.items():
            if self.world.ms - self.last_beat[name] >= session_ms:
                member.epoch, member.owned, member.wanted = 0, frozenset(), frozenset()
        self._drop_fenced()

    def _drop_fenced(self) -> None:
        """Who did not give up in time is no member: its client hears that with its next heartbeat, which it
        sends before its rebalance time-out.
        """
        described = self.world.coordinator.describe_consumers("g")
        known = set() if described is None else {it.member_id for it in described.members}
        for name, member in self.members.items():
            if name not in known and member.epoch:
                member.beat()
                self._heard(name)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def a_topic_grows(self, name: str, partitions: int) -> None:
        known = self.world.topics.find(name)
        if known is None or known.partitions < partitions:
            self.world.topics.make(name, partitions)
            self.world.topics_changed(name)

    @rule(name=st.sampled_from(TOPICS))
    def a_topic_is_deleted(self, name: str) -> None:
        if self.world.topics.find(name) is not None:
            self.world.topics.delete(name)
            self.world.topics_changed(name)

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.world.crash()

    @precondition(lambda self: self.members)
    @rule()
    def all_settle(self) -> None:
        for _ in range(3):
            for member in self.members.values():
                if member.world.topics and member.step().error is not NONE:
                    member.step()
            self.world.wait(1_100)
        settle(*self.members.values())
        for name in self.members:
            self._heard(name)
        wanted = set()
        for member in self.members.values():
            for topic in self._topics_of(member):
                found = self.world.topics.find(topic)
                if found is not None:
                    wanted |= {(found.topic_id, number) for number in range(found.partitions)}
        owned = set().union(*(it.owned for it in self.members.values()))
        assert owned == wanted

    def _topics_of(self, member: WorldMember) -> tuple[str, ...]:
        if "regex" in member.says:
            return tuple(it for it in TOPICS if it.startswith("t"))
        found: tuple[str, ...] = member.says.get("topics", ("t",))
        return found

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        seen: Assigned = frozenset()
        for member in self.members.values():
            assert not seen & member.owned
            seen |= member.owned

    @invariant()
    def the_log_says_the_same(self) -> None:
        replay = GroupReplay()
        for key, value in self.world.log:
            replay.take(key, value)
        told = {it.name: it for it in replay.built()}
        here = self.world.coordinator.describe_consumers("g")
        group = told.get("g")
        if here is None:
            assert group is None or group.consumer is None
            return
        assert group is not None
        assert group.consumer is not None
        kept = group.consumer
        assert (kept.epoch, kept.target_epoch) == (here.epoch, here.target_epoch)
        assert kept.members == {it.member_id: it.metadata for it in here.members}
        assert kept.current == {it.member_id: it.current for it in here.members}
        assert {it: kept.target(it) for it in kept.members} == {
            it.member_id: it.target for it in here.members
        }


ConsumerGroupStory.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
TestConsumerGroupStory = ConsumerGroupStory.TestCase
del ConsumerGroupStory


def test_classic_members_keep_to_the_same_rule() -> None:
    """Cooperative classic members say what they have when they join: nobody has a partition of theirs before."""
    world = GroupWorld()
    world.topics.make("t", 6)
    world.topics_changed()

    def protocols(owned: set[int]) -> tuple[tuple[str, bytes], ...]:
        more = b"\xff\xff\xff\xff" + (b"\x00\x00\x00\x01\x00\x01t" + len(owned).to_bytes(4, "big"))
        more += b"".join(it.to_bytes(4, "big") for it in sorted(owned))
        return (("cooperative-sticky", subscription("t", more=more)),)

    new = WorldMember(world, "new")
    new.step()
    owned: set[int] = set()
    joined: Joined = world.join("", protocols=protocols(owned)).result
    for _ in range(12):
        synced: SyncedMember = world.sync(joined).result
        if synced.error is NONE:
            owned = {it.partition for it in read_assignment(synced.assignment)}
        assert not owned & {number for _, number in new.owned}
        new.step()
        assert not owned & {number for _, number in new.owned}
        caller = GroupCaller(joined.member_id, None, joined.generation)
        if world.coordinator.heartbeat("g", caller, world.now) is not NONE:
            joined = world.join(joined.member_id, protocols=protocols(owned)).result
    assert len(owned) == len(new.owned) == 3
    other = WorldMember(world, "other")
    for _ in range(12):
        other.step()
        new.step()
        caller = GroupCaller(joined.member_id, None, joined.generation)
        if world.coordinator.heartbeat("g", caller, world.now) is not NONE:
            joined = world.join(joined.member_id, protocols=protocols(owned)).result
            synced = world.sync(joined).result
            if synced.error is NONE:
                owned = {it.partition for it in read_assignment(synced.assignment)}
        mine = [owned, *({number for _, number in it.owned} for it in (new, other))]
        assert sum(map(len, mine)) == len(set().union(*mine))
    assert sorted(map(len, mine)) == [2, 2, 2]
