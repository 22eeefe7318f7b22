"""Log lines: one for each event, as JSON or for human eyes, on standard error; never a secret.

A warning has what to do about it as ``remedy``, where something is to be done. What repeats itself
too often is counted, and said in one line.
"""

import asyncio
import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from streamlog.app.log_limit import LogLimit, Summary
from streamlog.app.remedies import REMEDIES
from streamlog.authz import audit
from streamlog.config import SECRETS
from streamlog.escapes import visible, visible_json, visible_lines

KEYS_FIRST: Final = ("stream", "partition", "epoch", "offset")
"""Where an event has these they come first and in this order, so that lines can be compared."""
HIDDEN: Final = "***"
SUMMARY_PERIOD_S: Final = 1.0

_OWN_ATTRIBUTES: Final = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName")
)
_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def configure_logs(
    format_name: Literal["json", "console"], level: str, output: TextIO | None = None
) -> None:
    """Send what this process logs to ``output`` (standard error), in place of what was set up."""
    handler = LimitedHandler(output or sys.stderr)
    handler.setFormatter(JsonLines() if format_name == "json" else ConsoleLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes what its limit admits, and what that has left out.

    ``run`` as a task, or ``summarise`` now and then; nothing is left out unsaid when it closes.
    """

    def __init__(self, output: TextIO, limit: LogLimit | None = None) -> None:
        super().__init__(output)
        self._limit = limit or LogLimit()
        self._summarised = 0.0
        self.addFilter(self._admits)

    def summarise(self, *, all_of_them: bool = False) -> None:
        """One line for each event of which lines were left out."""
        for summary in self._limit.due(time.monotonic(), all_of_them=all_of_them):
            self.acquire()
            try:
                self.emit(_summary_line(summary))
            finally:
                self.release()

    def close(self) -> None:
        if not self.stream.closed:
            self.summarise(all_of_them=True)
        super().close()

    def _admits(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True  # whoever wants these wants them all
        if record.name == audit.logger.name and record.msg == audit.ACT:
            return True  # whatever else happens, acts are told
        now = time.monotonic()
        if now - self._summarised >= SUMMARY_PERIOD_S:  # also where nobody runs the task
            self._summarised = now
            self.summarise()
        return self._limit.admit((record.name, str(record.msg)), record.levelno, now)


async def summarise_logs() -> None:
    """For as long as the node runs: says what repeated itself too often to be written."""
    while True:
        await asyncio.sleep(SUMMARY_PERIOD_S)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, LimitedHandler):
                handler.summarise()


def _summary_line(summary: Summary) -> logging.LogRecord:
    (name, event), level = summary.key, summary.level
    record = logging.LogRecord(name, level, "", 0, "repeated: %s", (event,), None)
    record.count, record.seconds = summary.count, summary.seconds
    if remedy := REMEDIES.get(event):
        record.remedy = remedy
    return record


class JsonLines(logging.Formatter):
    """One JSON object for each event: time, level, logger, event, then the event's own keys."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": hide_secrets(record.getMessage()),
            **event_keys(record),
        }
        if record.exc_info:
            line["traceback"] = hide_secrets(self.formatException(record.exc_info))
        return visible_json(line)


class ConsoleLines(logging.Formatter):
    """Time, level, event and ``key=value``; a traceback, which should be rare, follows below."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        keys = "".join(f" {key}={_shown(value)}" for key, value in event_keys(record).items())
        event = hide_secrets(record.getMessage())
        line = visible(f"{time} {record.levelname.lower():<7} {event}{keys}")
        if record.exc_info:
            line += "\n" + visible_lines(hide_secrets(self.formatException(record.exc_info)))
        return line


def event_keys(record: logging.LogRecord) -> dict[str, object]:
    """What the caller passed in ``extra``, in a steady order and without secrets."""
    extra = {key: value for key, value in vars(record).items() if key not in _OWN_ATTRIBUTES}
    ordered: list[str] = [key for key in KEYS_FIRST if key in extra]
    ordered += [key for key in extra if key not in KEYS_FIRST]
    if record.levelno >= logging.WARNING and "remedy" not in extra:
        remedy = REMEDIES.get(str(record.msg))
        if remedy:
            extra["remedy"] = remedy
            ordered.append("remedy")
    return {key: _cleaned(key, extra[key]) for key in ordered}


def hide_secrets(text: str) -> str:
    """Addresses may carry a user and a password; they are never shown."""
    return _USER_INFO.sub(HIDDEN, text)


def _cleaned(key: str, value: object) -> object:
    if key in SECRETS:
        return HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_cleaned(key, item) for item in value]
    return hide_secrets(str(value))


def _shown(value: object) -> str:
    text = str(value)
    plain = text and not re.search(r"[\s=\"]", text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)
