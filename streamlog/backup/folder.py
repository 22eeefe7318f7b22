"""A backup's folder: one user at a time, and a manifest that is replaced as a whole. Blocking."""

import errno
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from streamlog import __version__
from streamlog.backup.manifest import BackupManifest, StreamBackup, decode_manifest, encode_manifest
from streamlog.errors import InvalidRequest
from streamlog.log.layout import KEY_SUFFIX, LOG_SUFFIX
from streamlog.log.storage.disk import OsDisk, storage_errors
from streamlog.log.storage.folder_lock import LOCK, FolderInUse, FolderLock

MANIFEST: Final = "backup.json"
_READ_ONLY: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""To open the lock's file ends so in a copy that cannot be written, and so has no writer."""
_OWN: Final = frozenset({LOCK, f"{MANIFEST}.tmp", "streams", "metadata"})


class BackupFolder:
    """Locked until ``close``; ``manifest`` is what is on the disk."""

    def __init__(self, path: Path, manifest: BackupManifest, lock: FolderLock | None) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = lock
        self._disk = OsDisk()

    @classmethod
    def make(cls, path: Path) -> Self:
        """The backup that is there, or a new one where there is nothing.

        Raises InvalidRequest for a folder of something else, CorruptFile, Unavailable.
        """
        with storage_errors(str(path)):
            OsDisk().make_directory(str(path))
            names = {entry.name for entry in path.iterdir()}
        if MANIFEST not in names and (strange := sorted(names - _OWN)):
            raise InvalidRequest(
                f"{path} holds {strange[0]} and no {MANIFEST}: it is no backup; name an empty"
                " folder, or one that is"
            )
        if MANIFEST not in names:
            new = BackupManifest(backup_id=uuid.uuid4(), written_by=f"streamlog {__version__}")
            with storage_errors(str(path)):
                OsDisk().write_small(str(path / MANIFEST), encode_manifest(new))
        return cls.open(path, writable=True)

    @classmethod
    def open(cls, path: Path, *, writable: bool = False) -> Self:
        """Raises InvalidRequest where there is no backup, or another process writes to it; CorruptFile."""
        try:
            data = (path / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidRequest(f"{path} is no backup: it has no {MANIFEST}") from None
        with storage_errors(str(path)):
            lock = _lock(path, writable=writable)
        try:
            manifest = decode_manifest(data, str(path / MANIFEST))
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        return cls(path, manifest, lock)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metadata(self) -> Path:
        return self.path / "metadata"

    def partition(self, stream: StreamBackup, number: int) -> Path:
        return self.path / "streams" / stream.folder / str(number)

    def commit(self, manifest: BackupManifest) -> None:
        """What it names is on the disk; from here on it holds. Raises Unavailable."""
        with storage_errors(str(self.path)):
            self._disk.write_small(str(self.path / MANIFEST), encode_manifest(manifest))
        self.manifest = manifest

    def tidy(self) -> None:
        """Remove what a run that was ended has left, and what the manifest no longer names."""
        named = {self.path / "metadata" / it.name for it in (self.manifest.metadata,) if it}
        folders = set()
        for stream in self.manifest.streams:
            for partition in stream.partitions:
                folder = self.partition(stream, partition.number)
                folders |= {folder, folder.parent}
                named |= {folder / piece.name for piece in partition.pieces}
                named |= {folder / it.key_name for it in partition.pieces if it.encrypted}
        with storage_errors(str(self.path)):
            for file in self._files():
                if file not in named:
                    file.unlink()
            for each in (self.path / "streams").glob("*"):
                if each.is_dir() and each not in folders:
                    shutil.rmtree(each)

    def _files(self) -> Iterator[Path]:
        yield from self.path.glob("metadata/*.checkpoint*")
        yield from self.path.glob(f"streams/*/*/*{LOG_SUFFIX}")
        yield from self.path.glob(f"streams/*/*/*{KEY_SUFFIX}*")


def _lock(path: Path, *, writable: bool) -> FolderLock | None:
    """Shared by readers. None: no process can write here."""
    try:
        return FolderLock.take(path, shared=not writable)
    except FolderInUse:
        raise InvalidRequest(f"{path} is in use by another backup or restore") from None
    except OSError as error:
        if writable or error.errno not in _READ_ONLY:
            raise
        return None
