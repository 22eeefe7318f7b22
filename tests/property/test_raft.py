"""Quorums in trouble keep what they promise, and come round when it is over."""

import os
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.quorum_trouble import Trouble
from tests.quorum_world import World

SEEDS = int(os.environ.get("STREAMLOG_QUORUM_SEEDS", "3000"))


def play(seed: int, *, for_ms: int) -> World:
    """One to five voters, with or without observers; a failing seed tells its story."""
    rng = random.Random(seed)
    voters = rng.choice((1, 2, 3, 3, 3, 4, 5))
    world = World(seed, hosts=voters + rng.choice((0, 0, 1, 2)), voters=voters)
    try:
        Trouble(world).run(for_ms)
    except AssertionError as error:
        story = "\n".join(world.story[-60:])
        raise AssertionError(f"seed {seed}: {error}\n{story}") from error
    return world


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_quorums_in_trouble(seed: int) -> None:
    play(seed, for_ms=20_000)


@pytest.mark.slow
def test_many_quorums_in_trouble() -> None:
    for seed in range(SEEDS):
        play(seed, for_ms=40_000)


def test_trouble_is_met_by_work() -> None:
    """A world in which nothing is ever committed would keep all promises."""
    worlds = [play(seed, for_ms=20_000) for seed in range(10)]
    assert all(len(world.checkers.committed_entries) > 3 for world in worlds)
    assert sum(len(world.checkers.leaders) for world in worlds) > 20


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_dead_leader_is_replaced_at_once(seed: int) -> None:
    """Its connections close: nobody waits for a timeout (1,000 ms)."""
    world = World(seed)
    assert world.run_until(world.is_well, 5_000)
    world.run(world.rng.randint(0, 2_000))
    (leader,) = world.active()
    began_ms = world.now_ms
    leader.crash()
    assert world.run_until(lambda: len(world.active()) == 1, 400), world.story
    assert world.now_ms > began_ms
    leader.start()
    assert world.run_until(world.is_well, 2_000)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_silent_leader_is_replaced_after_a_while(seed: int) -> None:
    """Nothing comes through any more, and nobody says so."""
    world = World(seed)
    assert world.run_until(world.is_well, 5_000)
    (leader,) = world.active()
    for other in world.hosts:
        world.cut |= {(leader.node_id, other), (other, leader.node_id)}
    assert world.run_until(lambda: any(it is not leader for it in world.active()), 3_500)
    world.run(1_600)
    assert world.active() != [], "and the old one has gone by itself"
    assert leader not in world.active()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
@example(442794).via("another follower had heard sooner that the leader resigned, and stood first")
def test_leadership_is_handed_over_without_a_gap(seed: int) -> None:
    world = World(seed)
    assert world.run_until(world.is_well, 5_000)
    (leader,) = world.active()
    for number in range(5):
        leader.propose(number)
    successor = world.rng.choice([it for it in world.hosts.values() if it is not leader])
    leader.resign(successor.node_id)
    assert world.run_until(lambda: world.active() == [successor], 300), world.story
    assert world.run_until(world.is_well, 1_000)
    assert len(world.checkers.leaders) == 2, "one election is enough"


def test_an_idle_quorum_says_little() -> None:
    world = World(1)
    assert world.run_until(world.is_well, 5_000)
    world.run(1_000)
    before = world.sent
    world.run(10_000)
    assert world.sent - before <= 2 * 20 + 2, "two followers fetch twice a second"
