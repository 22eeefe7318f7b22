"""Tokens in a file, of which a client shows one to be let in: over HTTP, or at the NATS port.

A line of the file is a token, or a token, a space and the name of the user whose it is.
"""

import hmac
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

from streamlog.config.secret_file import SECRET_BYTES_MIN, SecretFile
from streamlog.errors import AuthenticationFailed, ConfigError

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
        self._key, self._path = key, path
        self._file = SecretFile(path, key=key, noun="token")
        self._examine = examine

    def check(self) -> None:
        """Raises ConfigError for a file that cannot be used, or has a line that lets no client in."""
        self._file.check()
        for line in self._file.secrets():
            token, _, user = line.partition(b" ")
            if len(token) < SECRET_BYTES_MIN or b" " in user.strip():
                problem = (
                    f"{self._path} has a line that is no token, or more than a token and a user"
                )
                raise ConfigError(
                    self._key,
                    problem,
                    "write a token without spaces, then perhaps a space and a user",
                )

    async def demand(self, given: str, host: str) -> str:
        """The user whose token it is; empty: the file names none. Raises AuthenticationFailed for what is no
        token; takes the same time for each.
        """
        async with self._examine(host):
            user = await self.user_of(given)
            if user is None:
                raise AuthenticationFailed("the token is not one of this node's")
            return user

    async def user_of(self, given: str) -> str | None:
        """As ``demand``, of a token that was looked at before: None where it is no token any more."""
        lines = [line.partition(b" ") for line in await self._file.read()]
        token = given.strip().encode(errors="surrogateescape")  # any bytes may be in a header
        same = [hmac.compare_digest(it, token) for it, _, _ in lines]
        users = [
            user.strip().decode(errors="replace")
            for is_same, (it, _, user) in zip(same, lines, strict=True)
            if is_same and len(it) >= SECRET_BYTES_MIN
        ]
        return users[0] if users else None
