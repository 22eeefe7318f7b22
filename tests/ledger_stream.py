"""Streams for a ledger: messages, and the records that they become in a log."""

from collections.abc import Iterable
from typing import Any

from streamlog.ledger.core.channel_config import BatchLimits, ChannelConfig
from streamlog.ledger.core.entry import Message
from streamlog.ledger.core.signing import Signer
from streamlog.record.codec import Record

ANN = Signer("ann", b"a" * 32)
BOB = Signer("bob", b"b" * 32)
EVE = Signer("eve", b"e" * 32)

WIDE = 1 << 20


def limits(
    batch_size: int = 3, preferred: int = WIDE, absolute: int = WIDE, timeout_ms: int = 100
) -> BatchLimits:
    return BatchLimits(
        batch_size=batch_size,
        batch_timeout_ms=timeout_ms,
        preferred_max_bytes=preferred,
        absolute_max_bytes=absolute,
    )


def channel(sequence: int = 0, **fields: Any) -> ChannelConfig:
    return ChannelConfig(channel="c", sequence=sequence, **{"limits": limits(), **fields})


def placed(message: Message, offset: int) -> Record:
    """As the log gives it back."""
    return Record(offset, 1_000 + offset, message.key, message.value, message.headers)


def stream(messages: Iterable[Message], start_offset: int = 0) -> list[Record]:
    return [placed(message, offset) for offset, message in enumerate(messages, start_offset)]


def plain(*values: bytes) -> list[Message]:
    return [Message(None, value) for value in values]
