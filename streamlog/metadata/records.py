"""What the metadata log holds: one JSON object per record, with a type tag and a version. Pure.

A change is one batch: all of its records or, after a crash, none. A type or version that is not
known here was written by a later streamlog; it is refused, never skipped.
"""

import json
from typing import ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from streamlog.errors import CorruptData, InvalidRequest
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId


class MetadataRecord(BaseModel):
    """A fact. ``VERSION`` grows when a reader of the old form would misread the new one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    VERSION: ClassVar[int] = 1


class NodeRegistered(MetadataRecord):
    """A node has started; an incarnation is one run of its process."""

    node_id: NodeId
    incarnation: UUID
    host: str
    port: int
    rack: str | None = None


class StreamCreated(MetadataRecord):
    """A stream is there; its partitions follow as PartitionChanged."""

    stream_id: UUID
    config: StreamConfig
    created_ms: int


class StreamUpdated(MetadataRecord):
    """A stream has another configuration."""

    config: StreamConfig


class StreamDeleted(MetadataRecord):
    """A stream is gone, and so are its partitions. The id is never used again."""

    name: str
    stream_id: UUID


class PartitionChanged(MetadataRecord):
    """The whole state of one partition; ``partition_epoch`` grows with each change."""

    stream: str
    partition: int
    replicas: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: int
    isr: tuple[NodeId, ...]
    partition_epoch: int


_TYPES: dict[str, type[MetadataRecord]] = {
    kind.__name__: kind
    for kind in (NodeRegistered, StreamCreated, StreamUpdated, StreamDeleted, PartitionChanged)
}


def encode_record(record: MetadataRecord) -> bytes:
    """One line of JSON, the tag first so that a person finds it."""
    body = record.model_dump(mode="json")
    tagged = {"type": type(record).__name__, "version": record.VERSION, **body}
    return json.dumps(tagged, separators=(",", ":")).encode()


def decode_record(data: bytes) -> MetadataRecord:
    """The record; CorruptData if it is none, or of a type or version that is not known here."""
    try:
        body = json.loads(data)
        tag, version = body.pop("type"), body.pop("version")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise CorruptData(f"not a metadata record: {data[:80]!r}") from None
    kind = _TYPES.get(tag) if isinstance(tag, str) else None
    if kind is None or not isinstance(version, int) or not 1 <= version <= kind.VERSION:
        raise CorruptData(f"metadata record {tag!r} version {version!r} is not known here")
    try:
        return kind.model_validate(body)
    except (ValidationError, InvalidRequest) as error:
        raise CorruptData(f"metadata record {tag} does not decode: {error}") from None
