"""A few hundred lives of a partition. ``SIMULATION_SEEDS=from:to`` plays others, or one again."""

import os

import pytest

from tests.simulation.world import World

SEEDS = range(200)


def play(seeds: range) -> None:
    for seed in seeds:
        world = World(seed)
        try:
            world.run()
        except Exception as error:
            story = "\n".join(world.story)
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{story}")


def test_promises_hold() -> None:
    first, _, last = os.environ.get("SIMULATION_SEEDS", "").partition(":")
    play(range(int(first), int(last or int(first) + 1)) if first else SEEDS)


@pytest.mark.slow
def test_promises_hold_for_long() -> None:
    play(range(1_000, 21_000))


def test_a_seed_tells_the_same_story_twice() -> None:
    one, two = World(7), World(7)
    one.run()
    two.run()
    assert one.story == two.story
    assert one.events.now_us == two.events.now_us
