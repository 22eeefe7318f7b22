"""Images as JSON lines, to be kept and to be sent. Pure, but for the files.

A snapshot ``<offset>-<epoch>.checkpoint`` (Kafka's name for it) is a line with the checksum of the
rest, a line that says what follows, and one line for each record of the image. It is replaced as a
whole. A file is written and read a piece at a time: with 100,000 streams it has more than 100 MiB.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from crc32c import crc32c

from streamlog.errors import BrokenInvariant, CorruptFile, FeatureLevelUnknown, StreamlogError
from streamlog.log.storage.disk import Disk, DiskFile, write_all
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import decode_record, encode_record
from streamlog.raft.messages import SnapshotId

SNAPSHOTS_KEPT = 2
"""The older one, with the log from there on, stands in when the newer one is damaged."""

SNAPSHOT_RECORDS_MIN = 1_000

PIECE_BYTES: Final = 1 << 20
"""Written and read at once."""

_LONG: Final = 2**32 - 1
"""A checksum of ten digits, and more records than there can be."""
_WHITE: Final = b" \t"
_WHITE_BYTES: Final = 8
"""Each of these 256 ends gives another checksum, and three of four checksums have ten digits."""
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_VERSION = 1


def snapshot_id(image: MetadataImage) -> SnapshotId:
    return SnapshotId(image.offset, image.epoch)


def is_due(image: MetadataImage, newest: SnapshotId | None) -> bool:
    """So many records that replaying them would cost as much as a snapshot."""
    size = len(image.nodes) + 2 * len(image.streams) + len(image.quotas) + len(image.users)
    size += len(image.rules)
    behind = image.offset - (newest.end_offset if newest else 0)
    return behind > max(SNAPSHOT_RECORDS_MIN, size)


def encode_snapshot(image: MetadataImage) -> bytes:
    lines = [encode_record(record) + b"\n" for record in image.records()]
    lines.insert(0, _head(image, len(lines)) + b"\n")
    checksum = 0
    for line in lines:  # the whole, hundreds of MiB perhaps, is put together once
        checksum = crc32c(line, checksum)
    lines.insert(0, _first_line(checksum))
    return b"".join(lines)


def write_snapshot(file: DiskFile, image: MetadataImage) -> None:
    """The same as ``encode_snapshot`` gives, but for white space at the ends of two lines, into an empty file.
    Not synced. Raises OSError.

    The records come first, for their checksum is known last. Room is left for the two lines before
    them: a first line as long as most checksums make it, and a second one filled up with spaces. If the
    checksum is shorter, the white space before the last line's end becomes another one.
    """
    start, head_size = len(_first_line(_LONG)), len(_head(image, _LONG))
    count, position, piece = 0, start + head_size, bytearray()
    for record in image.records():
        piece += b"\n"
        piece += encode_record(record)
        count += 1
        if len(piece) >= PIECE_BYTES:
            write_all(file, piece, position)
            position += len(piece)
            piece.clear()
    write_all(file, piece, position)
    position += len(piece)
    head = _head(image, count).ljust(head_size)
    before = _checksum(file, start + head_size, crc32c(head))
    for number in range(1 << _WHITE_BYTES):
        white = bytes(_WHITE[number >> at & 1] for at in range(_WHITE_BYTES)) + b"\n"
        first = _first_line(crc32c(white, before))
        if len(first) == start:
            write_all(file, white, position)
            write_all(file, first + head, 0)
            return
    raise BrokenInvariant("no checksum has ten digits")


def decode_snapshot(data: bytes, where: str) -> MetadataImage:
    """CorruptFile if ``data`` is not what was encoded; FeatureLevelUnknown."""
    file = io.BytesIO(data)  # shares the bytes
    checksum = file.readline()
    found = crc32c(memoryview(data)[file.tell() :])
    return _decoded(checksum, found, file, where)


def read_snapshot(file: DiskFile, where: str) -> MetadataImage:
    """Twice, a piece at a time: no record counts before all of them are known to be whole. Raises
    CorruptFile, FeatureLevelUnknown, OSError.
    """
    first = file.pread(len(_first_line(_LONG)), 0).partition(b"\n")[0] + b"\n"
    return _decoded(first, _checksum(file, len(first)), _lines(file, len(first)), where)


def _decoded(first: bytes, checksum: int, lines: Iterable[bytes], where: str) -> MetadataImage:
    if first != _first_line(checksum):
        raise CorruptFile(f"{where}: the checksum is wrong")
    left = iter(lines)
    try:
        head = json.loads(next(left, b""))
        if head["version"] != _VERSION:
            raise CorruptFile(f"{where}: version {head['version']} is not known here")
        image = MetadataImage(head["cluster_id"])
        offset, epoch = int(head["offset"]), int(head["epoch"])
    except (ValueError, KeyError, TypeError):
        raise CorruptFile(f"{where}: the first line is damaged") from None
    try:
        records = (decode_record(line) for line in left)  # a level comes first
        return image.restored(records, offset=offset, epoch=epoch)
    except (CorruptFile, FeatureLevelUnknown):
        raise
    except StreamlogError as error:
        raise CorruptFile(f"{where}: {error}") from None


def _first_line(checksum: int) -> bytes:
    return b"crc32c %d\n" % checksum


def _head(image: MetadataImage, records: int) -> bytes:
    head = {
        "version": _VERSION,
        "cluster_id": image.cluster_id,
        "offset": image.offset,
        "epoch": image.epoch,
        "records": records,
    }
    return json.dumps(head).encode()


def _pieces(file: DiskFile, position: int) -> Iterator[bytes]:
    while piece := file.pread(PIECE_BYTES, position):
        yield piece
        position += len(piece)


def _checksum(file: DiskFile, position: int, checksum: int = 0) -> int:
    for piece in _pieces(file, position):
        checksum = crc32c(piece, checksum)
    return checksum


def _lines(file: DiskFile, position: int) -> Iterator[bytes]:
    """Without their ends."""
    rest = b""
    for piece in _pieces(file, position):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def snapshot_path(directory: Path, snapshot: SnapshotId) -> Path:
    return directory / f"{snapshot.end_offset:020d}-{max(snapshot.epoch, 0):010d}.checkpoint"


def find_snapshots(disk: Disk, directory: Path) -> list[SnapshotId]:
    """The newest first."""
    names = (_NAME.fullmatch(name) for name in disk.sizes(str(directory)))
    return sorted((SnapshotId(int(m[1]), int(m[2])) for m in names if m), reverse=True)
