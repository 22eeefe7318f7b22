"""From one generation of a group to the next. Pure.

A change of a group's members calls ``begin``; all members must then join again. The generation
starts when they all have, or when the slowest has had its rebalance time-out: who has not joined by
then is no member any more, but for static ones. A group's first generation waits for more members
to come, ``initial_rebalance_delay_ms`` at a time, while they keep coming.

Then every member has to ask for its part of what the leader assigns. What is assigned is told when
it is in the log.
"""

from typing import Final

from streamlog.coordination.effects import NONE, Now
from streamlog.groups.group import Group, Member, State
from streamlog.groups.group_table import Due, GroupTable
from streamlog.groups.records import group_record
from streamlog.groups.requests import Joined, SyncedMember
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
