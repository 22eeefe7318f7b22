"""SyncGroup, Heartbeat, LeaveGroup, and the end of sessions. Pure."""

from kio.schema.errors import ErrorCode

from streamlog.groups.effects import NONE, Now
from streamlog.groups.group import Group, State
from streamlog.groups.rebalance import Rebalance
from streamlog.groups.records import group_record
from streamlog.groups.requests import NO_MEMBER, GroupCaller, SyncedMember, SyncRequest
from streamlog.groups.table import Due, GroupTable


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
                return  # somebody has joined meanwhile
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
        error = group.refusal(caller)
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
            error = group.refusal(caller)
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
        """An id was given out, and nobody came with it."""
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
