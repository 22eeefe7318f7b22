"""Checkpoint files: a version, the checksum of what follows, a count of lines, then the lines.

Kafka's have no checksum. A digit that rots would move a log start, and with it what is deleted.

A line of offsets is ``stream partition offset topic_id incarnation``. Kafka's has only the first three.
The other two say of which log the offset is (``LogId``). Without them, a node that is killed before it
has removed a deleted stream's lines takes them for those of the next stream of that name: its high
watermark would then count records as committed that never were.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.log.layout import PartitionMetadata, decode_id, encode_id
from streamlog.log.storage.disk import Disk
from streamlog.model import LogId, TopicPartition

_VERSION: Final = b"1\n"
_CHECKSUM: Final = b"crc32c "
_OFFSET_MAX: Final = 2**63 - 1


def checkpoint_lines(data: bytes, path: str) -> list[str]:
    """The lines of a checkpoint.

    Raises CorruptFile unless all of them are there, and nothing else.
    """
    if not data.startswith(_VERSION):
        raise CorruptFile(f"{path}: not a checkpoint of version 1")
    checksum, _, body = data.removeprefix(_VERSION).partition(b"\n")
    if checksum != _CHECKSUM + b"%d" % crc32c(body):
        raise CorruptFile(f"{path}: the checksum is wrong")
    try:
        count, *lines = body.decode("ascii").split("\n")
    except ValueError:
        raise CorruptFile(f"{path}: not a checkpoint") from None
    if not count.isdigit() or int(count) != len(lines) - 1 or lines[-1]:
        raise CorruptFile(f"{path}: {count!r} lines announced, the file has others")
    return lines[:-1]


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """What ``checkpoint_lines`` reads."""
    lines = list(lines)
    body = "".join(f"{line}\n" for line in (str(len(lines)), *lines)).encode("ascii")
    return b"%b%b%d\n%b" % (_VERSION, _CHECKSUM, crc32c(body), body)


def parse_offset_checkpoint(data: bytes, path: str) -> dict[LogId, int]:
    """Raises CorruptFile, which names ``path``."""
    offsets: dict[LogId, int] = {}
    for line in checkpoint_lines(data, path):
        log_id, offset = _parse(line, path)
        if log_id in offsets:
            raise CorruptFile(f"{path}: {log_id} is there twice")
        offsets[log_id] = offset
    return offsets


def _parse(line: str, path: str) -> tuple[LogId, int]:
    match line.split(" "):
        case [stream, partition, offset, topic_id, incarnation] if (
            stream and partition.isdigit() and offset.isdigit() and int(offset) <= _OFFSET_MAX
        ):
            with suppress(ValueError):
                tp = TopicPartition(stream, int(partition))
                return LogId(tp, decode_id(topic_id), int(incarnation)), int(offset)
    expected = "stream, partition, offset, topic id and incarnation"
    raise CorruptFile(f"{path}: {line!r} is not {expected}")


def _line(log_id: LogId, offset: int) -> str:
    (stream, number), stream_id, incarnation = log_id
    return f"{stream} {number} {offset} {encode_id(stream_id)} {incarnation}"


def offset_of(
    offsets: Mapping[LogId, int], tp: TopicPartition, metadata: PartitionMetadata | None
) -> int:
    """For a reader of a data folder: the offset of the log whose folder has this ``partition.metadata``.

    0 where there is none. A folder without ``metadata``, or one that does not tell the incarnation,
    is taken for the newest log of its name.
    """
    log_id = None if metadata is None else metadata.log_id(tp)
    if log_id is None:
        log_id = max((it for it in offsets if it.tp == tp), key=_incarnation, default=LogId(tp))
    return offsets.get(log_id, 0)


def _incarnation(log_id: LogId) -> int:
    return log_id.incarnation


class OffsetCheckpoint:
    """One offset for each log of a node, in a file that is replaced as a whole."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def read(self) -> dict[LogId, int]:
        """Empty if there is no file. Raises CorruptFile if it is damaged."""
        try:
            data = self._disk.read_small(str(self.path))
        except FileNotFoundError:
            return {}
        return parse_offset_checkpoint(data, str(self.path))

    def write(self, offsets: Mapping[LogId, int]) -> None:
        """Durable when it returns. Raises OSError."""
        lines = [_line(log_id, offset) for log_id, offset in sorted(offsets.items())]
        self._disk.write_small(str(self.path), encode_checkpoint(lines))
