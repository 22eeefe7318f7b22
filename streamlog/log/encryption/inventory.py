"""Which keys a folder needs, by what stands in it; nothing is opened, locked or decrypted."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamlog.errors import CorruptFile
from streamlog.log.encryption import key_file
from streamlog.log.layout import DAMAGED_SUFFIX, KEY_SUFFIX, base_offset_of


class Found(NamedTuple):
    """A file with a data key; ``key_name`` is None where it is damaged."""

    file: Path
    key_name: str | None


def data_keys(path: Path) -> Iterator[Found]:
    """All below ``path``, those beside segments that were kept aside included. Raises OSError."""
    for pattern in (f"*{KEY_SUFFIX}", f"*{KEY_SUFFIX}{DAMAGED_SUFFIX}"):
        for file in sorted(path.rglob(pattern)):
            if base_offset_of(file.name) is None:
                continue
            try:
                yield Found(file, key_file.decode(file.read_bytes(), str(file)).key_name)
            except CorruptFile:
                yield Found(file, None)
            except FileNotFoundError:
                continue  # retention was quicker
