from streamlog.errors import CorruptBatch
from streamlog.log.segment.active import ActiveSegment
from streamlog.log.segment.segment import Segment
from streamlog.log.storage.file_pool import FilePool


def cut_segment(pool: FilePool, segment: Segment, position: int, next_offset: int) -> ActiveSegment:
    """Drop what begins at ``position``; the segment, which ends before ``next_offset``, is the
    active one then.

    A slice of what is dropped comes out short. Raises OSError, CorruptBatch.
    """
    pooled = pool.pin(segment.path)
    try:
        pooled.file.truncate(position)
        pooled.file.sync()
    finally:
        pool.unpin(pooled)
    segment.cut(position, next_offset)
    pool.remove(segment.index_path, segment.time_index_path)
    active = ActiveSegment.empty(pool, segment)
    for place in segment.places(segment.base_offset):
        active.add(place)
    return active


def place_of_cut(segment: Segment, offset: int) -> tuple[int, int]:
    """Where the batches begin that end above ``offset``, and the offset of the first of them. The
    segment is verified. Raises OSError, CorruptBatch.
    """
    if offset >= segment.next_offset:
        return segment.size_bytes, segment.next_offset
    try:
        return segment.locate(offset)
    except CorruptBatch:
        for damage in segment.damages:
            if damage.offset <= offset < damage.end_offset:
                return damage.position, damage.offset
        raise
