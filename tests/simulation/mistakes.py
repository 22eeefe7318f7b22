"""Known mistakes of replicated logs, each planted into streamlog's own code, one at a time."""

from dataclasses import replace

import pytest

from streamlog.log.disk import Disk
from streamlog.metadata import store
from streamlog.metadata.vote import StoredVote, read_vote
from streamlog.model import NodeId
from streamlog.partition import state
from streamlog.raft.events import Effect, Event, SaveVote
from streamlog.raft.leadership import Leadership
from streamlog.raft.quorum import Raft
from streamlog.raft.voters import VoterSet
from streamlog.replication.isr import Standing
from streamlog.replication.leader import LeaderProgress, Standings

# Partitions


def cut_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """As Kafka did before KIP-101: who is to follow trusts nothing above its high watermark, and
    all below it.
    """

    def follow(self: state.PartitionState, *args: object, **more: object) -> None:
        is_new = args[0] != self.leader_epoch
        inner(self, *args, **more)  # type: ignore[arg-type]
        if is_new and self.syncing is None and not self.cutting:
            self.log.truncate_to(self.high_watermark)

    inner = state.PartitionState.follow
    patch.setattr(state.PartitionState, "follow", follow)
    patch.setattr(state, "divergence", lambda *_, **__: None)


def who_lags_may_join(patch: pytest.MonkeyPatch) -> None:
    """Whoever fetches is in sync again, wherever it is."""

    def wanted(
        self: LeaderProgress, now_ms: int, lag_time_ms: int, standings: Standings
    ) -> frozenset[NodeId]:
        return inner(self, now_ms, lag_time_ms, standings) | {
            node_id
            for node_id, follower in self.followers.items()
            if follower.is_heard(now_ms, lag_time_ms)
            and standings(node_id) == Standing(follower.node_epoch, is_live=True)
        }

    inner = LeaderProgress._wanted
    patch.setattr(LeaderProgress, "_wanted", wanted)
    patch.setattr(LeaderProgress, "_is_level", lambda *_: True)


# The quorum


def commit_older_epochs_by_counting(patch: pytest.MonkeyPatch) -> None:
    """Figure 8 of the Raft paper."""

    def eager(self: Leadership, voters: VoterSet, synced_end: int) -> int:
        ends = [self._end_of(it, synced_end) for it in voters.by_id.values()]
        return sorted(ends, reverse=True)[voters.majority - 1]

    patch.setattr(Leadership, "committed_offset", eager)


def forget_the_vote_at_restart(patch: pytest.MonkeyPatch) -> None:
    """The epoch is remembered."""

    def forgetful(disk: Disk, directory: store.Path) -> StoredVote | None:
        vote = read_vote(disk, directory)
        return vote and replace(vote, voted_for=None)

    patch.setattr(store, "read_vote", forgetful)


def answer_before_saving_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """Epoch and vote are saved when the others have heard of them."""

    def hasty(self: Raft, event: Event, now_ms: int) -> list[Effect]:
        return sorted(step(self, event, now_ms), key=lambda it: isinstance(it, SaveVote))

    step = Raft.step
    patch.setattr(Raft, "step", hasty)
