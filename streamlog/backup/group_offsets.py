"""Consumer groups in a backup, and what they are in a cluster that is made of it. Pure.

Offsets and records are copied one after the other, and a take may end between the two. So a group
may have committed an offset that lies above the end of the records in the backup. In a cluster made
of it that offset is given to a new record, which the group would skip.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.backup.manifest import StreamBackup
from streamlog.coordination.effects import KeptRecord
from streamlog.groups.group import Group
from streamlog.groups.records import (
    NO_TOPIC_ID,
    CommittedOffset,
    KeptGroup,
    OffsetKey,
    group_record,
    offset_record,
)

GENERATIONS_APART: Final = 1_000_000
"""Between the last generation of a group in the backup and the first one after a restore."""
_UNKNOWN_EPOCH: Final = -1


class TooFar(NamedTuple):
    """A committed offset that is above the end of the records."""

    key: OffsetKey
    committed: CommittedOffset
    end_offset: int

    def __str__(self) -> str:
        return (
            f"group {self.key.group!r} has committed offset {self.committed.offset} of"
            f" {self.key.topic}/{self.key.partition}, of which the backup has records up to"
            f" {self.end_offset}"
        )


class Ends:
    """Where the records of each partition end, by the stream's name."""

    def __init__(self, streams: Iterable[StreamBackup], *, absent_end: int | None = None) -> None:
        """``absent_end``: of the partitions that a stream does not have; None: it is not known."""
        self._absent_end = absent_end
        self._streams: dict[str, tuple[UUID, Mapping[int, int]]] = {
            it.name: (it.stream_id, {part.number: part.next_offset for part in it.partitions})
            for it in streams
        }

    def of(self, key: OffsetKey, committed: CommittedOffset) -> int | None:
        """None: the offset is not of a stream that is here; its coordinator forgets it."""
        if key.topic not in self._streams:
            return None
        stream_id, ends = self._streams[key.topic]
        if committed.topic_id not in (NO_TOPIC_ID, stream_id):
            return None
        return ends.get(key.partition, self._absent_end)


def too_far(groups: Iterable[Group], ends: Ends) -> Iterator[TooFar]:
    for group in groups:
        for place, committed in sorted(group.offsets.items()):
            key = OffsetKey(group.name, *place)
            end_offset = ends.of(key, committed)
            if end_offset is not None and committed.offset > end_offset:
                yield TooFar(key, committed, end_offset)


def restored(groups: Iterable[Group], ends: Ends) -> Iterator[KeptRecord]:
    """To be written behind what a partition of ``__consumer_offsets`` has, the last record of each
    key being the one that holds.

    No group has members: those of before may have read, and may commit, what is lost. They are told
    that they are not known, join again, and go on from what is committed here.
    """
    groups = sorted(groups, key=lambda group: group.name)
    for group in groups:
        if group.protocol_type is not None or group.generation:
            yield group_record(group.name, _without_members(group))
    for it in too_far(groups, ends):
        lowered = it.committed._replace(offset=it.end_offset, leader_epoch=_UNKNOWN_EPOCH)
        yield offset_record(it.key, lowered)


def _without_members(group: Group) -> KeptGroup:
    generation = group.generation + GENERATIONS_APART
    return KeptGroup(group.protocol_type or "", generation, None, None, group.state_ms, ())
