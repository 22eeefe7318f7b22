"""Fetches that wait at the leader for news. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from streamlog.raft.events import Token
from streamlog.raft.messages import RaftFetchRequest
from streamlog.raft.voters import ReplicaKey


class DelayedFetch(NamedTuple):
    """News is more of the log, or a higher high watermark than was told."""

    token: Token
    request: RaftFetchRequest
    deadline_ms: int


class DelayedFetches:
    """At most one of each replica: a second one lets the first go, with nothing new."""

    def __init__(self) -> None:
        self._fetches: dict[ReplicaKey, DelayedFetch] = {}
        self._told: dict[ReplicaKey, int] = {}
        """The high watermark that was last sent."""

    def hold(self, token: Token, request: RaftFetchRequest, now_ms: int) -> DelayedFetch | None:
        """The one that has to make room, if there is one."""
        before = self._fetches.get(request.replica)
        self._fetches[request.replica] = DelayedFetch(token, request, now_ms + request.wait_ms)
        return before

    def drop(self, token: Token) -> None:
        for key, fetch in list(self._fetches.items()):
            if fetch.token is token:
                del self._fetches[key]

    def take_due(self, *, log_end: int, high_watermark: int, now_ms: int) -> list[DelayedFetch]:
        """Those that are to be answered now, with this high watermark."""

        def is_due(fetch: DelayedFetch) -> bool:
            return (
                fetch.request.offset < log_end
                or self._told.get(fetch.request.replica, -1) < high_watermark
                or fetch.deadline_ms <= now_ms
            )

        due = self._take(is_due)
        for fetch in due:
            self._told[fetch.request.replica] = high_watermark
        return due

    def take_all(self) -> list[DelayedFetch]:
        return self._take(lambda fetch: True)

    @property
    def deadline_ms(self) -> int | None:
        """Of the first that has waited long enough."""
        return min((fetch.deadline_ms for fetch in self._fetches.values()), default=None)

    def _take(self, is_wanted: Callable[[DelayedFetch], bool]) -> list[DelayedFetch]:
        wanted = [fetch for fetch in self._fetches.values() if is_wanted(fetch)]
        for fetch in wanted:
            del self._fetches[fetch.request.replica]
        return wanted
