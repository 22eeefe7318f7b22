"""Stories of whole clusters. ``SIMULATION_SEEDS=from:to`` plays others, or one again, and
``SIMULATION_SEEDS=from:`` others until it is stopped.
"""

from collections.abc import Iterable

import pytest

from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.cruel import FollowersLag
from tests.simulation.seeds import Player, chosen, shares, told

SEEDS = range(120)
CRUEL_SEEDS = range(10)


@pytest.mark.parametrize("seeds", shares(SEEDS, 10))
def test_what_is_acknowledged_is_kept(seeds: Iterable[int], player: Player) -> None:
    player.play(ClusterWorld, seeds)


@pytest.mark.parametrize("seeds", shares(CRUEL_SEEDS, 5))
def test_what_is_acknowledged_is_kept_where_followers_lag(
    seeds: Iterable[int], player: Player
) -> None:
    player.play(FollowersLag, seeds)


@pytest.mark.slow
def test_what_is_acknowledged_is_kept_for_long(player: Player) -> None:
    player.play(ClusterWorld, chosen(range(1_000, 2_500)))


@pytest.mark.slow
def test_what_is_acknowledged_is_kept_where_followers_lag_for_long(player: Player) -> None:
    player.play(FollowersLag, chosen(range(1_000, 1_300)))


def test_a_seed_tells_the_same_story_twice() -> None:
    assert told(ClusterWorld, 7) == told(ClusterWorld, 7)
