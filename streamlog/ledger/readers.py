"""Who may have a channel's blocks delivered, where its configuration names readers.

A request is signed as a record is, under the kind ``deliver``: its JSON is the value, and the
subject on which it wants the blocks the key. So whoever overhears it can have them delivered to
nobody else, and only for a while: it names its time.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from streamlog.errors import InvalidSignature
from streamlog.ledger.core.channel_config import ChannelConfig, Identity
from streamlog.ledger.core.entry import SIGNATURE_HEADER, SIGNER_HEADER
from streamlog.ledger.core.signing import (
    Keyring,
    Signer,
    record_message,
    signature_of,
    signature_text,
)
from streamlog.ledger.deliver import DeliverRequest

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
            " set the clock, or sign it anew"
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
