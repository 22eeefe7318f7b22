"""Which blocks a reader wants, and how they come out of the local ledger.

Where a channel's configuration names readers, only they may have its blocks delivered. A request is
signed as a record is, under the kind ``deliver``: the value is its JSON, the key is the subject for
the blocks. An overheard request can be replayed only to that subject, and only for a while, because
it contains its time.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from enum import StrEnum
from typing import Final, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamlog.errors import BlockNotReady, InvalidRequest, InvalidSignature
from streamlog.ledger.core.channel_config import ChannelConfig, Identity
from streamlog.ledger.core.entry import SIGNATURE_HEADER, SIGNER_HEADER
from streamlog.ledger.core.signing import (
    Keyring,
    Signer,
    record_message,
    signature_of,
    signature_text,
)
from streamlog.ledger.storage.cached_ledger import CachedLedger
from streamlog.ledger.storage.store import StoredBlock

READ_BYTES: Final = 512 * 1024
"""What a delivery has in its hands at a time."""

OLDEST: Final = "oldest"
NEWEST: Final = "newest"


class Behavior(StrEnum):
    """What to do where a block is not there yet."""

    BLOCK_UNTIL_READY = "block_until_ready"
    FAIL_IF_NOT_READY = "fail_if_not_ready"


BlockNumber = int


class DeliverRequest(BaseModel):
    """Blocks ``[start, stop)`` of a channel, by their numbers.

    ``start``: ``oldest``, ``newest`` (the last one there is) or a number. ``stop``: a number, or
    ``newest``: the last one there is now is the last to come. Without it they come for ever, or,
    where what is not ready fails, until there is no more.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: Literal["oldest", "newest"] | BlockNumber = Field(default=OLDEST)
    stop: Literal["newest"] | BlockNumber | None = None
    behavior: Behavior = Behavior.BLOCK_UNTIL_READY
    node: str = ""
    """Who is to deliver; for requests that are signed."""
    time_ms: int = 0
    """When it was asked for; for requests that are signed."""

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Of JSON; nothing at all asks for everything. Raises InvalidRequest, in one line."""
        try:
            return cls.model_validate_json(text or b"{}").checked()
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"][:1])) or "request"
            raise InvalidRequest(
                f"{where}: {first['msg']}; write"
                ' {"start": "oldest", "newest" or a number, "stop": "newest", a number or null,'
                ' "behavior": "block_until_ready" or "fail_if_not_ready"}'
            ) from None

    def checked(self) -> Self:
        """Raises InvalidRequest for what no ledger has."""
        for name, number in (("start", self.start), ("stop", self.stop)):
            if isinstance(number, int) and not 0 <= number < 2**63:
                raise InvalidRequest(f"{name}: {number} is no block's number")
        if isinstance(self.start, int) and isinstance(self.stop, int) and self.stop < self.start:
            raise InvalidRequest(f"stop: block {self.stop} is before block {self.start}")
        return self


async def deliver(
    ledger: CachedLedger, request: DeliverRequest, *, alive_s: float | None = None
) -> AsyncGenerator[list[StoredBlock], None]:
    """The blocks, some at a time, in order, none twice and none left out.

    None at all, as a sign of life, where there was nothing to deliver for ``alive_s``. Raises
    BlockNotReady where one is missing and the request does not want to wait; Unavailable where the
    disk fails.
    """
    waits = request.behavior is Behavior.BLOCK_UNTIL_READY
    number, stop = _first(request, ledger.height), _stop(request, ledger.height)
    while stop is None or number < stop:
        if number >= ledger.height:
            if stop is None and not waits:
                return
            if not waits:
                raise BlockNotReady(f"block {number} is not cut yet; the height is {ledger.height}")
        try:
            async with asyncio.timeout(alive_s):
                blocks = await _blocks(ledger, number, waits=waits)
        except TimeoutError:
            blocks = []
        if stop is not None:
            blocks = blocks[: stop - number]
        number += len(blocks)
        yield blocks


async def _blocks(ledger: CachedLedger, number: int, *, waits: bool) -> list[StoredBlock]:
    while True:
        if waits:
            await ledger.wait_for(number)
        try:
            return await ledger.read(number, max_bytes=READ_BYTES)
        except BlockNotReady:  # it was found damaged just now
            if not waits:
                raise
            await ledger.wait_for_mended()


def _first(request: DeliverRequest, height: int) -> int:
    match request.start:
        case "oldest":
            return 0
        case "newest":
            return max(height - 1, 0)
        case number:
            return number


def _stop(request: DeliverRequest, height: int) -> int | None:
    return height if request.stop == NEWEST else request.stop


DELIVER: Final = b"deliver"
AGE_MS_MAX: Final = 60_000
"""A request counts for so long before and after the time that it names."""


class Asked(Protocol):
    """A message of NATS, as far as it matters here."""

    data: bytes
    reply: str

    @property
    def headers(self) -> Mapping[str, str] | None: ...


def sign_request(channel: str, payload: bytes, reply: str, signer: Signer) -> dict[str, str]:
    """The headers that go with a request."""
    signature = signer.sign(record_message(channel, DELIVER, reply.encode(), payload))
    return {SIGNER_HEADER: signer.name, SIGNATURE_HEADER: signature_text(signature).decode()}


def check_reader(
    config: ChannelConfig | None, request: DeliverRequest, asked: Asked, at_ms: int
) -> None:
    """Readers may, and consenters. Raises InvalidSignature."""
    if config is None or not config.readers:
        return
    headers = asked.headers or {}
    signer, text = headers.get(SIGNER_HEADER), headers.get(SIGNATURE_HEADER)
    if not signer or not text:
        raise InvalidSignature(
            f"channel {config.channel!r} has its blocks read by some only: sign the request, and"
            f" name the signer ({SIGNER_HEADER}, {SIGNATURE_HEADER}; --key and --name)"
        )
    ring = Keyring(_allowed(config))
    if signer not in ring:
        raise InvalidSignature(f"{signer!r} is no reader of channel {config.channel!r}")
    if abs(at_ms - request.time_ms) > AGE_MS_MAX:
        raise InvalidSignature(
            f"the request names a time that is {abs(at_ms - request.time_ms)} ms from the node's;"
            " set the clock, or sign it again"
        )
    try:
        signature = signature_of(text.encode())
    except ValueError as error:
        raise InvalidSignature(f"{SIGNATURE_HEADER}: {error}") from None
    message = record_message(config.channel, DELIVER, asked.reply.encode(), asked.data)
    if not ring.is_signed(signer, message, signature):
        raise InvalidSignature(f"the signature is not that of {signer!r} over this request")


def _allowed(config: ChannelConfig) -> Iterable[Identity]:
    return {each.name: each for each in (*config.vouchers, *config.readers)}.values()
