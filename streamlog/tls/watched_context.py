"""TLS contexts that follow their files: for programs that run for long.

``WatchedContext`` is made again when its files change. ``following`` is for a server that keeps the
context that it was started with.
"""

import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from streamlog.condition import Condition
from streamlog.errors import ConfigError

logger = logging.getLogger(__name__)

CERTIFICATES_NOT_RELOADED: Final = Condition(
    "SL-0603",
    "certificates not reloaded: those loaded before stay in use",
    "repair the files, or renew them",
    meaning="Files of certificates changed, and could not be loaded.",
)


class WatchedContext:
    """``current`` is for the next connection; what cannot be loaded leaves what there was."""

    def __init__(self, paths: Iterable[Path], make: Callable[[], ssl.SSLContext]) -> None:
        """``make`` raises ConfigError, and so does this."""
        self._paths = tuple(paths)
        self._make = make
        self._seen = self._stamps()
        self._context = make()

    def current(self) -> ssl.SSLContext:
        seen = self._stamps()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = self._make()
            except ConfigError as error:
                logger.warning(
                    CERTIFICATES_NOT_RELOADED,
                    extra={"problem": str(error)},
                )
        return self._context

    def _stamps(self) -> tuple[object, ...]:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def following(current: Callable[[], ssl.SSLContext | None]) -> ssl.SSLContext | None:
    """A context for a server that keeps its first one: each new connection gets the current one.

    The one it is given stays in charge of versions and ciphers; certificate, key and the CAs of
    clients are the current one's (``SSL_set_SSL_CTX``, in the callback for server names, which is
    called without a name, too).
    """
    first = current()
    if first is None:
        return None

    def switch(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        newest = current()
        if newest is not None and newest is not first:
            connection.context = newest

    first.sni_callback = switch
    return first
