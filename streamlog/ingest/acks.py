"""What publishers are told, in the form of JetStream's PubAck. Pure."""

import json
import struct
from typing import Final

_REPLY: Final = struct.Struct("<IH")


def ack_json(stream: str, seq: int, *, duplicate: bool = False) -> bytes:
    end = b',"duplicate":true}' if duplicate else b"}"
    return b'{"stream":"%b","seq":%d%b' % (stream.encode(), seq, end)


def error_json(code: int, err_code: int, description: str, stream: str) -> bytes:
    error = {"code": code, "err_code": err_code, "description": description}
    return json.dumps({"error": error, "stream": stream, "seq": 0}, separators=(",", ":")).encode()


def publication(reply: bytes, payload: bytes) -> bytes:
    """The protocol line and payload of one publish."""
    return b"PUB %b %d\r\n%b\r\n" % (reply, len(payload), payload)


def build_acks(replies: bytes, stream: str, base_offset: int) -> bytes:
    """A positive ack for each of the packed ``replies``."""
    out = []
    position = 0
    while position < len(replies):
        delta, length = _REPLY.unpack_from(replies, position)
        position += _REPLY.size
        out.append(
            publication(
                replies[position : position + length], ack_json(stream, base_offset + delta + 1)
            )
        )
        position += length
    return b"".join(out)


def build_refusals(replies: bytes, payload: bytes) -> bytes:
    """The same answer for each of the packed ``replies``."""
    out = []
    position = 0
    while position < len(replies):
        _, length = _REPLY.unpack_from(replies, position)
        position += _REPLY.size
        out.append(publication(replies[position : position + length], payload))
        position += length
    return b"".join(out)
