from collections.abc import ItemsView
from typing import Final

from streamlog.errors import UnknownProducer
from streamlog.record.batch import BatchHeader
from streamlog.record.transaction_marker import NO_SEQUENCE, VERSION_2, TransactionMarker
from streamlog.replication.producer_state import KeptBatch, ProducerState, following

PRODUCERS_MAX: Final = 10_000
"""Of one partition; above it those are forgotten that have not written for longest."""


class ProducerTable:
    """The producers of one partition, those first that have not written for longest.

    One that is not known may begin with any sequence, as in Kafka: it may have been forgotten, or
    its records deleted (KAFKA-7190). But one whose id is of another metadata log must begin: what
    it wrote may be lost, and it would go on behind a gap that it is not told of.
    """

    __slots__ = ("_producers", "_producers_max", "expiration_ms")

    def __init__(self, *, expiration_ms: int, producers_max: int = PRODUCERS_MAX) -> None:
        self.expiration_ms = expiration_ms
        self._producers_max = producers_max
        self._producers: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def check_sequence(self, header: BatchHeader, *, first_id: int = 0) -> KeptBatch | None:
        """The batch in the log that this one repeats; None: it may be appended. ``first_id``: the
        lowest that this metadata log gives.

        Raises InvalidProducerEpoch, OutOfOrderSequence, UnknownProducer.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if header.producer_id < first_id and header.base_sequence > 0:
                raise UnknownProducer(
                    f"sequence {header.base_sequence} of producer {header.producer_id}, which"
                    " another cluster has numbered, and of which no record is here"
                )
            return None
        return producer.check_sequence(
            header.producer_epoch, header.base_sequence, header.record_count
        )

    def note(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """The batch is in the log, at ``base_offset``; whether it should be is not asked."""
        producer = self._producers.pop(header.producer_id, None)
        if producer is None:
            producer = ProducerState(header.producer_epoch, base_offset, now_ms)
        next_offset = base_offset + header.last_offset_delta + 1
        if header.base_sequence == NO_SEQUENCE:
            producer.note_unnumbered(header.producer_epoch, next_offset)
        else:
            count = (
                header.last_offset_delta + 1
            )  # compaction may have left fewer records than it had
            next_sequence = following(header.base_sequence, count)
            kept = KeptBatch(header.base_sequence, next_sequence, base_offset, next_offset)
            producer.note(header.producer_epoch, kept)
        producer.seen_ms = now_ms
        self._producers[header.producer_id] = producer
        self._forget(now_ms)

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises InvalidProducerEpoch."""
        producer = self._producers.get(producer_id)
        if producer is not None:
            producer.check_epoch(epoch)

    def check_marker(self, marker: TransactionMarker) -> bool:
        """Whether this marker has been written already, as far as its epoch tells: the producer is in it, and a
        transaction of version 2 ends by the next one's epoch. Raises InvalidProducerEpoch, CoordinatorFenced.
        """
        producer = self._producers.get(marker.producer_id)
        if producer is None:
            return False
        producer.check_marker(marker.producer_epoch, marker.coordinator_epoch)
        is_next = marker.transaction_version >= VERSION_2
        return is_next and marker.producer_epoch == producer.epoch

    def note_marker(self, marker: TransactionMarker, base_offset: int, now_ms: int) -> None:
        """The marker is in the log, at ``base_offset``; whether it should be is not asked."""
        producer = self._producers.pop(marker.producer_id, None)
        if producer is None:
            producer = ProducerState(marker.producer_epoch, base_offset, now_ms)
        producer.note_marker(marker.producer_epoch, marker.coordinator_epoch, base_offset + 1)
        producer.seen_ms = now_ms
        self._producers[marker.producer_id] = producer
        self._forget(now_ms)

    def items(self) -> ItemsView[int, ProducerState]:
        """To be looked at."""
        return self._producers.items()

    def reaches(self, offset: int) -> bool:
        """A batch that it knows of lies at ``offset`` or after it."""
        return any(it.end_offset > offset for it in self._producers.values())

    def _forget(self, now_ms: int) -> None:
        """At the cost of those that are forgotten."""
        producers = self._producers
        while producers:
            oldest = next(iter(producers))
            expired = producers[oldest].seen_ms + self.expiration_ms < now_ms
            if not expired and len(producers) <= self._producers_max:
                return
            del producers[oldest]
