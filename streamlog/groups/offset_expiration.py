"""Offset expiration: committed offsets that no member wants any more are dropped after
``offsets_retention_ms`` (KIP-211, KIP-496). Pure.
"""

from typing import Final

from streamlog.coordination.effects import NONE, Now
from streamlog.groups.group import Group, State
from streamlog.groups.group_table import GroupTable
from streamlog.groups.offset_commits import Commits
from streamlog.groups.requests import PartitionId
from streamlog.groups.shares.share_group import ShareGroup
from streamlog.wire.error_codes import ErrorCode

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
