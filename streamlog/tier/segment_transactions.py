"""What the object of a segment says of its transactions: which were aborted, and which offsets are no messages. Pure.

The local log knows both of what it has, once it has read all records. What is in the store alone would have to be
fetched whole for it. So the part ``.transactions`` is written when a segment is sealed for good, and all of it is
decided. It is JSON.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import orjson

from streamlog.errors import CorruptFile
from streamlog.log.transactions.transactions import AbortedTransaction
from streamlog.record.offset_set import OffsetSet

TRANSACTIONS_PART: Final = ".transactions"

_FORMAT: Final = 1


class SegmentTransactions(NamedTuple):
    """What of a segment is not for readers of committed records."""

    aborted: tuple[AbortedTransaction, ...] = ()
    """In the order of their markers."""
    erased: OffsetSet | None = None
    """Offsets in it that are no messages; None: there are none."""


def encode_transactions(told: SegmentTransactions) -> bytes:
    """b"" where there is nothing to say."""
    erased = [] if told.erased is None else list(_runs(told.erased))
    if not told.aborted and not erased:
        return b""
    return orjson.dumps(
        {"format": _FORMAT, "aborted": [list(it) for it in told.aborted], "erased": erased}
    )


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """From each to its end."""
    start = stop = -1
    for offset in offsets:
        if offset != stop:
            if start >= 0:
                yield start, stop
            start = offset
        stop = offset + 1
    if start >= 0:
        yield start, stop


def decode_transactions(data: bytes, path: str) -> SegmentTransactions:
    """Raises CorruptFile."""
    try:
        content = orjson.loads(data)
        if content["format"] != _FORMAT:
            raise CorruptFile(f"{path}: its format is not known here")
        erased = OffsetSet()
        for start, stop in content["erased"]:
            erased.update(OffsetSet.between_ends(start, stop))
        aborted = tuple(AbortedTransaction(*it) for it in content["aborted"])
        return SegmentTransactions(aborted, erased or None)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{path}: does not decode: {error!r}") from None
