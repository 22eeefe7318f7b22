"""ConsumerGroupHeartbeat, ConsumerGroupDescribe, and the end of sessions (KIP-848). Pure.

A member says what it subscribes to and what it has; the coordinator says what it is to have. Whatever
changes the members, their subscriptions or the topics begins another group epoch, with another
target assignment; each member comes to its part of it by its own heartbeats. It has the new
epoch once it has given up what is not to be its own. Who does not give up in time, or
is not heard of for its session, is no member any more.

What a request changes is appended as one batch, and answered when that is committed. What it changes
nothing of is answered when what was appended before is committed.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.coordination.effects import NONE, KeptRecord, Now
from streamlog.coordination.keys import KEY_BYTES_MAX
from streamlog.groups.consumer_group import (
    JOINING_EPOCH,
    NOT_ASSIGNED,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
    PendingWrite,
)
from streamlog.groups.group import Group, State
from streamlog.groups.group_table import Due, GroupTable
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
    TargetEpochKey,
    TargetKey,
)
from streamlog.groups.requests import (
    DescribedConsumer,
    DescribedConsumerGroup,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from streamlog.groups.subscribed_topics import Matches, NoTopics, Topics
from streamlog.wire.error_codes import ErrorCode

REGEX_REFRESH_MS: Final = 1_000
"""Topics that are made or deleted meanwhile are matched together."""
_NAME_SHOWN: Final = 60


Upgrade = Callable[[Group, Now], "ConsumerStep | ErrorCode"]


class _PendingBeat(NamedTuple):
    """A request, the token of its answer, and what makes a classic group a consumer group."""

    request: HeartbeatRequest
    token: object
    upgrade: Upgrade


class ConsumerStep:
    """What one request, or one deadline, changes of a group: one batch of records."""

    def __init__(self, group: Group, consumer: ConsumerGroup) -> None:
        self.group = group
        self.consumer = consumer
        self.changes: list[Change] = []
        self.records: list[KeptRecord] = []
        """Of the group's other protocol; they come first."""
        self.has_removed = False
        self.undo: Callable[[Now], None] | None = None
        """If nothing of it is written."""

    def put(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> bool:
        """Whether that is new."""
        is_new = self.consumer.change(key, value)
        if is_new:
            self.changes.append((key, value))
        return is_new

    def remove(self, member_id: str) -> None:
        """All that is kept of a member."""
        name = self.group.name
        self.has_removed = True
        self.put(CurrentKey(name, member_id), None)
        self.put(TargetKey(name, member_id), None)
        self.put(MemberKey(name, member_id), None)


class ConsumerMembership:
    """The part of a coordinator that deals with members of the consumer protocol.

    Share groups have another kind of group, and the same heartbeats, epochs and writes:
    ``groups.shares.share_membership`` says what differs.
    """

    kind: type[ConsumerGroup] = ConsumerGroup
    """Of the groups that it deals with."""

    def __init__(self, table: GroupTable, downgrade: Callable[[ConsumerStep, Now], None]) -> None:
        """``downgrade`` has a group whose members all speak the classic protocol be a classic one."""
        self._table = table
        self._downgrade = downgrade
        self.topics: Topics = NoTopics()
        self._viewers: dict[tuple[str, str], Callable[[str], bool] | None] = {}
        """What the last member that was heard of with it may know of, by group and expression."""

    # ConsumerGroupHeartbeat

    def heartbeat(
        self,
        request: HeartbeatRequest,
        token: object,
        now: Now,
        upgrade: Upgrade,
    ) -> None:
        """``token`` is answered with a ``HeartbeatAnswer``. ``upgrade`` makes a classic group one of these."""
        refused = self._wrong(request)
        if refused is None:
            refused = self._heartbeat(_PendingBeat(request, token, upgrade), now)
        if refused is not None:
            self._table.answer(token, refused)

    def _wrong(self, request: HeartbeatRequest) -> HeartbeatAnswer | None:
        """By itself, whatever the group is."""
        joins, epoch = request.epoch == JOINING_EPOCH, request.epoch
        texts = (request.member_id, request.instance_id, request.rack_id, request.client_id)
        invalid: str | None = None
        if (not joins or request.needs_own_id) and not request.member_id:
            invalid = "MemberId can't be empty."
        elif request.instance_id == "":
            invalid = "InstanceId can't be empty."
        elif request.rack_id == "":
            invalid = "RackId can't be empty."
        elif any(text is not None and len(text.encode()) > KEY_BYTES_MAX for text in texts):
            invalid = f"MemberId, InstanceId, RackId and the client's id have at most {KEY_BYTES_MAX} bytes."
        elif epoch < STATIC_LEAVING_EPOCH:
            invalid = f"MemberEpoch is {epoch}."
        elif epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
            invalid = "InstanceId can't be null."
        elif joins and request.rebalance_timeout_ms <= 0:
            invalid = "RebalanceTimeoutMs must be provided in first request."
        elif joins and request.owned != NOTHING:
            invalid = "TopicPartitions must be empty when (re-)joining."
        elif joins and request.topics is None and not request.regex:
            invalid = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        if invalid is not None:
            return HeartbeatAnswer(ErrorCode.invalid_request, invalid)
        available = self._table.settings.consumer_assignors
        if request.assignor is not None and request.assignor not in available:
            said = (
                f"ServerAssignor {request.assignor[:_NAME_SHOWN]} is not supported."
                f" Supported assignors: {', '.join(available)}."
            )
            return HeartbeatAnswer(ErrorCode.unsupported_assignor, said)
        return None

    def _heartbeat(self, asked: _PendingBeat, now: Now) -> HeartbeatAnswer | None:
        """What is wrong; None: it is, or will be, answered."""
        request = asked.request
        if request.epoch < JOINING_EPOCH:
            return self._leave(request, asked.token, now)
        refused = self._unknown(request)
        if refused is not None:
            return refused
        if request.regex:
            consumer = self._of(self._table.groups.get(request.group))
            if consumer is None or request.regex not in consumer.regexes:
                self._match(asked, request.regex)
                return None
        found = self._step_for(asked, now)
        if not isinstance(found, ConsumerStep):
            return found
        return self._member_beats(request, found, asked.token, now)

    def _unknown(self, request: HeartbeatRequest) -> HeartbeatAnswer | None:
        """There is no group that it could be about."""
        group = self._table.groups.get(request.group)
        if group is not None and group.state is State.DEAD:
            return HeartbeatAnswer(ErrorCode.coordinator_not_available)
        if self._of(group) is None and request.epoch != JOINING_EPOCH:
            return _not_found(request)
        return None

    def _of(self, group: Group | None) -> ConsumerGroup | None:
        """None where there is no group of this kind."""
        consumer = None if group is None else group.consumer
        return consumer if type(consumer) is self.kind else None

    def _step_for(self, asked: _PendingBeat, now: Now) -> ConsumerStep | HeartbeatAnswer:
        """Of the group as a consumer group; it is made, or made of a classic one."""
        table, request = self._table, asked.request
        group = table.groups.get(request.group)
        if group is None:
            if not table.may_add_group():
                said = "the node keeps as many groups as groups.groups_per_partition_max allows"
                return HeartbeatAnswer(ErrorCode.policy_violation, said)
            group = table.add(request.group, now)
        consumer = self._of(group)
        if consumer is not None:
            return ConsumerStep(group, consumer)
        step = asked.upgrade(group, now)
        if isinstance(step, ErrorCode):
            said = "the group is about to change; ask again"
            if step is ErrorCode.group_id_not_found:
                said = f"Group {request.group} is not a {self.kind.group_type} group."
            return HeartbeatAnswer(step, said)
        return step

    def _member_beats(
        self, request: HeartbeatRequest, step: ConsumerStep, token: object, now: Now
    ) -> HeartbeatAnswer | None:
        group, consumer = step.group, step.consumer
        joins = request.epoch == JOINING_EPOCH
        member_id = request.member_id or self._table.new_id()
        refused = self._standing(consumer, request, member_id, joins=joins)
        if refused is None and joins and self._is_full(consumer, request, member_id):
            refused = HeartbeatAnswer(
                ErrorCode.group_max_size_reached,
                f"The {self.kind.group_type} group has reached its maximum capacity of"
                f" {self._table.settings.group_size_max} members, or of memory.",
            )
        if refused is not None:
            self._give_up(step, now)
            if request.regex and request.regex not in consumer.regexes:
                self._viewers.pop((group.name, request.regex), None)
            return refused
        if joins:
            self._take_place(step, request, member_id)
        before = consumer.members.get(member_id)
        member = _updated(before, request)
        if member.regex is not None:
            self._view(group.name, member.regex, request, now)
        had = consumer.assignment(member_id)
        self.update(step, member_id, member)
        current = consumer.next_assignment(member_id, request.owned)
        step.put(CurrentKey(group.name, member_id), current)
        tells = joins or self._says_all(request, current) or current.assigned != had.assigned
        answer = HeartbeatAnswer(
            NONE,
            None,
            member_id,
            current.epoch,
            self._heartbeat_interval_ms(group),
            current.assigned if tells else None,
        )
        self.keep_alive(group, member_id, now)
        self._watch_revocation(step, member_id, had.state, now)
        self.finish(step, now, token, answer)
        return None

    def _says_all(self, request: HeartbeatRequest, current: CurrentAssignment) -> bool:
        """The member may not know what it has: it says all of itself again, or is behind."""
        return request.owned is not None and request.rebalance_timeout_ms > 0

    def _heartbeat_interval_ms(self, group: Group) -> int:
        return self._table.settings.consumer_heartbeat_interval_ms

    def _session_timeout_ms(self, group: Group) -> int:
        return self._table.settings.consumer_session_timeout_ms

    def _standing(
        self, consumer: ConsumerGroup, request: HeartbeatRequest, member_id: str, *, joins: bool
    ) -> HeartbeatAnswer | None:
        """Why the caller is not the member that it says it is."""
        instance_id = request.instance_id
        known = None if instance_id is None else consumer.static.get(instance_id)
        if joins:
            if known is not None and known != member_id:
                has_left = consumer.assignment(known).epoch == STATIC_LEAVING_EPOCH
                if not has_left and consumer.members[known].classic is None:
                    said = (
                        f"Static member {member_id} with instance id {instance_id} cannot join the group because"
                        f" the instance id is owned by {known} member."
                    )
                    return HeartbeatAnswer(ErrorCode.unreleased_instance_id, said)
            return None
        if known is not None and known != member_id:
            said = f"Static member {member_id} with instance id {instance_id} was fenced by member {known}."
            return HeartbeatAnswer(ErrorCode.fenced_instance_id, said)
        member = consumer.members.get(member_id)
        if member is None or instance_id not in (None, member.instance_id):
            said = f"Member {member_id} is not a member of group {request.group}."
            return HeartbeatAnswer(ErrorCode.unknown_member_id, said)
        return self._fenced(consumer, request, member_id)

    def _fenced(
        self, consumer: ConsumerGroup, request: HeartbeatRequest, member_id: str
    ) -> HeartbeatAnswer | None:
        """Its epoch must be the present one, or the one before if the answer may have been lost."""
        current = consumer.assignment(member_id)
        if request.epoch == current.epoch:
            return None
        is_previous = request.epoch < current.epoch and request.epoch == current.previous_epoch
        if is_previous and self._may_have_missed(request, current):
            return None
        size = "greater" if request.epoch > current.epoch else "smaller"
        return HeartbeatAnswer(
            ErrorCode.fenced_member_epoch,
            f"The {self.kind.group_type} group member has a {size} member epoch ({request.epoch}) than the one"
            f" known by the group coordinator ({current.epoch}). The member must abandon all its partitions and"
            " rejoin.",
        )

    def _may_have_missed(self, request: HeartbeatRequest, current: CurrentAssignment) -> bool:
        """A member of the epoch before says nothing that it could not say then."""
        return request.owned is not None and request.owned <= current.assigned

    def _is_full(self, consumer: ConsumerGroup, request: HeartbeatRequest, member_id: str) -> bool:
        settings = self._table.settings
        more = sum(map(len, request.topics or ())) + len(request.regex or "")
        if (
            consumer.size_bytes + more > settings.group_bytes_max
            or self._table.kept_bytes + more > settings.groups_bytes_max
        ):
            return True
        is_known = member_id in consumer.members or request.instance_id in consumer.static
        return not is_known and len(consumer.members) >= settings.group_size_max

    def _take_place(self, step: ConsumerStep, request: HeartbeatRequest, member_id: str) -> None:
        """A member that joins has nothing; a static one is to have what it was to have before it left."""
        name, consumer = step.group.name, step.consumer
        instance_id = request.instance_id
        before_id = None if instance_id is None else consumer.static.get(instance_id)
        if before_id is not None and before_id != member_id:
            self.replace(step, before_id, member_id)
        if member_id in consumer.current:
            # It has joined again: after it was fenced, or because no answer came. It owns nothing.
            step.put(CurrentKey(name, member_id), NOT_ASSIGNED)

    def replace(self, step: ConsumerStep, before_id: str, member_id: str) -> None:
        """A static member has another id from now on."""
        name, consumer = step.group.name, step.consumer
        metadata, target = consumer.members[before_id], consumer.target(before_id)
        step.remove(before_id)
        self._forget_deadlines(name, before_id)
        step.put(MemberKey(name, member_id), metadata)
        step.put(TargetKey(name, member_id), target)

    # What changes a group

    def update(self, step: ConsumerStep, member_id: str, member: MemberMetadata) -> None:
        """The member says this of itself; the group has the target assignment that follows from that."""
        consumer, name = step.consumer, step.group.name
        before = consumer.members.get(member_id)
        step.put(MemberKey(name, member_id), member)
        self._forget_expressions(step)
        is_same = before is not None and _wishes(before) == _wishes(member)
        self.retarget(step, begins=not is_same)

    def retarget(self, step: ConsumerStep, *, begins: bool) -> None:
        """Another group epoch, if ``begins`` or if subscribed topics have changed; and its target assignment."""
        consumer, name = step.consumer, step.group.name
        is_known = not begins and not step.group.has_new_topics
        hashed = consumer.metadata_hash if is_known else consumer.hash_of(self.topics)
        if begins or hashed != consumer.metadata_hash:
            step.put(GroupEpochKey(name), GroupEpoch(consumer.epoch + 1, hashed))
            self._table.rebalances += 1
        step.group.has_new_topics = False
        if consumer.target_epoch < consumer.epoch:
            available = tuple(self._table.settings.consumer_assignors)
            for member_id, target in consumer.computed_targets(self.topics, available).items():
                step.put(TargetKey(name, member_id), target)
            step.put(TargetEpochKey(name), consumer.epoch)

    def remove(self, step: ConsumerStep, member_ids: Iterable[str]) -> None:
        """They are no members any more: others are to have what they had."""
        for member_id in member_ids:
            step.remove(member_id)
            self._forget_deadlines(step.group.name, member_id)
        self._forget_expressions(step)
        if not self._is_to_be_classic(step):  # then their rebalance begins the next generation
            self.retarget(step, begins=True)

    def _is_to_be_classic(self, step: ConsumerStep) -> bool:
        """Only members of the classic protocol are left in it, and the change is allowed."""
        consumer = step.consumer
        is_allowed = self._table.settings.consumer_migration_policy in (
            "bidirectional",
            "downgrade",
        )
        return (
            is_allowed
            and step.has_removed
            and bool(consumer.members)
            and consumer.are_all_classic
            and bool(consumer.classic_protocols())
        )

    def _forget_expressions(self, step: ConsumerStep) -> None:
        consumer, name = step.consumer, step.group.name
        if not consumer.regexes:
            return
        used = {it.regex for it in consumer.members.values()}
        for regex in [it for it in consumer.regexes if it not in used]:
            step.put(RegexKey(name, regex), None)
            self._viewers.pop((name, regex), None)

    # Leaving

    def _leave(self, request: HeartbeatRequest, token: object, now: Now) -> HeartbeatAnswer | None:
        group = self._table.groups.get(request.group)
        consumer = self._of(group)
        if group is None or consumer is None:
            return _not_found(request)
        member_id = request.member_id
        if request.instance_id is not None:
            known = consumer.static.get(request.instance_id)
            if known is not None and known != member_id:
                return HeartbeatAnswer(
                    ErrorCode.fenced_instance_id, f"it was fenced by member {known}"
                )
        if member_id not in consumer.members:
            said = f"Member {member_id} is not a member of group {request.group}."
            return HeartbeatAnswer(ErrorCode.unknown_member_id, said)
        answer = HeartbeatAnswer(NONE, None, member_id, request.epoch)
        step = ConsumerStep(group, consumer)
        if request.epoch == STATIC_LEAVING_EPOCH:
            left = consumer.assignment(member_id)._replace(
                epoch=STATIC_LEAVING_EPOCH, state=MemberState.STABLE, revoking=NOTHING
            )
            step.put(CurrentKey(group.name, member_id), left)
            self._table.deadlines.clear(Due("revoke", group.name, member_id))
            self.finish(step, now, token, answer)
            return None
        self.remove(step, (member_id,))
        self.finish(step, now, token, answer)
        return None

    # Deadlines

    def keep_alive(self, group: Group, member_id: str, now: Now) -> None:
        """Its session lasts from now on."""
        consumer = group.consumer
        member = None if consumer is None else consumer.members.get(member_id)
        length_ms = self._session_timeout_ms(group)
        if member is not None and member.classic is not None:
            length_ms = member.classic.session_timeout_ms
        self._table.deadlines.set(Due("session", group.name, member_id), now.ms + length_ms)

    def begin_sessions(self, group: Group, now: Now) -> None:
        """Of all members; whatever was asked of them, they have as long again for it."""
        consumer = group.consumer
        if consumer is None:
            return
        for member_id, member in consumer.members.items():
            self.keep_alive(group, member_id, now)
            if (
                consumer.assignment(member_id).state is MemberState.UNREVOKED
                and member.classic is None
            ):
                due = Due("revoke", group.name, member_id)
                self._table.deadlines.set(due, now.ms + member.rebalance_timeout_ms)
        if consumer.regexes:
            self._table.deadlines.set(Due("regex", group.name), now.ms + REGEX_REFRESH_MS)

    def _watch_revocation(
        self, step: ConsumerStep, member_id: str, before: MemberState, now: Now
    ) -> None:
        """It has its rebalance time-out to give up what is not to be its own."""
        due = Due("revoke", step.group.name, member_id)
        if step.consumer.assignment(member_id).state is not MemberState.UNREVOKED:
            self._table.deadlines.clear(due)
        elif before is not MemberState.UNREVOKED or self._table.deadlines.get(due) is None:
            timeout_ms = step.consumer.members[member_id].rebalance_timeout_ms
            self._table.deadlines.set(due, now.ms + timeout_ms)

    def unrevoked(self, group: Group, member_id: str) -> ConsumerStep | None:
        """The time to give up partitions is over."""
        consumer = group.consumer
        if consumer is None or consumer.assignment(member_id).state is not MemberState.UNREVOKED:
            return None
        return self.gone(group, member_id)

    def gone(self, group: Group, member_id: str) -> ConsumerStep | None:
        """It is a member no more; for ``finish``."""
        consumer = group.consumer
        if consumer is None or member_id not in consumer.members:
            return None
        step = ConsumerStep(group, consumer)
        self.remove(step, (member_id,))
        return step

    def _forget_deadlines(self, name: str, member_id: str) -> None:
        for what in ("session", "revoke", "rejoin"):
            self._table.deadlines.clear(Due(what, name, member_id))

    # Topics

    def topics_changed(self, topics: Topics, names: Iterable[str] | None, now: Now) -> None:
        """These are the topics from now on; ``names``: of those that have changed, None: of any."""
        self.topics = topics
        changed = None if names is None else frozenset(names)
        for group in self._table.groups.values():
            consumer = self._of(group)
            if consumer is None:
                continue
            if consumer.regexes:
                due = Due("regex", group.name)
                if self._table.deadlines.get(due) is None:
                    self._table.deadlines.set(due, now.ms + REGEX_REFRESH_MS)
            is_touched = changed is None or not changed.isdisjoint(consumer.subscribed())
            if consumer.members and is_touched:
                group.has_new_topics = True
                self._table.deadlines.set(Due("refresh", group.name), now.ms)

    def refresh(self, group: Group, now: Now) -> None:
        """Its topics may have changed: then there is another target assignment."""
        if group.consumer is None or not group.consumer.members:
            return
        step = ConsumerStep(group, group.consumer)
        self.retarget(step, begins=False)
        self.finish(step, now)

    def rematch(self, group: Group) -> None:
        """Topics may have come that its expressions stand for."""
        consumer = group.consumer
        if consumer is None or not consumer.regexes:
            return
        # Of an expression none of whose members this coordinator has heard of yet, it is not known
        # what they may know of.
        wanted = tuple(it for it in consumer.regexes if (group.name, it) in self._viewers)
        if wanted:
            self._table.match(wanted, partial(self._rematched, group))

    def _rematched(self, group: Group, matches: Matches, version: int, now: Now) -> None:
        consumer = group.consumer
        if consumer is None or not self._table.has(group) or group.state is State.DEAD:
            return
        step = ConsumerStep(group, consumer)
        has_changed = False
        for regex, found in matches.items():
            known = consumer.regexes.get(regex)
            if known is None or isinstance(found, str):
                continue
            topics = self._visible(group.name, regex, found)
            if topics != known.topics:
                step.put(RegexKey(group.name, regex), ResolvedRegex(topics, version, now.wall_ms))
                has_changed = True
        if has_changed:
            self.retarget(step, begins=True)
        self.finish(step, now)

    def _match(self, asked: _PendingBeat, regex: str) -> None:
        """The request goes on when it is known what its expression stands for."""

        def matched(matches: Matches, version: int, now: Now) -> None:
            found = matches[regex]
            if isinstance(found, str):
                refused: HeartbeatAnswer | None = HeartbeatAnswer(
                    ErrorCode.invalid_regular_expression, found
                )
            else:
                resolved = ResolvedRegex(found, version, now.wall_ms)
                refused = self._matched(asked, regex, resolved, now)
            if refused is not None:
                self._table.answer(asked.token, refused)
            self._table.weigh(asked.request.group)

        self._table.match((regex,), matched)

    def _matched(
        self, asked: _PendingBeat, regex: str, resolved: ResolvedRegex, now: Now
    ) -> HeartbeatAnswer | None:
        request = asked.request
        step = self._unknown(request) or self._step_for(asked, now)
        if not isinstance(step, ConsumerStep):
            return step
        name = step.group.name
        self._viewers[name, regex] = request.sees
        if regex not in step.consumer.regexes:
            topics = self._visible(name, regex, resolved.topics)
            step.put(RegexKey(name, regex), resolved._replace(topics=topics))
            # A topic may have come since the names were taken.
            self._table.deadlines.set(Due("regex", name), now.ms + REGEX_REFRESH_MS)
        return self._member_beats(request, step, asked.token, now)

    def _view(self, name: str, regex: str, request: HeartbeatRequest, now: Now) -> None:
        """The expression stands for what this member may know of."""
        is_first = (name, regex) not in self._viewers
        self._viewers[name, regex] = request.sees
        due = Due("regex", name)
        if is_first and self._table.deadlines.get(due) is None:
            self._table.deadlines.set(due, now.ms + REGEX_REFRESH_MS)

    def _visible(self, name: str, regex: str, found: frozenset[str]) -> frozenset[str]:
        sees = self._viewers.get((name, regex))
        return found if sees is None else frozenset(filter(sees, found))

    # What is written

    def finish(
        self,
        step: ConsumerStep,
        now: Now,
        token: object | None = None,
        answer: object = None,
        failed: Callable[[ErrorCode], object] = HeartbeatAnswer,
    ) -> None:
        """Append what has changed; ``token`` is answered when that is committed, and all before it."""
        consumer, table, group = step.consumer, self._table, step.group

        def told(error: ErrorCode) -> None:
            table.answer(token, answer if error is NONE else failed(error))

        if group.consumer is consumer and self._is_to_be_classic(step):
            self._downgrade(step, now)
        if not step.changes and not step.records:
            if consumer.writing:
                consumer.writing[-1].answers.append(told)
            else:
                told(NONE)
            return
        group.state_ms = now.wall_ms
        write = consumer.append(step.changes)
        write.answers.append(told)
        table.weigh(group.name)

        def written(error: ErrorCode, now: Now) -> None:
            if error is NONE:
                consumer.committed(write)
            else:
                self._take_back(step, write, now)
            for answer_one in write.answers:
                answer_one(error)
            table.weigh(group.name)

        table.write([*step.records, *map(consumer.record, write.changes)], written)

    def _take_back(self, step: ConsumerStep, write: PendingWrite, now: Now) -> None:
        """It is not in the log: the group is as it was."""
        group, consumer = step.group, step.consumer
        consumer.failed(write)
        group.has_new_topics = True  # the epoch that was for them is none
        if step.undo is not None:
            step.undo(now)
        if self._table.has(group):
            if group.consumer is consumer and (consumer.epoch or consumer.writing):
                self.begin_sessions(group, now)
            self._drop_if_nothing(group)

    def _give_up(self, step: ConsumerStep, now: Now) -> None:
        """A step of which nothing is to be written."""
        if step.changes:
            step.consumer.failed(step.consumer.append(step.changes))
            step.group.has_new_topics = True
        if step.undo is not None:
            step.undo(now)
        self._drop_if_nothing(step.group)

    def _drop_if_nothing(self, group: Group) -> None:
        consumer = group.consumer
        if consumer is not None and not consumer.epoch and not consumer.writing:
            group.consumer = None
        if group.is_idle and group.generation == 0 and group.consumer is None:
            self._table.drop(group)

    # ConsumerGroupDescribe

    def described(self, group: Group, consumer: ConsumerGroup) -> DescribedConsumerGroup:
        return DescribedConsumerGroup(
            group.name,
            consumer.state,
            consumer.epoch,
            consumer.target_epoch,
            consumer.assignor(tuple(self._table.settings.consumer_assignors)),
            tuple(
                DescribedConsumer(
                    member_id, member, consumer.assignment(member_id), consumer.target(member_id)
                )
                for member_id, member in consumer.members.items()
            ),
        )


def _wishes(member: MemberMetadata) -> tuple[object, ...]:
    """What bears on the target assignment."""
    return member.topics, member.regex, member.assignor, member.instance_id


def _updated(before: MemberMetadata | None, request: HeartbeatRequest) -> MemberMetadata:
    """None keeps what was said before."""
    if before is None:
        before = MemberMetadata(None, None, "", "", (), None, -1, None)
    regex = before.regex if request.regex is None else request.regex or None
    topics = before.topics if request.topics is None else tuple(sorted(set(request.topics)))
    return MemberMetadata(
        before.instance_id if request.instance_id is None else request.instance_id,
        before.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        topics,
        regex,
        request.rebalance_timeout_ms
        if request.rebalance_timeout_ms > 0
        else before.rebalance_timeout_ms,
        before.assignor if request.assignor is None else request.assignor,
    )


def _not_found(request: HeartbeatRequest) -> HeartbeatAnswer:
    said = f"Group {request.group} not found."
    return HeartbeatAnswer(ErrorCode.group_id_not_found, said)


def names_of(assigned: Assigned, topics: Topics) -> dict[str, list[int]]:
    """By the names of topics that there are."""
    found: dict[str, list[int]] = {}
    names: dict[UUID, str | None] = {}
    for topic_id, number in sorted(assigned):
        if topic_id not in names:
            names[topic_id] = topics.name_of(topic_id)
        name = names[topic_id]
        if name is not None:
            found.setdefault(name, []).append(number)
    return found
