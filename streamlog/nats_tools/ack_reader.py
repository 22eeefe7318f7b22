"""Acks in raw reads: counted and found by number, without an object for each. Pure.

An ack has one ``"seq"``, which no other line has, so that counts it. The first refusal raises:
a measurement cannot continue.
"""

import re
from typing import Final

from streamlog.errors import NodeUnreachable, StreamNotFound
from streamlog.nats_tools.publisher import nobody_listens, published

TAIL_BYTES: Final = 1024
"""Kept from one read to the next: an ack, or the beginning of a refusal, is shorter."""

_MARK: Final = b'"seq"'
_NUMBER: Final = re.compile(rb"MSG [^ ]+\.(\d+) [^\r]*\r\n")
_SEQUENCE: Final = re.compile(rb'"seq":\s*(\d+)')
_REFUSAL: Final = re.compile(rb'(\{[^\r\n]*"error"[^\r\n]*)\r\n')
_SERVER_ERROR: Final = re.compile(rb"-ERR '([^'\r\n]*)")


class AckReader:
    """Takes what the connection brings, in pieces of any size."""

    def __init__(self, subject: str) -> None:
        self.count = 0
        """Acks so far."""
        self._subject = subject
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """What was whole only now: the last read's cut line, and this one's whole lines.

        Raises the first refusal as one of our errors.
        """
        data = self._tail + chunk
        self.count += data.count(_MARK, max(0, len(self._tail) - len(_MARK) + 1))
        self._refuse(data)
        cut = data.rfind(b"\n") + 1
        begin = self._tail.rfind(b"\n") + 1
        self._tail = data[-TAIL_BYTES:] if len(data) - cut < TAIL_BYTES else data[cut:]
        return data[begin:cut]

    def numbers(self, chunk: bytes) -> list[int]:
        """Feed, and the numbers that end the reply subjects of the answers."""
        return [int(number) for number in _NUMBER.findall(self.feed(chunk))]

    @property
    def last_sequence(self) -> int | None:
        """Of the ack that came last."""
        found = _SEQUENCE.findall(self._tail)
        return int(found[-1]) if found else None

    def _refuse(self, data: bytes) -> None:
        if b"NATS/1.0 503" in data:
            raise StreamNotFound(nobody_listens(self._subject))
        if b'"error"' in data and (refusal := _REFUSAL.search(data)):
            published(refusal[1])  # raises what it stands for
        if b"-ERR" in data and (said := _SERVER_ERROR.search(data)):
            raise NodeUnreachable(f"NATS says: {said[1].decode(errors='replace')}")
