"""What a leader knows of the replicas that fetch from it, in one epoch. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from streamlog.model import NodeId
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet

CAUGHT_UP_MS: Final = 1_000


class ReplicaProgress(NamedTuple):
    """One of ``RaftNode.replicas``; the leader itself is among them."""

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


FORGOTTEN_MS: Final = 60_000
"""A replica that does not vote and has not fetched for so long is no longer spoken of."""


@dataclass(slots=True)
class _Replica:
    fetched_ms: int
    """When it fetched last, whatever came of it."""
    answered_ms: int
    """When its last fetch was answered; before that, when the leader began."""
    followed_ms: int
    """Then it certainly followed this leader: it was answered, and has fetched since."""
    caught_up_ms: int
    """When it last had all that the leader then had (Kafka's lastCaughtUpTime)."""
    end_offset: int = -1
    """All below is there, synced, and as in the leader's log; -1: not known. It falls only where
    the folder is an older copy now, or where an older request has overtaken.
    """
    log_end_then: int = 0
    """The leader's end when it fetched last."""


class ReplicaTracker:
    """The leader counts itself by its synced end, if it votes at all."""

    def __init__(self, me: ReplicaKey, *, epoch_start_offset: int, now_ms: int) -> None:
        self.epoch_start_offset = epoch_start_offset
        """What is below was written in older epochs: it commits with what is above, never by
        itself (Raft 5.4.2).
        """
        self.began_ms = now_ms
        self.voters_since_ms = now_ms
        """A voter that has not fetched yet is given time from here on."""
        self._me = me
        self._replicas: dict[ReplicaKey, _Replica] = {}

    def heard(
        self, key: ReplicaKey, voters: VoterSet, now_ms: int, *, at_most: int = -1
    ) -> int | None:
        """It has fetched, but what it has is not what the leader has; it ends at ``at_most``, if
        it is a part of that at all (-1). Returns how much of it was there before, if that is more.
        """
        replica = self._known(key, voters, now_ms)
        replica.fetched_ms = now_ms
        replica.followed_ms = replica.answered_ms
        known, replica.end_offset = replica.end_offset, min(replica.end_offset, at_most)
        return known if replica.end_offset < known else None

    def answered(self, key: ReplicaKey, now_ms: int) -> None:
        """To its last fetch. The next one shows that it still follows."""
        replica = self._replicas.get(key)
        if replica is not None:
            replica.answered_ms = now_ms

    def fetched(
        self, key: ReplicaKey, voters: VoterSet, offset: int, *, log_end: int, now_ms: int
    ) -> int | None:
        """All below ``offset`` is there, synced, and like the leader's.

        What a replica has acknowledged and does not have any more must not be counted: with it, a
        record would be taken for committed that no majority has. Returns how much was there before,
        if that is more.
        """
        replica = self._known(key, voters, now_ms)
        if offset >= log_end:
            replica.caught_up_ms = now_ms
        elif replica.end_offset >= 0 and offset >= replica.log_end_then:
            replica.caught_up_ms = max(replica.caught_up_ms, replica.fetched_ms)
        known, replica.end_offset = replica.end_offset, offset
        replica.log_end_then = log_end
        replica.fetched_ms = now_ms
        replica.followed_ms = replica.answered_ms
        return known if offset < known else None

    def committed_offset(self, voters: VoterSet, synced_end: int) -> int:
        """What a majority has; -1 while nothing of this epoch is committed."""
        ends = sorted((self._end_of(it, synced_end) for it in voters.by_id.values()), reverse=True)
        reached = ends[voters.majority - 1] if ends else -1
        return reached if reached > self.epoch_start_offset else -1

    def contact_ms(self, voters: VoterSet, now_ms: int) -> int:
        """Until when the leader was certainly in touch with a majority (thesis 6.2)."""
        times = sorted((self._heard_ms(it, now_ms) for it in voters.by_id.values()), reverse=True)
        return times[voters.majority - 1] if times else self.voters_since_ms

    def confirmed_ms(self, voters: VoterSet, now_ms: int) -> int:
        """Until when there was certainly no leader of a later epoch.

        That a fetch arrives says nothing of the moment: it may have been on its way for long, and
        its sender may have voted for another since. But a node that fetches after an answer followed
        this leader when that was given (the round of Raft's ReadIndex, thesis 6.4).
        """
        times = sorted(
            (self._followed_ms(it, now_ms) for it in voters.by_id.values()), reverse=True
        )
        return times[voters.majority - 1] if times else self.began_ms

    def silent(self, voters: VoterSet, since_ms: int) -> list[NodeId]:
        """Voters that have not fetched since; also those that never have."""
        others = [it for it in voters.by_id.values() if it.node_id != self._me.node_id]
        keys = {voter.node_id: self._replica_of(voter) for voter in others}
        return [
            node_id
            for node_id, key in keys.items()
            if key is None or self._replicas[key].fetched_ms < since_ms
        ]

    def by_progress(self, voters: VoterSet) -> list[NodeId]:
        """The other voters, the one most caught up first."""
        others = [it for it in voters.by_id.values() if it.node_id != self._me.node_id]
        return [it.node_id for it in sorted(others, key=lambda it: -self._end_of(it, -1))]

    def end_of(self, node_id: NodeId, voters: VoterSet) -> int:
        """How far another voter is; -1 if that is not known."""
        voter = voters.by_id.get(node_id)
        return -1 if voter is None else self._end_of(voter, -1)

    def replicas(self, now_ms: int) -> list[ReplicaProgress]:
        """The one that fetched last stands last."""
        known = sorted(self._replicas.items(), key=lambda item: item[1].fetched_ms)
        return [
            ReplicaProgress(key, it.end_offset, now_ms - it.fetched_ms, now_ms - it.caught_up_ms)
            for key, it in known
        ]

    def replaced(
        self, voters: VoterSet, *, high_watermark: int, silent_since_ms: int
    ) -> list[ReplicaKey]:
        """Replicas with all that is committed, in another folder than the one that is recorded,
        which has been silent.
        """
        return [
            key
            for key, replica in self._replicas.items()
            if (voter := voters.by_id.get(key.node_id)) is not None
            and not voter.is_replica(key)
            and replica.end_offset >= high_watermark
            and replica.fetched_ms >= silent_since_ms
            and self._heard_ms(voter, now_ms=silent_since_ms) < silent_since_ms
        ]

    def _known(self, key: ReplicaKey, voters: VoterSet, now_ms: int) -> _Replica:
        replica = self._replicas.get(key)
        if replica is None:
            self._forget(key.node_id, voters, now_ms)
            replica = self._replicas[key] = _Replica(
                fetched_ms=now_ms,
                answered_ms=self.began_ms,
                followed_ms=self.began_ms,
                caught_up_ms=self.began_ms,
            )
        return replica

    def _forget(self, node_id: NodeId, voters: VoterSet, now_ms: int) -> None:
        """A node comes with another folder: what was in the one before counts no more, unless it
        is the recorded one. A node that does not vote and has long been silent goes, too.
        """
        for key, replica in list(self._replicas.items()):
            voter = voters.by_id.get(key.node_id)
            if voter is not None and voter.directory_id == key.directory_id:
                continue
            if key.node_id == node_id or replica.fetched_ms < now_ms - FORGOTTEN_MS:
                del self._replicas[key]

    def _replica_of(self, voter: Voter) -> ReplicaKey | None:
        if voter.node_id == self._me.node_id:
            return self._me if voter.is_replica(self._me) else None
        if voter.directory_id is not None:
            key = ReplicaKey(voter.node_id, voter.directory_id)
            return key if key in self._replicas else None
        return next((it for it in self._replicas if it.node_id == voter.node_id), None)

    def _end_of(self, voter: Voter, synced_end: int) -> int:
        key = self._replica_of(voter)
        if key is None:
            return -1
        return synced_end if key == self._me else self._replicas[key].end_offset

    def _heard_ms(self, voter: Voter, now_ms: int) -> int:
        key = self._replica_of(voter)
        if key is None:
            return self.voters_since_ms
        return now_ms if key == self._me else self._replicas[key].fetched_ms

    def _followed_ms(self, voter: Voter, now_ms: int) -> int:
        key = self._replica_of(voter)
        if key is None:
            return self.began_ms
        return now_ms if key == self._me else self._replicas[key].followed_ms
