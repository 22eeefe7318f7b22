"""Playing worlds by seed, and telling the story of one that ends badly."""

import os
from collections.abc import Callable
from typing import Protocol

import pytest

from tests.simulation.cluster.loop import graveyard

STORY_LINES_MAX = 200


class World(Protocol):
    """All that happens in it follows from its seed."""

    @property
    def story(self) -> list[str]: ...

    def run(self) -> None: ...


def chosen(seeds: range) -> range:
    """``seeds``, unless ``SIMULATION_SEEDS=from:to`` or ``=one`` asks for others."""
    first, _, last = os.environ.get("SIMULATION_SEEDS", "").partition(":")
    return range(int(first), int(last or int(first) + 1)) if first else seeds


def play(make: Callable[[int], World], seeds: range) -> None:
    """Each in turn; the first that breaks a promise is told, with its seed."""
    for seed in seeds:
        with graveyard():
            problem = played(make, seed)
        if problem:
            pytest.fail(f"{problem}\nSIMULATION_SEEDS={seed} plays it again")


def played(make: Callable[[int], World], seed: int) -> str:
    """What went wrong, with the story that led to it; nothing if nothing did."""
    world = make(seed)
    try:
        world.run()
    except Exception as error:
        story = "\n".join(world.story[-STORY_LINES_MAX:])
        return f"seed {seed}: {type(error).__name__}: {error}\n{story}"
    return ""
