from collections.abc import Callable

import pytest

from streamlog.ledger.core.consenter import AppendBlock, Consenter, Effect
from streamlog.ledger.core.cutter import BlockCut, CutReason, Cutter
from tests.simulation.ledger_world import LedgerStory
from tests.simulation.seeds import LONG_BUDGET, Player, chosen, told

Plant = Callable[[pytest.MonkeyPatch], None]


def test_ordering_nodes(player: Player) -> None:
    player.play(LedgerStory, chosen(range(40)))


@pytest.mark.slow
def test_ordering_nodes_at_length(player: Player) -> None:
    player.play(LedgerStory, chosen(range(1_000, 3_000)), LONG_BUDGET)


def test_a_seed_tells_the_same_story_again() -> None:
    assert told(LedgerStory, 7) == told(LedgerStory, 7)


def cut_by_the_own_clock(patch: pytest.MonkeyPatch) -> None:
    """The time-out cuts, and nobody else hears of it."""

    def expired(self: Consenter, number: int) -> list[Effect]:
        effects: list[Effect] = []
        if number == self._timed:
            self._extend(self._cutter.cut(self.next_offset, CutReason.TIME), effects)
        return effects

    patch.setattr(Consenter, "_expired", expired)


def cut_with_each_read(patch: pytest.MonkeyPatch) -> None:
    """What has been read together is a block."""

    def set_timer(self: Consenter, effects: list[Effect], **_: object) -> None:
        self._extend(self._cutter.cut(self.next_offset, CutReason.TIME), effects)

    patch.setattr(Consenter, "_set_timer", set_timer)


def go_on_after_the_record_that_cut(patch: pytest.MonkeyPatch) -> None:
    """It is in the next block, unless the node dies before that is cut."""

    def cut(self: Cutter, next_offset: int, reason: CutReason) -> tuple[BlockCut, ...]:
        before = reason in {CutReason.BYTES, CutReason.LARGE, CutReason.CONFIGURATION}
        return inner(self, next_offset + before, reason)

    inner = Cutter.cut
    patch.setattr(Cutter, "cut", cut)


def heed_markers_of_any_number(patch: pytest.MonkeyPatch) -> None:
    def take(self: Consenter, number: int, offset: int, effects: list[Effect]) -> None:
        inner(self, self.tip.height, offset, effects)

    inner = Consenter._take_marker
    patch.setattr(Consenter, "_take_marker", take)


def keep_nothing_in_order(patch: pytest.MonkeyPatch) -> None:
    """What a step wants kept comes in any order."""

    def step(self: Consenter, event: object) -> list[Effect]:
        effects = inner(self, event)  # type: ignore[arg-type]
        appends = [effect for effect in effects if isinstance(effect, AppendBlock)]
        return [*appends[1:], *appends[:1], *(e for e in effects if e not in appends)]

    inner = Consenter.step
    patch.setattr(Consenter, "step", step)


MISTAKES = [
    (cut_by_the_own_clock, "has another chain"),
    (cut_with_each_read, "has another chain"),
    (go_on_after_the_record_that_cut, "has another chain"),
    (heed_markers_of_any_number, "not the naive chain"),
    (keep_nothing_in_order, "a block twice, or left out"),
]


@pytest.mark.parametrize(("plant", "shows"), MISTAKES, ids=[case[0].__name__ for case in MISTAKES])
def test_a_planted_mistake_is_caught(plant: Plant, shows: str, player: Player) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        problems = [player.problem(LedgerStory, seed) for seed in range(10)]
    found = [problem.splitlines()[0] for problem in problems if problem]
    assert any(shows in problem for problem in found), found
