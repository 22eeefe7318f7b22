"""What a subscription gathers, compiled.

What a publisher can put into a message is never an error of the connection: odd subjects are kept,
broken header lines left out, what is too large refused.
"""

from collections.abc import Callable
from typing import Any

from streamlog.ingest.liftbridge.translate import TranslatedEnvelope
from streamlog.record.codec import RecordRun

Admit = Callable[[bytes, bytes, bytes, int], bool | RecordRun]
OpenEnvelope = Callable[[bytes, bytes, bytes, bytes], TranslatedEnvelope | None]
SOURCES: int

class RecordCollector:
    """What one subscription gathered since the last take. Not thread-safe; one owner.

    ``admit(header_block, subject, reply, position)`` decides about a message with a header that
    asks for something; if it says no, the message is not stored and it has seen to the answer; so
    it has where it names a run, which has room, for the message to go to: this one or another.
    ``position`` is the message's place in this one.

    ``open_envelope(payload, header_block, subject, reply)`` looks into what begins as an envelope
    of Liftbridge's does; None: it is none.

    ``keyed``: of a compacted stream. A message without a key is not stored, and one without a
    payload becomes a record without a value, which is how a key is deleted.
    """

    value_bytes_max: int
    """Of headers and payload together, as NATS counts."""
    admit: Admit | None
    open_envelope: OpenEnvelope | None
    owner: Any
    keyed: bool
    transform: Callable[[bytes], bytes] | None
    """Makes another subject of a message's."""

    def __init__(
        self,
        *,
        value_bytes_max: int,
        admit: Admit | None = None,
        open_envelope: OpenEnvelope | None = None,
        owner: Any = None,
    ) -> None: ...
    @property
    def run(self) -> RecordRun: ...
    @property
    def reply_count(self) -> int: ...
    @property
    def enveloped(self) -> bool:
        """One of the replies is no subject, but packed ``addresses``."""

    @property
    def oversize_count(self) -> int: ...
    @property
    def keyless_count(self) -> int: ...
    def take_replies(self) -> bytes:
        """Acks wanted: repeatedly u32 offset delta, u16 length, both little-endian, reply."""

    def take_oversize(self) -> list[bytes]:
        """The replies, b"" for none, of messages that were too large; they are not in the run."""

    def take_keyless(self) -> list[bytes]:
        """Likewise of messages that must have a key, and have none."""
