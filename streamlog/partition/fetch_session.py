"""A follower's side of its fetch session with a leader (KIP-227). No asyncio, no clock.

The leader knows what it was asked for and what it has answered; only what differs from that is
asked for again. A leader that gives no session, or has lost it, is asked for everything.
"""

from collections.abc import Mapping
from typing import NamedTuple

from streamlog.model import TopicPartition
from streamlog.partition.following import FetchPosition
from streamlog.wire.fetch import (
    NEW_SESSION,
    NO_SESSION,
    FetchedPartition,
    FetchResponse,
    next_session_epoch,
)


class Standing(NamedTuple):
    """Where a partition is, as its leader is to know it."""

    position: FetchPosition
    high_watermark: int


class FetchSession:
    """``ask`` before each request, ``answered`` after it, ``lose`` if it had no good answer."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = NEW_SESSION
        self._known: dict[TopicPartition, Standing] = {}
        """To the leader; all of it counts as asked for with each request."""
        self._forgotten: dict[TopicPartition, None] = {}
        """To be told with the next request."""

    def __len__(self) -> int:
        """Of how many partitions the leader is asked."""
        return len(self._known)

    @property
    def is_new(self) -> bool:
        """The next request names everything."""
        return self.epoch == NEW_SESSION

    def position(self, tp: TopicPartition) -> FetchPosition | None:
        """What was asked for last."""
        known = self._known.get(tp)
        return None if known is None else known.position

    def ask(self, standings: Mapping[TopicPartition, Standing]) -> list[TopicPartition]:
        """What of it is to be named; the leader knows the rest."""
        named = [tp for tp, standing in standings.items() if self._known.get(tp) != standing]
        for tp in named:
            self._known[tp] = standings[tp]
            self._forgotten.pop(tp, None)
        return named

    def forget(self, tp: TopicPartition) -> None:
        """It is not asked for any more."""
        if self._known.pop(tp, None) is not None and not self.is_new:
            self._forgotten[tp] = None

    def take_forgotten(self) -> tuple[TopicPartition, ...]:
        forgotten, self._forgotten = tuple(self._forgotten), {}
        return forgotten

    def answered(self, answer: FetchResponse) -> None:
        """A good answer. Without a session, all is to be named again."""
        if answer.session_id == NO_SESSION:
            self.lose()
            return
        self.id = answer.session_id
        self.epoch = next_session_epoch(self.epoch)

    def told(self, tp: TopicPartition, fetched: FetchedPartition) -> None:
        """What the leader knows to have said."""
        known = self._known.get(tp)
        if known is not None:
            self._known[tp] = known._replace(high_watermark=fetched.high_watermark)

    def lose(self) -> None:
        """The next request names everything, and ends what the leader may have kept."""
        self.epoch = NEW_SESSION
        self._known.clear()
        self._forgotten.clear()
