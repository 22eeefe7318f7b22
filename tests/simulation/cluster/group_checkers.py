"""What consumer groups promise, whatever happens: goes through ``__consumer_offsets`` record by record, as it is
committed.

A partition has one owner at most, and only its owner, in its present epoch, commits. So committed offsets never go
back.
"""

from collections.abc import Iterable
from typing import NamedTuple

from streamlog.groups.records import (
    CurrentAssignment,
    CurrentKey,
    GroupEpochKey,
    GroupKey,
    KeptGroup,
    OffsetKey,
    TargetEpochKey,
    read_consumer_group_key,
    read_consumer_group_value,
    read_group,
    read_key,
    read_offset,
)
from streamlog.log.log import PartitionLog
from streamlog.model import TopicPartition
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.wire.consumer_protocol import read_assignment
from tests.simulation.checkers import Violation
from tests.simulation.cluster.group_members import Mark

READ_BYTES = 1 << 20


class Commit(NamedTuple):
    """As it is in the log."""

    mark: Mark
    offset: int


class GroupLog:
    """One group, as the log of its coordinator has it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.commits: dict[TopicPartition, list[Commit]] = {}
        self.current: dict[str, CurrentAssignment] = {}
        """By member, of the consumer protocol."""
        self.classic: KeptGroup | None = None
        self.target_epoch = 0
        self.doubtful: set[Mark] = set()
        """Commits of which the member was told nothing: they may come late, and before others that it was told of."""
        self._ids: dict[str, str] = {}

    # What is committed

    def take(self, key: bytes, value: bytes | None) -> None:
        read = read_key(key)
        if isinstance(read, GroupKey):
            self.classic = None if value is None else read_group(value)
        elif isinstance(read, OffsetKey):
            if value is None:
                raise Violation(f"{self.name}: the offset of {read} is forgotten")
            found = read_offset(value)
            tp = TopicPartition(read.topic, read.partition)
            self._commits(tp, Commit(Mark.read(found.metadata), found.offset))
        else:
            self._take_consumer(key, value)

    def _take_consumer(self, key: bytes, value: bytes | None) -> None:
        read = read_consumer_group_key(key)
        if read is None:
            return
        found = None if value is None else read_consumer_group_value(read, value)
        if isinstance(read, CurrentKey):
            self.current.pop(read.member_id, None)
            if isinstance(found, CurrentAssignment):
                self.current[read.member_id] = found
                self._look_at_owners(read.member_id, found)
        elif isinstance(read, TargetEpochKey):
            self.target_epoch = found if isinstance(found, int) else 0
        elif isinstance(read, GroupEpochKey) and found is None:
            self.current.clear()

    def _look_at_owners(self, member_id: str, current: CurrentAssignment) -> None:
        for other, known in self.current.items():
            both = (known.assigned | known.revoking) & (current.assigned | current.revoking)
            if other != member_id and both:
                numbers = sorted(number for _, number in both)
                raise Violation(f"{self.name}: {numbers} belong to {member_id}, and to {other}")

    def _commits(self, tp: TopicPartition, commit: Commit) -> None:
        mark = commit.mark
        epoch, owned = self._standing(mark.member_id)
        if epoch != mark.epoch or tp.partition not in owned:
            raise Violation(
                f"{self.name}: {tp} is committed at {commit.offset} by {mark}, a member of epoch {epoch} that has"
                f" {sorted(owned)}"
            )
        known = self.commits.setdefault(tp, [])
        if known and known[-1].offset > commit.offset and mark not in self.doubtful:
            raise Violation(f"{self.name}: {tp} goes back from {known[-1]} to {commit}")
        known.append(commit)

    def _standing(self, member_id: str) -> tuple[int, set[int]]:
        """The epoch of the member, and the partitions that it has."""
        current = self.current.get(member_id)
        if current is not None:
            return current.epoch, {number for _, number in current.assigned | current.revoking}
        members = () if self.classic is None else self.classic.members
        for it in members:
            if it.member_id == member_id and self.classic is not None:
                owned = {tp.partition for tp in read_assignment(it.assignment)}
                return self.classic.generation, owned
        return -1, set()

    # What clients see

    def was_told(self, tp: TopicPartition, commit: Commit) -> None:
        """The member was told that it is committed."""
        if commit not in self.commits.get(tp, ()):
            raise Violation(f"{self.name}: {tp}: {commit} is acknowledged, and is not there")

    def place_of_newest(self, tp: TopicPartition) -> int:
        """How many were committed by now."""
        return len(self.commits.get(tp, ()))

    def look_at_found(self, tp: TopicPartition, offset: int, since: int) -> None:
        """OffsetFetch finds that, asked when so many were committed."""
        known = [-1, *(it.offset for it in self.commits.get(tp, ()))][since:]
        if (offset or -1) not in known and offset not in known:
            raise Violation(
                f"{self.name}: {tp} is found at {offset}; since it was asked it was at {known}"
            )

    def offset_of(self, tp: TopicPartition) -> int:
        known = self.commits.get(tp)
        return known[-1].offset if known else 0

    def owners(self) -> dict[str, set[int]]:
        """Of all members, what they have; nothing is being moved if ``is_settled``."""
        if self.current:
            return {
                member_id: {number for _, number in it.assigned}
                for member_id, it in self.current.items()
            }
        members = () if self.classic is None else self.classic.members
        return {
            it.member_id: {tp.partition for tp in read_assignment(it.assignment)} for it in members
        }

    @property
    def is_settled(self) -> bool:
        return all(
            it.epoch == self.target_epoch and not it.revoking for it in self.current.values()
        )


class GroupLogs:
    """All groups of all partitions of ``__consumer_offsets``."""

    def __init__(self, names: Iterable[str]) -> None:
        self.of = {name: GroupLog(name) for name in names}

    def take_in(self, log: PartitionLog, start: int, end: int) -> None:
        """``log`` has what is committed between the two."""
        offset = start
        while offset < end:
            with log.read(offset, READ_BYTES, log.log_end_offset) as piece:
                data = piece.read()
            for header, batch in batches(memoryview(data)):
                for record in iter_records(batch):
                    if start <= record.offset < end:
                        self._take(bytes(record.key or b""), record.value)
                offset = header.next_offset

    def _take(self, key: bytes, value: bytes | None) -> None:
        read = read_key(key) or read_consumer_group_key(key)
        if read is not None and read.group in self.of:
            self.of[read.group].take(key, None if value is None else bytes(value))
