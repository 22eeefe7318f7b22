"""What aiohttp's server logs, as a node tells it.

Anybody can send a malformed request, before they say who they are. aiohttp logs each as an error
with a traceback; here it is one line of level info, without one, and one of them a second. Errors
of handlers stay as they are: those are the server's own.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

PERIOD_S: Final = 1.0
PROBLEM_CHARS_MAX: Final = 100
MALFORMED: Final = "malformed HTTP request"


class MalformedRequests(logging.Filter):
    """Of the logger that aiohttp is given."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._told_s = -PERIOD_S
        self._untold = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            return True
        if not logger.isEnabledFor(logging.INFO):
            return False
        now_s = self._now_s()
        if now_s - self._told_s < PERIOD_S:
            self._untold += 1
            return False
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        if isinstance(record.args, tuple) and record.args:
            record.peer = record.args[0]
        record.msg, record.args = MALFORMED, ()
        record.problem = _problem(error)
        if self._untold:
            record.more_of_these = self._untold
        self._told_s, self._untold = now_s, 0
        return True


def _problem(error: Exception) -> str:
    """Without what was sent, which aiohttp shows in the lines below the first."""
    text = error.message if isinstance(error, HttpProcessingError) else str(error)
    return text.partition("\n")[0][:PROBLEM_CHARS_MAX] or type(error).__name__


logger: Final = logging.getLogger(__name__)
"""Of aiohttp's server."""
logger.addFilter(MalformedRequests())
