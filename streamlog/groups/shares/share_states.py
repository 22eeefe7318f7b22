"""The states of a group's share partitions, and its configs, at its coordinator. Pure.

The leader of a partition *takes over* the state when it begins to deliver the partition's records to the group:
from then on the state has an owner that the leader has just made up, and only who names that owner may save it.
A leader before has another one, so whatever it still sends is refused, also what was long on its way: it
cannot have told a member of anything that the leader of now does not know. The owner's saves have rising versions,
and each has all of the state; so one that is sent again does no harm, and one that comes late is refused.

An administrator who sets offsets, or deletes them, takes the state away from its owner in the same way.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from streamlog.coordination.effects import NONE, Now
from streamlog.groups.group import Group, State
from streamlog.groups.group_table import GroupTable
from streamlog.groups.membership.consumer_membership import ConsumerStep
from streamlog.groups.records import (
    NO_OWNER,
    ShareState,
    StateKey,
    TopicPartitionId,
    configs_record,
)
from streamlog.groups.shares.share_group import ShareGroup
from streamlog.groups.shares.share_group_config import NO_CONFIGS
from streamlog.groups.shares.share_membership import ShareMembership
from streamlog.groups.subscribed_topics import Topics
from streamlog.wire.error_codes import ErrorCode


class ShareStateAnswer(NamedTuple):
    """To a leader that takes over a state, or saves it."""

    error: ErrorCode
    state: ShareState | None = None
    """As it was left; where it is taken over."""
    configs: Mapping[str, str] = NO_CONFIGS
    """Of the group."""


class ShareStates:
    """The part of a coordinator that keeps how far share groups have come."""

    def __init__(self, table: GroupTable, membership: ShareMembership) -> None:
        self._table = table
        self._membership = membership

    # For the leaders of share partitions

    def take_over(
        self, key: StateKey, leader_epoch: int, owner: UUID, token: object, now: Now
    ) -> None:
        """``token`` is answered with a ``ShareStateAnswer``."""
        found = self._found(key.group)
        if isinstance(found, ErrorCode):
            self._table.answer(token, ShareStateAnswer(found))
            return
        state = found[1].states.get((key.topic_id, key.partition))
        error = NONE
        if self._membership.topics.name_of(key.topic_id) is None:
            error = ErrorCode.unknown_topic_id
        elif state is None:
            error = self._room()
        elif leader_epoch < state.leader_epoch:
            error = ErrorCode.fenced_leader_epoch
        if error is not NONE:
            self._table.answer(token, ShareStateAnswer(error))
            return
        state = ShareState() if state is None else state
        if state.owner != owner:
            state = state._replace(leader_epoch=leader_epoch, owner=owner, version=0)
        answer = ShareStateAnswer(NONE, state, self.configs(key.group))
        self._put(found, {key: state}, token, answer, now)

    def save(self, key: StateKey, state: ShareState, token: object, now: Now) -> None:
        """``token`` is answered with a ``ShareStateAnswer``, once it is in the log."""
        found = self._found(key.group)
        if isinstance(found, ErrorCode):
            self._table.answer(token, ShareStateAnswer(found))
            return
        before = found[1].states.get((key.topic_id, key.partition))
        if before is None or before.owner != state.owner or state.version < before.version:
            self._table.answer(token, ShareStateAnswer(ErrorCode.fenced_state_epoch))
            return
        # The version of before is sent again, or only asks whether the state is the owner's still.
        changes = {key: state} if state.version > before.version else {}
        answer = ShareStateAnswer(NONE, None, self.configs(key.group))
        self._put(found, changes, token, answer, now)

    # For administrators

    def states(self, name: str) -> Mapping[TopicPartitionId, ShareState] | ErrorCode:
        """What is kept of all share partitions of the group."""
        found = self._found(name)
        return found if isinstance(found, ErrorCode) else found[1].states

    def alter(
        self, name: str, starts: Mapping[TopicPartitionId, int], token: object, now: Now
    ) -> None:
        """The group goes on from there; it is made if there is none by that name. ``token`` is answered with an error
        code.
        """
        error = NONE
        if any(self._membership.topics.name_of(topic_id) is None for topic_id, _ in starts):
            error = ErrorCode.unknown_topic_or_partition
        elif name not in self._table.groups:
            error = self._room()
        step = self._step_to_alter(name, now) if error is NONE else error
        if isinstance(step, ErrorCode):
            self._table.answer(token, step)
            return
        share = step.consumer
        assert isinstance(share, ShareGroup)
        for (topic_id, number), start in starts.items():
            before = share.states.get((topic_id, number), ShareState())
            state = ShareState(before.leader_epoch, NO_OWNER, 0, start, start)
            step.put(StateKey(name, topic_id, number), state)
        self._membership.finish(step, now, token, NONE, _failed)

    def _step_to_alter(self, name: str, now: Now) -> ConsumerStep | ErrorCode:
        """Of a group without members. A new one has a first epoch, so that it is there without states, too."""
        table, membership = self._table, self._membership
        if name in table.groups:
            found = self._alterable(name)
            return found if isinstance(found, ErrorCode) else ConsumerStep(*found)
        if not table.may_add_group():
            return ErrorCode.policy_violation
        step = membership.make(table.add(name, now), now)
        if isinstance(step, ConsumerStep):
            membership.retarget(step, begins=True)
        return step

    def delete(
        self, name: str, places: Iterable[TopicPartitionId], token: object, now: Now
    ) -> None:
        """The group begins again in these partitions. ``token`` is answered with an error code."""
        found = self._alterable(name)
        if isinstance(found, ErrorCode):
            self._table.answer(token, found)
            return
        share = found[1]
        changes = {StateKey(name, *place): None for place in places if place in share.states}
        self._put(found, changes, token, NONE, now)

    def configs(self, name: str) -> Mapping[str, str]:
        """Of a group, whether there is one or not."""
        return self._table.share_configs.get(name, NO_CONFIGS)

    def set_configs(self, name: str, configs: Mapping[str, str], token: object, now: Now) -> None:
        """``token`` is answered with an error code, when they are in the log: they hold from then on."""
        table = self._table
        is_new = name not in table.share_configs
        if is_new and len(table.share_configs) >= table.settings.groups_per_partition_max:
            table.answer(token, ErrorCode.policy_violation)
            return

        def written(error: ErrorCode, _now: Now) -> None:
            if error is NONE and configs:
                table.share_configs[name] = dict(configs)
            elif error is NONE:
                table.share_configs.pop(name, None)
            table.answer(token, error)

        table.write([configs_record(name, configs)], written)

    # What happens by itself

    def topics_changed(self, topics: Topics, now: Now) -> None:
        """What is kept of topics that are gone goes, too.

        A topic that is not known yet has no state: it is taken over only where the coordinator knows the topic.
        """
        for group in tuple(self._table.groups.values()):
            share = group.consumer
            if not isinstance(share, ShareGroup) or group.state is State.DEAD:
                continue
            gone = [it for it in share.states if topics.name_of(it[0]) is None]
            if gone:
                changes = {StateKey(group.name, *place): None for place in gone}
                self._put((group, share), changes, None, None, now)

    def _found(self, name: str) -> tuple[Group, ShareGroup] | ErrorCode:
        group = self._table.groups.get(name)
        if group is None or not isinstance(group.consumer, ShareGroup):
            return ErrorCode.group_id_not_found
        if group.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        return group, group.consumer

    def _alterable(self, name: str) -> tuple[Group, ShareGroup] | ErrorCode:
        found = self._found(name)
        if not isinstance(found, ErrorCode) and found[1].members:
            return ErrorCode.non_empty_group
        return found

    def _room(self) -> ErrorCode:
        """Each is weighed as a committed offset."""
        kept = sum(
            len(it.consumer.states)
            for it in self._table.groups.values()
            if isinstance(it.consumer, ShareGroup)
        )
        is_full = kept + self._table.offsets_count >= self._table.settings.offsets_max
        return ErrorCode.policy_violation if is_full else NONE

    def _put(
        self,
        found: tuple[Group, ShareGroup],
        changes: Mapping[StateKey, ShareState | None],
        token: object | None,
        answer: object,
        now: Now,
    ) -> None:
        step = ConsumerStep(*found)
        for key, state in changes.items():
            step.put(key, state)
        failed = _failed if isinstance(answer, ErrorCode) else ShareStateAnswer
        self._membership.finish(step, now, token, answer, failed)


def _failed(error: ErrorCode) -> ErrorCode:
    return error
