"""Hundreds of lives of a partition. ``SIMULATION_SEEDS=from:to`` plays others, or one again."""

import pytest

from tests.simulation.asking_world import AskingWorld
from tests.simulation.fast_world import FastWorld
from tests.simulation.seeds import LONG_BUDGET, Budget, Player, chosen, told
from tests.simulation.world import World

SEEDS = range(300)
ASKING_SEEDS = range(100)
FAST_SEEDS = range(100)
BUDGET = Budget(seeds_min=50, cpu_s=3)
ASKING_BUDGET = Budget(seeds_min=20, cpu_s=3)
FAST_BUDGET = Budget(seeds_min=20, cpu_s=3)


def test_promises_hold(player: Player) -> None:
    player.play(World, chosen(SEEDS), BUDGET)


def test_what_headers_ask_for_holds(player: Player) -> None:
    player.play(AskingWorld, chosen(ASKING_SEEDS), ASKING_BUDGET)


def test_what_fast_batches_are_told_holds(player: Player) -> None:
    player.play(FastWorld, chosen(FAST_SEEDS), FAST_BUDGET)


@pytest.mark.slow
def test_promises_hold_for_long(player: Player) -> None:
    player.play(World, chosen(range(1_000, 21_000)), LONG_BUDGET)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert told(World, 7) == told(World, 7)


@pytest.mark.slow
def test_what_headers_ask_for_holds_for_long(player: Player) -> None:
    player.play(AskingWorld, chosen(range(1_000, 6_000)), LONG_BUDGET)


@pytest.mark.slow
def test_what_fast_batches_are_told_holds_for_long(player: Player) -> None:
    player.play(FastWorld, chosen(range(1_000, 6_000)), LONG_BUDGET)
