"""Sealed segments on the local disk, and what is read out of them."""

from pathlib import Path
from uuid import UUID

from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.tier.object_layout import PartitionPrefix, StreamPrefix
from streamlog.tier.segment_object import SealedFiles
from tests.log_folder import make_batch

PREFIX = PartitionPrefix(StreamPrefix("cluster", UUID(int=7)), 0)
INTERVAL_BYTES = 4096


def sealed_segments(
    folder: Path,
    *,
    segments: int = 1,
    batches: int = 20,
    value_bytes: int = 1000,
    keys: KeyRing | None = None,
    encrypts: bool = False,
) -> list[SealedFiles]:
    """Each with so many batches of one record, whose time is its offset."""
    settings = LogSettings(
        segment_bytes=2**30, index_interval_bytes=INTERVAL_BYTES, encrypts=encrypts
    )
    pool = FilePool(OsDisk(), 16, keys)
    folder.mkdir(parents=True, exist_ok=True)
    log = PartitionLog.open(folder, settings, disk=OsDisk(), files=pool)
    for _ in range(segments):
        for _ in range(batches):
            at = log.log_end_offset
            value = (b"%d." % at) * (value_bytes // len(b"%d." % at))
            log.append(make_batch(at, [value], timestamp_ms=at), at)
        log.roll()
    found = []
    for it in log.segments.sealed():
        files = {".index": it.index_path, ".timeindex": it.time_index_path}
        if it.key is not None:
            files[".key"] = it.key_path
        found.append(
            SealedFiles(
                base_offset=it.base_offset,
                end_offset=it.next_offset,
                max_timestamp_ms=it.next_offset - 1,
                size_bytes=it.size_bytes,
                log_path=it.path,
                leader_epochs=tuple(log.epochs.between(it.base_offset, it.next_offset)),
                files=files,
                states={"producers": b"producers of %d" % it.base_offset},
            )
        )
    log.close()
    pool.close()
    return found


def content(path: str | Path) -> bytes:
    return Path(path).read_bytes()


def change(path: str | Path, at: int) -> None:
    """Another byte there; the second time it is the old one again."""
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    Path(path).write_bytes(data)


def cut(path: str | Path, size_bytes: int) -> None:
    with Path(path).open("r+b") as file:
        file.truncate(size_bytes)


def delete(path: str | Path) -> None:
    Path(path).unlink()


def exists(path: str | Path) -> bool:
    return Path(path).exists()
