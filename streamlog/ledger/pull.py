"""One delivery over NATS, as its reader sees it."""

import contextlib
from collections.abc import AsyncGenerator

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from streamlog.clock import wall_ms
from streamlog.errors import ChannelNotFound, NodeUnreachable, RequestTimedOut
from streamlog.ledger.assembly import Assembly, DeliveredBlock
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.deliver import NEWEST, DeliverRequest
from streamlog.ledger.protocol import (
    END_HEADER,
    HEIGHT_HEADER,
    NUMBER_HEADER,
    SILENCE_S,
    answer_of,
    subject,
)
from streamlog.ledger.readers import sign_request


class Pull:
    """``blocks`` once; what is known of the delivery afterwards."""

    def __init__(
        self, client: Client, channel: str, request: DeliverRequest, signer: Signer | None
    ) -> None:
        self.next = request.start if isinstance(request.start, int) else None
        """The number of the block to ask for when it broke; None: nothing came at all."""
        self.stop = None if isinstance(request.stop, str) else request.stop
        """Where it ends, if it does; of ``newest`` known with the first message."""
        self._client = client
        self._channel = channel
        self._request = request
        self._signer = signer

    async def blocks(self) -> AsyncGenerator[DeliveredBlock, None]:
        """Raises what the node refuses it with, ChannelNotFound, NodeUnreachable, CorruptBlock;
        RequestTimedOut when it falls silent.
        """
        inbox = self._client.new_inbox()
        assembly = Assembly(self.next)
        try:
            subscription = await self._client.subscribe(inbox)
            try:
                await self._ask(inbox)
                while (message := await self._message(subscription)) is not None:
                    if NUMBER_HEADER in (message.headers or {}):
                        block = assembly.take(message.headers or {}, message.data)
                        if block is not None:
                            self.next = block.number + 1
                            yield block
                    if message.reply:
                        await self._client.publish(message.reply, b"")
            finally:
                with contextlib.suppress(nats.errors.Error):
                    await subscription.unsubscribe()
        except nats.errors.Error as error:
            raise NodeUnreachable(f"NATS: {error}") from None

    async def _ask(self, inbox: str) -> None:
        """The request, signed where there is somebody to sign it."""
        time_ms = 0 if self._signer is None else wall_ms()
        payload = self._request.model_copy(update={"time_ms": time_ms}).model_dump_json().encode()
        headers = None
        if self._signer is not None:
            headers = sign_request(self._channel, payload, inbox, self._signer)
        to = subject(self._channel, "deliver", self._request.node)
        await self._client.publish(to, payload, reply=inbox, headers=headers)

    async def _message(self, subscription: Subscription) -> Msg | None:
        """The next; None after the last block."""
        try:
            message = await subscription.next_msg(timeout=SILENCE_S)
        except nats.errors.TimeoutError:
            raise RequestTimedOut(
                f"channel {self._channel!r}: nothing was delivered for {SILENCE_S:.0f} s"
            ) from None
        headers = message.headers or {}
        if headers.get("Status") == "503":
            raise nobody(self._channel, self._request.node)
        if END_HEADER in headers:
            if message.data:
                answer_of(message.data)
            return None
        if self.stop is None and self._request.stop == NEWEST and HEIGHT_HEADER in headers:
            self.stop = int(headers[HEIGHT_HEADER])
        return message


def nobody(channel: str, node: str) -> ChannelNotFound | NodeUnreachable:
    """Why there is no answer at all."""
    if node:
        return NodeUnreachable(f"no node {node!r} serves channel {channel!r} just now")
    return ChannelNotFound(
        f"nobody serves channel {channel!r}; `streamlog ledger serve --channel {channel}` would"
    )
