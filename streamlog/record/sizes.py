"""How large each record of an opened batch is."""

from streamlog.errors import CorruptBatch
from streamlog.record._codec_plain import _get_varint as get_varint
from streamlog.record.compression import Buffer


def record_sizes(body: Buffer) -> list[int]:
    """In bytes, with the length that a record begins with. Raises CorruptBatch."""
    view, position, sizes = memoryview(body), 0, []
    while position < len(view):
        length, start = get_varint(view, position)
        if length <= 0 or length > len(view) - start:
            raise CorruptBatch(f"record of {length} bytes where {len(view) - start} are left")
        sizes.append(start + length - position)
        position = start + length
    return sizes
