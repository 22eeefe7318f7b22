"""Members of the classic protocol in a consumer group, and the change from one kind of group to the other
(KIP-848, "Upgrade and downgrade"). Pure.

A classic group becomes a consumer group when the first member joins it by ConsumerGroupHeartbeat. Its members go
on, each with the partitions that it has: to them the coordinator is the leader, and another target
assignment is a rebalance. They learn of it by their heartbeats, join again with what
they have kept, and get their assignment from SyncGroup. When the last member that speaks the consumer protocol
is gone, the others are a classic group again, and rebalance.
"""

from collections.abc import Iterable
from typing import NamedTuple

from streamlog.coordination.effects import NONE, Now
from streamlog.coordination.keys import KEY_BYTES_MAX
from streamlog.errors import MalformedFrame
from streamlog.groups.consumer_group import NOT_ASSIGNED, ConsumerGroup
from streamlog.groups.group import CONSUMER, Group, State, refusal
from streamlog.groups.group_table import Due, GroupTable
from streamlog.groups.membership.classic_membership import CLIENT_ID_SHOWN, Rebalance
from streamlog.groups.membership.consumer_membership import (
    ConsumerMembership,
    ConsumerStep,
    names_of,
)
from streamlog.groups.records import (
    NOTHING,
    Assigned,
    ClassicMember,
    CurrentAssignment,
    CurrentKey,
    GroupEpoch,
    GroupEpochKey,
    KeptGroup,
    KeptMember,
    MemberKey,
    MemberMetadata,
    MemberState,
    TargetEpochKey,
    TargetKey,
    group_record,
)
from streamlog.groups.requests import (
    NO_MEMBER,
    GroupCaller,
    Joined,
    JoinRequest,
    SyncedMember,
    SyncRequest,
)
from streamlog.model import TopicPartition
from streamlog.wire.consumer_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from streamlog.wire.error_codes import ErrorCode


class _Joining(NamedTuple):
    """A member that joins, by which request, with what, and the token of its answer."""

    member_id: str
    request: JoinRequest
    subscription: Subscription
    token: object


class ClassicMembers:
    """The part of a coordinator that has both protocols in one group."""

    def __init__(self, table: GroupTable, rebalance: Rebalance) -> None:
        self._table = table
        self._rebalance = rebalance
        self.membership = ConsumerMembership(table, self.downgrade)

    # From one kind to the other

    def upgrade(self, group: Group, now: Now) -> ConsumerStep | ErrorCode:
        """The group is a consumer group from now on, if that is allowed; its members stay."""
        if group.members or not group.is_in(State.EMPTY):
            if self._table.settings.consumer_migration_policy not in ("bidirectional", "upgrade"):
                return ErrorCode.group_id_not_found
            if group.protocol_type != CONSUMER:
                return ErrorCode.group_id_not_found
            if group.state is not State.STABLE:
                return ErrorCode.coordinator_load_in_progress  # it will be, or is empty soon
        kept = group.kept()
        consumer = ConsumerGroup(group.name)
        step = ConsumerStep(group, consumer)
        if group.generation and not self._take_members(step, kept):
            return ErrorCode.group_id_not_found
        if group.protocol_type is not None:
            step.records.append(group_record(group.name, None))
        for member in group.members.values():
            self._rebalance.refuse(member, ErrorCode.rebalance_in_progress)
        self._clear_deadlines(group)
        group.become(None)
        group.consumer = consumer
        self.membership.begin_sessions(group, now)

        def undo(now: Now) -> None:
            if group.consumer is consumer:
                group.consumer = None
                group.become(kept)
                for member in group.members.values():
                    self._rebalance.keep_alive(group, member, now)

        step.undo = undo
        return step

    def _take_members(self, step: ConsumerStep, kept: KeptGroup) -> bool:
        """Each with what it has; False where one does not say what it subscribes to."""
        name, epoch = step.group.name, kept.generation
        for it in kept.members:
            member = step.group.members[it.member_id]
            try:
                subscription = read_subscription(it.subscription)
                assigned = self._ids_of(read_assignment(it.assignment), step.consumer)
            except MalformedFrame:
                return False
            classic = ClassicMember(it.session_timeout_ms, member.protocols)
            step.put(
                MemberKey(name, it.member_id),
                MemberMetadata(
                    it.instance_id, subscription.rack_id, it.client_id, it.client_host,
                    tuple(sorted(set(subscription.topics))), None, it.rebalance_timeout_ms, None, classic,
                ),
            )  # fmt: skip
            step.put(TargetKey(name, it.member_id), assigned)
            current = CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned, NOTHING)
            step.put(CurrentKey(name, it.member_id), current)
        hashed = step.consumer.hash_of(self.membership.topics)
        step.put(GroupEpochKey(name), GroupEpoch(epoch, hashed))
        step.put(TargetEpochKey(name), epoch)
        return True

    def _ids_of(self, places: Iterable[TopicPartition], consumer: ConsumerGroup) -> Assigned:
        """Of topics that there are, and that no other member has by now."""
        found = set()
        for topic_name, number in places:
            topic = self.membership.topics.find(topic_name)
            if topic is not None and 0 <= number < topic.partitions:
                place = (topic.topic_id, number)
                if place not in consumer.owners:
                    found.add(place)
        return frozenset(found)

    def downgrade(self, step: ConsumerStep, now: Now) -> None:
        """Its members, which all speak the classic protocol, are a classic group from now on, and rebalance."""
        group, consumer = step.group, step.consumer
        common = consumer.classic_protocols()
        assert common is not None
        kept = self._kept(consumer, min(common, key=lambda it: (_rank(consumer, it), it)), now)
        before = step.undo
        self._clear_deadlines(group)
        for member_id in consumer.members:
            for what in ("session", "revoke", "rejoin"):
                self._table.deadlines.clear(Due(what, group.name, member_id))
        protocols = {
            member_id: it.classic.protocols
            for member_id, it in consumer.members.items()
            if it.classic is not None
        }
        step.changes = [*step.changes, *consumer.tombstones()]
        step.changes = [(key, None) for key in dict.fromkeys(key for key, _ in step.changes)]
        step.records.append(group_record(group.name, kept))
        for key, _ in step.changes:
            consumer.change(key, None)
        group.consumer = None
        group.become(kept)
        for member in group.members.values():
            member.protocols = protocols[member.member_id]
            self._rebalance.keep_alive(group, member, now)

        def undo(now: Now) -> None:
            for member in group.members.values():
                self._rebalance.refuse(member, ErrorCode.rebalance_in_progress)
            self._clear_deadlines(group)
            group.become(None)
            group.consumer = consumer
            if before is not None:
                before(now)

        step.undo = undo
        self._rebalance.begin(group, now)

    def _kept(self, consumer: ConsumerGroup, protocol: str, now: Now) -> KeptGroup:
        members = []
        for member_id, it in consumer.members.items():
            assert it.classic is not None
            data = dict(it.classic.protocols)[protocol]
            members.append(
                KeptMember(
                    member_id, it.instance_id, it.client_id, it.client_host, it.rebalance_timeout_ms,
                    it.classic.session_timeout_ms, data,
                    self._assignment_bytes(consumer, member_id, data),
                )
            )  # fmt: skip
        return KeptGroup(
            CONSUMER,
            consumer.epoch,
            protocol,
            next(iter(consumer.members)),
            now.wall_ms,
            tuple(members),
        )

    def empty_to_classic(self, group: Group, now: Now) -> None:
        """A consumer group without members is a classic one from now on: a member joins it by JoinGroup."""
        consumer = group.consumer
        assert consumer is not None
        step = ConsumerStep(group, consumer)
        epoch = consumer.epoch
        kept = KeptGroup(CONSUMER, epoch, None, None, now.wall_ms, ())
        step.changes = consumer.tombstones()
        for key, _ in step.changes:
            consumer.change(key, None)
        step.records.append(group_record(group.name, kept))
        group.consumer = None
        group.become(kept)

        def undo(now: Now) -> None:
            for member in tuple(group.members.values()):
                self._rebalance.refuse(member, ErrorCode.coordinator_not_available)
            self._clear_deadlines(group)
            group.become(None)
            group.consumer = consumer

        step.undo = undo
        self.membership.finish(step, now)

    def _clear_deadlines(self, group: Group) -> None:
        """Those of the classic protocol."""
        deadlines = self._table.deadlines
        deadlines.clear(Due("join", group.name))
        deadlines.clear(Due("sync", group.name))
        for member_id in group.members:
            deadlines.clear(Due("session", group.name, member_id))
        for member_id in group.pending:
            deadlines.clear(Due("pending", group.name, member_id))

    # JoinGroup

    def join(self, group: Group, request: JoinRequest, token: object, now: Now) -> None:
        """``token`` is answered with a ``Joined``: to the member, another one leads."""
        consumer = group.consumer
        assert consumer is not None
        found = self._wanted(consumer, request)
        if isinstance(found, ErrorCode):
            self._table.answer(token, Joined(found, request.caller.member_id))
            return
        caller = request.caller
        member_id = caller.member_id
        known = None if caller.instance_id is None else consumer.static.get(caller.instance_id)
        if member_id != NO_MEMBER and known not in (None, member_id):
            self._table.answer(token, Joined(ErrorCode.fenced_instance_id, member_id))
            return
        if member_id == NO_MEMBER:
            shown = caller.instance_id or request.client_id[:CLIENT_ID_SHOWN]
            member_id = f"{shown}-{self._table.new_id()}"
            if request.needs_known_id and caller.instance_id is None:
                self._table.answer(token, Joined(ErrorCode.member_id_required, member_id))
                return
        step = ConsumerStep(group, consumer)
        if known is not None and known != member_id:
            self.membership.replace(step, known, member_id)
        self._join(step, _Joining(member_id, request, found, token), now)

    def _wanted(self, consumer: ConsumerGroup, request: JoinRequest) -> Subscription | ErrorCode:
        """What it subscribes to, or why it cannot join."""
        settings = self._table.settings
        shortest, longest = settings.session_timeout_ms_min, settings.session_timeout_ms_max
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.invalid_session_timeout
        texts = (request.caller.instance_id or "", request.client_id, request.caller.member_id)
        if any(len(text.encode()) > KEY_BYTES_MAX for text in texts):
            return ErrorCode.invalid_request
        if request.protocol_type != CONSUMER or not request.protocols:
            return ErrorCode.inconsistent_group_protocol
        known = consumer.classic_protocols(request.caller.member_id)
        if known is not None and known.isdisjoint(name for name, _ in request.protocols):
            return ErrorCode.inconsistent_group_protocol
        more = sum(len(name) + len(data) for name, data in request.protocols)
        is_known = (
            request.caller.member_id in consumer.members
            or request.caller.instance_id in consumer.static
        )
        if (
            (not is_known and len(consumer.members) >= settings.group_size_max)
            or consumer.size_bytes + more > settings.group_bytes_max
            or self._table.kept_bytes + more > settings.groups_bytes_max
        ):
            return ErrorCode.group_max_size_reached
        try:
            return read_subscription(request.protocols[0][1])
        except MalformedFrame:
            return ErrorCode.inconsistent_group_protocol

    def _join(self, step: ConsumerStep, joining: "_Joining", now: Now) -> None:
        member_id, request, wanted, token = joining
        group, consumer = step.group, step.consumer
        if member_id not in consumer.members and member_id in consumer.current:
            step.put(CurrentKey(group.name, member_id), NOT_ASSIGNED)
        self.membership.update(
            step,
            member_id,
            MemberMetadata(
                request.caller.instance_id,
                wanted.rack_id,
                request.client_id,
                request.client_host,
                tuple(sorted(set(wanted.topics))),
                None,
                request.rebalance_timeout_ms,
                None,
                ClassicMember(request.session_timeout_ms, request.protocols),
            ),
        )
        owned = set()
        for topic_name, number in wanted.owned:
            topic = self.membership.topics.find(topic_name)
            if topic is not None:
                owned.add((topic.topic_id, number))
        # An eager member has nothing when it joins, and so may have all of its target.
        current = consumer.next_assignment(member_id, frozenset(owned))
        step.put(CurrentKey(group.name, member_id), current)
        self.membership.keep_alive(group, member_id, now)
        due = Due("rejoin", group.name, member_id)
        self._table.deadlines.set(due, now.ms + request.rebalance_timeout_ms)
        answer = Joined(NONE, member_id, current.epoch, CONSUMER, request.protocols[0][0])
        self.membership.finish(
            step, now, token, answer, lambda error: Joined(error, request.caller.member_id)
        )

    # SyncGroup, Heartbeat, LeaveGroup

    def sync(self, group: Group, request: SyncRequest, token: object, now: Now) -> None:
        """``token`` is answered with a ``SyncedMember``."""
        consumer = group.consumer
        assert consumer is not None
        error = self._may_sync(consumer, request)
        if error is not NONE:
            if error is ErrorCode.rebalance_in_progress:
                self._await_join(group, request.caller.member_id, now)
            self._table.answer(token, SyncedMember(error))
            return
        member_id = request.caller.member_id
        self._table.deadlines.clear(Due("rejoin", group.name, member_id))
        self.membership.keep_alive(group, member_id, now)
        classic = consumer.members[member_id].classic
        assert classic is not None
        protocol, data = classic.protocols[0]
        answer = SyncedMember(
            NONE, CONSUMER, protocol, self._assignment_bytes(consumer, member_id, data)
        )
        self.membership.finish(ConsumerStep(group, consumer), now, token, answer, SyncedMember)

    def _may_sync(self, consumer: ConsumerGroup, request: SyncRequest) -> ErrorCode:
        error = refusal(consumer, request.caller)
        if error is not NONE:
            return error
        classic = consumer.members[request.caller.member_id].classic
        if classic is None:
            return ErrorCode.unknown_member_id
        names = ((request.protocol_type, CONSUMER), (request.protocol, classic.protocols[0][0]))
        if any(said is not None and said != known for said, known in names):
            return ErrorCode.inconsistent_group_protocol
        current = consumer.assignment(request.caller.member_id)
        if request.caller.generation != current.epoch:
            return ErrorCode.illegal_generation
        if consumer.epoch > current.epoch and current.state is not MemberState.UNREVOKED:
            return ErrorCode.rebalance_in_progress
        return NONE

    def heartbeat(self, group: Group, caller: GroupCaller, now: Now) -> ErrorCode:
        """REBALANCE_IN_PROGRESS asks to join again."""
        consumer = group.consumer
        assert consumer is not None
        error = refusal(consumer, caller)
        if error is not NONE:
            return error
        member_id = caller.member_id
        if consumer.members[member_id].classic is None:
            return ErrorCode.unknown_member_id
        current = consumer.assignment(member_id)
        if caller.generation != current.epoch:
            return ErrorCode.illegal_generation
        self.membership.keep_alive(group, member_id, now)
        is_over = (
            current.epoch < consumer.epoch
            or current.state is MemberState.UNREVOKED
            or (current.state is MemberState.UNRELEASED and not consumer.is_held_up(member_id))
        )
        if is_over:
            self._await_join(group, member_id, now)
            return ErrorCode.rebalance_in_progress
        return NONE

    def leave(
        self, group: Group, callers: tuple[GroupCaller, ...], token: object, now: Now
    ) -> None:
        """``token`` is answered with an error code for each."""
        consumer = group.consumer
        assert consumer is not None
        codes, gone = [], []
        for it in callers:
            member_id = it.member_id
            if member_id == NO_MEMBER:
                member_id = consumer.static.get(it.instance_id or "", NO_MEMBER)
                error = NONE if member_id != NO_MEMBER else ErrorCode.unknown_member_id
            else:
                error = refusal(consumer, it)
            codes.append(error)
            if error is NONE and member_id not in gone:
                gone.append(member_id)
        step = ConsumerStep(group, consumer)
        if gone:
            self.membership.remove(step, gone)
        self.membership.finish(step, now, token, codes, lambda error: [error] * len(codes))

    def _await_join(self, group: Group, member_id: str, now: Now) -> None:
        """It has its rebalance time-out to join again."""
        due = Due("rejoin", group.name, member_id)
        assert group.consumer is not None
        if self._table.deadlines.get(due) is None:
            timeout_ms = group.consumer.members[member_id].rebalance_timeout_ms
            self._table.deadlines.set(due, now.ms + timeout_ms)

    def _assignment_bytes(
        self, consumer: ConsumerGroup, member_id: str, subscription: bytes
    ) -> bytes:
        """As a leader would have assigned it."""
        assigned = consumer.assignment(member_id).assigned
        version = read_subscription(subscription).version
        return write_assignment(version, names_of(assigned, self.membership.topics))


def _rank(consumer: ConsumerGroup, protocol: str) -> int:
    """How much the members want it: the sum of its places in their lists."""
    return sum(
        [name for name, _ in it.classic.protocols].index(protocol)
        for it in consumer.members.values()
        if it.classic is not None
    )
