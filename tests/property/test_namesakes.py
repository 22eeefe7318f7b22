"""Partitions whose stream is created anew, and whose replicas come and go, keep their promises."""

from collections.abc import Callable

import pytest

from streamlog.errors import StreamlogError
from streamlog.model import NO_INCARNATION
from streamlog.partition import state
from streamlog.replication.isr import InSync
from tests.property.namesake_story import NamesakeStory
from tests.property.replica_story import BrokenPromise

STORIES = 60
STEPS = 1_000
ENOUGH = 1_000
"""Stories in which a known mistake must show."""


@pytest.mark.parametrize("first", range(0, STORIES, 30))
def test_what_is_committed_stays_and_is_the_same_everywhere(first: int) -> None:
    committed = streams = moves = 0
    for seed in range(first, first + 30):
        story = NamesakeStory(seed)
        try:
            story.run(STEPS)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
        committed += len(story.committed)
        streams, moves = streams + story.image.stream, moves + story.offset
    assert committed > 30, "something was committed at all"
    assert streams > 35, "each begins with one"
    assert moves > 2 * streams


def incarnation_ignored(patch: pytest.MonkeyPatch) -> None:
    inner = state.PartitionState.follower_fetch

    def follower_fetch(self: state.PartitionState, node_id: int, *args: int, **more: int):  # type: ignore[no-untyped-def]
        more["incarnation"] = self.incarnations.get(node_id, NO_INCARNATION)  # type: ignore[call-overload]
        return inner(self, node_id, *args, **more)  # type: ignore[arg-type]

    patch.setattr(state.PartitionState, "follower_fetch", follower_fetch)


def a_proposal_does_not_count(patch: pytest.MonkeyPatch) -> None:
    def count(self: InSync) -> None:
        self.maximal = self.logged

    patch.setattr(InSync, "_count", count)


MISTAKES = (
    (incarnation_ignored, 20),
    (a_proposal_does_not_count, 3),
)
"""And a story in which it showed; another one will do, but takes longer to be found."""


@pytest.mark.parametrize(("mistake", "first"), MISTAKES, ids=lambda it: getattr(it, "__name__", ""))
def test_a_known_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in range(first, first + ENOUGH):
        try:
            NamesakeStory(seed).run(STEPS)
        except (BrokenPromise, AssertionError, StreamlogError):
            return
    pytest.fail("nobody noticed")
