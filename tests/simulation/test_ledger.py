import pytest

from tests.simulation.ledger_world import LedgerStory
from tests.simulation.seeds import Player, chosen, told


def test_ordering_nodes(player: Player) -> None:
    player.play(LedgerStory, chosen(range(50)))


@pytest.mark.slow
def test_ordering_nodes_at_length(player: Player) -> None:
    player.play(LedgerStory, chosen(range(1_000, 3_000)))


def test_a_seed_tells_the_same_story_again() -> None:
    assert told(LedgerStory, 7) == told(LedgerStory, 7)
