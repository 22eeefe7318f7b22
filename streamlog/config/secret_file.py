"""Secrets in a file, one a line, which was made for streamlog alone."""

from pathlib import Path
from typing import Final

import aiofiles

from streamlog.errors import ConfigError

SECRET_BYTES_MIN: Final = 16
"""Of one that is used as it is, without a slow hash: a shorter one could be guessed."""


class SecretFile:
    """Read at each use, so that what is put in its place counts at once. None of it is shown."""

    def __init__(
        self, path: Path, *, key: str, noun: str, bytes_min: int = SECRET_BYTES_MIN
    ) -> None:
        """``key``: the setting that names the file; ``noun``: what the user calls a secret of it.

        Lines of fewer bytes than ``bytes_min`` are none.
        """
        self._path = path
        self._key = key
        self._noun = noun
        self._bytes_min = bytes_min

    def check(self) -> None:
        """Raises ConfigError for a file that cannot be used."""
        if not self.secrets():
            problem = f"{self._path} has no {self._noun} of {self._bytes_min} or more characters"
            raise ConfigError(self._key, problem, "write one a line, and mind who reads it")

    def secrets(self) -> tuple[bytes, ...]:
        """In the file's order; none where it cannot be read. Blocking."""
        try:
            return self._secrets_in(self._path.read_bytes())
        except OSError:
            return ()

    async def read(self) -> tuple[bytes, ...]:
        """``secrets`` on an event loop."""
        try:
            async with aiofiles.open(self._path, "rb") as file:
                return self._secrets_in(await file.read())
        except OSError:
            return ()

    def _secrets_in(self, data: bytes) -> tuple[bytes, ...]:
        lines = data.splitlines()
        return tuple(it for line in lines if len(it := line.strip()) >= self._bytes_min)
