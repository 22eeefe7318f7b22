"""Who has one of the tokens in a file is let in: ``Authorization: Bearer …`` (RFC 6750)."""

import hmac
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Final

from streamlog.config import SecretFile
from streamlog.errors import AuthenticationFailed

PUBLIC: Final = frozenset({"/healthz", "/readyz"})
"""For a load balancer, which has no token."""


Examine = Callable[[str], AbstractAsyncContextManager[object]]
"""Of an address: what a token from there is looked at in, which counts the failures. Raises
AuthenticationFailed where there were too many.
"""


def unwatched(_: str) -> AbstractAsyncContextManager[object]:
    """No client is accepted."""
    return nullcontext()


class Tokens:
    """One a line; read at each use, so that what is put in its place counts at once."""

    def __init__(self, path: Path, *, key: str, examine: Examine = unwatched) -> None:
        """``key``: the setting that names the file."""
        self._file = SecretFile(path, key=key, noun="token")
        self._examine = examine

    def check(self) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._file.check()

    async def demand(self, given: str, host: str) -> None:
        """Raises AuthenticationFailed for what is none; takes the same time for each."""
        async with self._examine(host):
            tokens = await self._file.read()
            token = given.strip().encode(errors="surrogateescape")  # any bytes may be in a header
            if not sum(hmac.compare_digest(it, token) for it in tokens):
                raise AuthenticationFailed("the token is not one of this node's")
