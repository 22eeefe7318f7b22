"""Stories of whole clusters. ``SIMULATION_SEEDS=from:to`` plays others, or one again."""

import pytest

from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.seeds import chosen, play

SEEDS = range(8)


def test_what_is_acknowledged_is_kept() -> None:
    play(ClusterWorld, chosen(SEEDS))


@pytest.mark.slow
def test_what_is_acknowledged_is_kept_for_long() -> None:
    play(ClusterWorld, range(1_000, 2_000))
