"""What a backup says of itself. Pure."""

import hashlib
import json
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from streamlog.errors import CorruptFile, InvalidRequest
from streamlog.log.layout import KEY_SUFFIX, LOG_SUFFIX
from streamlog.metadata.stream.stream_config import StreamConfig

FORMAT: Final = 1
FORMAT_ENCRYPTED: Final = 2
"""Of a backup with encrypted pieces, which a streamlog that knows none must not touch."""


FileName = Annotated[str, Field(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,254}\z")]
"""Of a file beside the others: a crafted manifest must not name one elsewhere."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Piece(_Part):
    """A file of record batches, which hold the offsets from ``base_offset`` to ``next_offset``.

    If it is ``encrypted``, its data key is in a file beside it, as a segment's is.
    """

    name: FileName
    size_bytes: int
    sha256: str
    base_offset: int
    next_offset: int
    encrypted: bool = False

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A streamlog that knows no encryption reads backups without any."""
        fields: dict[str, Any] = write(self)
        if not self.encrypted:
            del fields["encrypted"]
        return fields

    @property
    def key_name(self) -> str:
        """Of the file of its data key."""
        return self.name.removesuffix(LOG_SUFFIX) + KEY_SUFFIX


class PartitionBackup(_Part):
    """What is kept of one partition: ``pieces``, dense and in order."""

    number: Annotated[int, Field(ge=0)]
    log_start_offset: int
    """Of the partition when it was last looked at; the backup may reach below it."""
    last_epoch: int = -1
    """The leader epoch of the last batch; -1 where there is none."""
    pieces: tuple[Piece, ...] = ()

    @property
    def start_offset(self) -> int:
        """Of the first record that is here; without any, where one would be."""
        return self.pieces[0].base_offset if self.pieces else self.log_start_offset

    @property
    def next_offset(self) -> int:
        return self.pieces[-1].next_offset if self.pieces else self.log_start_offset

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


class StreamBackup(_Part):
    """A stream as it was when it was last looked at."""

    stream_id: UUID
    config: StreamConfig
    created_ms: int
    generation: int = 0
    """Grows each time the stream is backed up in full."""
    partitions: tuple[PartitionBackup, ...] = ()

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def folder(self) -> str:
        """Below ``streams``: a name may be given again, an id never is."""
        return f"{self.name[:200]}.{self.stream_id.hex}.{self.generation}"

    @property
    def is_encrypted(self) -> bool:
        """Something of it is."""
        return any(piece.encrypted for it in self.partitions for piece in it.pieces)

    @property
    def missing(self) -> list[int]:
        """Partitions that no backup has got hold of yet."""
        here = {partition.number for partition in self.partitions}
        return [number for number in range(self.config.partitions) if number not in here]

    def partition(self, number: int) -> PartitionBackup | None:
        return next((it for it in self.partitions if it.number == number), None)


class MetadataBackup(_Part):
    """A snapshot of the metadata, in the form in which nodes keep it."""

    name: FileName
    size_bytes: int
    sha256: str
    offset: int
    epoch: int


class BackupManifest(_Part):
    """The whole of a backup."""

    format: int = FORMAT
    backup_id: UUID
    cluster_id: str | None = None
    """None: it has never got as far as a cluster."""
    written_by: str
    finished_ms: int | None = None
    """When a backup of all streams last came to its end; None: never."""
    metadata: MetadataBackup | None = None
    """As of then."""
    streams: tuple[StreamBackup, ...] = ()

    def stream(self, name: str, stream_id: UUID | None = None) -> StreamBackup:
        """The newest of that name, or the one with the id. Raises InvalidRequest."""
        named = [
            it
            for it in self.streams
            if it.name == name and (stream_id is None or it.stream_id == stream_id)
        ]
        if not named:
            known = ", ".join(sorted({it.name for it in self.streams})) or "none at all"
            raise InvalidRequest(f"the backup has no stream {name!r}; it has {known}")
        return max(named, key=lambda it: it.created_ms)

    def by_id(self, stream_id: UUID) -> StreamBackup | None:
        return next((it for it in self.streams if it.stream_id == stream_id), None)

    def with_stream(self, stream: StreamBackup) -> "BackupManifest":
        others = [it for it in self.streams if it.stream_id != stream.stream_id]
        ordered = sorted((*others, stream), key=lambda it: (it.name, it.created_ms))
        return self.model_copy(update={"streams": tuple(ordered)})


def encode_manifest(manifest: BackupManifest) -> bytes:
    """JSON with a checksum of itself."""
    is_encrypted = any(stream.is_encrypted for stream in manifest.streams)
    number = max(manifest.format, FORMAT_ENCRYPTED if is_encrypted else FORMAT)
    content = manifest.model_copy(update={"format": number}).model_dump(mode="json")
    return (
        json.dumps({"sha256": _checksum(content), "backup": content}, indent=1, ensure_ascii=False)
        + "\n"
    ).encode()


def decode_manifest(data: bytes, where: str) -> BackupManifest:
    """Raises CorruptFile, InvalidRequest for one of a later streamlog."""
    try:
        body = json.loads(data)
        content = body["backup"]
        number = content["format"]
        is_right = body["sha256"] == _checksum(content)
    except (ValueError, KeyError, TypeError):
        raise CorruptFile(f"{where}: is no manifest of a backup, or is damaged") from None
    if not is_right:
        raise CorruptFile(f"{where}: is damaged: its checksum is wrong")
    if number not in (FORMAT, FORMAT_ENCRYPTED):
        raise InvalidRequest(
            f"{where}: has format {number}, and this streamlog knows {FORMAT_ENCRYPTED};"
            f" use the one that wrote it ({content.get('written_by')}) or a later one"
        )
    try:
        return BackupManifest.model_validate(content)
    except (ValidationError, InvalidRequest) as error:
        raise CorruptFile(f"{where}: does not decode: {' '.join(str(error).split())}") from None


def _checksum(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
