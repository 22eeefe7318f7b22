"""Stories of ordering nodes. ``SIMULATION_SEEDS=from:to`` plays others, or one again."""

from collections.abc import Iterable

import pytest

from tests.simulation.ordering_world import OrderingWorld
from tests.simulation.seeds import LONG_BUDGET, Player, chosen, shares, told


@pytest.mark.parametrize("seeds", shares(range(60), 30))
def test_all_nodes_come_to_the_same_chain(seeds: Iterable[int], player: Player) -> None:
    player.play(OrderingWorld, seeds)


@pytest.mark.slow
def test_all_nodes_come_to_the_same_chain_for_long(player: Player) -> None:
    player.play(OrderingWorld, chosen(range(1_000, 3_000)), LONG_BUDGET)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert told(OrderingWorld, 7) == told(OrderingWorld, 7)
