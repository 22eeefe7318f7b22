"""JetStream's answers to a publisher; the many positive ones are built by compiled code. Pure.

What stock clients check: an ack has ``stream`` and ``seq``; an error has, beside them, ``error``
with ``code``, ``err_code`` and ``description`` and no other field.
"""

import json

from streamlog.ingest.acks._acks import build_acks, build_refusals

__all__ = [
    "ack_head",
    "ack_json",
    "batch_ack_json",
    "build_acks",
    "build_refusals",
    "error_json",
    "publication",
]


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


def batch_ack_json(stream: str, seq: int, batch_id: str, count: int) -> bytes:
    """A positive ack of a whole batch; ``seq``: of its last message."""
    ack = {"stream": stream, "seq": seq, "batch": batch_id, "count": count}
    return json.dumps(ack, separators=(",", ":")).encode()


def error_json(code: int, err_code: int, description: str, stream: str) -> bytes:
    """A refusal: the message is not in the stream."""
    error = {"code": code, "err_code": err_code, "description": description}
    answer = {"error": error, "stream": stream, "seq": 0}
    return json.dumps(answer, separators=(",", ":")).encode()
