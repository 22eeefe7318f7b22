import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from streamlog.condition import Condition
from streamlog.errors import ConfigError

logger = logging.getLogger(__name__)

FILE_NOT_READ_AGAIN: Final = Condition(
    "SL-0609",
    "file not read again",
    "repair the file; what was read before stays in use",
    meaning="A file with users or keys changed, and is wrong.",
)

T = TypeVar("T")

Version = tuple[int, int, int]


class WatchedFile(Generic[T]):
    """What a small file says; read again, when it is asked for, if the file is another one by then.

    What cannot be read leaves what there was, and a warning.
    """

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        """``read`` raises ConfigError, and so does this."""
        self._path = path
        self._read = read
        self._version = self._present()
        self._content = read(path)

    def content(self) -> T:
        version = self._present()
        if version != self._version:
            self._version = version
            try:
                self._content = self._read(self._path)
            except ConfigError as error:
                logger.warning(FILE_NOT_READ_AGAIN, extra={"problem": str(error)})
            else:
                logger.info("file read again", extra={"path": str(self._path)})
        return self._content

    def _present(self) -> Version | None:
        """Another one where the file is another one; None where there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
