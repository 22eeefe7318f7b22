"""A file that has its name only when it is complete, whatever happens while it is written."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from streamlog.errors import ConfigError

PARTIAL_SUFFIX: Final = ".partial"


@contextlib.contextmanager
def exported_file(path: Path, *, replace: bool, option: str) -> Iterator[BinaryIO]:
    """The file gets its name, synced, when the block ends; where it raises, nothing is left. A process that is killed
    leaves a hidden ``.NAME.….partial`` beside it. Raises ConfigError.
    """
    check_absent(path, replace=replace, option=option)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    try:
        file = partial.open("xb")
    except OSError as error:
        problem = f"{path.parent} cannot be written to ({error.strerror})"
        raise ConfigError(option, problem, "name another place") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def check_absent(path: Path, *, replace: bool, option: str) -> None:
    """Raises ConfigError."""
    if path.exists() and not replace:
        raise ConfigError(option, f"{path} is there already", "name another, or set --force")


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
