"""Committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups, expiration, lag. Pure.

An offset counts when it is in the log, and so committed there; until then the one before it does. One of a
transaction counts once that is committed. Writes are told of in the order in which they were asked for, so that
what a later one says holds. Offsets that no member wants any more are dropped after ``offsets_retention_ms``
(KIP-211, KIP-496).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from streamlog.coordination.effects import NONE, KeptRecord, Now, TransactionPart
from streamlog.groups.consumer_group import ConsumerGroup
from streamlog.groups.group import CONSUMER, Group, PendingOffset, State, refusal
from streamlog.groups.group_table import GroupTable
from streamlog.groups.membership.classic_membership import Rebalance
from streamlog.groups.records import (
    NO_TOPIC_ID,
    CommittedOffset,
    OffsetKey,
    group_record,
    offset_record,
)
from streamlog.groups.requests import (
    CommitRequest,
    FoundOffset,
    GroupCaller,
    OffsetToCommit,
    PartitionId,
)
from streamlog.groups.shares.share_group import ShareGroup
from streamlog.wire.error_codes import ErrorCode

Outcome = dict[PartitionId, ErrorCode]
ANONYMOUS: Final = GroupCaller("")
"""A client that does not say that it is a member."""
NOTHING: Final = FoundOffset(None)


class Commits:
    """The part of a coordinator that keeps offsets."""

    def __init__(self, table: GroupTable, rebalance: Rebalance) -> None:
        self._table = table
        self._rebalance = rebalance

    # OffsetCommit

    def commit(
        self,
        request: CommitRequest,
        token: object,
        now: Now,
        transaction: TransactionPart | None = None,
    ) -> None:
        """``token`` is answered with an ``Outcome``, when what is kept of it is in the log. ``transaction``: what
        counts once that is committed.
        """
        table = self._table
        group = table.groups.get(request.group)
        error = self._may_commit(group, request, is_in_transaction=transaction is not None)
        if group is None and error is NONE:
            if table.may_add_group():
                group = table.add(request.group, now)
            else:
                error = ErrorCode.policy_violation
        if group is None or error is not NONE:
            table.answer(token, dict.fromkeys(request.offsets, error))
            return
        if request.caller.member_id in group.members and group.state is not State.EMPTY:
            self._rebalance.keep_alive(group, group.members[request.caller.member_id], now)
        outcome, accepted = self._accept(group, request, now)
        if not accepted:
            table.answer(token, outcome)
            self._drop_if_idle(group)
            return
        for place, value in accepted.items():
            group.writing.setdefault(place, deque()).append(value.topic_id)
        table.offsets_count += len(accepted)
        self._write(group, accepted, outcome, token, transaction)

    def _may_commit(
        self, group: Group | None, request: CommitRequest, *, is_in_transaction: bool
    ) -> ErrorCode:
        """A client that keeps offsets without being a member may do so while there are none; in a transaction, a client
        that does not say that it is one may at any time: older producers do not know what to say.
        """
        caller = request.caller
        is_anonymous = caller.generation < 0
        if group is None:
            return NONE if is_anonymous else ErrorCode.illegal_generation
        if group.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if is_anonymous and group.is_empty:
            return NONE
        if is_in_transaction and caller == ANONYMOUS:
            return NONE
        if group.consumer is not None:
            return _standing(group.consumer, request)
        error = refusal(group, caller)
        if error is NONE and caller.generation != group.generation:
            error = ErrorCode.illegal_generation
        if error is NONE and group.state is State.COMPLETING and not is_in_transaction:
            error = ErrorCode.rebalance_in_progress
        return error

    def _accept(
        self, group: Group, request: CommitRequest, now: Now
    ) -> tuple[Outcome, dict[PartitionId, CommittedOffset]]:
        settings, room = self._table.settings, self._table.settings.offsets_max
        room -= self._table.offsets_count
        outcome: Outcome = {}
        accepted: dict[PartitionId, CommittedOffset] = {}
        for place, wanted in request.offsets.items():
            outcome[place] = NONE
            if len(wanted.metadata.encode()) > settings.offset_metadata_bytes_max:
                outcome[place] = ErrorCode.offset_metadata_too_large
            elif len(accepted) >= room and place not in group.offsets:
                outcome[place] = ErrorCode.policy_violation
            else:
                accepted[place] = _committed(wanted, request.retention_ms, now)
        return outcome, accepted

    def _write(
        self,
        group: Group,
        accepted: Mapping[PartitionId, CommittedOffset],
        outcome: Outcome,
        token: object,
        transaction: TransactionPart | None,
    ) -> None:
        table = self._table

        def written(error: ErrorCode, _now: Now) -> None:
            for place, value in accepted.items():
                _settle(group, place)
                if error is not NONE or not table.has(group):
                    table.offsets_count -= 1
                elif transaction is None:
                    self._count(group, place, value, table.order)
                else:
                    self._keep_pending(group, place, value, transaction.producer_id)
            if error is NONE:
                table.commits += len(accepted)
                table.answer(token, outcome)
            else:
                refused = dict.fromkeys(accepted, error)
                table.answer(token, {**outcome, **refused})
            self._drop_if_idle(group)

        records = [
            offset_record(OffsetKey(group.name, *place), value) for place, value in accepted.items()
        ]
        table.write(records, written, transaction)

    def _count(self, group: Group, place: PartitionId, value: CommittedOffset, order: int) -> None:
        """It is one of ``offsets_count``, and counts from now on."""
        table = self._table
        if place in group.offsets:
            table.offsets_count -= 1
        group.offsets[place] = value
        table.offsets_count -= group.transactional.supersede(place, order)

    def _keep_pending(
        self, group: Group, place: PartitionId, value: CommittedOffset, producer_id: int
    ) -> None:
        table = self._table
        pending = PendingOffset(value, table.order)
        if not group.transactional.add(producer_id, place, pending):
            table.offsets_count -= 1
        table.in_transactions[producer_id].add(group.name)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The end of the producer's transaction is in the log: its offsets count, or are forgotten."""
        table = self._table
        for name in table.in_transactions.pop(producer_id, ()):
            group = table.groups.get(name)
            if group is None:
                continue
            ended = group.transactional.take(producer_id)
            if commit:
                for place, it in ended.items():
                    self._count(group, place, it.value, it.order)
                table.commits += len(ended)
            else:
                table.offsets_count -= len(ended)
                self._drop_if_idle(group)

    # OffsetFetch

    def fetch(
        self, name: str, places: Iterable[PartitionId] | None, *, stable: bool
    ) -> dict[PartitionId, FoundOffset]:
        """``places`` None: all there are. ``stable``: nothing that is about to be another."""
        group = self._table.groups.get(name)
        if group is None:
            return dict.fromkeys(places or (), NOTHING)
        wanted = [*group.offsets] if places is None else places
        return {place: _found(group, place, stable=stable) for place in wanted}

    # OffsetDelete, DeleteGroups

    def delete_offsets(
        self, name: str, places: Iterable[PartitionId], token: object, now: Now
    ) -> None:
        """``token`` is answered with an error, or an ``Outcome``: what its members subscribe to
        is not theirs to lose.
        """
        group = self._table.groups.get(name)
        if group is None or group.state is State.DEAD:
            self._table.answer(token, ErrorCode.group_id_not_found)
            return
        subscribed: frozenset[str] | None = frozenset()
        if not group.is_empty:
            subscribed = group.subscribed()
            if group.shown_protocol_type != CONSUMER:
                self._table.answer(token, ErrorCode.non_empty_group)
                return
        taken = ErrorCode.group_subscribed_to_topic
        outcome: Outcome = {
            place: taken if subscribed is None or place[0] in subscribed else NONE
            for place in places
        }
        gone = [place for place, error in outcome.items() if error is NONE]

        def done(error: ErrorCode) -> None:
            told = {it: error if code is NONE else code for it, code in outcome.items()}
            self._table.answer(token, told)

        self.forget(group, gone, done)

    def delete_group(self, name: str, token: object, now: Now) -> None:
        """``token`` is answered with an error code."""
        group = self._table.groups.get(name)
        if group is None or group.state is State.DEAD:
            self._table.answer(token, ErrorCode.group_id_not_found)
        elif not group.is_empty or group.pending:
            self._table.answer(token, ErrorCode.non_empty_group)
        else:
            self.end_group(group, lambda error: self._table.answer(token, error), now)

    def end_group(self, group: Group, done: Callable[[ErrorCode], None], now: Now) -> None:
        """Nothing is to be left of it, in the log either."""
        before_ms = group.state_ms
        group.move(State.DEAD, now.wall_ms)
        records = [*_tombstones(group, _places(group)), group_record(group.name, None)]
        if group.consumer is not None:
            records += map(group.consumer.record, group.consumer.tombstones())

        def ended(error: ErrorCode, _now: Now) -> None:
            if error is NONE:
                self._table.drop(group)
            else:
                group.move(State.EMPTY, before_ms)
            done(error)

        self._table.write(records, ended)

    def forget(
        self, group: Group, places: Iterable[PartitionId], done: Callable[[ErrorCode], None]
    ) -> None:
        """These offsets, be they committed or about to be."""
        gone = [
            place
            for place in places
            if place in group.offsets or place in group.writing or place in group.transactional
        ]
        if not gone:
            done(NONE)
            return

        def forgotten(error: ErrorCode, _now: Now) -> None:
            if error is NONE:
                for place in gone:
                    dropped = group.transactional.supersede(place, self._table.order)
                    dropped += group.offsets.pop(place, None) is not None
                    if self._table.has(group):
                        self._table.offsets_count -= dropped
            done(error)

        self._table.write(_tombstones(group, gone), forgotten)

    # Streams that are gone

    def streams_changed(self, ids: Mapping[str, UUID | None]) -> None:
        """Streams of these names have these ids now, or are gone (None): offsets of others go."""
        for group in tuple(self._table.groups.values()):
            gone = [
                place
                for place in _places(group)
                if place[0] in ids and _is_any_of_another(group, place, ids[place[0]])
            ]
            self.forget(group, gone, _nothing)

    def only_streams(self, ids: Mapping[str, UUID]) -> None:
        """These are all the streams there are: offsets of others go."""
        topics = {place[0] for group in self._table.groups.values() for place in group.offsets}
        self.streams_changed({topic: ids.get(topic) for topic in topics})

    def _drop_if_idle(self, group: Group) -> None:
        """One that only was to keep offsets, and keeps none."""
        if group.is_idle and group.generation == 0:
            self._table.drop(group)


def _standing(consumer: ConsumerGroup, request: CommitRequest) -> ErrorCode:
    """Why the caller is no member with the present epoch."""
    caller = request.caller
    error = refusal(consumer, caller)
    if error is not NONE:
        return error
    member = consumer.members[caller.member_id]
    if member.classic is None and not request.knows_epochs:
        return ErrorCode.unsupported_version
    epoch = consumer.assignment(caller.member_id).epoch
    if caller.generation != epoch:
        return ErrorCode.illegal_generation if member.classic else ErrorCode.stale_member_epoch
    return NONE


def _committed(wanted: OffsetToCommit, retention_ms: int, now: Now) -> CommittedOffset:
    expire_ms = None if retention_ms < 0 else now.wall_ms + retention_ms
    return CommittedOffset(
        wanted.offset, wanted.leader_epoch, wanted.metadata, now.wall_ms, expire_ms,
        wanted.topic_id,
    )  # fmt: skip


def _found(group: Group, place: PartitionId, *, stable: bool) -> FoundOffset:
    if stable and (place in group.writing or place in group.transactional):
        return FoundOffset(None, ErrorCode.unstable_offset_commit)
    return FoundOffset(group.offsets.get(place))


def _settle(group: Group, place: PartitionId) -> None:
    group.writing[place].popleft()
    if not group.writing[place]:
        del group.writing[place]


def _places(group: Group) -> list[PartitionId]:
    return [*{**group.offsets, **group.writing, **dict.fromkeys(group.transactional.places)}]


def _tombstones(group: Group, places: Iterable[PartitionId]) -> list[KeptRecord]:
    return [offset_record(OffsetKey(group.name, *place), None) for place in places]


def _is_any_of_another(group: Group, place: PartitionId, stream_id: UUID | None) -> bool:
    """What is committed, or on its way, is not of the stream with this id. What does not tell is of
    whatever has the name.
    """
    if stream_id is None:
        return True
    committed, known = group.offsets.get(place), (NO_TOPIC_ID, stream_id)
    is_other = committed is not None and committed.topic_id not in known
    return is_other or any(it not in known for it in group.writing.get(place, ()))


def _nothing(_error: ErrorCode) -> None:
    """No request asked for it; it is done again later."""


LOOKED_AT_ONCE: Final = 2_000
"""Groups and offsets, before others have a turn of the event loop."""


class OffsetExpiration:
    """Looks at all groups, a part of them at a time."""

    def __init__(self, table: GroupTable, commits: Commits) -> None:
        self._table = table
        self._commits = commits
        self._unchecked: list[str] = []
        """Groups at whose offsets the present look has yet to come."""

    def expire(self, now: Now) -> bool:
        """Drop offsets that no member wants any more, and groups that have nothing left.

        A part of them at a time; whether that was the last part.
        """
        if not self._unchecked:
            self._unchecked.extend(self._table.groups)
        looked_at = 0
        while self._unchecked and looked_at < LOOKED_AT_ONCE:
            group = self._table.groups.get(self._unchecked.pop())
            if group is not None:
                looked_at += 1 + len(group.offsets)
                self._expire(group, now)
        return not self._unchecked

    def _expire(self, group: Group, now: Now) -> None:
        gone = [place for place in group.offsets if self._is_expired(group, place, now)]

        def done(error: ErrorCode) -> None:
            if error is NONE:
                self._table.expired += len(gone)

        if isinstance(group.consumer, ShareGroup):
            return  # what it has done with stays known until an administrator deletes it, as in Kafka
        if group.is_empty and len(gone) == len(group.offsets):
            if not (group.writing or group.pending or group.transactional):
                self._commits.end_group(group, done, now)
        elif gone:
            self._commits.forget(group, gone, done)

    def _is_expired(self, group: Group, place: PartitionId, now: Now) -> bool:
        """Kafka's rules (KIP-211, KIP-496). A group that has members keeps what they consume; one
        that lost them, all, for as long again; without members ever, each offset goes by its age.
        """
        if place in group.writing or place in group.transactional:
            return False
        committed = group.offsets[place]
        if group.is_empty:
            since_ms = committed.commit_ms
            if group.shown_protocol_type:
                since_ms = max(since_ms, group.state_ms)
        elif group.state is State.STABLE or group.consumer is not None:
            subscribed = group.subscribed()
            if subscribed is None or place[0] in subscribed:
                return False
            since_ms = committed.commit_ms
        else:
            return False
        if committed.expire_ms is not None:
            return now.wall_ms >= committed.expire_ms
        since_ms = max(since_ms, self._table.since_ms)
        return now.wall_ms - since_ms >= self._table.settings.offsets_retention_ms


def consumer_lag(end_offset: int, committed_offset: int) -> int:
    """The committed records of a partition that a consumer group has yet to read. ``end_offset``: the
    high watermark, which may have been asked for before the offset was committed.
    """
    return max(0, end_offset - committed_offset)
