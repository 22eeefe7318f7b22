"""Who has one of the tokens in a file is let in: ``Authorization: Bearer …`` (RFC 6750)."""

import asyncio
import hmac
from pathlib import Path
from typing import Final

from streamlog.errors import AuthenticationFailed, ConfigError

TOKEN_BYTES_MIN: Final = 16


class Tokens:
    """One a line; read at each use, so that what is put in its place counts at once."""

    def __init__(self, path: Path, *, key: str) -> None:
        """``key``: the setting that names the file."""
        self._path = path
        self._key = key

    def check(self) -> None:
        """Raises ConfigError for a file that cannot be used."""
        if not self._read():
            problem = f"{self._path} has no token of {TOKEN_BYTES_MIN} or more characters"
            raise ConfigError(self._key, problem, "write one a line, and mind who reads it")

    async def demand(self, given: str) -> None:
        """Raises AuthenticationFailed for what is none; takes the same time for each."""
        tokens = await asyncio.to_thread(self._read)
        if not sum(hmac.compare_digest(it, given.strip().encode()) for it in tokens):
            raise AuthenticationFailed("the token is not one of this node's")

    def _read(self) -> list[bytes]:
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return []
        return [line.strip() for line in lines if len(line.strip()) >= TOKEN_BYTES_MIN]
