"""Checkpoint files: a version, the checksum of what follows, a count of lines, then the lines.

Kafka's have no checksum. A digit that rots would move a log start, and with it what is deleted.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.log.storage.disk import Disk
from streamlog.model import TopicPartition

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


def parse_offset_checkpoint(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Raises CorruptFile, which names ``path``."""
    offsets: dict[TopicPartition, int] = {}
    for line in checkpoint_lines(data, path):
        match line.split(" "):
            case [stream, partition, offset] if (
                stream and partition.isdigit() and offset.isdigit() and int(offset) <= _OFFSET_MAX
            ):
                tp = TopicPartition(stream, int(partition))
            case _:
                raise CorruptFile(f"{path}: {line!r} is not stream, partition and offset")
        if tp in offsets:
            raise CorruptFile(f"{path}: {tp} is there twice")
        offsets[tp] = int(offset)
    return offsets


class OffsetCheckpoint:
    """One offset for each partition of a node, in a file that is replaced as a whole."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def read(self) -> dict[TopicPartition, int]:
        """Empty if there is no file. Raises CorruptFile if it is damaged."""
        try:
            data = self._disk.read_small(str(self.path))
        except FileNotFoundError:
            return {}
        return parse_offset_checkpoint(data, str(self.path))

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Durable when it returns. Raises OSError."""
        lines = (
            f"{stream} {number} {offset}" for (stream, number), offset in sorted(offsets.items())
        )
        self._disk.write_small(str(self.path), encode_checkpoint(lines))
