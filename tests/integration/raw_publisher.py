"""Messages as no client library would write them, and what is answered to them."""

import asyncio
import json
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

ANSWER_S: Final = 5.0


class RawPublisher:
    """``async with RawPublisher(url) as publisher``: one connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = Client()

    async def __aenter__(self) -> "RawPublisher":
        self._client = await nats.connect(self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    @property
    def client(self) -> Client:
        return self._client

    async def send(
        self, subject: str, payload: bytes, block: bytes | None = None, reply: str = ""
    ) -> None:
        """``block``: the whole header block, or what stands for it."""
        target = f"{subject} {reply}".rstrip()
        if block is None:
            frame = f"PUB {target} {len(payload)}\r\n".encode() + payload + b"\r\n"
        else:
            sizes = f"{len(block)} {len(block) + len(payload)}"
            frame = f"HPUB {target} {sizes}\r\n".encode() + block + payload + b"\r\n"
        await self._client._send_command(frame)
        await self._client._flush_pending()

    async def ask(
        self, subject: str, payload: bytes = b"x", block: bytes | None = None
    ) -> dict[str, Any] | None:
        """The answer's JSON; {} for an empty one, None if there is none."""
        inbox = self._client.new_inbox()
        heard: asyncio.Queue[Msg] = asyncio.Queue()
        subscription = await self._client.subscribe(inbox, cb=heard.put)
        try:
            await self.send(subject, payload, block, inbox)
            async with asyncio.timeout(ANSWER_S):
                answer = await heard.get()
        except TimeoutError:
            return None
        finally:
            await subscription.unsubscribe()
        if answer.headers and answer.headers.get("Status") == "503":
            return {"status": 503}
        found: dict[str, Any] = json.loads(answer.data) if answer.data else {}
        return found


def header_block(*lines: str | bytes) -> bytes:
    encoded = (line if isinstance(line, bytes) else line.encode() for line in lines)
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in encoded) + b"\r\n"
