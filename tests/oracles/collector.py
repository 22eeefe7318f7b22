"""What a subscription gathers, in plain Python, which the compiled one is held to.

What a publisher can put into a message is never an error of the connection: odd subjects are kept,
broken header lines left out, what is too large refused.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.ingest.admission.publish_headers import key_of
from streamlog.record.batch import PUBLISHED
from tests.oracles.codec import RecordRun

if TYPE_CHECKING:
    from streamlog.ingest.liftbridge.translate import TranslatedEnvelope

Admit = Callable[[bytes, bytes, bytes, int], bool | RecordRun]
OpenEnvelope = Callable[[bytes, bytes, bytes, bytes], "TranslatedEnvelope | None"]
Header = tuple[bytes, bytes]
Parts = tuple[bytes | None, bytes, list[Header]]
"""Key, value and headers of a record."""

REPLY_BYTES_MAX: Final = 2**16 - 1
RECORD_OVERHEAD_BYTES: Final = 64
"""More than the lengths and counts in a record take, those of its own headers apart."""
HEADER_GROWTH: Final = 3
"""More than a header block grows when it becomes headers and a key."""
PAIR_OVERHEAD_BYTES: Final = 16
"""More than the lengths of a header out of an envelope take."""

ENVELOPE_MAGIC: Final = bytes.fromhex("b90e43b4")
ENVELOPE_BYTES_MIN: Final = 8
STATUS_LINE: Final = b"NATS/1.0"
INBOX_PREFIX: Final = b"_INBOX."
DECIDED_PREFIXES: Final = (b"nats-", b"streamlog-ack")

_REPLY: Final = struct.Struct("<IH")
_BLANKS: Final = b" \t"


class Message(NamedTuple):
    """What a frame holds."""

    subject: bytes
    reply: bytes
    block: bytes
    """Of headers, as it came; empty: there are none."""
    payload: bytes


def _answered(reply: bytes) -> bytes:
    """A reply that the router would answer is not for a message that came over the link."""
    return b"" if reply.startswith(b"\0") else reply


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

    def __init__(
        self,
        *,
        message_bytes_max: int,
        admit: Admit | None = None,
        open_envelope: OpenEnvelope | None = None,
        owner: object = None,
    ) -> None:
        self.message_bytes_max = message_bytes_max
        """Of headers and payload together, as NATS counts."""
        self.admit = admit
        self.open_envelope = open_envelope
        self.owner = owner
        self.run = RecordRun(attributes=PUBLISHED)
        self.keyed = False
        self.transform: Callable[[bytes], bytes] | None = None
        """Makes another subject of a message's."""
        self.reply_count = 0
        self.enveloped = False
        """One of the replies is no subject, but packed ``addresses``."""
        self.oversize_count = 0
        self.keyless_count = 0
        self.touched = False
        """It is in the list that the feed under way returns."""
        self._replies = bytearray()
        self._oversize: list[bytes] = []
        self._keyless: list[bytes] = []

    def take_replies(self) -> bytes:
        """Acks wanted: repeatedly u32 offset delta, u16 length, both little-endian, reply."""
        replies = bytes(self._replies)
        self._replies.clear()
        self.reply_count = 0
        self.enveloped = False
        return replies

    def take_oversize(self) -> list[bytes]:
        """The replies, b"" for none, of messages that were too large; they are not in the run."""
        oversize, self._oversize = self._oversize, []
        self.oversize_count = 0
        return oversize

    def take_keyless(self) -> list[bytes]:
        """Likewise of messages that must have a key, and have none."""
        keyless, self._keyless = self._keyless, []
        self.keyless_count = 0
        return keyless

    def gather(self, message: Message) -> None:
        """One message becomes one record, if it may."""
        if self.transform is not None:
            message = message._replace(subject=self.transform(message.subject))
        opened = self._opened(message)
        if opened is not None:
            self._gather_opened(message, opened)
            return
        subject, reply, block, payload = message
        reply = _answered(reply)
        if self._has_no_room(message, len(reply)):
            self._oversize.append(reply)
            self.oversize_count += 1
            return
        headers = header_lines(block)
        key = key_of(headers)
        if self.keyed and key is None:
            self._keyless.append(reply)
            self.keyless_count += 1
            return
        admitted: bool | RecordRun = True
        if self.admit is not None and any(
            name.lower().startswith(DECIDED_PREFIXES) for name, _ in headers
        ):
            admitted = self.admit(block, subject, reply, self.run.count)
        self._store(admitted, (key, payload, _told(message) + headers), reply)

    def _opened(self, message: Message) -> "TranslatedEnvelope | None":
        """What is in an envelope; None if it is none."""
        subject, reply, block, payload = message
        if self.open_envelope is None or not is_like_an_envelope(payload):
            return None
        return self.open_envelope(payload, block, subject, _answered(reply))

    def _gather_opened(self, message: Message, opened: "TranslatedEnvelope") -> None:
        """The same for a message that came in an envelope."""
        key, value, pairs, block, address = opened
        if self._has_no_room(message, len(address), PAIR_OVERHEAD_BYTES * len(pairs)):
            self._oversize.append(address)
            self.oversize_count += 1
            return
        headers = header_lines(message.block) + pairs
        if key is None:
            key = key_of(headers)
        if self.keyed and key is None:
            self._keyless.append(address)
            self.keyless_count += 1
            return
        admitted: bool | RecordRun = True
        if self.admit is not None:
            admitted = self.admit(block, message.subject, address, self.run.count)
        if self._store(admitted, (key, value, _told(message) + headers), address):
            self.enveloped = True

    def _store(self, admitted: bool | RecordRun, parts: Parts, reply: bytes) -> bool:
        """Where it may be; whether its reply is packed, or would be if there was one."""
        if not admitted:
            return False
        key, value, headers = parts
        run = self.run if isinstance(admitted, bool) else admitted
        position = run.append(key, None if self.keyed and not value else value, headers)
        if not isinstance(admitted, bool):
            return False
        if reply:
            self._replies += _REPLY.pack(position, len(reply)) + reply
            self.reply_count += 1
        return True

    def _has_no_room(self, message: Message, answer_bytes: int, extra_bytes: int = 0) -> bool:
        """Too large; or the reply cannot be packed, or the run has no room: the last seen too early
        rather than too late, for who was admitted must be stored."""
        subject, reply, block, payload = message
        size = RECORD_OVERHEAD_BYTES + HEADER_GROWTH * len(block) + extra_bytes
        size += len(subject) + len(reply) + len(payload)
        return (
            len(block) + len(payload) > self.message_bytes_max
            or answer_bytes > REPLY_BYTES_MAX
            or size > self.run.bytes_max - self.run.size_bytes
        )


def is_like_an_envelope(payload: bytes) -> bool:
    """It is worth a look whether it is one."""
    return len(payload) >= ENVELOPE_BYTES_MIN and payload.startswith(ENVELOPE_MAGIC)


def _told(message: Message) -> list[Header]:
    """Headers for what NATS has said."""
    told = [(b"subject", message.subject)]
    if message.reply and not message.reply.startswith(INBOX_PREFIX):
        told.append((b"reply", message.reply))
    return told


def header_lines(block: bytes) -> list[Header]:
    """(name, value) of each well-formed line of a NATS header block; the rest is left out.

    A name that is not UTF-8 is none: Kafka's clients could not decode the record.
    """
    if not block.startswith(STATUS_LINE):
        return []
    headers = []
    for line in block.split(b"\r\n")[1:-1]:  # what follows the last CRLF is no line
        if not line:
            break
        name, colon, content = line.partition(b":")
        if colon and name and _is_text(name):
            headers.append((name, content.lstrip(_BLANKS)))
    return headers


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
