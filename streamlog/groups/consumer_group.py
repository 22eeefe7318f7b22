"""A consumer group of KIP-848: what its records say, and what follows from it. Pure.

States, as Kafka names them::

    Empty        no members
    Assigning    the target assignment is of an earlier group epoch
    Reconciling  a member does not have yet what the target assignment gives it
    Stable       every member has it

A partition is given to a member only once the member that had it has said that it has it no more:
``owners`` has one member for each partition.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.coordination.effects import KeptRecord
from streamlog.groups.assignors import ASSIGNORS, AssignorMember, AssignorMembers, Partitions
from streamlog.groups.records import (
    NOTHING,
    Assigned,
    Change,
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentAssignment,
    CurrentKey,
    GroupEpoch,
    GroupEpochKey,
    MemberKey,
    MemberMetadata,
    MemberState,
    RegexKey,
    ResolvedRegex,
    StateKey,
    TargetEpochKey,
    TargetKey,
    TopicPartitionId,
    consumer_group_record,
)
from streamlog.groups.subscribed_topics import Topics
from streamlog.wire.error_codes import ErrorCode

LEAVING_EPOCH: Final = -1
"""Of a member that leaves the group."""
STATIC_LEAVING_EPOCH: Final = -2
"""Of a static member that will be back; its part is kept for it until its session ends."""
JOINING_EPOCH: Final = 0
NOT_ASSIGNED: Final = CurrentAssignment(JOINING_EPOCH, -1, MemberState.STABLE, NOTHING, NOTHING)

ConsumerGroupData = dict[ConsumerGroupKey, ConsumerGroupValue]


class PendingWrite(NamedTuple):
    """Records of one batch that is on its way to the log."""

    changes: tuple[Change, ...]
    answers: list[Callable[[ErrorCode], None]]
    """What is to be answered when it is there, or is not."""


class ConsumerGroup:
    """Invariant: it is what its records say, those that are on their way to the log among them.

    ``change`` is the only way to change it. Where a write fails, ``failed`` takes it back.
    """

    group_type = "consumer"
    """As Kafka names it; its members' protocol type, too."""

    def __init__(
        self,
        name: str,
        committed: Mapping[ConsumerGroupKey, ConsumerGroupValue] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._committed: ConsumerGroupData = dict(committed)
        """By the records that are committed."""
        self.writing: deque[PendingWrite] = deque()
        """On their way to the log, in order."""
        self._rebuild()

    def _rebuild(self) -> None:
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, MemberMetadata] = {}
        self.targets: dict[str, Assigned] = {}
        self.current: dict[str, CurrentAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[TopicPartitionId, str] = {}
        """Who has a partition, or has yet to give it up."""
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.size_bytes = 0
        """Of what members have us keep, apart from the few fields."""
        for kept in self._committed.items():
            self._apply(*kept)
        for write in self.writing:
            for change in write.changes:
                self._apply(*change)

    # Its changes

    def change(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> bool:
        """Whether that is new; then it is to be written."""
        if self._value(key) == value:
            return False
        self._apply(key, value)
        return True

    def append(self, changes: Iterable[Change]) -> PendingWrite:
        """They are on their way to the log."""
        write = PendingWrite(tuple(changes), [])
        self.writing.append(write)
        return write

    def committed(self, write: PendingWrite) -> None:
        """It is in the log; it is the oldest that was on its way."""
        self._settle(write)
        for key, value in write.changes:
            if value is None:
                self._committed.pop(key, None)
            else:
                self._committed[key] = value

    def failed(self, write: PendingWrite) -> None:
        """It is not in the log."""
        self._settle(write)
        self._rebuild()

    def tombstones(self) -> list[Change]:
        """For nothing to be left of it."""
        keys = dict.fromkeys(self._committed)
        for write in self.writing:
            keys.update(dict.fromkeys(key for key, _ in write.changes))
        return [(key, None) for key in keys]

    def record(self, change: Change) -> KeptRecord:
        """As bytes."""
        return consumer_group_record(change)

    def _settle(self, write: PendingWrite) -> None:
        for place, it in enumerate(self.writing):
            if it is write:
                del self.writing[place]
                return

    def _value(self, key: ConsumerGroupKey) -> ConsumerGroupValue | None:
        match key:
            case GroupEpochKey():
                return GroupEpoch(self.epoch, self.metadata_hash) if self.epoch else None
            case MemberKey():
                return self.members.get(key.member_id)
            case TargetEpochKey():
                return self.target_epoch or None
            case TargetKey():
                return self.targets.get(key.member_id)
            case CurrentKey():
                return self.current.get(key.member_id)
            case RegexKey():
                return self.regexes.get(key.regex)
            case StateKey():
                return None

    def _apply(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        match key, value:
            case GroupEpochKey(), GroupEpoch():
                self.epoch, self.metadata_hash = value
            case GroupEpochKey(), None:
                self.epoch = self.metadata_hash = 0
            case MemberKey(), _:
                self._apply_member(key.member_id, value)
            case TargetEpochKey(), _:
                self.target_epoch = value if isinstance(value, int) else 0
            case TargetKey(), frozenset():
                self.targets[key.member_id] = value
            case TargetKey(), None:
                self.targets.pop(key.member_id, None)
            case CurrentKey(), _:
                self._apply_current(key.member_id, value)
            case RegexKey(), ResolvedRegex():
                self.regexes[key.regex] = value
            case RegexKey(), None:
                self.regexes.pop(key.regex, None)

    def _apply_member(self, member_id: str, value: object) -> None:
        before = self.members.pop(member_id, None)
        if before is not None:
            self.size_bytes -= _size(before)
            if before.instance_id is not None and self.static.get(before.instance_id) == member_id:
                del self.static[before.instance_id]
        if isinstance(value, MemberMetadata):
            self.members[member_id] = value
            self.size_bytes += _size(value)
            if value.instance_id is not None:
                self.static[value.instance_id] = member_id

    def _apply_current(self, member_id: str, value: object) -> None:
        before = self.current.pop(member_id, NOT_ASSIGNED)
        for place in before.assigned | before.revoking:
            if self.owners.get(place) == member_id:
                del self.owners[place]
        if isinstance(value, CurrentAssignment):
            self.current[member_id] = value
            for place in value.assigned | value.revoking:
                self.owners[place] = member_id

    # What follows

    @property
    def state(self) -> str:
        """As Kafka names it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        return "Stable" if all(map(self.is_reconciled, self.members)) else "Reconciling"

    def assignment(self, member_id: str) -> CurrentAssignment:
        """What it has."""
        return self.current.get(member_id, NOT_ASSIGNED)

    def target(self, member_id: str) -> Assigned:
        """What it is to have."""
        return self.targets.get(member_id, NOTHING)

    def is_reconciled(self, member_id: str) -> bool:
        """It has what it is to have."""
        current = self.assignment(member_id)
        return (
            current.state is MemberState.STABLE
            and current.epoch == self.target_epoch
            and current.assigned == self.target(member_id)
        )

    def is_held_up(self, member_id: str) -> bool:
        """Another member has to give up first what this one is to have."""
        owners = self.owners
        return any(owners.get(it, member_id) != member_id for it in self.target(member_id))

    def next_assignment(self, member_id: str, owned: Assigned | None) -> CurrentAssignment:
        """What the member has from now on; ``owned``: what it says that it still has, None if it does not say.

        It first gives up what is not to be its own, then has the new epoch and what no other has.
        """
        current, target = self.assignment(member_id), self.target(member_id)
        if current.state is MemberState.STABLE and current.epoch == self.target_epoch:
            return current
        if current.state is MemberState.UNREVOKED and (owned is None or owned & current.revoking):
            return current
        kept, revoking = current.assigned & target, current.assigned - target
        if revoking and (owned is None or owned & revoking):
            return CurrentAssignment(
                current.epoch, current.previous_epoch, MemberState.UNREVOKED, kept, revoking
            )
        owners = self.owners
        free = frozenset(it for it in target - kept if owners.get(it, member_id) == member_id)
        is_waiting = len(kept) + len(free) < len(target)
        state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
        previous = current.previous_epoch if current.epoch == self.target_epoch else current.epoch
        return CurrentAssignment(self.target_epoch, previous, state, kept | free, NOTHING)

    def topics_of(self, member: MemberMetadata) -> set[str]:
        """What it subscribes to, by names and by its expression; there may be no such topics."""
        found = set(member.topics)
        if member.regex is not None and member.regex in self.regexes:
            found |= self.regexes[member.regex].topics
        return found

    def subscribed(self) -> set[str]:
        """What its members subscribe to."""
        found: set[str] = set()
        for member in self.members.values():
            found |= self.topics_of(member)
        return found

    def assignor(self, available: tuple[str, ...]) -> str:
        """The one that most members want; the first available if none says."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor in available and member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(available, key=lambda it: votes.get(it, 0))

    def computed_targets(
        self, topics: Topics, available: tuple[str, ...]
    ) -> Mapping[str, Assigned]:
        """The target assignment of today's members and topics."""
        return ASSIGNORS[self.assignor(available)](*self.assignor_input(topics))

    def assignor_input(self, topics: Topics) -> tuple[AssignorMembers, Partitions]:
        """Members with the topics that they subscribe to, and these topics' partitions."""
        partitions: dict[UUID, int] = {}
        ids: dict[str, UUID] = {}
        for name in self.subscribed():
            topic = topics.find(name)
            if topic is not None:
                ids[name] = topic.topic_id
                partitions[topic.topic_id] = topic.partitions
        members = {
            member_id: AssignorMember(
                frozenset(ids[name] for name in self.topics_of(member) if name in ids),
                self.target(member_id),
                member.instance_id,
            )
            for member_id, member in self.members.items()
        }
        return members, partitions

    def hash_of(self, topics: Topics) -> int:
        """Of the topics that its members subscribe to, as far as there are any."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.subscribed()):
            topic = topics.find(name)
            if topic is not None:
                digest.update(topic.topic_id.bytes + topic.partitions.to_bytes(4, "big"))
        return int.from_bytes(digest.digest(), "big", signed=True)

    @property
    def are_all_classic(self) -> bool:
        """No member speaks the consumer protocol."""
        return all(it.classic is not None for it in self.members.values())

    def classic_protocols(self, but: str = "") -> set[str] | None:
        """Those that every classic member but that one knows; None: there are no such members."""
        known = [
            {name for name, _ in it.classic.protocols}
            for member_id, it in self.members.items()
            if it.classic is not None and member_id != but
        ]
        return set.intersection(*known) if known else None


def _size(member: MemberMetadata) -> int:
    found = sum(map(len, member.topics)) + len(member.regex or "")
    if member.classic is not None:
        found += sum(len(name) + len(data) for name, data in member.classic.protocols)
    return found
