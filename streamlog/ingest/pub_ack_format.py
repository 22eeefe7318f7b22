"""What publishers are told, in bytes, and who is to be told: JetStream's acks and advisories. Pure.

What stock clients check: an ack has ``stream`` and ``seq``; an error has, beside them, ``error``
with ``code``, ``err_code`` and ``description`` and no other field. The many positive acks are built
by ``Router.acknowledge``. An advisory is a JSON object with a type, an id, a time, and the domain.

Reply subjects are packed, as a collector gives them: u32 position, u16 length, subject. Those that the
node's router answers, since their messages came through it, begin with ``ROUTED``.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from streamlog.ingest.admission.publish_headers import AckPolicy

PREFIX: Final = "$JS.EVENT.ADVISORY"
TYPES: Final = "io.nats.jetstream.advisory.v1"
ROUTED: Final = b"\0"
"""No reply subject begins so: NATS takes such a byte, but no client that wants an answer sends it."""
_ENTRY: Final = struct.Struct("<IH")


def publication(reply: bytes, payload: bytes) -> bytes:
    """One answer as NATS wants it."""
    return b"PUB %b %d\r\n%b\r\n" % (reply, len(payload), payload)


def ack_head(stream: str) -> bytes:
    """Of each positive ack of the stream, up to its sequence."""
    return f'{{"stream":{json.dumps(stream)},"seq":'.encode()


def ack_json(stream: str, seq: int, duplicate: bool = False) -> bytes:
    """A positive ack; ``duplicate``: of a message that is in the stream already, as ``seq``."""
    ack: dict[str, object] = {"stream": stream, "seq": seq}
    if duplicate:
        ack["duplicate"] = True
    return json.dumps(ack, separators=(",", ":")).encode()


def counter_ack_json(stream: str, seq: int, total: int) -> bytes:
    """A positive ack of an increment, with what the counter is now."""
    ack = {"stream": stream, "seq": seq, "val": str(total)}
    return json.dumps(ack, separators=(",", ":")).encode()


def batch_ack_json(
    stream: str, seq: int, batch_id: str, count: int, *, duplicate: bool = False
) -> bytes:
    """A positive ack of a whole batch; ``seq``: of its last message."""
    ack: dict[str, object] = {"stream": stream, "seq": seq}
    if duplicate:
        ack["duplicate"] = True
    ack |= {"batch": batch_id, "count": count}
    return json.dumps(ack, separators=(",", ":")).encode()


def flow_ack_json(seq: int, messages: int) -> bytes:
    """Of a fast batch: how far it is stored, and after how many messages the next one comes."""
    return b'{"type":"ack","seq":%d,"msgs":%d}' % (seq, messages)


def flow_gap_json(last_seq: int, seq: int) -> bytes:
    """Of a fast batch: ``last_seq`` was to come, and ``seq`` came."""
    return b'{"type":"gap","last_seq":%d,"seq":%d}' % (last_seq, seq)


def flow_error_json(seq: int, code: int, err_code: int, description: str) -> bytes:
    """Of a fast batch: message ``seq`` is not stored."""
    error = {"code": code, "err_code": err_code, "description": description}
    told = {"type": "err", "seq": seq, "error": error}
    return json.dumps(told, separators=(",", ":")).encode()


def error_json(code: int, err_code: int, description: str, stream: str) -> bytes:
    """A refusal: the message is not in the stream."""
    error = {"code": code, "err_code": err_code, "description": description}
    answer = {"error": error, "stream": stream, "seq": 0}
    return json.dumps(answer, separators=(",", ":")).encode()


def advisory(
    kind: str,
    fields: dict[str, Any],
    *,
    event_id: str,
    now_ms: int,
    domain: str,
    types: str = TYPES,
) -> bytes:
    """``kind``: the last word of its type. Fields that are None are left out."""
    said = {"type": f"{types}.{kind}", "id": event_id, "timestamp": timestamp(now_ms), **fields}
    said["domain"] = domain
    present = {name: value for name, value in said.items() if value is not None}
    return json.dumps(present, separators=(",", ":")).encode()


def timestamp(ms: int) -> str:
    """As Go writes times."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Replies(NamedTuple):
    """Packed reply subjects, and how many they are."""

    packed: bytes = b""
    reply_count: int = 0
    enveloped: bool = False
    """There may be ``addresses`` among them."""


def iter_replies(replies: bytes) -> Iterator[tuple[int, bytes]]:
    """(position in the run, reply subject) of each."""
    at = 0
    while at < len(replies):
        position, length = _ENTRY.unpack_from(replies, at)
        at += _ENTRY.size
        yield position, replies[at : at + length]
        at += length


def pack_reply(position: int, reply: bytes) -> bytes:
    return _ENTRY.pack(position, len(reply)) + reply


def select_replies(
    replies: Replies, ack: AckPolicy, *, default: AckPolicy, wishes: Mapping[int, AckPolicy]
) -> Replies:
    """Those to be answered at ``ack``: what the message at that position wishes, or the default."""
    if not wishes:
        return replies if ack is default else Replies()
    selected = [
        pack_reply(position, reply)
        for position, reply in iter_replies(replies.packed)
        if wishes.get(position, default) is ack
    ]
    return Replies(b"".join(selected), len(selected), replies.enveloped)
