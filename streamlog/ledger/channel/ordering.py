"""A node that cuts blocks: the core's effects, carried out in order.

``Inbox`` holds records that are read and not ordered yet. While it is full, the reader waits.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamlog.condition import NO_ACTION, Condition
from streamlog.errors import BrokenInvariant, ChannelNotReady, StreamlogError
from streamlog.ledger.channel.consumer import Run, StreamConsumer
from streamlog.ledger.channel.observer import Observer
from streamlog.ledger.channel.publisher import StreamPublisher
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.consenter import (
    AppendBlock,
    ConfigurationChanged,
    Consenter,
    Effect,
    HaltChannel,
    PostTimeToCut,
    RecordsConsumed,
    Skipped,
    StartTimer,
    StopTimer,
    TimerExpired,
)
from streamlog.ledger.core.encoding import encode_block
from streamlog.ledger.core.entry import time_to_cut
from streamlog.ledger.storage.cached_ledger import CachedLedger
from streamlog.record.codec import Record

INBOX_BYTES_MAX: Final = 8 * 1024 * 1024
TAKEN_BYTES: Final = 512 * 1024
"""What is taken at once, and so what becomes durable in one go; one run may be larger. Nothing else
runs while it is cut, some 20 ms."""


class Inbox:
    """One task puts, another takes."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._size_bytes = 0
        self._changed = asyncio.Event()

    @property
    def has_more(self) -> bool:
        """``take`` would not wait."""
        return bool(self._runs)

    async def put(self, run: Run) -> None:
        """Waits for room; a run that is larger than that all is let in by itself."""
        while self._runs and self._size_bytes + run.size_bytes > INBOX_BYTES_MAX:
            await self._wait()
        self._runs.append(run)
        self._size_bytes += run.size_bytes
        self._changed.set()

    async def take(self) -> list[Record]:
        """Waits for some."""
        while not self._runs:
            await self._wait()
        count = taken_bytes = 0
        while count < len(self._runs) and (not count or taken_bytes < TAKEN_BYTES):
            taken_bytes += self._runs[count].size_bytes
            count += 1
        taken, self._runs = self._runs[:count], self._runs[count:]
        self._size_bytes -= taken_bytes
        self._changed.set()
        return [record for run in taken for record in run.records]

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


logger = logging.getLogger(__name__)

CUT_NOT_POSTED: Final = Condition(
    "SL-0715",
    "time to cut not posted",
    NO_ACTION,
    meaning="The marker that ends a block was not written. The ordering node tries again.",
)

POSTS_MAX: Final = 4
"""Markers under way at once; the core asks again for one that is left out."""


class OrderingListener(Protocol):
    """Who is told of what is durable, and of what was left out."""

    def grown(self, block: Block) -> None:
        """The chain has this block now."""

    def changed(self, config: ChannelConfig, block: Block) -> None:
        """It holds after this block, which has it and is durable."""

    def skipped(self, effect: Skipped) -> None:
        """A record is in no block."""


class Ordering:
    """One term of a node as a consenter, from the ledger's tip on."""

    def __init__(
        self,
        consenter: Consenter,
        *,
        node: str,
        ledger: CachedLedger,
        consumer: StreamConsumer,
        publisher: StreamPublisher,
        listener: OrderingListener,
        observer: Observer,
    ) -> None:
        self.consenter = consenter
        self._node = node
        self._ledger = ledger
        self._consumer = consumer
        self._publisher = publisher
        self._listener = listener
        self._observer = observer
        self._inbox = Inbox()
        self._timer: asyncio.TimerHandle | None = None
        self._posts = asyncio.Queue[int](POSTS_MAX)
        self._last: Block | None = None  # that was appended

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Until ``is_over`` after a block; ends for good where the channel cannot go on.

        Raises StreamLost, ChannelNotReady for a configuration that is too new, Unavailable where
        the disk fails. Whatever it raises, all that was told of is durable.
        """
        async with asyncio.TaskGroup() as tasks:
            helpers = [tasks.create_task(self._read()), tasks.create_task(self._post())]
            try:
                while not is_over():
                    records = await self._inbox.take()
                    consumed = RecordsConsumed(records, self._inbox.has_more)
                    await self._carry_out(self.consenter.step(consumed))
                    await asyncio.sleep(0)  # others have their turn, also where nothing was cut
            finally:
                self._stop_timer()
                for helper in helpers:
                    helper.cancel()

    async def _read(self) -> None:
        async with contextlib.aclosing(self._consumer.runs(self.consenter.next_offset)) as runs:
            async for run in runs:
                await self._inbox.put(run)

    async def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Blocks that come one after the other become durable together, before what follows."""
        appends: list[AppendBlock] = []
        for effect in effects:
            if isinstance(effect, AppendBlock):
                appends.append(effect)
                continue
            if not isinstance(effect, Skipped):
                await self._append(appends)
                appends = []
            self._do(effect)
        await self._append(appends)

    async def _append(self, appends: Sequence[AppendBlock]) -> None:
        if not appends:
            return
        blocks = [encode_block(each.block) for each in appends]
        await self._ledger.append(appends[0].block.number, blocks)
        for each in appends:
            self._last = each.block
            self._listener.grown(each.block)
            self._observer.appended(each.block, each.reason)

    def _do(self, effect: Effect) -> None:
        match effect:
            case StartTimer(number, after_ms):
                self._start_timer(number, after_ms)
            case StopTimer():
                self._stop_timer()
            case PostTimeToCut(number):
                with contextlib.suppress(asyncio.QueueFull):
                    self._posts.put_nowait(number)
            case ConfigurationChanged(config):
                if self._last is None or not self._last.is_configuration:
                    raise BrokenInvariant("appended before")
                self._listener.changed(config, self._last)
            case Skipped():
                self._observer.skipped(self.consenter.config.channel, effect.reason)
                self._listener.skipped(effect)
            case HaltChannel(_, detail):
                raise ChannelNotReady(detail)

    def _start_timer(self, number: int, after_ms: int) -> None:
        self._stop_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(after_ms / 1000, self._expired, number)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _expired(self, number: int) -> None:
        """Between two steps; nothing is appended for it."""
        for effect in self.consenter.step(TimerExpired(number)):
            self._do(effect)

    async def _post(self) -> None:
        """One marker after the other; the core asks again for what does not show in the stream."""
        while True:
            number = await self._posts.get()
            self._observer.posted_time_to_cut(self.consenter.config.channel)
            try:
                await self._publisher.publish(time_to_cut(number, self._node))
            except StreamlogError as error:
                extra = {"channel": self.consenter.config.channel, "problem": str(error)}
                logger.warning(CUT_NOT_POSTED, extra=extra)
