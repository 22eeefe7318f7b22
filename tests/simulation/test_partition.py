"""Hundreds of lives of a partition. ``SIMULATION_SEEDS=from:to`` plays others, or one again."""

import pytest

from tests.simulation.seeds import Player, chosen, told
from tests.simulation.world import World

SEEDS = range(300)


def test_promises_hold(player: Player) -> None:
    player.play(World, chosen(SEEDS))


@pytest.mark.slow
def test_promises_hold_for_long(player: Player) -> None:
    player.play(World, chosen(range(1_000, 21_000)))


def test_a_seed_tells_the_same_story_twice() -> None:
    assert told(World, 7) == told(World, 7)
