"""Playing worlds by seed, and telling the story of one that ends badly."""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pytest

from tests.simulation.cluster.loop import graveyard
from tests.simulation.events import Events, OutOfTime

STORY_LINES_MAX = 200


class World(Protocol):
    """All that happens in it follows from its seed."""

    @property
    def story(self) -> list[str]: ...

    @property
    def events_run(self) -> int: ...

    def run(self) -> None: ...


class TimedWorld(World, Protocol):
    """Its time is that of its events."""

    @property
    def events(self) -> Events: ...


Make = Callable[[int], World]
MakeTimed = Callable[[int], TimedWorld]


@dataclass(frozen=True)
class Ending:
    """Of a story in a ``TimedWorld``."""

    problem: str
    """What went wrong, with the story that led to it; nothing if nothing did."""
    time_us: int
    """When it ended."""


@dataclass(frozen=True)
class Budget:
    """So many seeds at least, and more while these seconds of CPU are not used up."""

    seeds_min: int
    cpu_s: float

    def is_used_up(self, seeds: int, cpu_s: float) -> bool:
        return seeds >= self.seeds_min and cpu_s > self.cpu_s


LONG_BUDGET: Final = Budget(seeds_min=20, cpu_s=120)
"""Of a slow test. ``SIMULATION_SEEDS`` plays more: all seeds of all slow tests take five hours of CPU."""


@dataclass
class Count:
    """Of the stories of one kind of world."""

    seeds: int = 0
    events: int = 0
    cpu_s: float = 0.0

    def add(self, other: "Count") -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.cpu_s += other.cpu_s

    def __str__(self) -> str:
        per_minute = int(60 * self.events / max(self.cpu_s, 1e-9))
        return (
            f"{self.seeds:,} seeds, {self.events:,} events in {self.cpu_s:.0f} s of CPU:"
            f" {per_minute:,} a minute"
        )


class Player:
    """Plays seeds, and counts what it has played."""

    def __init__(self) -> None:
        self.counts: dict[str, Count] = {}
        """By the name of the world."""

    def play(self, make: Make, seeds: Iterable[int], budget: Budget | None = None) -> None:
        """Each in turn; the first that breaks a promise is told, with its seed.

        The budget does not limit the seeds that ``SIMULATION_SEEDS`` asks for.
        """
        if os.environ.get("SIMULATION_SEEDS"):
            budget = None
        began = time.process_time()
        for number, seed in enumerate(seeds):
            if budget and budget.is_used_up(number, time.process_time() - began):
                break
            problem = self.problem(make, seed)
            if problem:
                pytest.fail(f"{problem}\n{_how_to_repeat(seed)}")

    def problem(self, make: Make, seed: int) -> str:
        """What went wrong, with the story that led to it; nothing if nothing did."""
        with self._counted(make), graveyard():
            return self._problem(make, make(seed), seed)

    def ending(self, make: MakeTimed, seed: int, until_us: int | None = None) -> Ending:
        """The same of a story that goes no further than ``until_us``."""
        with self._counted(make), graveyard():
            world = make(seed)
            world.events.until_us = until_us
            problem = self._problem(make, world, seed)
            ending = Ending(problem, world.events.now_us)
            del world
        return ending

    def _problem(self, make: Make, world: World, seed: int) -> str:
        problem = problem_of(world, seed)
        self._count(make).events += world.events_run
        return problem

    @contextmanager
    def _counted(self, make: Make) -> Iterator[None]:
        started = time.process_time()
        yield
        count = self._count(make)
        count.seeds += 1
        count.cpu_s += time.process_time() - started

    def _count(self, make: Make) -> Count:
        return self.counts.setdefault(getattr(make, "__name__", ""), Count())


def problem_of(world: World, seed: int) -> str:
    """Of its story, which runs now, as ``Player.problem``."""
    try:
        world.run()
    except OutOfTime:
        pass
    except Exception as error:
        story = "\n".join(world.story[-STORY_LINES_MAX:])
        return f"seed {seed}: {type(error).__name__}: {error}\n{story}"
    return ""


def _how_to_repeat(seed: int) -> str:
    """The metadata's streams are in the order of the hashes of their names."""
    if sys.flags.hash_randomization:
        return "a random PYTHONHASHSEED played it: with PYTHONHASHSEED=0 seeds can be played again"
    return f"PYTHONHASHSEED=0 SIMULATION_SEEDS={seed} plays it again"


def chosen(seeds: range) -> Iterable[int]:
    """``seeds``, unless ``SIMULATION_SEEDS`` asks for others: ``=one``, ``=from:to``, or ``=from:``
    and so on without an end.
    """
    text = os.environ.get("SIMULATION_SEEDS", "")
    if not text:
        return seeds
    first, colon, last = text.partition(":")
    if colon and not last:
        return itertools.count(int(first))
    return range(int(first), int(last or int(first) + 1))


def shares(seeds: range, size: int) -> list[Any]:
    """``chosen`` for the parameter of a test: ``size`` seeds each, for several workers to share."""
    if os.environ.get("SIMULATION_SEEDS"):
        return [pytest.param(chosen(seeds), id="chosen")]
    starts = range(seeds.start, seeds.stop, size)
    parts = [range(start, min(start + size, seeds.stop)) for start in starts]
    return [pytest.param(part, id=f"{part.start}:{part.stop}") for part in parts]


def told(make: Make, seed: int) -> tuple[list[str], int]:
    """The whole story, and how many events it took."""
    with graveyard():
        world = make(seed)
        world.run()
        story, events = world.story, world.events_run
        del world
    return story, events
