from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.log.segment.scan import BatchPlace, Damage, scan
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.file_pool import FilePool


def epochs_of_batches(pool: FilePool, segments: list[Segment]) -> LeaderEpochs:
    """The leader epochs as the batches tell them, for when the checkpoint is of no use. Raises
    OSError.

    One header of each segment is read, and all headers only of those in which the epoch changes.
    """
    epochs = LeaderEpochs()
    firsts = [_first(pool, segment) for segment in segments]
    following = [*firsts[1:], None]
    for segment, first, after in zip(segments, firsts, following, strict=True):
        if first is not None and after is not None and first.leader_epoch == after.leader_epoch:
            epochs.assign(first.leader_epoch, first.base_offset)
        else:
            _assign_all(pool, segment, epochs)
    return epochs


def _first(pool: FilePool, segment: Segment) -> BatchPlace | None:
    pooled = pool.pin(segment.path)
    try:
        place = next(
            scan(pooled.file, 0, segment.size_bytes, segment.base_offset, check_crc=False), None
        )
    finally:
        pool.unpin(pooled)
    return place if isinstance(place, BatchPlace) else None


def _assign_all(pool: FilePool, segment: Segment, epochs: LeaderEpochs) -> None:
    pooled = pool.pin(segment.path)
    try:
        for place in scan(pooled.file, 0, segment.size_bytes, segment.base_offset, check_crc=False):
            if isinstance(place, Damage):
                break
            epochs.assign(place.leader_epoch, place.base_offset)
    finally:
        pool.unpin(pooled)
