"""Blocks on their way to one reader over NATS, no faster than it takes them."""

import asyncio
import contextlib
from hashlib import sha256
from typing import Final

import nats.errors
from nats.aio.client import Client

from streamlog.errors import RequestTimedOut, StreamlogError
from streamlog.ledger.channel import Channel
from streamlog.ledger.core.encoding import decode_header
from streamlog.ledger.core.entry import SIGNATURE_HEADER, SIGNER_HEADER
from streamlog.ledger.core.signing import Signer, signature_text
from streamlog.ledger.deliver import DeliverRequest, deliver
from streamlog.ledger.protocol import (
    ALIVE_S,
    ANSWER_BLOCKS,
    ANSWER_BYTES,
    END_HEADER,
    HEIGHT_HEADER,
    NUMBER_HEADER,
    PART_HEADER,
    SILENCE_S,
    WINDOW,
    error_json,
)
from streamlog.ledger.store import StoredBlock

HEADERS_BYTES: Final = 4 * 1024
"""Room in a message for the headers."""


class Delivery:
    """One reader's. ``run`` by one task; ``answered`` by whoever hears the reader's answers."""

    def __init__(
        self,
        client: Client,
        channel: Channel,
        request: DeliverRequest,
        *,
        inbox: str,
        flow: str,
        signer: Signer | None,
    ) -> None:
        """``flow``: the subject of the reader's answers."""
        self._client = client
        self._channel = channel
        self._request = request
        self._inbox = inbox
        self._flow = flow
        self._signer = signer
        self._open = 0  # answers that are yet to come
        self._changed = asyncio.Event()
        self._is_gone = False
        self._next = 0  # block, after those that were sent
        self._unanswered_bytes = self._unanswered_blocks = 0

    def answered(self, *, is_gone: bool) -> None:
        """``is_gone``: nobody was there to hear of it."""
        self._open -= 1
        self._is_gone |= is_gone
        self._changed.set()

    async def run(self) -> None:
        """Until the last block, or until the reader is gone."""
        try:
            await self._send_height()
            await self._send_blocks()
        except (_Gone, nats.errors.Error):
            return
        except StreamlogError as error:
            await self._send_end(error_json(error))
            return
        await self._send_end(b"")

    async def _send_blocks(self) -> None:
        blocks = deliver(self._channel.ledger, self._request, alive_s=ALIVE_S)
        async with contextlib.aclosing(blocks):
            async for run in blocks:
                if run:
                    await self._send_run(run)
                else:
                    await self._send_height()

    async def _send_run(self, run: list[StoredBlock]) -> None:
        for block in run:
            await self._send_block(block)
            self._next = block.number + 1
        self._channel.observer.delivered(
            self._channel.name, len(run), sum(len(block.data) for block in run)
        )

    async def _send_block(self, block: StoredBlock) -> None:
        room = self._client.max_payload - HEADERS_BYTES
        count = max(1, -(-len(block.data) // room))
        headers = {NUMBER_HEADER: str(block.number), **self._signature(block)}
        for number in range(count):
            part = block.data[number * room : (number + 1) * room]
            if count > 1:
                headers[PART_HEADER] = f"{number}/{count}"
            self._unanswered_bytes += len(part)
            self._unanswered_blocks += 1
            asks = (
                self._unanswered_bytes >= ANSWER_BYTES or self._unanswered_blocks >= ANSWER_BLOCKS
            )
            await self._send(part, headers, asks=asks)
            headers = {NUMBER_HEADER: str(block.number)}

    def _signature(self, block: StoredBlock) -> dict[str, str]:
        """The node's; the same each time, so it need not be kept."""
        if self._signer is None:
            return {}
        signature = self._signer.sign_block(_header_hash(block.data))
        return {
            SIGNER_HEADER: signature.node,
            SIGNATURE_HEADER: signature_text(signature.signature).decode(),
        }

    async def _send_height(self) -> None:
        await self._send(b"", {HEIGHT_HEADER: str(self._channel.ledger.height)}, asks=True)

    async def _send_end(self, payload: bytes) -> None:
        await self._client.publish(self._inbox, payload, headers={END_HEADER: str(self._next)})

    async def _send(self, payload: bytes, headers: dict[str, str], *, asks: bool) -> None:
        if asks:
            await self._wait_for_room()
            self._open += 1
            self._unanswered_bytes = self._unanswered_blocks = 0
        reply = self._flow if asks else ""
        await self._client.publish(self._inbox, payload, reply=reply, headers=headers)

    async def _wait_for_room(self) -> None:
        """Raises _Gone; RequestTimedOut for a reader that answers no more."""
        try:
            async with asyncio.timeout(SILENCE_S):
                while self._open >= WINDOW and not self._is_gone:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"the reader has not answered for {SILENCE_S:.0f} s; ask again from block"
                f" {self._next} on"
            ) from None
        if self._is_gone:
            raise _Gone


class _Gone(Exception):
    """The reader does not listen any more."""


def _header_hash(encoded: bytes) -> bytes:
    return sha256(encoded[: decode_header(encoded)[1]]).digest()
