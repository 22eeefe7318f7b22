"""The headers by which a publisher asks for something. Pure.

Names match exactly, as JetStream's do, and so do values, blanks at their end included; of a
repeated one the first counts. One with a line end in its value asks for nothing.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final

from streamlog.ingest.admission.refusal import PublishRefusal

Headers = Mapping[bytes, bytes]

API_LEVEL: Final = 4
"""Of JetStream's API: that of its version 2.14."""

KEY_HEADER: Final = b"streamlog-key"
"""In lower case: it is found in any."""

_HEADER = re.compile(rb"\r\n(Nats-[^:\r\n]*|Streamlog-Ack):[ \t]*+([^\r\n]*+)(?=\r\n)")
_STATUS = b"NATS/1.0"
_END = b"\r\n\r\n"
_LINE_END = b"\r\n"
_LINE_ENDS = frozenset(b"\r\n")


class AckPolicy(Enum):
    """When the publisher is answered."""

    COMMITTED = auto()
    APPENDED = auto()
    NEVER = auto()


def publish_headers(header_block: bytes) -> dict[bytes, bytes]:
    """Those of a NATS header block that matter, by name: of what an inflow stores, what
    ``record.published.asked`` finds in the record.
    """
    found: dict[bytes, bytes] = {}
    for name, value in _HEADER.findall(header_block, 0, _end_of(header_block)):
        found.setdefault(name, value)
    return found


def key_of(lines: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The record's key: the value of the first ``Streamlog-Key`` header, if there is one."""
    return next((content for name, content in lines if name.lower() == KEY_HEADER), None)


def block_of(lines: Iterable[tuple[bytes, bytes]], begin: bytes = b"", more: bytes = b"") -> bytes:
    """A header block of these, behind those of the block ``begin``, and with the lines ``more``.
    One that does not fit into a line is left out: it asks for nothing.
    """
    fit = (
        b"%b: %b\r\n" % (name, value)
        for name, value in lines
        if b":" not in name and not _LINE_ENDS & {*name, *value}
    )
    begin = begin[: _end_of(begin)] or _STATUS + b"\r\n"
    return b"%b%b%b\r\n" % (begin, b"".join(fit), more)


def _end_of(header_block: bytes) -> int:
    """That of its last line: one without an end is none, nor is what comes after an empty one."""
    if not header_block.startswith(_STATUS):
        return 0
    end = header_block.find(_END)
    if end < 0:
        end = header_block.rfind(_LINE_END)
    return end + len(_LINE_END) if end >= 0 else 0


# Headers of JetStream that ask for what streamlog does not do. Each is refused as a stream of JetStream refuses
# it that has the feature switched off: to drop such a header in silence would promise what is not kept.


def _unsupported(code: int, err_code: int, description: str) -> PublishRefusal:
    return PublishRefusal(code, err_code, description, "unsupported")


_LEVEL = _unsupported(412, 10185, "JetStream minimum api level required")
_SOURCES = _unsupported(400, 10227, "message stream source header is not allowed")
_NOT_IN_BATCHES = _unsupported(
    400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"
)


def level_objection(headers: Headers) -> PublishRefusal | None:
    """What a batch asks for of the API."""
    level = headers.get(b"Nats-Required-Api-Level")
    known = not level or (level.isdigit() and len(level) < 10 and int(level) <= API_LEVEL)
    return None if known else _LEVEL


def sources(headers: Headers) -> PublishRefusal | None:
    return _SOURCES if headers.get(b"Nats-Stream-Source") else None


def not_in_batches(headers: Headers) -> PublishRefusal | None:
    """What JetStream does not take in a batch."""
    return _NOT_IN_BATCHES if headers.get(b"Nats-Expected-Last-Msg-Id") else None
