"""Stories of a metadata quorum. ``SIMULATION_SEEDS=from:to`` plays others, or one again, and
``SIMULATION_SEEDS=from:`` others until it is stopped.
"""

from collections.abc import Iterable

import pytest

from tests.simulation.cluster.cruel import LeadersDie, VotersRestart
from tests.simulation.cluster.quorum_world import QuorumWorld
from tests.simulation.cluster.voter_changes import FoldersReturn, VotersChangeAtOnce
from tests.simulation.seeds import LONG_BUDGET, Budget, Player, chosen, shares, told

SEEDS = range(300)
SHARE = 50
"""Seeds of one test, for several workers to share."""
SHARE_BUDGET = Budget(seeds_min=10, cpu_s=2)
CRUEL_BUDGET = Budget(seeds_min=4, cpu_s=2)
CRUEL = [
    (LeadersDie, range(50)),
    (VotersRestart, range(8)),
    (VotersChangeAtOnce, range(20)),
    (FoldersReturn, range(15)),
]


@pytest.mark.parametrize("seeds", shares(SEEDS, SHARE))
def test_what_is_decided_stays_decided(seeds: Iterable[int], player: Player) -> None:
    player.play(QuorumWorld, seeds, SHARE_BUDGET)


@pytest.mark.parametrize(("world", "seeds"), CRUEL)
def test_what_is_decided_stays_decided_at_the_worst(
    world: type[QuorumWorld], seeds: range, player: Player
) -> None:
    player.play(world, chosen(seeds), CRUEL_BUDGET)


@pytest.mark.slow
@pytest.mark.parametrize("world", [QuorumWorld, *(world for world, _ in CRUEL)])
def test_what_is_decided_stays_decided_for_long(world: type[QuorumWorld], player: Player) -> None:
    player.play(world, chosen(range(1_000, 6_000 if world is QuorumWorld else 2_000)), LONG_BUDGET)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert told(QuorumWorld, 7) == told(QuorumWorld, 7)
