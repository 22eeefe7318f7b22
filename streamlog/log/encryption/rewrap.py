"""A data key is encrypted again, by the active key; what it encrypts stays as it is."""

import contextlib

from streamlog.log.encryption import key_file
from streamlog.log.encryption.key_file import WrappedKey
from streamlog.log.layout import TEMPORARY_SUFFIX
from streamlog.log.segment.segment import Segment
from streamlog.log.segment.segments import Segments
from streamlog.log.storage.disk import write_all
from streamlog.log.storage.file_pool import FilePool


def is_outdated(segment: Segment, files: FilePool) -> bool:
    """Its data key is under another key than the active one, or may be after a power cut.
    Blocking. Raises CorruptFile, OSError.
    """
    key = segment.key
    if key is None:
        return False
    return key.is_doubtful or key.wrapped().key_name != files.keys.active


class Rewrap:
    """Of one segment's data key, in three steps. A crash leaves the old file or the new one.

    It is done after the third: until the folder is synced a power cut brings the old file back. A
    key whose folder could not be synced is doubtful, and is wrapped again; opening a log syncs its
    folder, so nothing is left of the doubts of an earlier process.
    """

    def __init__(self, segment: Segment, files: FilePool) -> None:
        assert segment.key is not None
        self._segment = segment
        self._key = segment.key
        self._files = files
        self._temporary = segment.key.path + TEMPORARY_SUFFIX

    def prepare(self) -> WrappedKey:
        """A worker's. Raises CorruptFile, EncryptionKeyMissing, OSError."""
        keys, disk = self._files.keys, self._files.disk
        old = self._key.wrapped()
        wrapped = keys.wrapped(keys.unwrapped(old, self._key.path), old.since, old.scope)
        try:
            file = disk.create(self._temporary)
            with contextlib.closing(file):
                write_all(file, key_file.encode(wrapped), 0)
                file.sync()
        except OSError:
            self.abandon()
            raise
        return wrapped

    def commit(self, segments: Segments) -> bool:
        """The owner's; quick: no other thread makes, replaces or removes segments meanwhile. False,
        and nothing is changed, if its log has it no more. Raises OSError.
        """
        if self._segment not in segments or self._segment.key is not self._key:
            self.abandon()
            return False
        self._key.is_doubtful = True
        self._files.disk.rename(self._temporary, self._key.path)
        self._files.forget(self._key.path)
        return True

    def finish(self) -> None:
        """A worker's: from here on it outlives a power cut. Raises OSError."""
        self._files.disk.sync_directory(self._key.path.rpartition("/")[0])
        self._key.is_doubtful = False

    def abandon(self) -> None:
        """In place of ``commit``."""
        with contextlib.suppress(OSError):
            self._files.disk.unlink(self._temporary)
