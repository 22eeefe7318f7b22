"""A client's message, from the endpoint into the stream."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from streamlog.errors import ChannelNotReady, StreamlogError
from streamlog.ledger.channel.channel import Channel
from streamlog.ledger.core.channel_config import parse_config
from streamlog.ledger.core.channel_policy import ChannelPolicy
from streamlog.ledger.core.entry import CONFIGURATION, KIND_HEADER, Message

READY_TIMEOUT_S: Final = 5.0
"""How long a message waits for its channel to be ready."""
OUTCOME_TIMEOUT_S: Final = 10.0
"""How long a configuration is watched after it was committed, until it is in force."""

Filter = Callable[[ChannelPolicy, Message], None]
"""Raises what a message is refused with; sees ordinary messages after the channel's own rules."""


class BroadcastAck(NamedTuple):
    """It is committed, and so will be ordered where it is."""

    channel: str
    offset: int
    """In the stream."""
    block: int | None = None
    """Of a configuration that is in force by now."""


class Broadcaster:
    """Takes messages for channels, of any client."""

    def __init__(self, filters: Sequence[Filter] = ()) -> None:
        self._filters = filters

    async def broadcast(self, channel: Channel, message: Message) -> BroadcastAck:
        """Returns when it is committed.

        Raises RecordTooLarge, InvalidSignature, InvalidRecord, what a filter raises; for a
        configuration also InvalidChannelConfig and StaleConfiguration; ChannelNotReady, Overloaded;
        RequestTimedOut: whether it will be ordered is not known.
        """
        started = time.perf_counter()
        try:
            ack = await self._broadcast(channel, message)
        except StreamlogError as error:
            seconds = time.perf_counter() - started
            channel.observer.broadcast(channel.name, type(error).__name__, seconds, None)
            raise
        seconds = time.perf_counter() - started
        channel.observer.broadcast(channel.name, "ok", seconds, ack.offset)
        return ack

    async def _broadcast(self, channel: Channel, message: Message) -> BroadcastAck:
        await _wait_ready(channel)
        admission, publisher = channel.admission, channel.publisher
        assert admission is not None and publisher is not None, "ready"
        if _kind(message) == CONFIGURATION:
            update = parse_config(message.value or b"")
            admission.check_update_message(message, update)
            offset = await publisher.publish(message)
            block = await channel.outcomes.of(offset, OUTCOME_TIMEOUT_S)
            return BroadcastAck(channel.name, offset, block)
        return BroadcastAck(channel.name, await self.begin(channel, message))

    def begin(self, channel: Channel, message: Message) -> "asyncio.Future[int]":
        """The offset of an ordinary message of a channel that is ready; raises as ``broadcast``."""
        admission, publisher = channel.admission, channel.publisher
        assert admission is not None and publisher is not None, "ready"
        admission.check_message(message)
        for check in self._filters:
            check(admission, message)
        return publisher.begin(message)


async def _wait_ready(channel: Channel) -> None:
    """A channel that starts, or has lost its stream's leader, is back in a moment."""
    if channel.ready.is_set():
        return
    if not channel.is_halted:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_TIMEOUT_S):
                await channel.ready.wait()
    if channel.is_halted:
        raise ChannelNotReady(f"channel {channel.name!r} has halted: {channel.problem}")
    if not channel.ready.is_set():
        problem = channel.problem or "it starts"
        raise ChannelNotReady(f"channel {channel.name!r} is not ready: {problem}; try again")


def _kind(message: Message) -> bytes | None:
    for name, value in message.headers:
        if name == KIND_HEADER:
            return value
    return None
