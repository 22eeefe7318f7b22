import pytest

from tests.simulation.groups_world import GroupsStory
from tests.simulation.seeds import LONG_BUDGET, Player, chosen, told


def test_groups(player: Player) -> None:
    player.play(GroupsStory, chosen(range(150)))


@pytest.mark.slow
def test_groups_at_length(player: Player) -> None:
    player.play(GroupsStory, chosen(range(1_000, 6_000)), LONG_BUDGET)


def test_a_seed_tells_the_same_story_again() -> None:
    assert told(GroupsStory, 7) == told(GroupsStory, 7)
