"""Opening batches on an event loop."""

import asyncio

from streamlog.record.batch import BatchHeader
from streamlog.record.codec import opened, opened_at_once
from streamlog.record.compression import Buffer


async def open_batch(header: BatchHeader, batch: Buffer) -> Buffer:
    """The records of a whole batch, back to back; one that comes to much is opened in a thread.

    Raises CorruptBatch.
    """
    body = opened_at_once(header, batch)
    return body if body is not None else await asyncio.to_thread(opened, header, batch)
