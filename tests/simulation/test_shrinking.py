from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.events import Events
from tests.simulation.nightly import WORLDS, Total, play, play_apart, report, table
from tests.simulation.shrinking import needed

KINDS = ["kill", "stop", "cut", "kill", "jump", "stop", "cut", "kill"]


@pytest.mark.parametrize("enough", [{0}, {7}, {2, 5}, {0, 3, 7}, set(range(8)), set()])
def test_only_what_it_needs_is_left(enough: set[int]) -> None:
    def fails(left_out: frozenset[int]) -> bool:
        return not left_out & enough

    assert set(needed(KINDS, fails)) == enough


def test_the_number_of_stories_is_limited() -> None:
    count = 0

    def fails(left_out: frozenset[int]) -> bool:
        nonlocal count
        count += 1
        return not left_out

    assert needed(KINDS, fails, stories_max=3) == list(range(8))
    assert count == 3


class Blows:
    """Fails when the second and the fourth one strike."""

    def __init__(self) -> None:
        self.blows = ["kill", "stop", "kill", "stop", "jump"]
        self.is_left_out: Callable[[int, str], bool] = lambda number, kind: False


class FailingWorld:
    def __init__(self, seed: int) -> None:
        self.troubles = Blows()
        self.events = Events()
        self.story = ["it begins"]
        self.events_run = seed

    def run(self) -> None:
        if not any(self.troubles.is_left_out(number, "stop") for number in (1, 3)):
            raise Violation("all is lost")


def test_a_failing_story_is_written_down_and_made_smaller(tmp_path: Path) -> None:
    ending = play_apart(FailingWorld, 7)
    assert ending.problem == "seed 7: Violation: all is lost\nit begins"
    told = report(FailingWorld, 7, ending, tmp_path)
    assert "2 of 5 blows suffice (stop, stop)" in told
    assert told.endswith("--play FailingWorld 7 --without 0,2,4")
    assert "all is lost" in (tmp_path / "FailingWorld-7.txt").read_text()
    assert "all is lost" in (tmp_path / "FailingWorld-7.smaller.txt").read_text()
    assert not play(FailingWorld, 7, frozenset({1})).problem
    total = Total()
    total.add(ending)
    assert "1 stories and 0.0 logical hours an hour" in table({"FailingWorld": total}, 1.0)


def test_a_blow_that_is_left_out_does_nothing() -> None:
    make = WORLDS["QuorumWorld"]
    whole = play(make, 2)
    assert whole.blows
    without = play(make, 2, frozenset(range(len(whole.blows) + 100)))
    assert not without.problem
    assert without.events != whole.events
