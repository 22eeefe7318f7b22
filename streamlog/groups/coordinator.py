"""Kafka's GroupCoordinator for the groups of one partition of ``__consumer_offsets``. Pure.

How to drive it: pass requests, with the time, and carry out the effects that come back, in order.
``Write`` appends; its ``then`` is called when the records are committed, in the order in which they
were appended, or when they are not to be. ``Answer`` answers, once. Call ``tick`` at ``next_ms``.
When the partition is led no longer, ``close``: who waits is told to look for another coordinator.

Of what is not in the log, the next coordinator knows nothing: members' sessions, who has joined
since the last assignment, ids that were given out. Members find that out by what they are answered.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from streamlog.config import GroupsSection
from streamlog.coordination.effects import Now
from streamlog.groups.consumer_group import LEAVING_EPOCH
from streamlog.groups.group import Group, State, refusal
from streamlog.groups.group_table import Due, GroupTable
from streamlog.groups.membership.classic_membership import GroupMembership, Joining, Rebalance
from streamlog.groups.membership.consumer_membership import ConsumerMembership
from streamlog.groups.membership.migration import ClassicMembers
from streamlog.groups.offsets import Commits, OffsetExpiration
from streamlog.groups.requests import (
    CommitRequest,
    DescribedConsumerGroup,
    DescribedGroup,
    Effect,
    FoundOffset,
    GroupCaller,
    HeartbeatAnswer,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    PartitionId,
    SyncedMember,
    SyncRequest,
    TransactionCommit,
)
from streamlog.groups.shares.share_group import ShareGroup
from streamlog.groups.shares.share_membership import ShareMembership
from streamlog.groups.shares.share_states import ShareStates
from streamlog.groups.subscribed_topics import Topics
from streamlog.wire.error_codes import ErrorCode

NEXT_LOOK_MS: Final = 20
"""Until the next part of a look for what has expired."""
_EXPIRY: Final = Due("expiry")


class Coordinator:
    """One leadership of the partition, from what its log says on."""

    def __init__(
        self,
        settings: GroupsSection,
        new_id: Callable[[], str],
        groups: Iterable[Group] = (),
        *,
        now: Now,
        since_ms: int = 0,
        share_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """``groups``: as read from the log; their members' sessions begin now. ``since_ms``: wall
        clock; nothing expires for what it was before: no client could commit while the cluster was
        lost. ``share_configs``: as of ``GroupTable``.
        """
        self._table = table = GroupTable(
            settings, new_id, groups, since_ms=since_ms, share_configs=share_configs
        )
        self._rebalance = Rebalance(table)
        self._joining = Joining(table, self._rebalance)
        self._membership = GroupMembership(table, self._rebalance)
        self._classic = ClassicMembers(table, self._rebalance)
        self._consumers = self._classic.membership
        self._shares = ShareMembership(table)
        self.share_states = ShareStates(table, self._shares)
        self._commits = Commits(table, self._rebalance)
        self._expiration = OffsetExpiration(table, self._commits)
        table.deadlines.set(_EXPIRY, now.ms + settings.offsets_retention_check_interval_ms)
        self._begin_sessions(now)

    # What members ask for

    def join(self, request: JoinRequest, token: object, now: Now) -> list[Effect]:
        """``token`` is answered with a ``Joined``."""
        group = self._table.groups.get(request.group)
        if _is_share(group):
            self._table.answer(token, Joined(ErrorCode.inconsistent_group_protocol))
            return self._table.take()
        if group is not None and group.consumer is not None and group.state is not State.DEAD:
            if group.consumer.members:
                self._classic.join(group, request, token, now)
                self._table.weigh(request.group)
                return self._table.take()
            if request.caller.member_id == "":
                self._classic.empty_to_classic(group, now)
        self._joining.join(request, token, now)
        self._table.weigh(request.group)
        return self._table.take()

    def sync(self, request: SyncRequest, token: object, now: Now) -> list[Effect]:
        """``token`` is answered with a ``SyncedMember``."""
        group = self._table.groups.get(request.group)
        if _is_share(group):
            self._table.answer(token, SyncedMember(ErrorCode.unknown_member_id))
            return self._table.take()
        if group is not None and group.consumer is not None:
            self._classic.sync(group, request, token, now)
            return self._table.take()
        self._membership.sync(request, token, now)
        return self._table.take()

    def heartbeat(self, group: str, caller: GroupCaller, now: Now) -> ErrorCode:
        found = self._table.groups.get(group)
        if _is_share(found):
            return ErrorCode.unknown_member_id
        if found is not None and found.consumer is not None:
            return self._classic.heartbeat(found, caller, now)
        return self._membership.heartbeat(group, caller, now)

    def consumer_heartbeat(
        self, request: HeartbeatRequest, token: object, now: Now
    ) -> list[Effect]:
        """``token`` is answered with a ``HeartbeatAnswer``."""
        if _is_share(self._table.groups.get(request.group)):
            said = f"Group {request.group} is not a consumer group."
            self._table.answer(token, HeartbeatAnswer(ErrorCode.group_id_not_found, said))
            return self._table.take()
        self._consumers.heartbeat(request, token, now, self._classic.upgrade)
        self._table.weigh(request.group)
        return self._table.take()

    def share_heartbeat(self, request: HeartbeatRequest, token: object, now: Now) -> list[Effect]:
        """``token`` is answered with a ``HeartbeatAnswer``."""
        self._shares.share_heartbeat(request, token, now)
        self._table.weigh(request.group)
        return self._table.take()

    def of_shares(self, ask: Callable[[ShareStates], None]) -> list[Effect]:
        """What follows from a call of ``share_states``."""
        ask(self.share_states)
        return self._table.take()

    def leave(
        self, group: str, callers: Iterable[GroupCaller], token: object, now: Now
    ) -> list[Effect]:
        """``token`` is answered with an error code for each."""
        found = self._table.groups.get(group)
        if _is_share(found):
            self._table.answer(token, [ErrorCode.unknown_member_id for _ in callers])
            return self._table.take()
        if found is not None and found.consumer is not None:
            self._classic.leave(found, tuple(callers), token, now)
            self._table.weigh(group)
            return self._table.take()
        codes = [self._membership.leave(group, caller, now) for caller in callers]
        self._table.weigh(group)
        self._table.answer(token, codes)
        return self._table.take()

    def commit(self, request: CommitRequest, token: object, now: Now) -> list[Effect]:
        """``token`` is answered with an error code for each partition. Share groups have no
        committed offsets.
        """
        if _is_share(self._table.groups.get(request.group)):
            none = dict.fromkeys(request.offsets, ErrorCode.group_id_not_found)
            self._table.answer(token, none)
            return self._table.take()
        self._commits.commit(request, token, now)
        return self._table.take()

    def commit_in_transaction(
        self, request: TransactionCommit, token: object, now: Now
    ) -> list[Effect]:
        """``token`` is answered with an error code for each partition; the offsets count once ``end_transaction`` says
        that the transaction is committed.
        """
        self._commits.commit(request.commit, token, now, request.transaction)
        return self._table.take()

    def end_transaction(self, producer_id: int, *, commit: bool) -> list[Effect]:
        """The end of this producer's transaction is in the log."""
        self._commits.end_transaction(producer_id, commit=commit)
        return self._table.take()

    def fetch(
        self, group: str, places: Iterable[PartitionId] | None, *, stable: bool = False
    ) -> dict[PartitionId, FoundOffset]:
        """What is committed of these partitions; None: of all. True only as long as no other node
        leads: who must not be told what was true once makes sure of that first.
        """
        return self._commits.fetch(group, places, stable=stable)

    def delete_offsets(
        self, group: str, places: Iterable[PartitionId], token: object, now: Now
    ) -> list[Effect]:
        """``token`` is answered with an error code, or one for each partition."""
        if _is_share(self._table.groups.get(group)):
            self._table.answer(token, ErrorCode.group_id_not_found)
            return self._table.take()
        self._commits.delete_offsets(group, places, token, now)
        return self._table.take()

    def delete_group(self, group: str, token: object, now: Now) -> list[Effect]:
        """``token`` is answered with an error code."""
        self._commits.delete_group(group, token, now)
        return self._table.take()

    def describe(self, group: str) -> DescribedGroup | None:
        found = self._table.groups.get(group)
        return None if found is None else found.described()

    def describe_consumers(self, group: str) -> DescribedConsumerGroup | None:
        """A consumer group, or a share group; None where it is neither."""
        found = self._table.groups.get(group)
        if found is None or found.consumer is None or found.state is State.DEAD:
            return None
        return self._consumers.described(found, found.consumer)

    def member_refusal(self, group: str, member_id: str, epoch: int) -> ErrorCode:
        """Why who fetches offsets is not the member that it says it is; ``NONE`` if it is, or says nothing."""
        found = self._table.groups.get(group)
        if (not member_id and epoch <= LEAVING_EPOCH) or found is None or found.consumer is None:
            return ErrorCode.none
        error = refusal(found.consumer, GroupCaller(member_id))
        if error is ErrorCode.none and epoch != found.consumer.assignment(member_id).epoch:
            return ErrorCode.stale_member_epoch
        return error

    def listed(self) -> list[DescribedGroup]:
        """Without their members."""
        return [group.described(members=False) for group in self._table.groups.values()]

    # What happens by itself

    def topics_changed(self, topics: Topics, names: Iterable[str] | None, now: Now) -> list[Effect]:
        """These are the topics from now on; ``names``: of those that have changed, None: of any."""
        self._consumers.topics_changed(topics, names, now)
        self._shares.topics_changed(topics, names, now)
        self.share_states.topics_changed(topics, now)
        return self._table.take()

    @property
    def next_ms(self) -> int | None:
        """When ``tick`` has something to do, or earlier."""
        return self._table.deadlines.next_ms

    def tick(self, now: Now) -> list[Effect]:
        """What has a deadline by now."""
        for due in self._table.deadlines.due(now.ms):
            if due == _EXPIRY:
                done = self._expiration.expire(now)
                pause_ms = (
                    self._table.settings.offsets_retention_check_interval_ms
                    if done
                    else NEXT_LOOK_MS
                )
                self._table.deadlines.set(_EXPIRY, now.ms + pause_ms)
                continue
            group = self._table.groups.get(due.group)
            if group is not None:
                self._act(due, group, now)
                self._table.weigh(due.group)
        return self._table.take()

    def resume(self, away_ms: int, now: Now) -> None:
        """No member could be heard for so long, by no fault of theirs: sessions begin again, and
        whatever else has a deadline has as much longer.
        """
        self._table.deadlines.put_off(away_ms)
        self._begin_sessions(now)

    def streams_changed(self, ids: Mapping[str, UUID | None]) -> list[Effect]:
        """Streams of these names have these ids now; None: there are none. What was committed of
        others by these names is forgotten.
        """
        self._commits.streams_changed(ids)
        return self._table.take()

    def only_streams(self, ids: Mapping[str, UUID]) -> list[Effect]:
        """These are all the streams there are."""
        self._commits.only_streams(ids)
        return self._table.take()

    def close(self) -> list[Effect]:
        """Another coordinates now."""
        error = ErrorCode.not_coordinator
        for token, what in self._table.waiting():
            self._table.answer(token, Joined(error) if what == "join" else SyncedMember(error))
        self._table.groups.clear()
        return self._table.take()

    # What is counted

    def groups(self) -> Iterable[Group]:
        """As they are just now: to be looked at, and not kept."""
        return self._table.groups.values()

    def states(self) -> Counter[str]:
        """How many groups are in each state."""
        return self._table.states()

    @property
    def offsets_count(self) -> int:
        """Committed, or about to be."""
        return self._table.offsets_count

    @property
    def rebalances(self) -> int:
        """Generations begun."""
        return self._table.rebalances

    @property
    def commits(self) -> int:
        """Offsets committed."""
        return self._table.commits

    @property
    def expired(self) -> int:
        """Offsets dropped because no member had wanted them for too long."""
        return self._table.expired

    def _begin_sessions(self, now: Now) -> None:
        for group in self._table.groups.values():
            for member in group.members.values():
                self._rebalance.keep_alive(group, member, now)
            self._of(group).begin_sessions(group, now)

    def _consumer_act(self, due: Due, group: Group, now: Now) -> None:
        membership = self._of(group)
        match due.what:
            case "session" | "rejoin":
                step = membership.gone(group, due.member)
            case "revoke":
                step = membership.unrevoked(group, due.member)
            case "regex":
                step = None
                membership.rematch(group)
            case "refresh":
                step = None
                membership.refresh(group, now)
            case _:
                return
        if step is not None:
            membership.finish(step, now)

    def _of(self, group: Group) -> ConsumerMembership:
        """Who deals with members of groups of its kind."""
        return self._shares if _is_share(group) else self._consumers

    def _act(self, due: Due, group: Group, now: Now) -> None:
        if group.consumer is not None:
            self._consumer_act(due, group, now)
            return
        match due.what:
            case "session":
                self._membership.session_over(group, due.member, now)
            case "pending":
                self._membership.never_joined(group, due.member, now)
            case "join":
                self._rebalance.delayed(group, now)
            case "sync":
                self._rebalance.unsynced(group, now)


def _is_share(group: Group | None) -> bool:
    return group is not None and isinstance(group.consumer, ShareGroup)
