"""Stories of a metadata quorum. ``SIMULATION_SEEDS=from:to`` plays others, or one again."""

import pytest

from tests.simulation.cluster.quorum_world import QuorumWorld
from tests.simulation.seeds import chosen, play

SEEDS = range(40)


def test_what_is_decided_stays_decided() -> None:
    play(QuorumWorld, chosen(SEEDS))


@pytest.mark.slow
def test_what_is_decided_stays_decided_for_long() -> None:
    play(QuorumWorld, range(1_000, 6_000))
