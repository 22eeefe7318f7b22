"""What the controller answers with, and how much of it is logged at once. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streamlog.metadata.image.records import (
    MetadataRecord,
    PartitionChanged,
    StreamCreated,
    StreamUpdated,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Records to be logged in this order; none where the image already says what was asked for.

    They hold for the image they were decided on and no other: all of them are logged before
    anything else is decided.
    """

    records: tuple[MetadataRecord, ...] = ()
    result: dict[str, Any] = field(default_factory=dict)
    """For the one who asked: JSON."""
    unfinished: bool = False
    """A portion: the same is to be decided again, on the image with these records. Others have their
    turn in between."""

    @property
    def changes(self) -> bool:
        return bool(self.records)


def batches(decision: Decision, records_max: int) -> Iterator[tuple[MetadataRecord, ...]]:
    """The records in portions of at most ``records_max``, but a stream's change stays whole.

    A batch is logged as a whole or not at all, so a stream is never seen with some of the
    partitions that it was created with. All other decisions are made so that a crash between two
    batches leaves a cluster that asks for the rest again: what is noted of a node comes last.
    """
    batch: list[MetadataRecord] = []
    whole: str | None = None  # the stream whose change must not be cut
    for record in decision.records:
        if not (isinstance(record, PartitionChanged) and record.stream == whole):
            whole = None
        if len(batch) >= records_max and whole is None:
            yield tuple(batch)
            batch.clear()
        if isinstance(record, StreamCreated | StreamUpdated):
            whole = record.config.name
        batch.append(record)
    if batch:
        yield tuple(batch)
