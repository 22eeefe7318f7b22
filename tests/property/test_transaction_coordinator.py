"""The promises of the transaction coordinator, in any order of requests, writes, markers and crashes."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.coordination.effects import NONE
from streamlog.transactions.coordinator import TransactionCoordinator
from streamlog.transactions.transaction import EPOCH_MAX, Transaction
from tests.property.transaction_story import KINDS, Step, TransactionStory

STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9)), max_size=60
)
EPOCHS = st.sampled_from([0, EPOCH_MAX - 3])


def play(steps: list[Step], epoch: int = 0) -> TransactionStory:
    story = TransactionStory(epoch)
    for step in steps:
        story.step(*step)
    story.finish()
    return story


@given(STEPS, EPOCHS)
def test_transactions_end_as_was_said_and_zombies_are_fenced(steps: list[Step], epoch: int) -> None:
    play(steps, epoch)


def random_story(seed: int) -> TransactionStory:
    rng = random.Random(seed)
    steps = [
        (rng.choice(KINDS), rng.randrange(10), rng.randrange(10)) for _ in range(rng.randrange(120))
    ]
    return play(steps, rng.choice([0, EPOCH_MAX - 3]))


def test_the_stories_commit_and_abort() -> None:
    stories = [random_story(seed) for seed in range(60)]
    outcomes = [
        outcome
        for story in stories
        for partition in story.partitions.values()
        for outcome in partition.outcomes.values()
    ]
    assert {True, False} == set(outcomes)
    assert any(story.world.kept.previous_id >= 0 for story in stories if story.clients)


# Mistakes


def take_any_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionCoordinator, "_standing", lambda *_: NONE)


def forget_what_is_prepared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionCoordinator, "begin", lambda *_: [])


def complete_before_all_are_marked(patch: pytest.MonkeyPatch) -> None:
    complete: Any = TransactionCoordinator._complete_if_marked

    def careless(self: TransactionCoordinator, entry: Any, now: Any) -> None:
        entry.unmarked.clear()
        complete(self, entry, now)

    patch.setattr(TransactionCoordinator, "_complete_if_marked", careless)


def let_a_zombie_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionCoordinator, "_is_fenced", lambda *_: False)


def give_the_next_epoch_to_whoever_had_the_one_before(patch: pytest.MonkeyPatch) -> None:
    prepared: Any = Transaction.prepared_with_next_epoch
    patch.setattr(
        Transaction,
        "prepared_with_next_epoch",
        lambda self, **rest: prepared(self, **{**rest, "may_retry": True}),
    )
    initialised: Any = Transaction.initialised
    patch.setattr(
        Transaction,
        "initialised",
        lambda self, producer, _, *rest: initialised(self, producer, self.producer_epoch, *rest),
    )


def end_without_the_log(patch: pytest.MonkeyPatch) -> None:
    change: Any = TransactionCoordinator._change

    def careless(self: TransactionCoordinator, entry: Any, changed: Any, done: Any) -> None:
        if changed.state.is_prepared:
            entry.kept = changed
        change(self, entry, changed, done)

    patch.setattr(TransactionCoordinator, "_change", careless)


def begin_a_change_beside_another(patch: pytest.MonkeyPatch) -> None:
    change: Any = TransactionCoordinator._change

    def careless(self: TransactionCoordinator, entry: Any, changed: Any, done: Any) -> None:
        change(self, entry, changed, done)
        entry.is_changing = False

    patch.setattr(TransactionCoordinator, "_change", careless)


def never_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionCoordinator, "_time_out", lambda *_: None)


MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    take_any_epoch,
    forget_what_is_prepared,
    complete_before_all_are_marked,
    let_a_zombie_go_on,
    give_the_next_epoch_to_whoever_had_the_one_before,
    end_without_the_log,
    begin_a_change_beside_another,
    never_time_out,
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda it: it.__name__)
def test_the_stories_find(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(400):
            random_story(seed)
