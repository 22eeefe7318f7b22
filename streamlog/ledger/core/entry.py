"""What a record of the stream is to a ledger, and how records for one are made. Pure.

A record is ordinary unless the header ``Streamlog-Ledger`` says otherwise, so plain NATS messages
of any publisher can be ordered. Where a header stands twice, the first one counts.

=======================  ==========================================================
``configuration``        the value is the channel's configuration, JSON
``time-to-cut``          TTC-X: cut block X; header ``Streamlog-Ledger-Block`` has X
=======================  ==========================================================

Whatever else claims a kind is ``Malformed``: it is left out by all nodes alike, and stops none.
"""

import re
from typing import Final, NamedTuple

from streamlog.errors import InvalidChannelConfig
from streamlog.ledger.core.channel_config import ChannelConfig, later_format, parse_config
from streamlog.ledger.core.signing import Signer, record_message, signature_text
from streamlog.record.codec import Record

KIND_HEADER: Final = "Streamlog-Ledger"
BLOCK_HEADER: Final = "Streamlog-Ledger-Block"
SIGNER_HEADER: Final = "Streamlog-Ledger-Signer"
SIGNATURE_HEADER: Final = "Streamlog-Ledger-Signature"

ORDINARY: Final = b""
CONFIGURATION: Final = b"configuration"
TIME_TO_CUT: Final = b"time-to-cut"

_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")

Headers = tuple[tuple[str, bytes | None], ...]


class Configuration(NamedTuple):
    """A channel's configuration, or what is meant to become it."""

    config: ChannelConfig


class LaterConfiguration(NamedTuple):
    """One that a later streamlog wrote, and that cannot be read here."""

    format: int
    sequence: int


class TimeToCut(NamedTuple):
    """TTC-X."""

    number: int
    """X: of the block that is to be cut."""


class Malformed(NamedTuple):
    """It claims a kind, and is not what it claims."""

    reason: str


Marked = Configuration | LaterConfiguration | TimeToCut | Malformed


class Message(NamedTuple):
    """A record before it has a place in the stream."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes | None], ...]:
        """As ``RecordRun.append`` takes them."""
        return tuple((name.encode(), value) for name, value in self.headers)


def header_of(headers: Headers, name: str) -> bytes | None:
    """The first of that name; None where there is none, or it is null."""
    for found, value in headers:
        if found == name:
            return value
    return None


def marked(record: Record) -> Marked | None:
    """What the record says that it is; None: it is ordinary."""
    for name, value in record.headers:
        if name == KIND_HEADER:
            return _read(value, record)
    return None


def _read(kind: bytes | None, record: Record) -> Marked:
    if kind == TIME_TO_CUT:
        number = header_of(record.headers, BLOCK_HEADER) or b""
        if not _NUMBER.fullmatch(number):
            return Malformed(f"{BLOCK_HEADER} is no block number")
        return TimeToCut(int(number))
    if kind != CONFIGURATION:
        return Malformed(f"{KIND_HEADER} is neither configuration nor time-to-cut")
    text = record.value or b""
    try:
        return Configuration(parse_config(text))
    except InvalidChannelConfig as error:
        later = later_format(text)
        return LaterConfiguration(*later) if later else Malformed(str(error))


def time_to_cut(number: int, node: str) -> Message:
    """TTC-``number``; the value, the node's name, is for people."""
    headers = ((KIND_HEADER, TIME_TO_CUT), (BLOCK_HEADER, str(number).encode()))
    return Message(None, node.encode(), headers)


def configuration(config: ChannelConfig, signer: Signer | None = None) -> Message:
    """A genesis, or an update of the configuration before it, which may have to be signed."""
    message = Message(None, config.encode(), ((KIND_HEADER, CONFIGURATION),))
    return message if signer is None else signed(message, config.channel, signer)


def signed(message: Message, channel: str, signer: Signer) -> Message:
    """The message with a signature in its headers."""
    kind = header_of(message.headers, KIND_HEADER) or ORDINARY
    signature = signer.sign(record_message(channel, kind, message.key, message.value))
    added = (
        (SIGNER_HEADER, signer.name.encode()),
        (SIGNATURE_HEADER, signature_text(signature)),
    )
    return message._replace(headers=message.headers + added)
