"""Fetch (1), versions 4 to 12: record batches from an offset on; waits where there are none.

Answered when ``min_bytes`` are there, when ``max_wait`` is over, when a partition has an error, or
when the peer is gone or the node stops. The first batch of the first non-empty partition is whole,
whatever ``max_bytes`` says; every batch after it is whole, too, and fits.

    v7   fetch sessions are not kept: a session id other than 0 is unknown to us
    v9   the caller's leader epoch is checked
    v12  the epoch of the caller's last batch is checked; the answer says where our history parts
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.errors import CorruptData, OffsetOutOfRange, StreamlogError
from streamlog.model import NO_EPOCH, EpochEnd, TopicPartition
from streamlog.server.answer import Answer
from streamlog.server.context import Context, LocalPartition, Slice
from streamlog.server.guards import led_partition
from streamlog.server.poll import Poll
from streamlog.wire import fetch as wire
from streamlog.wire.cursor import Cursor
from streamlog.wire.errors import code_of

logger = logging.getLogger(__name__)

UNKNOWN: Final = -1
LOOKS_PER_TURN: Final = 256
"""How many partitions are looked at before others get their turn of the event loop."""


class _Fetch:
    """One partition of one request: what was asked, and what there is to answer so far."""

    def __init__(self, name: str, wanted: wire.FetchPartition) -> None:
        self.tp = TopicPartition(name, wanted.partition)
        self.wanted = wanted
        self.partition: LocalPartition | None = None  # once found and led by this node
        self.error_code = ErrorCode.none
        self.diverging: EpochEnd | None = None
        self.records: Slice | None = None  # open, and not empty; closed by whoever has sent it
        self.stale = True  # something may have changed since the last look
        self._poll: Poll | None = None
        self._seen: tuple[bool, int, int] | None = None  # the partition's state at the last look

    @property
    def final(self) -> bool:
        """Waiting would not help."""
        return self.error_code != ErrorCode.none or self.diverging is not None

    async def look(self, context: Context, max_bytes: int, *, whole_first: bool) -> None:
        """Reads what there is now. ``whole_first``: one batch may go over ``max_bytes``."""
        self.stale = False
        try:
            self.partition = led_partition(self.tp, self.wanted.current_leader_epoch, context)
            self._seen = _state(self.partition)
            self.diverging = _divergence(self.partition, self.wanted)
            if self.diverging is None and (max_bytes > 0 or whole_first):
                await self._read(self.partition, max_bytes, whole_first)
        except StreamlogError as error:
            self.error_code = code_of(error)
            if isinstance(error, CorruptData):
                logger.error("damaged batch not served", extra=_where(self, error))

    async def _read(self, partition: LocalPartition, max_bytes: int, whole_first: bool) -> None:
        offset = self.wanted.fetch_offset
        if partition.high_watermark <= offset <= partition.log_end_offset:
            return  # most looks end here: all is read
        wanted_bytes = min(self.wanted.max_bytes, max_bytes)
        records = await partition.read(offset, max(wanted_bytes, 1))
        if len(records) == 0 or (len(records) > max_bytes and not whole_first):
            records.close()
        else:
            self.records = records

    def watch(self, poll: Poll) -> None:
        """From now on; what has changed since the last look is looked at again, too."""
        self._poll = poll
        if self.partition is not None:
            self.partition.add_watcher(self._changed)
            self.stale = _state(self.partition) != self._seen

    def unwatch(self) -> None:
        if self.partition is not None and self._poll is not None:
            self.partition.remove_watcher(self._changed)

    def _changed(self) -> None:
        self.stale = True
        assert self._poll is not None
        self._poll.wake()

    def close(self) -> None:
        if self.records is not None:
            self.records.close()
            self.records = None

    def fetched(self) -> wire.FetchedPartition:
        partition = self.partition
        return wire.FetchedPartition(
            self.wanted.partition,
            self.error_code,
            UNKNOWN if partition is None else partition.high_watermark,
            UNKNOWN if partition is None else partition.log_start_offset,
            0 if self.records is None else len(self.records),
            self.diverging,
        )


def _state(partition: LocalPartition) -> tuple[bool, int, int]:
    """What a watcher would have been told the change of."""
    return partition.is_leader, partition.leader_epoch, partition.high_watermark


def _where(fetch: _Fetch, error: StreamlogError) -> dict[str, object]:
    return {
        "stream": fetch.tp.stream,
        "partition": fetch.tp.partition,
        "offset": fetch.wanted.fetch_offset,
        "problem": str(error),
    }


def _divergence(partition: LocalPartition, wanted: wire.FetchPartition) -> EpochEnd | None:
    """Where our history parts from the caller's, if it does before the offset asked for."""
    if wanted.last_fetched_epoch == NO_EPOCH:
        return None
    end = partition.epoch_end(wanted.last_fetched_epoch)
    if end.epoch == NO_EPOCH:  # older than all that we know: nothing tells where it parted
        start, log_end = partition.log_start_offset, partition.log_end_offset
        raise OffsetOutOfRange(wanted.fetch_offset, start, log_end)
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
        return end
    return None


async def handle(
    cursor: Cursor, version: int, header: bytes, context: Context, poll: Poll
) -> Answer:
    """The answer's slices are open; its receiver closes them."""
    request = wire.read_request(cursor, version)
    if request.session_id != wire.NO_SESSION:
        code = ErrorCode.fetch_session_id_not_found
        return Answer(wire.encode_response(header, [], version, error_code=code))
    topics = [(t.name, [_Fetch(t.name, p) for p in t.partitions]) for t in request.topics]
    fetches = [fetch for _, group in topics for fetch in group]
    try:
        await _gather(fetches, request, context, poll)
    except BaseException:
        for fetch in fetches:
            fetch.close()
        raise
    fetched = [(name, [fetch.fetched() for fetch in group]) for name, group in topics]
    slices = [fetch.records for fetch in fetches if fetch.records is not None]
    return Answer(wire.encode_response(header, fetched, version), slices)


async def _gather(
    fetches: Sequence[_Fetch], request: wire.FetchRequest, context: Context, poll: Poll
) -> None:
    """Looks at every partition, then waits and looks at those that changed, until it is enough."""
    max_bytes = max(0, min(request.max_bytes, context.settings.fetch_bytes_max))
    enough = min(request.min_bytes, max_bytes)
    if await _look(fetches, max_bytes, context) >= enough or request.max_wait_ms <= 0:
        return
    if poll.ended or any(fetch.final for fetch in fetches):
        return
    # A peer that vanished without a word must not be waited for longer than a silent one.
    max_wait_ms = min(request.max_wait_ms, context.settings.idle_timeout_ms)
    timer = asyncio.get_running_loop().call_later(max_wait_ms / 1000, poll.end)
    for fetch in fetches:
        fetch.watch(poll)
    try:
        while await _look(fetches, max_bytes, context) < enough and not poll.ended:
            if any(fetch.final for fetch in fetches):
                break
            await poll.wait()
    finally:
        timer.cancel()
        for fetch in fetches:
            fetch.unwatch()


async def _look(fetches: Sequence[_Fetch], max_bytes: int, context: Context) -> int:
    """Reads anew what is stale; the bytes found in all."""
    looks = 0
    total = sum(len(fetch.records) for fetch in fetches if fetch.records is not None)
    for fetch in fetches:
        if not fetch.stale:
            continue
        if fetch.records is not None:
            total -= len(fetch.records)
            fetch.close()
        await fetch.look(context, max_bytes - total, whole_first=total == 0)
        total += 0 if fetch.records is None else len(fetch.records)
        looks += 1
        if looks % LOOKS_PER_TURN == 0:
            await asyncio.sleep(0)
    return total
