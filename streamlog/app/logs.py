"""Log lines: one for each event, as JSON or for human eyes, on standard error; never a secret.

A warning has the ``code`` of its condition, and what to do about it as ``remedy``, where something is
to be done. What repeats itself too often is counted, and said in one line.
"""

import asyncio
import json
import logging
import re
import sys
import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, TextIO

from streamlog.app.escapes import visible, visible_json, visible_lines
from streamlog.authz import audit
from streamlog.condition import Condition
from streamlog.config import SECRETS
from streamlog.rate_limit import WindowLimit

NODE_ID: Final = "node_id"
"""The node that logs, where several nodes of a machine share one log."""
KEYS_FIRST: Final = (NODE_ID, "stream", "partition", "epoch", "offset")
"""Where an event has these they come first and in this order, so that lines can be compared."""
KEYS_LAST: Final = ("code", "remedy")
"""The same at the end of a line."""
HIDDEN: Final = "***"
SUMMARY_PERIOD_S: Final = 1.0

WINDOW_S: Final = 10.0
LINES_MAX: Final = 20
"""Lines of one event in a window; further ones are counted, and reported in one line."""
EVENTS_MAX: Final = 1_000
"""Events that are counted apart; further ones are counted together, as ``OTHERS``."""

EventKey = tuple[str, str]
"""The logger and the event."""
OTHERS: Final[EventKey] = ("streamlog", "other events")

_OWN_ATTRIBUTES: Final = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName")
)
_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def configure_logs(
    format_name: Literal["json", "console"],
    level: str,
    output: TextIO | None = None,
    *,
    node_id: int | None = None,
) -> None:
    """Send what this process logs to ``output`` (standard error), in place of what was set up.

    Each line has ``node_id``, if it is given: also those of the audit log.
    """
    logging.setLogRecordFactory(
        logging.LogRecord if node_id is None else partial(_record_of, node_id)
    )
    handler = LimitedHandler(output or sys.stderr)
    handler.setFormatter(JsonLines() if format_name == "json" else ConsoleLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes at most ``lines_max`` lines of an event in a window, and one line on all others of it.

    ``run`` as a task, or ``summarise`` now and then; when it closes, all that was left out is
    reported.
    """

    def __init__(
        self, output: TextIO, *, window_s: float = WINDOW_S, lines_max: int = LINES_MAX
    ) -> None:
        super().__init__(output)
        self._limit = WindowLimit[EventKey](
            lines_max, window_s=window_s, keys_max=EVENTS_MAX, overflow=OTHERS
        )
        self._levels: dict[EventKey, int] = {}
        """The highest of each event's lines."""
        self._conditions: dict[EventKey, Condition] = {}
        """Of those events that have one."""
        self._counting = threading.Lock()  # lines come from several threads
        self._summarised = 0.0
        self.addFilter(self._admits)

    def summarise(self, *, all_of_them: bool = False) -> None:
        """One line for each event of which lines were left out."""
        now = time.monotonic()
        with self._counting:
            ended = [
                (key, self._levels.pop(key), self._conditions.pop(key, None), window)
                for key, window in self._limit.ended(now, all_of_them=all_of_them)
            ]
        for key, level, condition, window in ended:
            if not window.refused:
                continue
            self.acquire()
            try:
                seconds = round(now - window.began_s, 1)
                self.emit(_summary_line(key, level, condition, window.refused, seconds))
            finally:
                self.release()

    def close(self) -> None:
        if not self.stream.closed:
            self.summarise(all_of_them=True)
        super().close()

    def _admits(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True  # debug lines are not limited
        if record.name == audit.logger.name and record.msg == audit.ACT:
            return True  # neither is the audit log
        now = time.monotonic()
        if now - self._summarised >= SUMMARY_PERIOD_S:  # also where the task does not run
            self._summarised = now
            self.summarise()
        with self._counting:
            key = self._limit.counts_as((record.name, str(record.msg)))
            self._levels[key] = max(self._levels.get(key, 0), record.levelno)
            if isinstance(record.msg, Condition) and key != OTHERS:
                self._conditions[key] = record.msg
            return self._limit.admit(key, now)


def _record_of(node_id: int, *arguments: Any, **more: Any) -> logging.LogRecord:
    record = logging.LogRecord(*arguments, **more)
    setattr(record, NODE_ID, node_id)
    return record


async def summarise_logs() -> None:
    """Report repeated lines that were left out, for as long as the node runs."""
    while True:
        await asyncio.sleep(SUMMARY_PERIOD_S)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, LimitedHandler):
                handler.summarise()


def _summary_line(
    key: EventKey, level: int, condition: Condition | None, count: int, seconds: float
) -> logging.LogRecord:
    name, event = key
    said = f"repeated: {event}"
    message = said if condition is None else condition.logged_as(said)
    record = logging.getLogRecordFactory()(name, level, "", 0, message, None, None)
    record.count, record.seconds = count, seconds
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
    """What the caller passed in ``extra``, in a steady order and without secrets; of a condition its
    code, and of a warning the condition's remedy where the caller has no better one.
    """
    extra = {key: value for key, value in vars(record).items() if key not in _OWN_ATTRIBUTES}
    if isinstance(record.msg, Condition):
        extra.setdefault("code", record.msg.code)
        if record.levelno >= logging.WARNING and record.msg.remedy and not extra.get("remedy"):
            extra["remedy"] = record.msg.remedy_for(extra)
    ordered: list[str] = [key for key in KEYS_FIRST if key in extra]
    ordered += [key for key in extra if key not in KEYS_FIRST and key not in KEYS_LAST]
    ordered += [key for key in KEYS_LAST if key in extra]
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
