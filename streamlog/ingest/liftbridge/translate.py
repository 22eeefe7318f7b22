"""What an enveloped message is to its stream. Pure.

Its headers count as those of NATS do: they are stored after them, and ask for what they ask for.
The policy counts where an Ack may be wanted, and is one more header then, which is not stored.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from streamlog.ingest.admission.publish_headers import block_of, key_of
from streamlog.ingest.liftbridge.addresses import ReplyAddress, is_address, unpack
from streamlog.ingest.liftbridge.envelope import ALL, LEADER, NONE, ack_begun, decode
from streamlog.ingest.pub_ack_format import ROUTED
from streamlog.metadata.stream.subjects import overlap

_WISHES: Final = {
    LEADER: b"Streamlog-Ack: leader\r\n",
    ALL: b"Streamlog-Ack: all\r\n",
    NONE: b"Streamlog-Ack: none\r\n",
}
_OURS: Final = frozenset({b"subject", b"reply"})
"""Headers that tell what NATS has said."""


class TranslatedEnvelope(NamedTuple):
    """The parts of a record, and what is asked of the stream."""

    key: bytes | None
    value: bytes
    headers: list[tuple[bytes, bytes]]
    block: bytes
    """Of headers, NATS's and those of the envelope, for the decision."""
    address: bytes
    """Packed, or the reply subject where that is all; empty: no answer is wanted."""


class EnvelopeTranslator:
    """Of one partition."""

    def __init__(self, stream: str) -> None:
        self._stream = stream.encode()

    def open(
        self,
        payload: bytes,
        block: bytes,
        subject: bytes,
        reply: bytes,
        *,
        patterns: Iterable[str],
        now_ns: int,
    ) -> TranslatedEnvelope | None:
        """None: it is no envelope. ``patterns``: the stream's subjects. ``reply`` begins with ``ROUTED``
        where the message came through the node's router, also without a reply; the inbox does then, too.
        """
        envelope = decode(payload)
        if envelope is None:
            return None
        headers = [header for header in envelope.headers if header[0] not in _OURS]
        route = ROUTED if reply.startswith(ROUTED) else b""
        if reply == ROUTED:
            reply = b""
        inbox = route + envelope.ack_inbox if envelope.ack_inbox else b""
        policy = envelope.ack_policy if envelope.ack_policy in _WISHES else ALL
        if not inbox and policy != NONE:
            return TranslatedEnvelope(
                envelope.key, envelope.value, headers, block_of(headers, block), reply
            )
        ack = ack_begun(
            envelope,
            stream=self._stream,
            partition_subject=pattern_of(patterns, subject),
            subject=subject,
            received_ns=now_ns,
        )
        address = ReplyAddress(reply if reply != inbox else b"", inbox, policy, ack).packed()
        block = block_of(headers, block, _WISHES[policy])
        return TranslatedEnvelope(envelope.key, envelope.value, headers, block, address)


def envelope_key(payload: bytes, header_key: bytes | None) -> bytes | None:
    """Of a message that may be in an envelope; ``header_key`` is what NATS's headers say."""
    envelope = decode(payload)
    if envelope is None:
        return header_key
    if envelope.key is not None:
        return envelope.key
    return header_key if header_key is not None else key_of(list(envelope.headers))


def wish_of(reply: bytes) -> bytes:
    """The header line that the policy stands for; empty where there is none."""
    return _WISHES[unpack(reply).policy] if is_address(reply) else b""


def pattern_of(patterns: Iterable[str], subject: bytes) -> bytes:
    """The one by which the message came."""
    text = subject.decode(errors="replace")
    return next((pattern for pattern in patterns if overlap(pattern, text)), text).encode()
