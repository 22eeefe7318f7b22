"""Who waits for something to change in a partition."""

from collections.abc import Callable

Watcher = Callable[[], None]


class Watchers:
    """Told at once, on the event loop; a watcher may leave while it is told."""

    __slots__ = ("_of_commits", "_of_end")

    def __init__(self) -> None:
        self._of_commits: dict[Watcher, None] = {}
        self._of_end: dict[Watcher, None] = {}

    def add(self, watcher: Watcher, *, end: bool = False) -> None:
        (self._of_end if end else self._of_commits)[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        self._of_commits.pop(watcher, None)
        self._of_end.pop(watcher, None)

    def committed(self) -> None:
        """The high watermark has moved."""
        _tell(self._of_commits)

    def grown(self) -> None:
        """The log end has moved."""
        if self._of_end:
            _tell(self._of_end)

    def replicas_changed(self) -> None:
        """Others are in sync, or keep the partition at all."""
        _tell(self._of_commits)

    def changed(self) -> None:
        """Another leader, or none; or there is an end to it."""
        _tell(self._of_commits)
        _tell(self._of_end)


def _tell(watchers: dict[Watcher, None]) -> None:
    for watcher in tuple(watchers):
        watcher()
