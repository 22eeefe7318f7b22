"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, the end of sessions, rebalances. Pure.

``Joining`` says who may join a group and whether that begins another generation; ``GroupMembership`` deals with
those who are members, and with who leaves; ``Rebalance`` moves a group from one generation to the next.

A change of a group's members calls ``Rebalance.begin``; all members must then join again. The generation
starts when they all have, or when the slowest has had its rebalance time-out: who has not joined by
then is no member any more, but for static ones. A group's first generation waits for more members
to come, ``initial_rebalance_delay_ms`` at a time, while they keep coming.

Then every member has to ask for its part of what the leader assigns. What is assigned is told when
it is in the log.
"""

from typing import Final, NamedTuple

from streamlog.coordination.effects import NONE, Now
from streamlog.coordination.keys import KEY_BYTES_MAX
from streamlog.groups.group import Group, Member, Protocols, State, refusal, same_subscription
from streamlog.groups.group_table import Due, GroupTable
from streamlog.groups.records import group_record
from streamlog.groups.requests import (
    NO_MEMBER,
    GroupCaller,
    Joined,
    JoinRequest,
    SyncedMember,
    SyncRequest,
)
from streamlog.wire.error_codes import ErrorCode

NEW_MEMBER_JOIN_MS: Final = 300_000
"""Who is new, and waits for its first generation, waits no longer; its client may be gone."""


class Rebalance:
    """The part of a coordinator that moves generations."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def begin(self, group: Group, now: Now) -> None:
        """Have all members join again, if they are not asked to already."""
        if not group.is_in(State.EMPTY, State.STABLE, State.COMPLETING):
            return
        table = self._table
        if group.state is State.COMPLETING:
            self.unassign(group, ErrorCode.rebalance_in_progress, now)
        table.deadlines.clear(Due("sync", group.name))
        is_first = group.state is State.EMPTY
        group.move(State.PREPARING, now.wall_ms)
        if is_first:
            delay_ms = table.settings.initial_rebalance_delay_ms
            group.delays_left_ms = max(0, group.rebalance_timeout_ms - delay_ms)
            group.has_new_members = False
            table.deadlines.set(Due("join", group.name), now.ms + delay_ms)
            if delay_ms == 0:
                self.delayed(group, now)
        else:
            self._wait_for_members(group, now)
            self.look(group, now)

    def look(self, group: Group, now: Now) -> None:
        """Start the generation if all members are there."""
        is_delayed = group.delays_left_ms is not None
        if group.state is State.PREPARING and not is_delayed and group.has_all_joined:
            self._start(group, now)

    def delayed(self, group: Group, now: Now) -> None:
        """The time to join is over, or the delay before a first generation."""
        if group.state is not State.PREPARING:
            return
        left_ms = group.delays_left_ms
        if left_ms and group.has_new_members:
            group.has_new_members = False
            delay_ms = min(self._table.settings.initial_rebalance_delay_ms, left_ms)
            group.delays_left_ms = left_ms - delay_ms
            self._table.deadlines.set(Due("join", group.name), now.ms + delay_ms)
        else:
            self._start(group, now)

    def unsynced(self, group: Group, now: Now) -> None:
        """Some members have not asked for their part in time: they are none any more."""
        if not group.is_in(State.COMPLETING, State.STABLE) or not group.unsynced:
            return
        for member_id in tuple(group.unsynced):
            self.remove(group, member_id)
        self.begin(group, now)

    def assigned(self, group: Group, assignments: dict[str, bytes], now: Now) -> None:
        """The leader's assignment is in the log: each member may have its part of it."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.move(State.STABLE, now.wall_ms)
        for member in group.members.values():
            self.answer_sync(group, member, NONE, now)

    def unassign(self, group: Group, error: ErrorCode, now: Now) -> None:
        """There is no assignment; who waits for it is told so."""
        for member in group.members.values():
            member.assignment = b""
            self.answer_sync(group, member, error, now)

    def answer_sync(self, group: Group, member: Member, error: ErrorCode, now: Now) -> None:
        """To a member that waits; its session begins again."""
        token, member.syncing = member.syncing, None
        if token is None:
            return
        self.keep_alive(group, member, now)
        if error is NONE:
            result = SyncedMember(NONE, group.protocol_type, group.protocol, member.assignment)
        else:
            result = SyncedMember(error)
        self._table.answer(token, result)

    def answer_join(self, group: Group, member: Member, *, skip_assignment: bool = False) -> None:
        """To a member that waits: the generation there is."""
        token, member.joining = member.joining, None
        leads = group.leader == member.member_id
        self._table.answer(
            token,
            Joined(
                NONE, member.member_id, group.generation, group.protocol_type, group.protocol,
                group.leader or "", group.joined_members() if leads else (),
                skip_assignment and leads,
            ),
        )  # fmt: skip

    def remove(self, group: Group, member_id: str) -> None:
        """Whatever it waits for is answered."""
        member = group.remove(member_id)
        self._table.deadlines.clear(Due("session", group.name, member_id))
        self.refuse(member, ErrorCode.unknown_member_id)

    def refuse(self, member: Member, error: ErrorCode) -> None:
        """Whatever it waits for, it will not get."""
        self._table.answer(member.joining, Joined(error))
        self._table.answer(member.syncing, SyncedMember(error))
        member.joining = member.syncing = None

    def keep_alive(self, group: Group, member: Member, now: Now) -> None:
        """Its session lasts from now on."""
        length_ms = NEW_MEMBER_JOIN_MS if member.is_new else member.session_timeout_ms
        due = Due("session", group.name, member.member_id)
        self._table.deadlines.set(due, now.ms + length_ms)

    def _wait_for_members(self, group: Group, now: Now) -> None:
        due = Due("join", group.name)
        self._table.deadlines.set(due, now.ms + group.rebalance_timeout_ms)

    def _start(self, group: Group, now: Now) -> None:
        """The next generation, of those who have joined."""
        group.delays_left_ms = None
        for member in tuple(group.members.values()):
            if member.joining is None and not member.is_static:
                self.remove(group, member.member_id)
        if group.members and not group.elect_joined():
            self._wait_for_members(group, now)  # of static ones, whose sessions will end
            return
        self._table.deadlines.clear(Due("join", group.name))
        group.generation += 1
        group.unsynced.clear()
        if not group.members:
            group.protocol = None
            group.move(State.EMPTY, now.wall_ms)
            self._table.write([group_record(group.name, group.kept())], _unheard)
            return
        self._table.rebalances += 1
        group.protocol = group.choose_protocol()
        group.move(State.COMPLETING, now.wall_ms)
        for member in group.members.values():
            member.is_new = False
            group.unsynced.add(member.member_id)
            self.keep_alive(group, member, now)
            self.answer_join(group, member)
        due = Due("sync", group.name)
        self._table.deadlines.set(due, now.ms + group.rebalance_timeout_ms)


def _unheard(_error: ErrorCode, _now: Now) -> None:
    """That a group is empty is found out again by the next coordinator."""


CLIENT_ID_SHOWN: Final = 255
"""Characters of a client's id that its members' ids begin with."""


class _PendingJoin(NamedTuple):
    """A request, and the token of its answer."""

    request: JoinRequest
    token: object


class _Before(NamedTuple):
    """What was, until a static member restarted."""

    member_id: str
    leader: str | None
    protocols: Protocols


class Joining:
    """The part of a coordinator that takes members in."""

    def __init__(self, table: GroupTable, rebalance: Rebalance) -> None:
        self._table = table
        self._rebalance = rebalance

    def join(self, request: JoinRequest, token: object, now: Now) -> None:
        """``token`` is answered with a ``Joined``, perhaps much later."""
        error = self._wrong(request)
        if error is not NONE:
            self._refuse(token, request, error)
            return
        group = self._table.groups.get(request.group)
        if group is None:
            if request.caller.member_id != NO_MEMBER:
                self._refuse(token, request, ErrorCode.unknown_member_id)
                return
            if not self._table.may_add_group():
                self._refuse(token, request, ErrorCode.policy_violation)
                return
            group = self._table.add(request.group, now)
        error = self._refusal(group, request)
        if error is not NONE:
            self._refuse(token, request, error)
        elif request.caller.member_id == NO_MEMBER:
            self._join_new(group, request, token, now)
        elif request.caller.member_id in group.pending:
            self._add(group, request.caller.member_id, request, token, now)
        else:
            self._join_known(group, request, token, now)
        if group.is_idle and group.generation == 0:
            self._table.drop(group)

    def _wrong(self, request: JoinRequest) -> ErrorCode:
        settings = self._table.settings
        texts = (request.caller.instance_id or "", request.protocol_type, request.client_id,
                 *(name for name, _ in request.protocols))  # fmt: skip
        if (
            not settings.session_timeout_ms_min
            <= request.session_timeout_ms
            <= (settings.session_timeout_ms_max)
        ):
            return ErrorCode.invalid_session_timeout
        if any(len(text.encode()) > KEY_BYTES_MAX for text in texts):
            return ErrorCode.invalid_request
        return NONE

    def _refusal(self, group: Group, request: JoinRequest) -> ErrorCode:
        """Why it cannot join, be it a member already or not."""
        if group.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if self._is_full(group, request):
            group.pending.discard(request.caller.member_id)
            return ErrorCode.group_max_size_reached
        if not group.supports(request.protocol_type, request.protocols):
            return ErrorCode.inconsistent_group_protocol
        return NONE

    def _is_full(self, group: Group, request: JoinRequest) -> bool:
        settings, members = self._table.settings, group.members
        known = members.get(request.caller.member_id) or self._static(group, request)
        wanted = sum(len(name) + len(data) for name, data in request.protocols)
        more = wanted - (known.size_bytes if known else 0)
        if (
            group.size_bytes + more > settings.group_bytes_max
            or self._table.kept_bytes + more > settings.groups_bytes_max
        ):
            return True
        if known is not None:
            waits = known.joining is not None
            if group.state is not State.PREPARING or waits:
                return False
        promised = 0 if request.caller.member_id in group.pending else len(group.pending)
        if group.state is State.PREPARING and promised < settings.group_size_max:
            joined = sum(it.joining is not None for it in members.values())
            return joined >= settings.group_size_max
        return len(members) + promised >= settings.group_size_max

    def _static(self, group: Group, request: JoinRequest) -> Member | None:
        """The member whose place a restarted one takes."""
        instance_id = request.caller.instance_id
        if instance_id is None or instance_id not in group.static:
            return None
        return group.members[group.static[instance_id]]

    def _join_new(self, group: Group, request: JoinRequest, token: object, now: Now) -> None:
        instance_id = request.caller.instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self._table.new_id()}"
            known = self._static(group, request)
            if known is None:
                self._add(group, member_id, request, token, now)
            else:
                self._replace(group, known, member_id, _PendingJoin(request, token), now)
            return
        member_id = f"{request.client_id[:CLIENT_ID_SHOWN]}-{self._table.new_id()}"
        if not request.needs_known_id:
            self._add(group, member_id, request, token, now)
            return
        group.pending.add(member_id)
        due = Due("pending", group.name, member_id)
        self._table.deadlines.set(due, now.ms + request.session_timeout_ms)
        self._table.answer(token, Joined(ErrorCode.member_id_required, member_id))

    def _join_known(self, group: Group, request: JoinRequest, token: object, now: Now) -> None:
        error = refusal(group, request.caller)
        if error is not NONE or group.state is State.EMPTY:
            self._refuse(token, request, ErrorCode.unknown_member_id if error is NONE else error)
            return
        member = group.members[request.caller.member_id]
        is_same = member.protocols == request.protocols
        if group.state is State.COMPLETING and is_same:
            # The answer to its first request may have been lost.
            self._again(group, member, token, now)
        elif group.state is State.STABLE and is_same and group.leader != member.member_id:
            self._again(group, member, token, now)
        else:
            self._update(member, request, token)
            self._rebalance.begin(group, now)
            self._rebalance.look(group, now)

    def _again(self, group: Group, member: Member, token: object, now: Now) -> None:
        """The generation that it is in already."""
        member.joining = token
        self._rebalance.keep_alive(group, member, now)
        self._rebalance.answer_join(group, member)

    def _add(
        self, group: Group, member_id: str, request: JoinRequest, token: object, now: Now
    ) -> None:
        member = Member(
            member_id, request.caller.instance_id, request.client_id, request.client_host,
            request.session_timeout_ms, request.rebalance_timeout_ms, request.protocols,
            is_new=True, joining=token,
        )  # fmt: skip
        self._table.deadlines.clear(Due("pending", group.name, member_id))
        group.add(member, request.protocol_type)
        group.has_new_members = True
        self._rebalance.keep_alive(group, member, now)
        self._rebalance.begin(group, now)
        self._rebalance.look(group, now)

    def _update(self, member: Member, request: JoinRequest, token: object) -> None:
        """What it says now holds; an earlier request of it is never answered."""
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        member.joining = token

    def _replace(
        self, group: Group, member: Member, member_id: str, asked: _PendingJoin, now: Now
    ) -> None:
        """A static member has restarted: it is the same one, under a new id (KIP-345).

        Where the group is stable and it wants what it wanted before, no other member need hear of it.
        """
        before = _Before(member.member_id, group.leader, member.protocols)
        wished = member.metadata(group.protocol)
        self._rebalance.refuse(member, ErrorCode.fenced_instance_id)
        self._table.deadlines.clear(Due("session", group.name, before.member_id))
        group.replace_static(member, member_id)
        self._update(member, asked.request, asked.token)
        self._rebalance.keep_alive(group, member, now)
        is_same = same_subscription(group.protocol_type, wished, member.metadata(group.protocol))
        if group.state is State.STABLE and is_same and group.choose_protocol() == group.protocol:
            self._keep_replaced(group, member, asked, before)
            return
        self._rebalance.begin(group, now)
        self._rebalance.look(group, now)

    def _keep_replaced(
        self, group: Group, member: Member, asked: _PendingJoin, before: _Before
    ) -> None:
        """It is told of its generation when the log has its new id."""
        request, token = asked
        member_id, generation = member.member_id, group.generation

        def kept(error: ErrorCode, now: Now) -> None:
            if member.joining is not token or member.member_id != member_id:
                return  # it has restarted once more, and that answers it
            if group.state is not State.STABLE or group.generation != generation:
                return  # the next generation answers it
            if error is not NONE:
                member.joining = None
                self._table.answer(token, Joined(error, request.caller.member_id))
                self._table.deadlines.clear(Due("session", group.name, member_id))
                group.replace_static(member, before.member_id)
                member.protocols = before.protocols
                self._rebalance.keep_alive(group, member, now)
            elif request.may_skip_assignment:
                self._rebalance.answer_join(group, member, skip_assignment=True)
            else:
                # Told the old id of the leader, it does not assign what no member waits for.
                member.joining = None
                result = Joined(
                    NONE,
                    member_id,
                    generation,
                    group.protocol_type,
                    group.protocol,
                    before.leader or "",
                )
                self._table.answer(token, result)

        self._table.write([group_record(group.name, group.kept())], kept)

    def _refuse(self, token: object, request: JoinRequest, error: ErrorCode) -> None:
        self._table.answer(token, Joined(error, request.caller.member_id))


class GroupMembership:
    """The part of a coordinator that deals with those who are members."""

    def __init__(self, table: GroupTable, rebalance: Rebalance) -> None:
        self._table = table
        self._rebalance = rebalance

    # SyncGroup

    def sync(self, request: SyncRequest, token: object, now: Now) -> None:
        """``token`` is answered with a ``SyncedMember``, when the leader has assigned."""
        group = self._table.groups.get(request.group)
        error = self._may_sync(group, request)
        if group is None or error is not NONE:
            self._table.answer(token, SyncedMember(error))
            return
        member = group.members[request.caller.member_id]
        group.unsynced.discard(member.member_id)
        self._table.answer(member.syncing, SyncedMember(ErrorCode.rebalance_in_progress))
        member.syncing = token
        if group.state is State.STABLE:
            self._rebalance.answer_sync(group, member, NONE, now)
        elif group.leader == member.member_id:
            self._assign(group, request, now)

    def _may_sync(self, group: Group | None, request: SyncRequest) -> ErrorCode:
        error = self._standing(group, request.caller)
        if group is None or error is not NONE:
            return error
        names = (
            (request.protocol_type, group.protocol_type),
            (request.protocol, group.protocol),
        )
        if any(said is not None and said != known for said, known in names):
            return ErrorCode.inconsistent_group_protocol
        if group.state is State.PREPARING:
            return ErrorCode.rebalance_in_progress
        return NONE

    def _assign(self, group: Group, request: SyncRequest, now: Now) -> None:
        """Kept first, and told when it is kept."""
        assignments = {
            member_id: request.assignments.get(member_id, b"") for member_id in group.members
        }
        protocols = sum(it.size_bytes - len(it.assignment) for it in group.members.values())
        if protocols + sum(map(len, assignments.values())) > self._table.settings.group_bytes_max:
            self._unassign(group, ErrorCode.group_max_size_reached, now)
            return
        generation = group.generation

        def kept(error: ErrorCode, now: Now) -> None:
            if not self._table.has(group) or group.generation != generation:
                return
            if group.state is not State.COMPLETING:
                return  # a member has joined meanwhile
            if error is NONE:
                self._rebalance.assigned(group, assignments, now)
                self._table.weigh(group.name)
            else:
                self._unassign(group, error, now)

        self._table.write([group_record(group.name, group.kept(assignments))], kept)

    def _unassign(self, group: Group, error: ErrorCode, now: Now) -> None:
        self._rebalance.unassign(group, error, now)
        self._rebalance.begin(group, now)

    # Heartbeat

    def heartbeat(self, name: str, caller: GroupCaller, now: Now) -> ErrorCode:
        """The session lasts; REBALANCE_IN_PROGRESS asks to join again."""
        group = self._table.groups.get(name)
        error = self._standing(group, caller)
        if group is None or error is not NONE:
            return error
        self._rebalance.keep_alive(group, group.members[caller.member_id], now)
        is_preparing = group.state is State.PREPARING
        return ErrorCode.rebalance_in_progress if is_preparing else NONE

    def _standing(self, group: Group | None, caller: GroupCaller) -> ErrorCode:
        """Why ``caller`` is no member of the present generation; ``NONE`` if it is."""
        if group is None:
            return ErrorCode.unknown_member_id
        if group.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        error = refusal(group, caller)
        if error is NONE and caller.generation != group.generation:
            return ErrorCode.illegal_generation
        return error

    # LeaveGroup

    def leave(self, name: str, caller: GroupCaller, now: Now) -> ErrorCode:
        """It is a member no longer. Without a member id: by the instance id alone, as tools do."""
        group = self._table.groups.get(name)
        if group is None:
            return ErrorCode.unknown_member_id
        if group.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        member_id = caller.member_id
        if member_id == NO_MEMBER:
            member_id = group.static.get(caller.instance_id or "", NO_MEMBER)
            if member_id == NO_MEMBER:
                return ErrorCode.unknown_member_id
        elif member_id in group.pending:
            self._forget_pending(group, member_id, now)
            return NONE
        else:
            error = refusal(group, caller)
            if error is not NONE:
                return error
        self._gone(group, member_id, now)
        return NONE

    # Deadlines

    def session_over(self, group: Group, member_id: str, now: Now) -> None:
        """Unless it waits for an answer of ours: then its session begins with that."""
        member = group.members.get(member_id)
        if member is None:
            return
        waits = member.syncing is not None or (member.joining is not None and not member.is_new)
        if not waits:
            self._gone(group, member_id, now)

    def never_joined(self, group: Group, member_id: str, now: Now) -> None:
        """An id was given out, and no member came with it."""
        if member_id in group.pending:
            self._forget_pending(group, member_id, now)

    def _gone(self, group: Group, member_id: str, now: Now) -> None:
        self._rebalance.remove(group, member_id)
        self._rebalance.begin(group, now)
        self._rebalance.look(group, now)

    def _forget_pending(self, group: Group, member_id: str, now: Now) -> None:
        group.pending.discard(member_id)
        self._table.deadlines.clear(Due("pending", group.name, member_id))
        self._rebalance.look(group, now)
        if group.is_idle and group.generation == 0:
            self._table.drop(group)
