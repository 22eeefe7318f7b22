"""Batches of the metadata log on top of an image, told as events. Pure."""

from collections.abc import Iterable, Iterator
from functools import partial

from streamlog.activity.events import ActivityEvent, event_of
from streamlog.metadata.image.metadata_delta import MetadataDelta
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataRecord
from streamlog.metadata.quorum.store import StoredBatch


class EventBuilder:
    """``image`` is all that was read; events begin at ``first``, which may be past its offset.

    ``log_id``: of the metadata log that is read. Its first records come before its name.
    """

    def __init__(self, image: MetadataImage, first: int, log_id: str | None) -> None:
        self.image = image
        self._first = first
        self._log_id = log_id

    def tell(self, batches: Iterable[StoredBatch]) -> list[ActivityEvent]:
        """One event for each record, in order. The first batch begins where ``image`` ends."""
        events: list[ActivityEvent] = []
        for batch in batches:
            self.image = self.image.apply_all(
                batch.records,
                offset=batch.base_offset,
                epoch=batch.epoch,
                told=partial(self._tell_one, events, batch),
            )
        return events

    def rest(self, image: MetadataImage) -> None:
        """All was read: from now on ``image``, which is equal, is the one that is held, so that it
        is not there twice.
        """
        if image.offset == self.image.offset:
            self.image = image

    def _tell_one(
        self,
        events: list[ActivityEvent],
        batch: StoredBatch,
        record: MetadataRecord,
        offset: int,
        before: MetadataDelta,
    ) -> None:
        if offset >= self._first:
            events.append(
                event_of(
                    record,
                    before,
                    log_id=self._log_id,
                    offset=offset,
                    epoch=batch.epoch,
                    time_ms=batch.time_ms,
                )
            )


def runs(events: Iterable[ActivityEvent], bytes_max: int) -> Iterator[list[ActivityEvent]]:
    """As many at once as fit; a larger one by itself."""
    run: list[ActivityEvent] = []
    size = 0
    for event in events:
        if run and size + len(event.value) > bytes_max:
            yield run
            run, size = [], 0
        run.append(event)
        size += len(event.value)
    if run:
        yield run
