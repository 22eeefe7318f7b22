"""The groups of one partition of ``__consumer_offsets``, and their deadlines. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from streamlog.config import GroupsSection
from streamlog.coordination.deadlines import Deadlines
from streamlog.coordination.effects import KeptRecord, Now, SendReply, TransactionPart, Write
from streamlog.groups.group import Group
from streamlog.groups.requests import Effect, MatchTopics
from streamlog.groups.subscribed_topics import Matches
from streamlog.wire.error_codes import ErrorCode


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
    """What the parts of a coordinator share; each gathers effects here."""

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
        self.deadlines: Deadlines[Due] = Deadlines()
        self.offsets_count = sum(
            len(group.offsets) + len(group.transactional) for group in self.groups.values()
        )
        """Over all groups, those on their way to the log among them, and those of transactions."""
        self.order = 1 + max((it.transactional.newest for it in self.groups.values()), default=0)
        """Of the next write that is known to be in the log."""
        self.in_transactions: dict[int, set[str]] = defaultdict(set)
        """Groups that have offsets in transactions, by producer."""
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
        for name, group in self.groups.items():
            self.weigh(name)
            for producer_id in group.transactional.producers:
                self.in_transactions[producer_id].add(name)

    def take(self) -> list[Effect]:
        """What has been gathered since the last time, in order."""
        effects, self._effects = self._effects, []
        return effects

    def answer(self, token: object | None, result: Any) -> None:
        """No request waits where it is None."""
        if token is not None:
            self._effects.append(SendReply(token, result))

    def write(
        self,
        records: Iterable[KeptRecord],
        then: Callable[[ErrorCode, Now], None],
        transaction: TransactionPart | None = None,
    ) -> None:
        def settled(error: ErrorCode, now: Now) -> list[Effect]:
            self.order += 1
            then(error, now)
            return self.take()

        self._effects.append(Write(tuple(records), settled, transaction))

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
            self.offsets_count -= len(group.offsets) + len(group.transactional)
            for producer_id in group.transactional.producers:
                self.in_transactions[producer_id].discard(group.name)
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
