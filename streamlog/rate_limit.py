"""Rate limits: a token bucket, and a count of events by key in fixed windows. Pure.

``TokenBucket`` is Kafka's, for quotas of clients: what is allowed for a whole window may be used at
once, and an idle client saves it up. A use is never cut off in the middle: the bucket goes below
zero, and the client waits until that is paid.

``WindowLimit`` limits failed logins of an address, and lines of one event in the log. A window
begins with the first event of its key. After it the key begins with nothing.

``CloseLog`` is for lines about closed connections, of which anybody can bring about a flood.
"""

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

DEBT_S_MAX: Final = 30.0
"""No wait is longer, and debt beyond it is forgiven: a client's next request, sent before the answer
with its wait, must be answered before the client gives it up.
"""

CLOSE_LOG_PERIOD_S: Final = 1.0


class TokenBucket:
    """Times are monotonic, in seconds.

    Invariant: ``-DEBT_S_MAX * rate <= tokens <= window_s * rate``.
    """

    __slots__ = ("_now_s", "_tokens", "_window_s", "rate")

    def __init__(self, rate: float, window_s: float, now_s: float) -> None:
        """``rate``: tokens a second, above 0; full at first."""
        self.rate = rate
        self._window_s = window_s
        self._tokens = rate * window_s
        self._now_s = now_s

    @property
    def capacity(self) -> float:
        return self.rate * self._window_s

    def take(self, amount: float, now_s: float) -> float:
        """Whatever ``amount`` is; how many seconds nothing more should be taken."""
        self._fill(now_s)
        self._tokens = max(self._tokens - amount, -DEBT_S_MAX * self.rate)
        return self._debt_s()

    def debt_s(self, now_s: float) -> float:
        """How many seconds are still to be waited."""
        self._fill(now_s)
        return self._debt_s()

    def set_rate(self, rate: float, now_s: float) -> None:
        """From now on; the time that is to be waited, or was saved up, stays."""
        self._fill(now_s)
        self._tokens *= rate / self.rate
        self.rate = rate

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._now_s)
        self._now_s += passed_s
        self._tokens = min(self._tokens + passed_s * self.rate, self.capacity)

    def _debt_s(self) -> float:
        return max(0.0, -self._tokens / self.rate)


@dataclass(slots=True)
class Window:
    """Of one key, from its first event on."""

    began_s: float
    counted: int = 0
    """Events that count against the limit."""
    pending: int = 0
    """Events of which it is not known yet whether they count."""
    refused: int = 0
    """Events beyond the limit."""


class WindowLimit(Generic[K]):
    """At most ``limit`` events of a key in each window.

    ``admit`` is for events that count at once. ``begin`` and ``end`` are for attempts of which only
    failures count: an attempt occupies a place until its outcome is known, so that of many at once
    no more are examined than may fail. Times are in seconds; any clock that only grows.
    """

    def __init__(
        self, limit: int, *, window_s: float, keys_max: int, overflow: K | None = None
    ) -> None:
        """Of keys beyond ``keys_max``: with ``overflow``, all count as this one; without, the oldest
        window is forgotten.
        """
        self._limit = limit
        self._window_s = window_s
        self._keys_max = keys_max
        self._overflow = overflow
        self._windows: dict[K, Window] = {}
        """In the order in which they began."""

    def __len__(self) -> int:
        return len(self._windows)

    def counts_as(self, key: K) -> K:
        """The key whose window has its events."""
        is_beyond = key not in self._windows and len(self._windows) >= self._keys_max
        return self._overflow if is_beyond and self._overflow is not None else key

    def admit(self, key: K, now_s: float) -> bool:
        """Count an event, or refuse it. A window that is over and has refused events still refuses
        until ``ended`` has reported it.
        """
        window = self._open(self.counts_as(key), now_s)
        if not self._has_room(window):
            window.refused += 1
            return False
        window.counted += 1
        return True

    def begin(self, key: K, now_s: float) -> Window | None:
        """An attempt to be examined; pass the window to ``end``. None: not now, since ``wait_s`` is
        above 0, or since too many may fail together with those that are being examined.
        """
        window = self._open(self.counts_as(key), now_s)
        if not self._has_room(window):
            return None
        window.pending += 1
        return window

    def end(self, window: Window, *, failed: bool) -> None:
        """The outcome of an attempt that began in this window."""
        window.pending -= 1
        window.counted += failed

    def wait_s(self, key: K, now_s: float) -> float:
        """The rest of a window whose limit is reached; 0 for any other key."""
        window = self._windows.get(key)
        if window is None or self._is_over(window, now_s) or window.counted < self._limit:
            return 0.0
        return window.began_s + self._window_s - now_s

    def ended(self, now_s: float, *, all_of_them: bool = False) -> list[tuple[K, Window]]:
        """Windows that are over; they are forgotten."""
        over = [key for key, it in self._windows.items() if all_of_them or self._is_over(it, now_s)]
        return [(key, self._windows.pop(key)) for key in over]

    def _open(self, key: K, now_s: float) -> Window:
        window = self._windows.get(key)
        if window is not None and (window.refused or not self._is_over(window, now_s)):
            return window
        self._windows.pop(key, None)
        if self._overflow is None and len(self._windows) >= self._keys_max:
            del self._windows[next(iter(self._windows))]
        window = self._windows[key] = Window(now_s)
        return window

    def _has_room(self, window: Window) -> bool:
        return window.counted + window.pending < self._limit

    def _is_over(self, window: Window, now_s: float) -> bool:
        return now_s - window.began_s >= self._window_s


class CloseLog:
    """What is to be logged of connections that a listener closed: of a flood one line a period."""

    def __init__(self, floods: Collection[object]) -> None:
        """``floods``: reasons that anybody can bring about as often as they like, for next to nothing."""
        self._floods = floods
        self._logged_s: dict[object, float] = {}
        """When one with this reason was logged last."""
        self._passed_over: Counter[object] = Counter()
        """How many were not, since then."""

    def line(self, closed: dict[str, object], now_s: float) -> dict[str, object] | None:
        """The fields to log, with how many connections were passed over; None: nothing now."""
        reason = closed["reason"]
        if reason not in self._floods:
            return closed
        if now_s - self._logged_s.get(reason, -CLOSE_LOG_PERIOD_S) < CLOSE_LOG_PERIOD_S:
            self._passed_over[reason] += 1
            return None
        self._logged_s[reason] = now_s
        if passed_over := self._passed_over.pop(reason, 0):
            return {**closed, "more_of_these": passed_over}
        return closed
