"""The ledger for Python programs: broadcast to any node, have blocks delivered by any, over NATS.

::

    async with LedgerClient("nats://127.0.0.1:4222") as ledger:
        ack = await ledger.broadcast("payments", b"10 to Alice")
        async for block in ledger.deliver("payments", stop="newest"):
            for record in block.records(): ...

``Pull`` is one delivery over NATS, as its reader sees it.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any, Final, Literal, Self

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from streamlog.clock import wall_ms
from streamlog.errors import (
    ChannelNotFound,
    NodeUnreachable,
    RecordTooLarge,
    RequestTimedOut,
    Unavailable,
)
from streamlog.ledger.assembly import Assembly, DeliveredBlock
from streamlog.ledger.channel.broadcast import BroadcastAck
from streamlog.ledger.core.channel_config import ChannelConfig, parse_config
from streamlog.ledger.core.entry import Message, configuration, signed
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.deliver import NEWEST, Behavior, DeliverRequest, sign_request
from streamlog.ledger.protocol import (
    END_HEADER,
    HEIGHT_HEADER,
    NUMBER_HEADER,
    SILENCE_S,
    answer_of,
    headers_of,
    subject,
)
from streamlog.nats_tools.connect import Nats, connect_once


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
        """The request, signed where there is a signer."""
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
            raise no_node(self._channel, self._request.node)
        if END_HEADER in headers:
            if message.data:
                answer_of(message.data)
            return None
        if self.stop is None and self._request.stop == NEWEST and HEIGHT_HEADER in headers:
            self.stop = int(headers[HEIGHT_HEADER])
        return message


def no_node(channel: str, node: str) -> ChannelNotFound | NodeUnreachable:
    """Why there is no answer at all."""
    if node:
        return NodeUnreachable(f"no node {node!r} serves channel {channel!r} just now")
    return ChannelNotFound(
        f"no node serves channel {channel!r}; `streamlog ledger serve --channel {channel}` would"
    )


TIMEOUT_S: Final = 30.0
"""For an acknowledgement; longer than a node waits for the stream's leader would be of no use."""
QUICK_S: Final = 5.0
"""For an answer that needs no other node."""
PAUSE_S: Final = 0.5
"""Before a delivery that broke is asked for again."""

Start = int | Literal["oldest", "newest"]
Stop = int | Literal["newest"] | None


class LedgerClient:
    """One connection to NATS. ``signer``: who broadcasts, reads and configures."""

    def __init__(self, nats: "Nats | Client", *, signer: Signer | None = None) -> None:
        """``nats``: where it is, or a connection, which stays the caller's."""
        self._nats = nats
        self._signer = signer
        self._client = nats if isinstance(nats, Client) else Client()

    async def __aenter__(self) -> Self:
        if not isinstance(self._nats, Client):
            self._client = await connect_once(
                self._nats, timeout_s=QUICK_S, name="streamlog-ledger-client"
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if not isinstance(self._nats, Client):
            await self._client.close()

    async def broadcast(
        self,
        channel: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        node: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> BroadcastAck:
        """Returns when it is committed; signed if there is a signer.

        Raises what ``Broadcaster.broadcast`` does, ChannelNotFound, NodeUnreachable.
        """
        message = Message(key, value, headers)
        if self._signer is not None:
            message = signed(message, channel, self._signer)
        return await self.broadcast_message(channel, message, node=node, timeout_s=timeout_s)

    async def configure(
        self, config: ChannelConfig, *, node: str = "", timeout_s: float = TIMEOUT_S
    ) -> BroadcastAck:
        """Have it follow the one in force; its sequence is one more. Returns when it is in force.

        Raises StaleConfiguration, InvalidChannelConfig, InvalidSignature, as ``broadcast``.
        """
        message = configuration(config, self._signer)
        return await self.broadcast_message(config.channel, message, node=node, timeout_s=timeout_s)

    async def broadcast_message(
        self, channel: str, message: Message, *, node: str = "", timeout_s: float = TIMEOUT_S
    ) -> BroadcastAck:
        """As it is."""
        answer = await self._ask(
            "broadcast",
            channel,
            node,
            payload=message.value or b"",
            headers=headers_of(message),
            timeout_s=timeout_s,
        )
        return BroadcastAck(str(answer["channel"]), int(answer["offset"]), answer.get("block"))

    async def info(self, channel: str, *, node: str = "") -> dict[str, Any]:
        """What a node says of the channel. Raises ChannelNotFound, NodeUnreachable."""
        return await self._ask("info", channel, node, timeout_s=QUICK_S)

    async def config(self, channel: str, *, node: str = "") -> ChannelConfig:
        """In force, as a node knows it. Raises Unavailable where it does not yet."""
        found = (await self.info(channel, node=node))["config"]
        if found is None:
            raise Unavailable(f"channel {channel!r} has no configuration yet; try again")
        return parse_config(json.dumps(found).encode())

    async def deliver(
        self,
        channel: str,
        start: Start = "oldest",
        stop: Stop = None,
        behavior: Behavior = Behavior.BLOCK_UNTIL_READY,
        *,
        node: str = "",
    ) -> AsyncGenerator[DeliveredBlock, None]:
        """The blocks ``[start, stop)``, in order; see ``DeliverRequest``.

        When its node falls silent another is asked for what follows; with ``node`` the same one,
        and the error is raised. Whether a block fits on the one before it is the caller's to
        check (``core.chain.check_next``, ``core.verifier``): it is whole, that is all.
        """
        request = DeliverRequest(start=start, stop=stop, behavior=behavior, node=node).checked()
        while True:
            pull = Pull(self._client, channel, request, self._signer)
            try:
                async with contextlib.aclosing(pull.blocks()) as blocks:
                    async for block in blocks:
                        yield block
                return
            except (NodeUnreachable, RequestTimedOut):
                if node or pull.next is None or self._client.is_closed:
                    raise
            if isinstance(request.stop, str):
                request = request.model_copy(update={"stop": pull.stop})
            request = request.model_copy(update={"start": pull.next})
            await asyncio.sleep(PAUSE_S)

    async def _ask(
        self,
        verb: str,
        channel: str,
        node: str,
        *,
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        timeout_s: float,
    ) -> dict[str, Any]:
        to = subject(channel, verb, node)
        try:
            message = await self._client.request(
                to, payload, timeout=timeout_s, headers=headers or None
            )
        except nats.errors.NoRespondersError:
            raise no_node(channel, node) from None
        except nats.errors.TimeoutError:
            raise RequestTimedOut(f"no answer on {to} in {timeout_s:.0f} s") from None
        except nats.errors.MaxPayloadError:
            limit = self._client.max_payload
            raise RecordTooLarge(f"{len(payload)} bytes; NATS takes {limit} at most") from None
        except nats.errors.Error as error:
            raise NodeUnreachable(f"NATS: {error}") from None
        return answer_of(message.data)
