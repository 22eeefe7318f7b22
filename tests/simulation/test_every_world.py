"""What holds for all worlds that are played at night."""

import pytest

from tests.simulation.nightly import WORLDS
from tests.simulation.seeds import told


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_a_seed_tells_the_same_story_twice(world: str) -> None:
    """Else a story that failed at night could not be played again, nor made smaller."""
    assert told(WORLDS[world], 3) == told(WORLDS[world], 3)
