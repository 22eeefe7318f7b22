"""``partition.metadata``: whose a partition's folder is, in Kafka's form."""

import base64
from typing import Final
from uuid import UUID

METADATA_NAME: Final = "partition.metadata"


def encode_mark(stream_id: UUID) -> bytes:
    text = base64.urlsafe_b64encode(stream_id.bytes).rstrip(b"=")
    return b"version: 0\ntopic_id: " + text + b"\n"


def decode_mark(data: bytes) -> UUID:
    """Raises ValueError."""
    lines = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines())
    if lines.get("version") != "0" or "topic_id" not in lines:
        raise ValueError
    return UUID(bytes=base64.b64decode(lines["topic_id"] + "==", altchars=b"-_", validate=True))
