"""Erasures as a small file. Pure.

After the head of a file that has an owner (``log.checked_file``): where the
last erasures without a message between them begin; then for each erasure its offset, its epoch, how
many bytes follow, and an ``OffsetSet``. The first stands for all that are committed, by the last of
them; the second has what is not removed yet, and in place of its offset where the tail of the committed ones begins;
others wait for their commit.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from streamlog.errors import CorruptFile
from streamlog.log.checked_file import owned, owned_body
from streamlog.log.erasure.erasures import Erasure, Erasures
from streamlog.record.offset_set import OffsetSet

FILE_NAME: Final = "erasures.snapshot"
_MAGIC: Final = b"SLER\x00\x00\x00\x03"
_TAIL: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">qiI")
_ABORT: Final = 1 << 31
"""In the number of bytes: it is the end of an aborted transaction."""


class ErasureSnapshot(NamedTuple):
    """What such a file says."""

    committed: Erasure
    unremoved: OffsetSet
    pending: list[Erasure]
    tail_start: int
    committed_tail_start: int


def encode(erasures: Erasures, owner: bytes) -> bytes:
    """``owner``: the file of another folder erases other records."""
    last = erasures.last
    parts = [
        last._replace(erased=erasures.erased),
        last._replace(offset=erasures.committed_tail_start, erased=erasures.unremoved),
        *erasures.pending,
    ]
    body = _TAIL.pack(erasures.tail_start) + b"".join(_packed(part) for part in parts)
    return owned(_MAGIC, owner, body)


def decode(data: bytes, path: str, owner: bytes) -> ErasureSnapshot:
    """Raises CorruptFile for what ``encode`` has not written for ``owner``."""
    body = owned_body(data, _MAGIC, owner, path, "a file of erasures")
    try:
        (tail_start,) = _TAIL.unpack_from(body)
        parts = list(_unpacked(body[_TAIL.size :]))
    except (ValueError, struct.error) as error:
        raise CorruptFile(f"{path}: {error}") from None
    if len(parts) < 2:
        raise CorruptFile(f"{path}: what is committed is missing")
    committed, unremoved, *pending = parts
    return ErasureSnapshot(
        committed, unremoved.erased, pending, tail_start, committed_tail_start=unremoved.offset
    )


def _packed(erasure: Erasure) -> bytes:
    offsets = erasure.erased.encode()
    size = len(offsets) | (_ABORT if erasure.is_abort else 0)
    return _HEAD.pack(erasure.offset, erasure.epoch, size) + offsets


def _unpacked(data: memoryview) -> Iterator[Erasure]:
    at = 0
    while at < len(data):
        offset, epoch, size = _HEAD.unpack_from(data, at)
        is_abort, size = bool(size & _ABORT), size & ~_ABORT
        at += _HEAD.size + size
        offsets = OffsetSet.decode(data[at - size : at])
        yield Erasure(offset, epoch, offsets, is_abort=is_abort)
