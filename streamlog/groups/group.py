"""One group: its members, its generation, its offsets. Pure.

States, and where each may come from::

    Empty                no members; offsets perhaps            <- PreparingRebalance
    PreparingRebalance   members are joining                    <- Empty, CompletingRebalance,
                                                                   Stable
    CompletingRebalance  a generation waits for its assignment  <- PreparingRebalance
    Stable               every member has its assignment        <- CompletingRebalance
    Dead                 about to be forgotten                  <- Empty

``membership.classic_membership`` and ``offsets`` move it; what is here keeps its parts together.

Members of the protocol type ``consumer`` say what they subscribe to: ``ConsumerProtocolSubscription``
begins with its version and the names of topics, in every version; what follows (user data, owned
partitions, rack) changes from one join to the next.

Offsets that producers have committed in transactions which are yet to end (KIP-447) count each from when its
transaction is committed, unless what was committed of the same partition stands later in the log. So their
``order`` is as that of the log.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.coordination.effects import NONE
from streamlog.errors import BrokenInvariant, MalformedFrame
from streamlog.groups.consumer_group import ConsumerGroup
from streamlog.groups.records import CommittedOffset, KeptGroup, KeptMember
from streamlog.groups.requests import (
    DescribedGroup,
    DescribedMember,
    GroupCaller,
    JoinedMember,
    PartitionId,
)
from streamlog.wire.cursor import Cursor
from streamlog.wire.error_codes import ErrorCode


class PendingOffset(NamedTuple):
    """One that does not count yet."""

    value: CommittedOffset
    order: int


class TransactionalOffsets:
    """Those of one group, by producer and partition."""

    def __init__(self) -> None:
        self._pending: dict[int, dict[PartitionId, PendingOffset]] = {}

    def add(self, producer_id: int, place: PartitionId, pending: PendingOffset) -> bool:
        """Whether the producer had none of that partition."""
        known = self._pending.setdefault(producer_id, {})
        is_new = place not in known
        known[place] = pending
        return is_new

    def supersede(self, place: PartitionId, order: int) -> int:
        """Something later counts there: how many of it can count no more."""
        found = [
            producer_id
            for producer_id, known in self._pending.items()
            if place in known and known[place].order < order
        ]
        for producer_id in found:
            del self._pending[producer_id][place]
            if not self._pending[producer_id]:
                del self._pending[producer_id]
        return len(found)

    def take(self, producer_id: int) -> dict[PartitionId, PendingOffset]:
        """What the producer's transaction has, which ends."""
        return self._pending.pop(producer_id, {})

    @property
    def producers(self) -> Iterator[int]:
        return iter(self._pending)

    @property
    def newest(self) -> int:
        """The highest order."""
        return max(
            (it.order for known in self._pending.values() for it in known.values()), default=0
        )

    @property
    def places(self) -> set[PartitionId]:
        return {place for known in self._pending.values() for place in known}

    def __contains__(self, place: PartitionId) -> bool:
        return any(place in known for known in self._pending.values())

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))


Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Member:
    """A member as its coordinator knows it."""

    member_id: str
    instance_id: str | None
    """Of a static member, whose place is kept while it restarts (KIP-345)."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    """Names, the most wanted first, each with its metadata."""
    assignment: bytes = b""
    is_new: bool = False
    """Joined since the last generation began: nothing but its time to join keeps it alive."""
    joining: object | None = None
    """Token of the JoinGroup that waits for the next generation."""
    syncing: object | None = None
    """Token of the SyncGroup that waits for the leader's."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def size_bytes(self) -> int:
        """What clients have made us keep, apart from the few fields."""
        return sum(len(name) + len(data) for name, data in self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """b"" for a protocol that it does not know."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The one that it wants most; it knows all candidates."""
        return next(name for name, _ in self.protocols if name in candidates)

    def kept(self, protocol: str | None, assignment: bytes) -> KeptMember:
        """For the log."""
        return KeptMember(
            self.member_id, self.instance_id, self.client_id, self.client_host,
            self.rebalance_timeout_ms, self.session_timeout_ms, self.metadata(protocol),
            assignment,
        )  # fmt: skip

    def described(self, protocol: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id, self.instance_id, self.client_id, self.client_host,
            self.metadata(protocol), self.assignment,
        )  # fmt: skip


CONSUMER: Final = "consumer"
CLASSIC_TYPE: Final = "classic"
CONSUMER_TYPE: Final = "consumer"
TOPICS_MAX: Final = 100_000


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None where it cannot be told: others may use that protocol type for bytes of their own."""
    try:
        cursor = Cursor(metadata)
        if cursor.i16() < 0:
            return None
        count = cursor.array_length(False)
        if count > TOPICS_MAX:
            return None
        return frozenset(cursor.string(False) for _ in range(count))
    except MalformedFrame:
        return None


def same_subscription(protocol_type: str | None, before: bytes, after: bytes) -> bool:
    """Whether the leader, which assigns partitions, would find the same wish in both."""
    if before == after:
        return True
    known = subscribed_topics(before) if protocol_type == CONSUMER else None
    return known is not None and known == subscribed_topics(after)


class State(Enum):
    """Under Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_BEFORE: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.EMPTY, State.STABLE, State.COMPLETING}),
    State.COMPLETING: frozenset({State.PREPARING}),
    State.STABLE: frozenset({State.COMPLETING}),
    State.DEAD: frozenset({State.EMPTY}),
}
"""Dead goes back to Empty where its end could not be written."""


def refusal(group: "Group | ConsumerGroup", caller: GroupCaller) -> ErrorCode:
    """Why ``caller`` is none of its members; ``NONE`` if it is."""
    if caller.instance_id is not None:
        known = group.static.get(caller.instance_id)
        if known is None:
            return ErrorCode.unknown_member_id
        if known != caller.member_id:
            return ErrorCode.fenced_instance_id
    return NONE if caller.member_id in group.members else ErrorCode.unknown_member_id


class Group:
    """Invariants: ``leader`` is a member, if there are any; ``static`` names members only; no
    ``pending`` id is a member's; the generation never falls.
    """

    def __init__(self, name: str, *, state_ms: int = -1) -> None:
        self.name = name
        self.state = State.EMPTY
        self.state_ms = state_ms
        """Wall clock, of the last change of state; -1: not known."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that no member ever joined: it only keeps offsets."""
        self.protocol: str | None = None
        """As chosen for the generation."""
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        """By member id, in the order of joining."""
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending: set[str] = set()
        """Ids that were given out, to join with."""
        self.unsynced: set[str] = set()
        """Members that have yet to ask for what the generation assigns them."""
        self.delays_left_ms: int | None = None
        """A first generation waits for more members; so long yet, after the present delay."""
        self.has_new_members = False
        """A member has joined since that delay began."""
        self.offsets: dict[PartitionId, CommittedOffset] = {}
        """What is committed."""
        self.transactional = TransactionalOffsets()
        """What counts once its transaction is committed."""
        self.writing: dict[PartitionId, deque[UUID]] = {}
        """Commits that are on their way to the log, in order, by the id of the stream that each is
        of: one of the same name may have taken its place before the commit is there.
        """
        self.consumer: ConsumerGroup | None = None
        """Where it is a group of the consumer protocol (KIP-848), or a share group (KIP-932). Then it has no
        members of its own, and keeps its name, its offsets, and its state: Empty, or Dead.
        """
        self.has_new_topics = True
        """Topics have changed, or it is not known which there were."""

    # Its state

    def move(self, state: State, wall_ms: int) -> None:
        if self.state not in _BEFORE[state]:
            raise BrokenInvariant(f"{self.name}: {self.state} does not lead to {state}")
        self.state = state
        self.state_ms = wall_ms

    def is_in(self, *states: State) -> bool:
        return self.state in states

    @property
    def is_empty(self) -> bool:
        """It has no members."""
        return self.state is State.EMPTY and (self.consumer is None or not self.consumer.members)

    @property
    def shown_state(self) -> str:
        """As Kafka names it."""
        is_classic = self.consumer is None or self.state is State.DEAD
        return self.state.value if is_classic or self.consumer is None else self.consumer.state

    @property
    def group_type(self) -> str:
        """As Kafka names it."""
        return CLASSIC_TYPE if self.consumer is None else self.consumer.group_type

    @property
    def shown_protocol_type(self) -> str:
        """ "" of a group that only keeps offsets."""
        return self.protocol_type or "" if self.consumer is None else self.consumer.group_type

    @property
    def member_count(self) -> int:
        return len(self.members) if self.consumer is None else len(self.consumer.members)

    @property
    def is_idle(self) -> bool:
        """It keeps nothing that a client could miss."""
        is_empty = self.is_empty and self.consumer is None and not self.pending
        return is_empty and not (self.offsets or self.writing or self.transactional)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and all(it.joining is not None for it in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member may take."""
        return max((it.rebalance_timeout_ms for it in self.members.values()), default=0)

    @property
    def size_bytes(self) -> int:
        """What its members have made us keep."""
        found = sum(it.size_bytes for it in self.members.values())
        return found if self.consumer is None else found + self.consumer.size_bytes

    # Its members

    def add(self, member: Member, protocol_type: str | None) -> None:
        """The first one decides what type of protocol they speak."""
        if member.member_id in self.members:
            raise BrokenInvariant(f"{member.member_id} is a member already")
        if not self.members:
            self.protocol_type = protocol_type
        self.pending.discard(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            if member.instance_id in self.static:
                raise BrokenInvariant(f"{member.instance_id} is a member already")
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """The leadership goes to the member that joined first of the others."""
        member = self.members.pop(member_id)
        self.unsynced.discard(member_id)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def become(self, kept: KeptGroup | None) -> None:
        """What is kept of it, with these members and no others; None: it has no members."""
        self.state = State.EMPTY
        self.leader = self.protocol = None
        self.members, self.static = {}, {}
        self.pending.clear()
        self.unsynced.clear()
        self.delays_left_ms = None
        if kept is None:
            return
        self.generation = kept.generation
        self.protocol_type = kept.protocol_type or None
        self.protocol = kept.protocol
        for it in kept.members:
            protocols = ((kept.protocol or "", it.subscription),)
            member = Member(
                it.member_id, it.instance_id, it.client_id, it.client_host,
                it.session_timeout_ms, it.rebalance_timeout_ms, protocols, it.assignment,
            )  # fmt: skip
            self.add(member, self.protocol_type)
        if self.members:
            self.state = State.STABLE
            if kept.leader in self.members:
                self.leader = kept.leader

    def replace_static(self, member: Member, member_id: str) -> None:
        """The static member has another id from now on; its place, and leadership, stay."""
        assert member.instance_id is not None
        before = member.member_id
        self.members = {
            (member_id if known == before else known): it for known, it in self.members.items()
        }
        member.member_id = member_id
        self.static[member.instance_id] = member_id
        if before in self.unsynced:
            self.unsynced.remove(before)
            self.unsynced.add(member_id)
        if self.leader == before:
            self.leader = member_id

    def elect_joined(self) -> bool:
        """Have a member lead that has joined; False if there is none."""
        if self.leader is None:
            return False
        if self.members[self.leader].joining is None:
            joined = (it.member_id for it in self.members.values() if it.joining is not None)
            found = next(joined, None)
            if found is None:
                return False
            self.leader = found
        return True

    # Its protocol

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether who speaks these can join the members there are."""
        if not protocol_type or not protocols:
            return False
        if self.state is State.EMPTY or not self.members:
            return True
        common = self.candidates()
        return protocol_type == self.protocol_type and any(name in common for name, _ in protocols)

    def candidates(self) -> set[str]:
        """Protocols that every member knows."""
        known = [{name for name, _ in it.protocols} for it in self.members.values()]
        return set.intersection(*known) if known else set()

    def choose_protocol(self) -> str:
        """By the most votes; among equals, the one that the leader wants most."""
        assert self.leader is not None
        candidates = self.candidates()
        votes = Counter(it.vote(candidates) for it in self.members.values())
        most = max(votes.values())
        return self.members[self.leader].vote({it for it, count in votes.items() if count == most})

    def subscribed(self) -> frozenset[str] | None:
        """Topics that its members consume; None where they do not say."""
        if self.consumer is not None:
            return frozenset(self.consumer.subscribed())
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        found: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol))
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """For the leader."""
        return tuple(
            JoinedMember(it.member_id, it.instance_id, it.metadata(self.protocol))
            for it in self.members.values()
        )

    # As others see it

    def kept(self, assignments: dict[str, bytes] | None = None) -> KeptGroup:
        """For the log; ``assignments``: instead of those that its members have."""
        members = tuple(
            it.kept(
                self.protocol,
                it.assignment if assignments is None else assignments.get(it.member_id, b""),
            )
            for it in self.members.values()
        )
        return KeptGroup(
            self.protocol_type or "", self.generation, self.protocol, self.leader, self.state_ms,
            members,
        )  # fmt: skip

    def described(self, *, members: bool = True) -> DescribedGroup:
        """Members' metadata are told of a stable group alone: another's are about to change."""
        protocol = (self.protocol or "") if self.state is State.STABLE else ""
        listed = tuple(it.described(protocol or None) for it in self.members.values())
        return DescribedGroup(
            self.name, self.shown_state, self.shown_protocol_type, protocol,
            listed if members else (), self.group_type, self.member_count,
        )  # fmt: skip


def restored(name: str, kept: KeptGroup) -> Group:
    """The group as its coordinator left it: Stable, or Empty if no member was there."""
    group = Group(name, state_ms=kept.state_ms)
    group.become(kept)
    return group
