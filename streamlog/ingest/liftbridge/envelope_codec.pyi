"""Liftbridge's ordinary envelope, compiled: read, addressed and acknowledged.

What it reads it reads as ``envelope.decode`` does, and an address that it packs is that of
``translate.EnvelopeTranslator``. It says nothing about an envelope that is not ordinary, which
``envelope_codec.pyx`` defines; nor about broken ones.
"""

from collections.abc import Callable
from typing import final

from streamlog.nats.router import Router

SOURCES: int

@final
class AckAddresses:
    """Where the answers to the enveloped messages of one partition go, and their Acks begun."""

    def __init__(self, stream: str, *, pattern_of: Callable[[bytes], bytes]) -> None:
        """``pattern_of``: the subject of the stream by which a message of that subject came."""

def build_enveloped_acks(
    replies: bytes, head: bytes, base_offset: int, committed_ns: int, router: Router
) -> tuple[bytes, bytes]:
    """The publications for the addresses among packed replies, and the subjects, packed again. What the
    router answers is given to it.

    ``head``: of ``acks.ack_head``. Raises ValueError where the replies are cut.
    """

def open_plain(
    payload: bytes,
) -> tuple[bytes | None, bytes, tuple[tuple[bytes, bytes], ...], bytes, bytes, int] | None:
    """The fields of ``envelope.Envelope`` of an ordinary envelope; None: it is none, or not ordinary."""
