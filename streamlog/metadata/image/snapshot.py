"""Images as JSON lines, to be kept and to be sent. Pure, but for finding the files.

A snapshot ``<offset>-<epoch>.checkpoint`` (Kafka's name for it) is a line with the checksum of the
rest, a line that says what follows, and one line for each record of the image. It is replaced as a
whole.
"""

import io
import json
import re
from pathlib import Path

from crc32c import crc32c

from streamlog.errors import CorruptFile, FeatureLevelUnknown, StreamlogError
from streamlog.log.storage.disk import Disk
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import decode_record, encode_record
from streamlog.raft.messages import SnapshotId

SNAPSHOTS_KEPT = 2
"""The older one, with the log from there on, stands in when the newer one is damaged."""

SNAPSHOT_RECORDS_MIN = 1_000

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
    head = {
        "version": _VERSION,
        "cluster_id": image.cluster_id,
        "offset": image.offset,
        "epoch": image.epoch,
        "records": len(lines),
    }
    lines.insert(0, json.dumps(head).encode() + b"\n")
    checksum = 0
    for line in lines:  # the whole, hundreds of MiB perhaps, is put together once
        checksum = crc32c(line, checksum)
    lines.insert(0, b"crc32c %d\n" % checksum)
    return b"".join(lines)


def decode_snapshot(data: bytes, where: str) -> MetadataImage:
    """CorruptFile if ``data`` is not what was encoded; FeatureLevelUnknown."""
    file = io.BytesIO(data)  # shares the bytes
    checksum = file.readline()
    if checksum != b"crc32c %d\n" % crc32c(memoryview(data)[file.tell() :]):
        raise CorruptFile(f"{where}: the checksum is wrong")
    try:
        head = json.loads(file.readline())
        if head["version"] != _VERSION:
            raise CorruptFile(f"{where}: version {head['version']} is not known here")
        image = MetadataImage(head["cluster_id"])
        offset, epoch = int(head["offset"]), int(head["epoch"])
    except (ValueError, KeyError, TypeError):
        raise CorruptFile(f"{where}: the first line is damaged") from None
    try:
        records = (decode_record(line) for line in file)  # a level comes first
        return image.restored(records, offset=offset, epoch=epoch)
    except (CorruptFile, FeatureLevelUnknown):
        raise
    except StreamlogError as error:
        raise CorruptFile(f"{where}: {error}") from None


def snapshot_path(directory: Path, snapshot: SnapshotId) -> Path:
    return directory / f"{snapshot.end_offset:020d}-{max(snapshot.epoch, 0):010d}.checkpoint"


def find_snapshots(disk: Disk, directory: Path) -> list[SnapshotId]:
    """The newest first."""
    names = (_NAME.fullmatch(name) for name in disk.sizes(str(directory)))
    return sorted((SnapshotId(int(m[1]), int(m[2])) for m in names if m), reverse=True)
