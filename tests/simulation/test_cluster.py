"""Stories of whole clusters. ``SIMULATION_SEEDS=from:to`` plays others, or one again, and
``SIMULATION_SEEDS=from:`` others until it is stopped.
"""

import pytest

from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.cruel import FollowersLag
from tests.simulation.seeds import Player, chosen, told

SEEDS = range(120)
CRUEL_SEEDS = range(10)


def test_what_is_acknowledged_is_kept(player: Player) -> None:
    player.play(ClusterWorld, chosen(SEEDS))


def test_what_is_acknowledged_is_kept_where_followers_lag(player: Player) -> None:
    player.play(FollowersLag, chosen(CRUEL_SEEDS))


@pytest.mark.slow
def test_what_is_acknowledged_is_kept_for_long(player: Player) -> None:
    player.play(ClusterWorld, chosen(range(1_000, 2_500)))


@pytest.mark.slow
def test_what_is_acknowledged_is_kept_where_followers_lag_for_long(player: Player) -> None:
    player.play(FollowersLag, chosen(range(1_000, 1_300)))


def test_a_seed_tells_the_same_story_twice() -> None:
    assert told(ClusterWorld, 7) == told(ClusterWorld, 7)
