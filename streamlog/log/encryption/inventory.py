"""Which keys a folder needs, by what is in it; nothing is opened, locked or decrypted."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamlog.errors import CorruptFile
from streamlog.log.encryption import key_file
from streamlog.log.layout import DAMAGED_SUFFIX, KEY_SUFFIX, base_offset_of


class FoundKeys(NamedTuple):
    """A file with a data key; ``key_name`` is None where it is damaged."""

    file: Path
    key_name: str | None


def data_keys(path: Path) -> Iterator[FoundKeys]:
    """All below ``path``, those beside segments that were kept aside included. Raises OSError.

    Each folder is synced before: a file that was renamed over an older one counts when a power cut
    cannot bring the older one back, for the caller may be about to destroy a key.
    """
    synced: set[Path] = set()
    for pattern in (f"*{KEY_SUFFIX}", f"*{KEY_SUFFIX}{DAMAGED_SUFFIX}"):
        for file in sorted(path.rglob(pattern)):
            if base_offset_of(file.name) is None:
                continue
            if file.parent not in synced:
                _sync(file.parent)
                synced.add(file.parent)
            try:
                yield FoundKeys(file, key_file.decode(file.read_bytes(), str(file)).key_name)
            except CorruptFile:
                yield FoundKeys(file, None)
            except FileNotFoundError:
                continue  # retention was quicker


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS):  # nothing can be pending there
            raise
    finally:
        os.close(descriptor)
