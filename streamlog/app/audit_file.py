"""The file of the audit log: a line of JSON for each event."""

import logging
import os
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path

from streamlog.app.logs import JsonLines
from streamlog.authz.audit import logger
from streamlog.errors import ConfigError


class PrivateFileHandler(WatchedFileHandler):
    """Whoever moves the file away gets a new one that is for our account alone, too."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        opened = os.open(self.baseFilename, flags, 0o600)
        return os.fdopen(opened, "a", encoding=self.encoding)


class AuditFile:
    """Open from ``open`` to ``close``. Whoever moves it away gets a new one (logrotate)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._handler: logging.Handler | None = None

    def open(self) -> None:
        """Raises ConfigError."""
        if self._path is None:
            return
        try:
            handler = PrivateFileHandler(self._path, encoding="utf-8")
        except OSError as error:
            problem = f"{self._path} cannot be written ({error.strerror})"
            raise ConfigError(
                "authorization.audit_file", problem, "name a file in a folder of ours"
            ) from None
        handler.setFormatter(JsonLines())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)  # however little the node's own log tells
        self._handler = handler

    def close(self) -> None:
        if self._handler is not None:
            logger.removeHandler(self._handler)
            self._handler.close()
            self._handler = None
