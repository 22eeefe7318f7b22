"""Names of the files in a partition's folder, and ``partition.metadata``: which partition it is for.

The latter is in Kafka's form with one line more: the incarnation of the replica that the folder was
made for.
"""

import base64
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.model import LogId, TopicPartition

METADATA_NAME: Final = "partition.metadata"


class PartitionMetadata(NamedTuple):
    """What a partition's folder is for."""

    stream_id: UUID
    incarnation: int | None
    """None: it is not told."""

    def log_id(self, tp: TopicPartition) -> LogId | None:
        """Of the log in the folder; None where the file does not tell it."""
        return None if self.incarnation is None else LogId(tp, self.stream_id, self.incarnation)


def encode_id(stream_id: UUID) -> str:
    """As Kafka writes a topic id."""
    return base64.urlsafe_b64encode(stream_id.bytes).rstrip(b"=").decode("ascii")


def decode_id(text: str) -> UUID:
    """Raises ValueError."""
    return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))


def encode_mark(stream_id: UUID, incarnation: int) -> bytes:
    lines = f"version: 0\ntopic_id: {encode_id(stream_id)}\nincarnation: {incarnation}\n"
    return lines.encode("ascii")


def decode_mark(data: bytes) -> PartitionMetadata:
    """Raises ValueError."""
    lines = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines())
    if lines.get("version") != "0" or "topic_id" not in lines:
        raise ValueError
    incarnation = int(lines["incarnation"]) if "incarnation" in lines else None
    return PartitionMetadata(decode_id(lines["topic_id"]), incarnation)


LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
KEY_SUFFIX: Final = ".key"
"""Of the data key of a segment with encrypted batches."""
EPOCHS_NAME: Final = "leader-epoch-checkpoint"
TEMPORARY_SUFFIX: Final = ".tmp"
CLEANED_SUFFIX: Final = ".cleaned"
"""After a segment's name: what compaction writes; of no use until it is whole."""
SWAP_SUFFIX: Final = ".swap"
"""After a segment's name: it is whole, and takes the place of all segments that it reaches over."""
DAMAGED_SUFFIX: Final = ".damaged"
"""After a segment's name: what was found damaged, kept for an operator to look at."""

DELETED_SUFFIX: Final = ".deleted"
"""After any file's name and a number: it belongs to nothing, and is about to be removed."""

_DIGITS: Final = 20


def segment_stem(base_offset: int) -> str:
    return f"{base_offset:0{_DIGITS}d}"


def base_offset_of(name: str) -> int | None:
    """The base offset in a file's name, with whatever suffix; None if it is no segment's file."""
    stem = name.partition(".")[0]
    if len(stem) == _DIGITS and stem.isascii() and stem.isdigit() and int(stem) < 2**63:
        return int(stem)
    return None


def segment_base_offsets(names: Iterable[str]) -> list[int]:
    """The base offsets of the segments among ``names``, in order."""
    logs = (name for name in names if name.endswith(LOG_SUFFIX))
    found = ((name, base_offset_of(name)) for name in logs)
    return sorted(base for name, base in found if base is not None and is_log_name(name, base))


def is_log_name(name: str, base_offset: int) -> bool:
    return name == segment_stem(base_offset) + LOG_SUFFIX
