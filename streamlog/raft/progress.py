"""How far one replica is, in its leader's eyes. Pure."""

from typing import Final, NamedTuple

from streamlog.raft.voters import ReplicaKey

CAUGHT_UP_MS: Final = 1_000


class ReplicaProgress(NamedTuple):
    """``replicas`` of ``Raft``; the leader itself is among them."""

    key: ReplicaKey
    end_offset: int
    """All below is there, synced; -1: nothing is known yet."""
    last_fetch_ms: int
    """For so long it has not fetched."""
    caught_up_ms: int
    """For so long it has not had all that the leader had."""

    @property
    def is_caught_up(self) -> bool:
        """It follows closely enough to become a voter without holding up the others."""
        return self.caught_up_ms <= CAUGHT_UP_MS
