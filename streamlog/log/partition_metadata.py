"""``partition.metadata``: whose a partition's folder is, in Kafka's form with one line more: the
incarnation of the replica that the folder was made for.
"""

import base64
from typing import Final, NamedTuple
from uuid import UUID

METADATA_NAME: Final = "partition.metadata"


class PartitionMetadata(NamedTuple):
    """What a partition's folder is for."""

    stream_id: UUID
    incarnation: int | None
    """None: it is not told."""


def encode_mark(stream_id: UUID, incarnation: int) -> bytes:
    text = base64.urlsafe_b64encode(stream_id.bytes).rstrip(b"=")
    return b"version: 0\ntopic_id: %b\nincarnation: %d\n" % (text, incarnation)


def decode_mark(data: bytes) -> PartitionMetadata:
    """Raises ValueError."""
    lines = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines())
    if lines.get("version") != "0" or "topic_id" not in lines:
        raise ValueError
    stream_id = base64.b64decode(lines["topic_id"] + "==", altchars=b"-_", validate=True)
    incarnation = int(lines["incarnation"]) if "incarnation" in lines else None
    return PartitionMetadata(UUID(bytes=stream_id), incarnation)
