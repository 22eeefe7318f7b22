"""A sealed segment of the local log made ready for the object store. Blocking; for worker threads."""

from pathlib import PurePath
from typing import Final, NamedTuple

from streamlog.errors import CorruptBatch
from streamlog.log.layout import (
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_stem,
)
from streamlog.log.leader_epochs import EpochStart
from streamlog.log.segment.segment import Indexer, Segment
from streamlog.log.segment.time_search import latest_time
from streamlog.log.storage.disk import Disk, storage_errors, write_all
from streamlog.partition.tiering.segment_history import PRODUCERS_PART, ProducerHistory
from streamlog.record.batch import read_header
from streamlog.tier.segment_object import SealedFiles
from streamlog.tier.segment_transactions import (
    TRANSACTIONS_PART,
    SegmentTransactions,
    encode_transactions,
)

COPIED_BYTES: Final = 1024 * 1024
NO_PRODUCER: Final = -1


class SegmentDamaged(CorruptBatch):
    """The local file is not what was written: it is not copied before it is repaired."""


class ReadySegment(NamedTuple):
    """What is uploaded, and which files were made for it alone."""

    files: SealedFiles
    temporary: tuple[str, ...]


def make_ready(
    segment: Segment,
    *,
    start: int,
    epochs: tuple[EpochStart, ...],
    transactions: SegmentTransactions,
    disk: Disk,
) -> ReadySegment:
    """The segment from the batch at ``start`` on: its files as they are, or a copy of its end where the store has its
    beginning already. All batches are checked. Raises SegmentDamaged, StorageFailed and its kin.
    """
    with storage_errors(segment.path):
        damages = segment.recheck(_no_pause)
        if damages:
            raise SegmentDamaged(
                f"{segment.path}: offset {damages[0].offset}: {damages[0].problem}"
            )
        producers = _producers_of(segment, start)
        temporary: tuple[str, ...] = ()
        log_path, size_bytes = segment.path, segment.size_bytes
        files = {INDEX_SUFFIX: segment.index_path, TIME_INDEX_SUFFIX: segment.time_index_path}
        if start > segment.base_offset:
            temporary = _copy_end(segment, start, disk)
            size_bytes -= segment.locate(start)[0]
            log_path, files[INDEX_SUFFIX], files[TIME_INDEX_SUFFIX] = temporary
        max_timestamp_ms = latest_time(segment)
    states = {TRANSACTIONS_PART: encode_transactions(transactions), PRODUCERS_PART: producers}
    if segment.key is not None:
        files[KEY_SUFFIX] = segment.key_path
    return ReadySegment(
        SealedFiles(
            base_offset=start,
            end_offset=segment.next_offset,
            max_timestamp_ms=-1 if max_timestamp_ms is None else max_timestamp_ms,
            size_bytes=size_bytes,
            log_path=log_path,
            leader_epochs=epochs,
            files=files,
            states={name: data for name, data in states.items() if data},
        ),
        temporary,
    )


def _no_pause(_: int) -> None:
    """The store's bandwidth is limit enough."""


def _producers_of(segment: Segment, start: int) -> bytes:
    """Raises OSError, CorruptBatch."""
    history = ProducerHistory()
    for place in segment.places(start):
        if place.producer_id != NO_PRODUCER:
            batch = segment.read_batch(place)
            history.note(read_header(batch), batch)
    return history.encode()


def _copy_end(segment: Segment, start: int, disk: Disk) -> tuple[str, ...]:
    """Into files beside it, which a start removes. Raises OSError, and CorruptBatch where no batch begins at
    ``start``.
    """
    folder = str(PurePath(segment.path).parent)
    stem = f"{folder}/{segment_stem(start)}.tier"
    position, base_offset = segment.locate(start)
    if base_offset != start:
        raise CorruptBatch(f"{segment.path}: no batch begins at {start}")
    indexer = Indexer(start, segment.interval_bytes)
    for place in segment.places(start):
        indexer.add(
            place.position - position,
            place.end_position - position,
            place.next_offset,
            place.max_timestamp_ms,
        )
    indexer.note_time()
    suffixes = LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX
    paths = tuple(stem + it + TEMPORARY_SUFFIX for it in suffixes)
    source, target = disk.open(segment.path), disk.create(paths[0])
    try:
        for at in range(position, segment.size_bytes, COPIED_BYTES):
            size = min(COPIED_BYTES, segment.size_bytes - at)
            write_all(target, source.pread(size, at), at - position)
    finally:
        source.close()
        target.close()
    disk.write_small(paths[1], indexer.offsets.packed())
    disk.write_small(paths[2], indexer.times.packed())
    return paths
