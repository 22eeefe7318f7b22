"""Reads one range of a tiered partition on an executor: from objects as far as the plan says, then from servers.

No node is asked for what the plan found in the store. An object that has gone since is another matter: retention has
removed it, or the stream was deleted. A node knows which, so the rest of the range is asked of the nodes.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from streamlog.arrow.files.segment_reader import SegmentFile
from streamlog.arrow.files.segment_rows import IsAborted, SegmentRows
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.options.encryption_keys import Openers
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.servers.fetch_reader import FetchReader
from streamlog.arrow.store.segment_objects import SegmentObjects
from streamlog.arrow.store.stored_ranges import parts
from streamlog.errors import CorruptObject, ObjectNotFound
from streamlog.log.transactions.transactions import AbortedBatches
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.segment_transactions import TRANSACTIONS_PART, decode_transactions

if TYPE_CHECKING:
    import pyarrow as pa


class TieredReader:
    """Gives the rows of ``range_`` once. Not to be used again."""

    def __init__(self, range_: PartitionRange, options: ReadOptions, schema: "pa.Schema") -> None:
        self._range = range_
        self._options = options
        self._schema = schema

    def read(self) -> Iterator["pa.RecordBatch"]:
        """Raises what ``FetchReader`` does; CorruptBatch and CorruptObject with the object's name, ConfigError and
        ObjectStoreUnavailable of the store, EncryptionKeyMissing.
        """
        for part in parts(self._range):
            if part.is_stored:
                position = yield from self._stored(part.range)
                if position < part.range.end_offset:
                    rest = replace(self._range, start_offset=position, stored=None)
                    yield from FetchReader(rest, self._options, self._schema).read()
                    return
            else:
                yield from FetchReader(part.range, self._options, self._schema).read()

    def _stored(self, range_: PartitionRange) -> "Generator[pa.RecordBatch, None, int]":
        """Up to which offset there were objects."""
        assert self._options.store is not None
        assert range_.stored is not None
        openers = Openers(self._options.keys)
        rows = SegmentRows(range_, self._options, self._schema, openers)
        with self._options.store.open() as store:
            objects = SegmentObjects(store, range_.stored, end_offset=range_.end_offset)
            for it in range_.stored.segments:
                segment = SegmentFile(objects, objects.folder, it.base_offset, openers)
                try:
                    rows.pass_over(_is_aborted(objects, it))
                    yield from rows.read(segment, sealed=True)
                except ObjectNotFound:
                    yield from rows.rest()
                    return max(rows.expected_offset, rows.next_offset)
                if rows.finished:
                    break
                if rows.next_offset != it.end_offset:
                    raise CorruptObject(
                        f"{segment.path}: its batches end at {rows.next_offset}, and not at {it.end_offset}"
                    )
        yield from rows.rest()
        return range_.end_offset


def _is_aborted(objects: SegmentObjects, segment: TieredSegment) -> IsAborted | None:
    data = objects.parts(segment).get(TRANSACTIONS_PART, b"")
    if not data:
        return None
    return AbortedBatches(decode_transactions(data, segment.name).aborted).has
