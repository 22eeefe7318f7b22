"""A share group (KIP-932): what its records say. Pure.

Its records mean what those of consumer groups do; ``groups.records`` lists them.

Kafka keeps the state of share partitions at share coordinators, in ``__share_group_state``, and what is
initialized there at the group's coordinator: each change of offsets or deletion is a conversation of the two, with
states between. Here the group's coordinator keeps both, in one log: what is deleted or altered is so at once, or
not at all, and a group has one node to ask. Clients see none of it. A group's share partitions are written by one
node then; in a cluster with many groups they are spread as groups are.

A member of a share group has what the target assignment gives it as soon as it is told: others may have it, too,
so no member has to give anything up first.
"""

from collections.abc import Mapping
from typing import Final

from streamlog.coordination.effects import KeptRecord
from streamlog.groups.assignors import SIMPLE, assign_simple
from streamlog.groups.consumer_group import ConsumerGroup
from streamlog.groups.records import (
    NOTHING,
    Assigned,
    Change,
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentAssignment,
    MemberState,
    ShareState,
    StateKey,
    TopicPartitionId,
    share_group_record,
)
from streamlog.groups.subscribed_topics import Topics

SHARE_TYPE: Final = "share"


class ShareGroup(ConsumerGroup):
    """Its members, and the states of its share partitions."""

    group_type = SHARE_TYPE

    def _rebuild(self) -> None:
        self.states: dict[TopicPartitionId, ShareState] = {}
        super()._rebuild()

    def _value(self, key: ConsumerGroupKey) -> ConsumerGroupValue | None:
        if isinstance(key, StateKey):
            return self.states.get((key.topic_id, key.partition))
        return super()._value(key)

    def _apply(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        if not isinstance(key, StateKey):
            super()._apply(key, value)
        elif isinstance(value, ShareState):
            self.states[key.topic_id, key.partition] = value
        else:
            self.states.pop((key.topic_id, key.partition), None)

    def record(self, change: Change) -> KeptRecord:
        return share_group_record(change)

    @property
    def state(self) -> str:
        """As Kafka names it: members wait for no other."""
        return "Stable" if self.members else "Empty"

    def assignor(self, available: tuple[str, ...]) -> str:
        return SIMPLE

    def next_assignment(self, member_id: str, owned: Assigned | None) -> CurrentAssignment:
        """All of the target assignment, at once."""
        current, target = self.assignment(member_id), self.target(member_id)
        if current.epoch == self.target_epoch and current.assigned == target:
            return current
        previous = current.previous_epoch if current.epoch == self.target_epoch else current.epoch
        return CurrentAssignment(self.target_epoch, previous, MemberState.STABLE, target, NOTHING)

    def computed_targets(
        self, topics: Topics, available: tuple[str, ...]
    ) -> Mapping[str, Assigned]:
        return assign_simple(*self.assignor_input(topics))
