"""The groups of one partition of ``__consumer_offsets``, and their deadlines. Pure.

Most deadlines are put off again and again.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from streamlog.config import GroupsSection
from streamlog.groups.group import Group
from streamlog.groups.records import KeptRecord
from streamlog.groups.requests import Effect, MatchTopics, Now, SendReply, Write
from streamlog.groups.subscribed_topics import Matches
from streamlog.wire.error_codes import ErrorCode

K = TypeVar("K", bound=Hashable)


class GroupDeadlines(Generic[K]):
    """One deadline for each key. To put one off costs nothing: its entry moves when it comes up.

    Invariant: each key in ``_at`` has an entry in the heap that is not later than its deadline.
    """

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        """Of the one entry of a key that counts; others are left over."""
        self._heap: list[tuple[int, int, K]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at_ms: int) -> None:
        """Instead of the one before."""
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queue(key, at_ms)

    def clear(self, key: K) -> None:
        self._at.pop(key, None)

    def get(self, key: K) -> int | None:
        return self._at.get(key)

    def put_off(self, delay_ms: int) -> None:
        """All of them, by so long."""
        for key in self._at:
            self._at[key] += delay_ms

    @property
    def next_ms(self) -> int | None:
        """When to look at ``due`` next: the first deadline, or earlier."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[K]:
        """Each key whose deadline has come, once, without its deadline."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue
            del self._queued[key]
            at_ms = self._at.get(key)
            if at_ms is None:
                continue
            if at_ms > now_ms:
                self._queue(key, at_ms)
                continue
            del self._at[key]
            yield key

    def _queue(self, key: K, at_ms: int) -> None:
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), key))


NAME_BYTES_MAX: Final = 4096
"""Of a group's name, and of whatever else clients name: member, instance, protocol."""


class Due(NamedTuple):
    """Something that has a deadline."""

    what: Literal[
        "session", "pending", "join", "sync", "expiry", "revoke", "rejoin", "regex", "refresh"
    ]
    """A member's session, or the time to join with an id; a group's rebalance, or its members'
    time to ask for their assignments; the look at what has expired. Of the consumer protocol: a
    member's time to give up partitions, or to join again by the classic protocol; a look at which
    topics a group's expressions stand for, and at its topics.
    """
    group: str = ""
    member: str = ""


class GroupTable:
    """What ``rebalance``, ``membership`` and ``offset_commits`` share; each gathers effects here."""

    def __init__(
        self,
        settings: GroupsSection,
        new_id: Callable[[], str],
        groups: Iterable[Group] = (),
        *,
        since_ms: int = 0,
        share_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """``new_id``: texts of which no two are equal. ``since_ms``: wall clock; no age counts from
        before. ``share_configs``: of share groups, by group.
        """
        self.share_configs = {name: dict(it) for name, it in (share_configs or {}).items()}
        """By group; there may be no such group."""
        self.settings = settings
        self.since_ms = since_ms
        self.new_id = new_id
        self.groups = {group.name: group for group in groups}
        self.deadlines: GroupDeadlines[Due] = GroupDeadlines()
        self.offsets_count = sum(len(group.offsets) for group in self.groups.values())
        """Over all groups, those on their way to the log among them."""
        self.kept_bytes = 0
        """Of what members have us keep, over all groups, as they were weighed last."""
        self._weights: dict[str, int] = {}
        self.rebalances = 0
        """Generations that were begun."""
        self.commits = 0
        """Offsets that were committed."""
        self.expired = 0
        """Offsets that were dropped because no member had wanted them for too long."""
        self._effects: list[Effect] = []
        for name in self.groups:
            self.weigh(name)

    def take(self) -> list[Effect]:
        """What has been gathered since the last time, in order."""
        effects, self._effects = self._effects, []
        return effects

    def answer(self, token: object | None, result: Any) -> None:
        """No request waits where it is None."""
        if token is not None:
            self._effects.append(SendReply(token, result))

    def write(self, records: Iterable[KeptRecord], then: Callable[[ErrorCode, Now], None]) -> None:
        def settled(error: ErrorCode, now: Now) -> list[Effect]:
            then(error, now)
            return self.take()

        self._effects.append(Write(tuple(records), settled))

    def match(
        self, expressions: tuple[str, ...], then: Callable[[Matches, int, Now], None]
    ) -> None:
        """Have it be found out which topics they stand for."""

        def matched(matches: Matches, version: int, now: Now) -> list[Effect]:
            then(matches, version, now)
            return self.take()

        self._effects.append(MatchTopics(expressions, matched))

    def has(self, group: Group) -> bool:
        """It is still this one that goes by its name."""
        return self.groups.get(group.name) is group

    def may_add_group(self) -> bool:
        return len(self.groups) < self.settings.groups_per_partition_max

    def add(self, name: str, now: Now) -> Group:
        group = self.groups[name] = Group(name, state_ms=now.wall_ms)
        return group

    def drop(self, group: Group) -> None:
        """Nothing is known of it any more."""
        if self.has(group):
            del self.groups[group.name]
            self.offsets_count -= len(group.offsets)
            self.deadlines.clear(Due("join", group.name))
            self.deadlines.clear(Due("sync", group.name))
            self.deadlines.clear(Due("regex", group.name))
            self.deadlines.clear(Due("refresh", group.name))

    def weigh(self, name: str) -> None:
        """To be called when the members of this group have changed."""
        group = self.groups.get(name)
        size_bytes = 0 if group is None else group.size_bytes
        self.kept_bytes += size_bytes - self._weights.pop(name, 0)
        if size_bytes:
            self._weights[name] = size_bytes

    def states(self) -> Counter[str]:
        """How many groups are in each state."""
        return Counter(group.shown_state for group in self.groups.values())

    def waiting(self) -> Iterator[tuple[object, Literal["join", "sync"]]]:
        """Tokens of all members that wait."""
        for group in self.groups.values():
            for member in group.members.values():
                if member.joining is not None:
                    yield member.joining, "join"
                if member.syncing is not None:
                    yield member.syncing, "sync"
