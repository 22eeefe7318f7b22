"""Small files of the metadata folder: images as JSON lines, and the epoch. Blocking calls.

A snapshot ``<offset>-<epoch>.checkpoint`` (Kafka's name for it) is a line with the checksum of the
rest, a line that says what follows, and one line for each record of the image. It is replaced as a
whole.
"""

import json
import re
from pathlib import Path

from crc32c import crc32c

from streamlog.errors import CorruptFile, StreamlogError
from streamlog.log.disk import Disk
from streamlog.metadata.image import Image
from streamlog.metadata.records import decode_record, encode_record

SNAPSHOTS_KEPT = 2
"""The older one, with the log from there on, stands in when the newer one is damaged."""

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_VERSION = 1


def write_snapshot(disk: Disk, directory: Path, image: Image) -> Path:
    """Keep ``image``. Raises OSError."""
    lines = [encode_record(record) for record in image.records()]
    body = b"".join(line + b"\n" for line in lines)
    head = {
        "version": _VERSION,
        "cluster_id": image.cluster_id,
        "offset": image.offset,
        "epoch": image.epoch,
        "records": len(lines),
    }
    content = json.dumps(head).encode() + b"\n" + body
    path = directory / f"{image.offset:020d}-{image.epoch:010d}.checkpoint"
    disk.write_small(str(path), b"crc32c %d\n" % crc32c(content) + content)
    return path


def read_snapshot(disk: Disk, path: Path) -> Image:
    """The image; CorruptFile if the file is not what was written. Raises OSError."""
    checksum, _, content = disk.read_small(str(path)).partition(b"\n")
    if checksum != b"crc32c %d" % crc32c(content):
        raise CorruptFile(f"{path}: the checksum is wrong")
    first, _, body = content.partition(b"\n")
    try:
        head = json.loads(first)
        if head["version"] != _VERSION:
            raise CorruptFile(f"{path}: version {head['version']} is not known here")
        image = Image(head["cluster_id"])
        offset, epoch = int(head["offset"]), int(head["epoch"])
    except (ValueError, KeyError, TypeError):
        raise CorruptFile(f"{path}: the first line is damaged") from None
    try:
        records = [decode_record(line) for line in body.splitlines()]
        return image.restored(records, offset=offset, epoch=epoch)
    except CorruptFile:
        raise
    except StreamlogError as error:
        raise CorruptFile(f"{path}: {error}") from None


def find_snapshots(disk: Disk, directory: Path) -> list[tuple[int, Path]]:
    """Offsets and files, the newest first."""
    names = (_NAME.fullmatch(name) for name in disk.sizes(str(directory)))
    return sorted(((int(m[1]), directory / m[0]) for m in names if m), reverse=True)


def read_epoch(disk: Disk, path: Path) -> int:
    """The last epoch used here; 0 where there was none. CorruptFile if that cannot be told."""
    try:
        content = json.loads(disk.read_small(str(path)))
        epoch = content["epoch"]
        if content["crc32c"] != _epoch_crc(epoch):
            raise ValueError
        return int(epoch)
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError):
        raise CorruptFile(f"{path}: is damaged") from None


def write_epoch(disk: Disk, path: Path, epoch: int) -> None:
    """Returns once it is on the disk: an epoch is used only after that. Raises OSError."""
    content = {"version": _VERSION, "epoch": epoch, "crc32c": _epoch_crc(epoch)}
    disk.write_small(str(path), json.dumps(content).encode() + b"\n")


def _epoch_crc(epoch: object) -> int:
    return crc32c(str(epoch).encode())
