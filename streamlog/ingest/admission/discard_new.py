"""What of a run there is no room for, in a stream with ``discard=new``."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Final

from streamlog.errors import StreamlogError
from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.ingest.admission.rollups import ALL
from streamlog.ingest.admission.subject_sequences import SubjectSequences
from streamlog.metadata.stream.setting_type import NO_LIMIT
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.partition.deletes.discard_new import (
    NO_MORE_BYTES,
    NO_MORE_MESSAGES,
    RoomLeft,
    room_left,
)
from streamlog.partition.partition import Partition
from streamlog.record.batch import HEADER_BYTES
from streamlog.record.codec import RecordRun, record_sizes
from streamlog.record.compiled.subjects import is_pattern, matches

NOT_COUNTED: Final = PublishRefusal(
    503, 10008, "the messages of each subject are not counted yet; ask again", "not_ready"
)
TOO_MANY: Final = PublishRefusal(503, 10077, NO_MORE_MESSAGES, "limit")
TOO_MANY_BYTES: Final = PublishRefusal(503, 10077, NO_MORE_BYTES, "limit")
TOO_MANY_OF_SUBJECT: Final = PublishRefusal(
    503, 10077, "maximum messages per subject exceeded", "limit"
)


class SubjectCounts:
    """Of a stream with ``discard=new``; the order of the checks is JetStream's."""

    def __init__(
        self, config: StreamConfig, room: RoomLeft, of_subject: Mapping[bytes, int]
    ) -> None:
        """``of_subject``: how many messages each subject has, as far as that matters."""
        self._config = config
        self._limit = config.max_messages_per_subject
        self._messages, self._size_bytes = room
        self._of_subject = Counter(of_subject)

    def objection(
        self, subject: bytes | None, size_bytes: int, rollup: bytes
    ) -> PublishRefusal | None:
        """Who takes the place of another of its subject, which has as many as it may, needs none of
        its own; so does a rollup, where others would be refused.
        """
        replaces = self._is_full(subject)
        if replaces and self._config.discard_new_per_subject and not rollup:
            return TOO_MANY_OF_SUBJECT
        if self._messages <= 0 and not replaces:
            return TOO_MANY
        return TOO_MANY_BYTES if size_bytes > self._size_bytes else None

    def take(self, subject: bytes | None, size_bytes: int, rollup: bytes) -> None:
        """It is stored, and has others go at once."""
        self._size_bytes -= size_bytes
        if rollup == ALL:
            self._of_subject.clear()
            if self._config.retention_messages != NO_LIMIT:
                self._messages = self._config.retention_messages
        elif rollup and subject is not None:
            known = list(self._of_subject) if is_pattern(subject) else [subject]
            for it in known:
                if it == subject or matches(subject, it):
                    self._messages += self._of_subject.pop(it, 0)
        elif self._is_full(subject):
            return
        self._messages -= 1
        if subject is not None:
            self._of_subject[subject] += 1

    def _is_full(self, subject: bytes | None) -> bool:
        return subject is not None and 0 < self._limit <= self._of_subject[subject]


class DiscardNew:
    """Of one partition: what is there, and what was appended and is not committed yet."""

    def __init__(self, partition: Partition, sequences: SubjectSequences) -> None:
        self._partition = partition
        self._sequences = sequences

    def refused(
        self, run: RecordRun, rollups: Mapping[int, bytes], batched: Container[int]
    ) -> dict[int, PublishRefusal]:
        """By position, each as if those before it had been stored that are not refused.

        ``rollups``: those that have others go, ``sub`` or ``all``; ``batched``: those of batches,
        for all of which there was room.
        """
        room, config = self._room(run.count), self._partition.config
        fits = run.count <= room.messages
        size_bytes = HEADER_BYTES + run.size_bytes
        per_subject = config.discard_new_per_subject
        if not per_subject and fits and size_bytes <= room.size_bytes:
            return {}
        subjects: Sequence[bytes | None] = [None] * run.count
        there: Mapping[bytes, int] = {}
        if per_subject or (not fits and (config.max_messages_per_subject > 0 or rollups)):
            counted = self._sequences.counts()
            if counted is None:
                return dict.fromkeys(range(run.count), NOT_COUNTED)
            subjects, there = counted
        tally = SubjectCounts(
            config, room._replace(size_bytes=room.size_bytes - HEADER_BYTES), there
        )
        refused: dict[int, PublishRefusal] = {}
        for position, size in enumerate(record_sizes(run.body_from(0))):
            subject, rollup = subjects[position], rollups.get(position, b"")
            refusal = None
            if position not in batched:
                refusal = tally.objection(subject, size, rollup)
            if refusal is not None:
                refused[position] = refusal
            else:
                tally.take(subject, size, rollup)
        return refused

    def objection(
        self, run: RecordRun, subjects: Sequence[bytes], size_bytes: int
    ) -> PublishRefusal | None:
        """To a batch of messages of these subjects after the run: all are stored, or none."""
        room, config = self._room(run.count + len(subjects)), self._partition.config
        if run.count + len(subjects) > room.messages:
            return TOO_MANY
        if HEADER_BYTES + run.size_bytes + size_bytes > room.size_bytes:
            return TOO_MANY_BYTES
        if not config.discard_new_per_subject:
            return None
        for subject, count in Counter(subjects).items():
            there = self._sequences.count(subject)
            if there is None:
                return NOT_COUNTED
            if there + count > config.max_messages_per_subject:
                return TOO_MANY_OF_SUBJECT
        return None

    def _room(self, messages: int) -> RoomLeft:
        """What there is, or will be as soon as what is to give way has been found."""
        room, config = room_left(self._partition), self._partition.config
        keeps_newest = config.max_messages_per_subject > 0 and not config.discard_new_per_subject
        if messages > room.messages and keeps_newest:
            with suppress(StreamlogError):
                self._partition.surplus.find()
            room = room_left(self._partition)
        return room
