"""What is there while the messages of a run are judged one after the other. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.ingest.admission.rollup import ALL
from streamlog.metadata.stream.config import NO_LIMIT, StreamConfig
from streamlog.partition.deletes.discard_new import NO_MORE_BYTES, NO_MORE_MESSAGES, RoomLeft

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
            self._messages += self._of_subject.pop(subject, 0)
        elif self._is_full(subject):
            return
        self._messages -= 1
        if subject is not None:
            self._of_subject[subject] += 1

    def _is_full(self, subject: bytes | None) -> bool:
        return subject is not None and 0 < self._limit <= self._of_subject[subject]
