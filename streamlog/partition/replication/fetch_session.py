"""A follower's side of its fetch session with a leader (KIP-227). No asyncio, no clock.

The leader knows what it was asked for and what it has answered; only what differs from that is
asked for again. A leader that gives no session, or has lost it, is asked for everything.
"""

from collections.abc import Mapping
from typing import NamedTuple

from streamlog.partition.replication.partition_follower import FetchPosition
from streamlog.wire.fetch import (
    NEW_SESSION,
    NO_SESSION,
    FetchedPartition,
    FetchResponse,
    TopicIdPartition,
    next_session_epoch,
)


class FetchedPosition(NamedTuple):
    """Where a partition is, as its leader is to know it."""

    position: FetchPosition
    high_watermark: int
    log_start: int


class FollowerFetchSession:
    """``ask`` before each request, ``answered`` after it, ``lose`` if it had no good answer."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = NEW_SESSION
        self._known: dict[TopicIdPartition, FetchedPosition] = {}
        """To the leader; all of it counts as asked for with each request."""
        self._forgotten: dict[TopicIdPartition, None] = {}
        """To be told with the next request."""

    def __len__(self) -> int:
        """Of how many partitions the leader is asked."""
        return len(self._known)

    @property
    def is_new(self) -> bool:
        """The next request names everything."""
        return self.epoch == NEW_SESSION

    def position(self, key: TopicIdPartition) -> FetchPosition | None:
        """What was asked for last."""
        known = self._known.get(key)
        return None if known is None else known.position

    def ask(self, standings: Mapping[TopicIdPartition, FetchedPosition]) -> list[TopicIdPartition]:
        """What of it is to be named; the leader knows the rest."""
        named = [key for key, standing in standings.items() if self._known.get(key) != standing]
        for key in named:
            self._known[key] = standings[key]
            self._forgotten.pop(key, None)
        return named

    def forget(self, key: TopicIdPartition) -> None:
        """It is not asked for any more."""
        if self._known.pop(key, None) is not None and not self.is_new:
            self._forgotten[key] = None

    def take_forgotten(self) -> tuple[TopicIdPartition, ...]:
        forgotten, self._forgotten = tuple(self._forgotten), {}
        return forgotten

    def answered(self, answer: FetchResponse) -> None:
        """A good answer. Without a session, all is to be named again."""
        if answer.session_id == NO_SESSION:
            self.lose()
            return
        self.id = answer.session_id
        self.epoch = next_session_epoch(self.epoch)

    def told(self, key: TopicIdPartition, fetched: FetchedPartition) -> None:
        """What the leader knows to have said."""
        known = self._known.get(key)
        if known is not None:
            self._known[key] = known._replace(high_watermark=fetched.high_watermark)

    def lose(self) -> None:
        """The next request names everything, and ends what the leader may have kept."""
        self.epoch = NEW_SESSION
        self._known.clear()
        self._forgotten.clear()
