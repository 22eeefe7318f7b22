"""Publishing with acks, for the command line: many messages under way, answers in order."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple, Self

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from streamlog.errors import (
    InvalidRequest,
    InvalidSubject,
    NodeUnreachable,
    Overloaded,
    RecordTooLarge,
    RequestTimedOut,
    StorageFailed,
    StreamlogError,
    StreamNotFound,
    Unavailable,
)
from streamlog.nats_tools.connect import Nats, connect_once

TIMEOUT_S = 5.0
ASKED_S = 2.0
"""How long the management API is waited for, where its answer is a courtesy."""
WINDOW = 1_000
"""Messages under way at once."""

_ERRORS: dict[int, type[StreamlogError]] = {
    10054: RecordTooLarge,
    10059: StreamNotFound,
    10077: StorageFailed,
    10167: Overloaded,
}


class Published(NamedTuple):
    """A positive ack. ``sequence`` is the offset + 1."""

    stream: str
    sequence: int
    duplicate: bool = False


class Publisher:
    """``async with Publisher(url) as publisher: await publisher.publish(subject, payload)``."""

    def __init__(
        self,
        nats: Nats,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._nats = nats
        self._timeout_s = timeout_s
        self._client = Client()
        self._inbox = ""
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        """By the last token of the reply subject."""
        self._number = 0
        self.second: bytes | None = None
        """An answer to what had been answered before: by one more stream that stores it."""

    async def __aenter__(self) -> Self:
        self._client = await connect_once(self._nats, timeout_s=self._timeout_s)
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> Published:
        """Raises StreamNotFound if there is no responder, RecordTooLarge, StorageFailed, ..."""
        return await self._ack(await self._send(subject, payload, headers), subject)

    async def publish_all(
        self,
        subject: str,
        payloads: Iterable[bytes],
        headers: Mapping[str, str] | None = None,
        *,
        window: int = WINDOW,
    ) -> AsyncIterator[Published]:
        """The ack of each, in order; raises at the first that is refused."""
        under_way: list[asyncio.Future[Msg]] = []
        for payload in payloads:
            under_way.append(await self._send(subject, payload, headers))
            if len(under_way) >= window:
                half, under_way = under_way[: window // 2 + 1], under_way[window // 2 + 1 :]
                for answer in half:
                    yield await self._ack(answer, subject)
        for answer in under_way:
            yield await self._ack(answer, subject)

    async def send(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Without an ack."""
        await self._publish(subject, payload, headers, "")

    async def flush(self) -> None:
        """All that was sent is at the NATS server."""
        await self._client.flush()

    async def streams_of(self, subject: str, domain: str) -> int | None:
        """How many streams store it; None where the management API does not say."""
        request = json.dumps({"subject": subject}).encode()
        try:
            answer = await self._client.request(
                f"$JS.{domain}.API.STREAM.NAMES", request, timeout=ASKED_S
            )
            told = json.loads(answer.data)
            return None if "error" in told else int(told["total"])
        except (nats.errors.Error, ValueError, KeyError):
            return None

    async def _send(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None
    ) -> asyncio.Future[Msg]:
        self._number += 1
        token = str(self._number)
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        try:
            await self._publish(subject, payload, headers, f"{self._inbox}.{token}")
        except BaseException:
            del self._waiting[token]
            raise
        return answer

    async def _publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None, reply: str
    ) -> None:
        try:
            await self._client.publish(
                subject, payload, reply=reply, headers=dict(headers) if headers else None
            )
        except nats.errors.BadSubjectError:
            raise InvalidSubject(f"{subject!r} is not a subject to publish to") from None
        except nats.errors.MaxPayloadError:
            limit = self._client.max_payload
            raise RecordTooLarge(f"{len(payload)} bytes; NATS takes {limit} at most") from None
        except nats.errors.BadHeaderError as error:
            raise InvalidRequest(f"header {error}") from None
        except nats.errors.Error as error:
            raise NodeUnreachable(str(error)) from None

    async def _answered(self, message: Msg) -> None:
        answer = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if answer is None:
            self.second = message.data
        elif not answer.done():
            answer.set_result(message)

    async def _ack(self, answer: asyncio.Future[Msg], subject: str) -> Published:
        try:
            async with asyncio.timeout(self._timeout_s):
                message = await answer
        except TimeoutError:
            raise RequestTimedOut(f"no ack for {subject!r} in {self._timeout_s} s") from None
        if message.headers and message.headers.get("Status") == "503":
            raise StreamNotFound(nobody_listens(subject))
        return published(message.data)


def nobody_listens(subject: str) -> str:
    """NATS's "no responders": that there is a stream is known to others."""
    return (
        f"no stream listens to {subject!r} now: none stores it, or the partition that does has no"
        " leader just now (`streamlog cluster check`)"
    )


def published(data: bytes) -> Published:
    """A PubAck in JSON; its error is raised as one of ours."""
    try:
        reply: dict[str, Any] = json.loads(data)
        error = reply.get("error")
        if error is None:
            return Published(reply["stream"], reply["seq"], bool(reply.get("duplicate")))
    except (ValueError, KeyError, AttributeError):
        raise InvalidRequest(f"the answer is not an ack: {data[:60]!r}") from None
    kind = _ERRORS.get(error.get("err_code"))
    if kind is None:
        kind = Unavailable if error.get("code", 0) >= 500 else InvalidRequest
    raise kind(str(error.get("description")))
