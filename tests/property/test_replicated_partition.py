"""Replicated partitions keep their promises in any story; and known mistakes are noticed."""

from collections.abc import Callable

import pytest

from streamlog.errors import StreamlogError
from streamlog.partition import state
from streamlog.partition.replication import partition_follower
from streamlog.replication.isr import InSync
from streamlog.replication.leader import LeaderProgress
from tests.property.replica_story import NODES, BrokenPromise, ReplicaStory

STORIES = 90
STEPS = 1_000
ENOUGH = 1_000
"""Stories in which a known mistake must show."""


@pytest.mark.parametrize("first", range(0, STORIES, 30))
def test_what_is_committed_stays_and_is_the_same_everywhere(first: int) -> None:
    committed = 0
    for seed in range(first, first + 30):
        story = ReplicaStory(seed)
        try:
            story.run(STEPS)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
        committed += len(story.committed)
    assert committed > 50, "something was committed at all"


def test_in_the_end_all_have_all() -> None:
    for seed in range(1_000, 1_020):
        story = ReplicaStory(seed)
        story.run(STEPS)
        story.settle()
        assert story.image.isr == frozenset(NODES), f"seed {seed}"
        states = [it.state for it in story.replicas.values() if it.state is not None]
        logs = [story.entries(it) for it in states]
        assert logs[0] == logs[1] == logs[2], f"seed {seed}"
        assert {it.high_watermark for it in states} == {len(logs[0])}, f"seed {seed}"


def unsynced_counts(patch: pytest.MonkeyPatch) -> None:
    end = property(lambda self: self.log.log_end_offset)
    patch.setattr(state.PartitionState, "kept_end", end)


def a_proposal_does_not_count(patch: pytest.MonkeyPatch) -> None:
    def count(self: InSync) -> None:
        self.maximal = self.logged

    patch.setattr(InSync, "_count", count)


def who_lags_may_join(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        LeaderProgress, "_is_level", lambda self, node: self.followers[node].end_offset > 0
    )


def histories_never_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state, "divergence", lambda *_, **__: None)


def cut_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def diverged(
        self: partition_follower.PartitionFollower, _end: object
    ) -> partition_follower.Truncation:
        return partition_follower.Truncation(self._state.high_watermark)

    patch.setattr(partition_follower.PartitionFollower, "diverged", diverged)
    patch.setattr(state, "divergence", lambda end, fetch_offset, last_epoch: None)

    def follow(self: state.PartitionState, *args: object, **more: object) -> state.Step:
        step = inner(self, *args, **more)  # type: ignore[arg-type]
        if self.syncing is None:
            self.log.truncate_to(self.high_watermark)
        return step

    inner = state.PartitionState.follow
    patch.setattr(state.PartitionState, "follow", follow)


def who_leads_no_more_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state.PartitionState, "_fail_pending", lambda *_: state.NOTHING)


MISTAKES = (
    (unsynced_counts, 24),
    (a_proposal_does_not_count, 232),
    (who_lags_may_join, 355),
    (histories_never_part, 0),
    (cut_at_the_high_watermark, 7),
    (who_leads_no_more_answers, 0),
)
"""And a story in which it showed; another one will do, but takes longer to be found."""


@pytest.mark.parametrize(("mistake", "first"), MISTAKES, ids=lambda it: getattr(it, "__name__", ""))
def test_a_known_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in range(first, first + ENOUGH):
        try:
            ReplicaStory(seed).run(STEPS)
        except (BrokenPromise, AssertionError, StreamlogError):
            return
    pytest.fail("nobody noticed")
