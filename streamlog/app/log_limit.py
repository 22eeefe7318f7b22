"""The same event again and again is one line that says how often; a log is read by people.

Pure but for the lock: lines come from several threads.
"""

import threading
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 10.0
LINES_MAX: Final = 20
"""Of one event in a window; of what comes then it is counted how much."""
EVENTS_MAX: Final = 1_000
"""Kept apart; beyond it whatever else there is counts as one event."""

Key = tuple[str, str]
"""The logger and the event."""
OTHERS: Final[Key] = ("streamlog", "other events")


@dataclass(frozen=True, slots=True)
class Summary:
    """``count`` lines of the event were left out in ``seconds``."""

    key: Key
    level: int
    count: int
    seconds: float


class _Window:
    __slots__ = ("began", "left_out", "level", "lines")

    def __init__(self, began: float, level: int) -> None:
        self.began = began
        self.level = level
        self.lines = 0
        self.left_out = 0


class LogLimit:
    """``admit`` at each line; ``due`` now and then, for what was left out in windows that ended."""

    def __init__(self, *, window_s: float = WINDOW_S, lines_max: int = LINES_MAX) -> None:
        self._window_s = window_s
        self._lines_max = lines_max
        self._windows: dict[Key, _Window] = {}
        self._lock = threading.Lock()

    def admit(self, key: Key, level: int, now: float) -> bool:
        """Whether the line is to be written. One of a window that has ended begins another, if
        ``due`` has been asked for what the last one left out; else it waits for that.
        """
        with self._lock:
            if key not in self._windows and len(self._windows) >= EVENTS_MAX:
                key = OTHERS
            window = self._windows.get(key)
            if window is None or (self._is_over(window, now) and not window.left_out):
                window = self._windows[key] = _Window(now, level)
            window.level = max(window.level, level)
            if window.lines < self._lines_max:
                window.lines += 1
                return True
            window.left_out += 1
            return False

    def due(self, now: float, *, all_of_them: bool = False) -> list[Summary]:
        """What windows that are over have left out; they are forgotten."""
        with self._lock:
            over = [
                key for key, it in self._windows.items() if all_of_them or self._is_over(it, now)
            ]
            ended = [(key, self._windows.pop(key)) for key in over]
        return [
            Summary(key, it.level, it.left_out, round(now - it.began, 1))
            for key, it in ended
            if it.left_out
        ]

    def _is_over(self, window: _Window, now: float) -> bool:
        return now - window.began >= self._window_s
