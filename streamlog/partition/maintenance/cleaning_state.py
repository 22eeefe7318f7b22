"""How a partition stands towards compaction."""

import threading
import time
from typing import Final

from streamlog.record.offset_set import OffsetSet

FAILED_PAUSE_S: Final = 300.0
"""What has failed is not tried again before."""


class CalledOff(Exception):
    """A cleaning was told to end."""


class RunningCleaning:
    """One that runs in a worker thread."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._is_off = threading.Event()
        self._resumed = time.monotonic()

    @property
    def is_off(self) -> bool:
        return self._is_off.is_set()

    def call_off(self) -> None:
        """It is to end soon, with what it has done so far. From any thread."""
        self._is_off.set()

    def pause(self, size: int) -> None:
        """So many bytes were read. Raises CalledOff.

        It rests at least as long as it has worked: where batches are tiny, work needs the
        interpreter, which the event loop is to find free.
        """
        worked_s = time.monotonic() - self._resumed
        if self._is_off.wait(max(size / self._bytes_per_s, worked_s)):
            raise CalledOff
        self._resumed = time.monotonic()


class Waiting:
    """Erased records that wait to be removed from the files, as far as is known since the start.

    Those that have waited long enough are settled before it is looked which have since: however
    many come, a segment is written again at most once in that time.
    """

    __slots__ = ("_overdue", "_since")

    def __init__(self) -> None:
        self._overdue = OffsetSet()
        self._since: float | None = None

    @property
    def is_empty(self) -> bool:
        return self._since is None and not self._overdue

    def overdue(self, unremoved: OffsetSet, now: float, lag_s: float) -> OffsetSet:
        """Of ``unremoved`` those that have waited for ``lag_s``, or less if others have."""
        self._overdue.keep_all(unremoved)
        if self._overdue:
            return self._overdue
        if not unremoved:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= lag_s:
            self._overdue, self._since = unremoved.copy(), now
        return self._overdue


class CleaningState:
    """Touched on the event loop alone."""

    __slots__ = ("failed_until", "failure", "horizon_ms", "running", "waiting")

    def __init__(self) -> None:
        self.running: RunningCleaning | None = None
        self.failure = ""
        """Why the last cleaning failed, if it did; the next one is tried ..."""
        self.failed_until = 0.0
        """... after this, by the monotonic clock."""
        self.horizon_ms: int | None = None
        """When the first tombstone that a cleaning has passed may go, as far as is known since the
        start."""
        self.waiting = Waiting()
