"""One message each few milliseconds, through whatever happens, until each is acknowledged."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

import nats.errors
from nats.aio.msg import Msg

from streamlog.errors import StreamlogError, StreamNotFound
from streamlog.ingest.nats.options import NatsOptions
from streamlog.nats_tools.burst import BurstLoad, first_ack, payload
from streamlog.nats_tools.client import NatsClient
from streamlog.nats_tools.connect import Nats, section_of
from streamlog.nats_tools.publisher import nobody_listens, published
from streamlog.nats_tools.retries import Gap, RetryVerdict, UnackedMessages

RETRIES_PER_TICK: Final = 8
"""After a gap, thousands wait; all at once would be a storm."""
UNDER_WAY_MAX: Final = 10_000
"""Nothing new is published above it."""
LAST_ACKS_S: Final = 15.0
"""For those that are under way when the time is over."""


class Steady:
    """``await Steady(...).run(seconds)``; ``stop`` ends it early, a second time at once."""

    def __init__(
        self,
        nats: Nats,
        load: BurstLoad,
        *,
        period_s: float,
        gap_s: float,
        begun: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._nats = nats
        self._load = load
        self._period_s = period_s
        self._gap_s = gap_s
        self._begun = begun
        self._access = NatsOptions(section_of(nats))
        self._client = NatsClient(self._access)
        self._clock = asyncio.get_running_loop().time
        self._messages = UnackedMessages(self._clock(), gap_s=gap_s)
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._body = payload(load.size_bytes)
        self._on_gap: Callable[[Gap], None] = lambda _: None
        self._failure: StreamlogError | None = None
        self._stops = 0

    def stop(self) -> None:
        self._stops += 1

    async def run(self, seconds: float, on_gap: Callable[[Gap], None]) -> RetryVerdict:
        """Raises what asking again cannot help."""
        self._begun((await first_ack(self._nats, self._load)).stream)
        options = self._access.options("streamlog bench failover")
        await self._client.connect(**options, error_cb=_ignore)
        try:
            await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
            await self._client.flush()
            self._on_gap = on_gap
            self._messages = UnackedMessages(self._clock(), gap_s=self._gap_s)
            await self._publish_for(seconds)
        finally:
            await self._client.close()
        open_gap = self._messages.end(self._clock())
        if open_gap is not None:
            on_gap(open_gap)
        return self._messages.verdict()

    async def _publish_for(self, seconds: float) -> None:
        """New ones until the time is over, and then only again what is under way."""
        start = due = self._clock()
        over = start + seconds
        while self._failure is None:
            now = self._clock()
            self._messages.tick(now)
            ending = now >= over or self._stops > 0
            if ending:
                over = min(over, now)
                if not self._messages.under_way or self._stops > 1 or now > over + LAST_ACKS_S:
                    return
            elif self._messages.under_way < UNDER_WAY_MAX:
                await self._publish(self._messages.publish(now))
            for number in self._messages.due(now, RETRIES_PER_TICK):
                await self._publish(number)
            due = max(due + self._period_s, now)  # what could not be sent is not made up for
            await asyncio.sleep(max(0.0, due - self._clock()))
        raise self._failure

    async def _publish(self, number: int) -> None:
        """Without NATS nothing is done: it will be due again."""
        reply, headers = f"{self._inbox}.{number}", {"Nats-Msg-Id": f"{self._inbox}.{number}"}
        try:
            await self._client.publish(self._load.subject, self._body, reply, headers)
        except nats.errors.Error:
            if self._client.is_closed:
                raise

    async def _answered(self, message: Msg) -> None:
        number, now = int(message.subject.rpartition(".")[2]), self._clock()
        try:
            if message.headers and message.headers.get("Status") == "503":
                raise StreamNotFound(nobody_listens(self._load.subject))
            gap = self._messages.acked(number, published(message.data), now)
        except StreamlogError as error:
            if not (error.retriable or isinstance(error, StreamNotFound)):
                self._failure = error
            self._messages.refused(number, now)
        else:
            if gap is not None:
                self._on_gap(gap)


async def _ignore(_: Exception) -> None:
    """A server that is away comes back, or the gap says that it does not."""
