"""JoinGroup: who may join a group, and whether that begins another generation. Pure."""

from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from streamlog.groups.effects import NONE, Now
from streamlog.groups.group import Group, State
from streamlog.groups.member import Member, Protocols
from streamlog.groups.rebalance import Rebalance
from streamlog.groups.records import group_record
from streamlog.groups.requests import NO_MEMBER, Joined, JoinRequest
from streamlog.groups.subscription import same_subscription
from streamlog.groups.table import NAME_BYTES_MAX, Due, GroupTable

CLIENT_ID_SHOWN: Final = 255
"""Characters of a client's id that its members' ids begin with."""


class _Asked(NamedTuple):
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
        if any(len(text.encode()) > NAME_BYTES_MAX for text in texts):
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
                self._replace(group, known, member_id, _Asked(request, token), now)
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
        error = group.refusal(request.caller)
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
        """What it says now holds; an earlier request of it is answered by nobody any more."""
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        member.joining = token

    def _replace(
        self, group: Group, member: Member, member_id: str, asked: _Asked, now: Now
    ) -> None:
        """A static member has restarted: it is the same one, under a new id (KIP-345).

        Where the group is stable and it wants what it wanted before, nobody else need hear of it.
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

    def _keep_replaced(self, group: Group, member: Member, asked: _Asked, before: _Before) -> None:
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
                # Told the old id of the leader, it does not assign what nobody waits for.
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
