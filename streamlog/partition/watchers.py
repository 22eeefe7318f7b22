"""Who waits for something to change in a partition."""

import asyncio
from collections.abc import Callable
from typing import Protocol

Watcher = Callable[[], None]


class Watched(Protocol):
    """``owner.Partition``."""

    def add_watcher(self, watcher: Watcher) -> None: ...
    def remove_watcher(self, watcher: Watcher) -> None: ...


async def until(partition: Watched, condition: Callable[[], bool]) -> None:
    """Return once it is so; it is looked at now and whenever the partition's watchers are told."""
    changed = asyncio.Event()
    partition.add_watcher(changed.set)
    try:
        while not condition():
            changed.clear()
            await changed.wait()
    finally:
        partition.remove_watcher(changed.set)


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
