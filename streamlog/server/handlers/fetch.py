"""Fetch (1), versions 4 to 12: record batches from an offset on; waits where there are none.

Answered when ``min_bytes`` are there, when ``max_wait`` is over, when a partition has an error, or
when the peer is gone or the node stops. The first batch of the first non-empty partition is whole,
whatever ``max_bytes`` says; every batch after it is whole, too, and fits.

    v7   fetch sessions are not kept: a session id other than 0 is unknown to us
    v9   the caller's leader epoch is checked
    v11  a consumer that tells its rack may be sent to a follower there (KIP-392)
    v12  the epoch of the caller's last batch is checked; the answer says where our history parts

A replica asks in version 12 with its node id, and its node epoch in a tagged field (KIP-903).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.server import metadata_fetch
from streamlog.server.answer import Answer
from streamlog.server.context import Context
from streamlog.server.partition_fetch import Caller, PartitionFetch
from streamlog.server.poll import Poll
from streamlog.wire import fetch as wire
from streamlog.wire.cursor import Cursor

TURN_S: Final = 0.002
"""After looking at partitions for so long, others get their turn of the event loop."""
NEWS_WAIT_MS: Final = 20
"""A replica hears so late of what was committed where no records follow, which would tell it."""


async def handle(
    cursor: Cursor, version: int, header: bytes, context: Context, poll: Poll
) -> Answer:
    """The answer's slices are open; its receiver closes them."""
    request = wire.read_request(cursor, version)
    if metadata_fetch.is_for(request):
        return await metadata_fetch.handle(request, version, header, context, poll)
    if request.session_id != wire.NO_SESSION:
        code = ErrorCode.fetch_session_id_not_found
        return Answer(wire.encode_response(header, [], version, error_code=code))
    caller = Caller.of(request)
    topics = [
        (t.name, [PartitionFetch(t.name, p, caller) for p in t.partitions]) for t in request.topics
    ]
    fetches = [fetch for _, group in topics for fetch in group]
    try:
        await _Gathering(fetches, request, context, poll).run()
    except BaseException:
        for fetch in fetches:
            fetch.close()
        raise
    fetched = [(name, [fetch.fetched() for fetch in group]) for name, group in topics]
    slices = [fetch.records for fetch in fetches if fetch.records is not None]
    return Answer(wire.encode_response(header, fetched, version), slices)


class _Gathering:
    """Looks at every partition once, then only at those that have changed, until it is enough."""

    def __init__(
        self,
        fetches: Sequence[PartitionFetch],
        request: wire.FetchRequest,
        context: Context,
        poll: Poll,
    ) -> None:
        self._fetches = fetches
        self._context = context
        self._poll = poll
        self._max_bytes = max(0, min(request.max_bytes, context.settings.fetch_bytes_max))
        self._enough = min(request.min_bytes, self._max_bytes)
        # A peer that vanished without a word must not be waited for longer than a silent one.
        self._max_wait_ms = min(request.max_wait_ms, context.settings.idle_timeout_ms)
        self._stale: dict[PartitionFetch, None] = dict.fromkeys(fetches)
        """What may have changed since the last look, in the order of the changes."""
        self._found_bytes = 0
        self._final = False
        self._news: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        await self._look()
        if self._is_done or self._max_wait_ms <= 0:
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._max_wait_ms / 1000, self._poll.end)
        for fetch in self._fetches:
            fetch.watch(self._changed, self._committed)
        try:
            await self._look()
            while not self._is_done:
                await self._poll.wait()
                await self._look()
        finally:
            timer.cancel()
            if self._news is not None:
                self._news.cancel()
            for fetch in self._fetches:
                fetch.unwatch()

    @property
    def _is_done(self) -> bool:
        return self._final or self._found_bytes >= self._enough or self._poll.ended

    def _changed(self, fetch: PartitionFetch) -> None:
        self._stale[fetch] = None
        self._poll.wake()

    def _committed(self) -> None:
        """Not at once: what is committed together is told together."""
        if self._news is None and self._max_wait_ms > NEWS_WAIT_MS:
            loop = asyncio.get_running_loop()
            self._news = loop.call_later(NEWS_WAIT_MS / 1000, self._poll.end)

    async def _look(self) -> None:
        """At what is stale, and at nothing else: a wake-up costs what has changed."""
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + TURN_S
        stale, self._stale = self._stale, {}
        for fetch in stale:
            self._found_bytes -= fetch.size_bytes
            found = self._found_bytes
            await fetch.look(self._context, self._max_bytes - found, whole_first=found == 0)
            self._found_bytes += fetch.size_bytes
            self._final |= fetch.final
            if loop.time() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = loop.time() + TURN_S
