"""Consumers whose coordinators, clients and streams do what they like; and mistakes that show there."""

import re
from collections.abc import Callable

import pytest

from tests.simulation import consumer_mistakes as mistakes
from tests.simulation.consumers_world import ConsumersStory, CoordinatorsChange
from tests.simulation.retention_world import RetentionStory
from tests.simulation.seeds import LONG_BUDGET, MakeTimed, Player, chosen, told

Plant = Callable[[pytest.MonkeyPatch], None]


def test_consumers(player: Player) -> None:
    player.play(ConsumersStory, chosen(range(15)))


def test_coordinators_that_change(player: Player) -> None:
    player.play(CoordinatorsChange, chosen(range(5)))


def test_streams_that_lose_messages_or_that_consumers_empty(player: Player) -> None:
    player.play(RetentionStory, chosen(range(15)))


@pytest.mark.slow
def test_such_streams_at_length(player: Player) -> None:
    player.play(RetentionStory, chosen(range(1_000, 6_000)), LONG_BUDGET)


@pytest.mark.slow
def test_consumers_at_length(player: Player) -> None:
    player.play(ConsumersStory, chosen(range(1_000, 6_000)), LONG_BUDGET)


def test_a_seed_tells_the_same_story_again() -> None:
    assert told(ConsumersStory, 7) == told(ConsumersStory, 7)
    assert told(RetentionStory, 7) == told(RetentionStory, 7)


ENDED = "although its end is confirmed"
FALLS = "the (count|sequence) falls"
REMOVED = "is removed(,| although)"
THERE = "is there, although consumers have done with it"
DELETED = "although it is deleted|is of another stream"

MISTAKES: list[tuple[Plant, MakeTimed, int, str]] = [
    (mistakes.act_without_a_lease, ConsumersStory, 2, f"{ENDED}|{FALLS}"),
    (mistakes.let_earlier_coordinators_go_on, CoordinatorsChange, 4, f"{ENDED}|{FALLS}"),
    (mistakes.confirm_what_is_not_kept, ConsumersStory, 0, f"{ENDED}|{FALLS}"),
    (mistakes.confirm_what_is_not_committed, ConsumersStory, 13, f"{ENDED}|{FALLS}"),
    (mistakes.confirm_what_could_not_be_written, ConsumersStory, 1, f"{ENDED}|{FALLS}"),
    (mistakes.take_states_of_namesakes, ConsumersStory, 1, "was never delivered|before the start"),
    (mistakes.load_what_is_known_to_be_committed, ConsumersStory, 49, f"{ENDED}|{FALLS}"),
    (mistakes.confirm_what_is_not_delivered_here, CoordinatorsChange, 7, ENDED),
    (mistakes.forget_what_is_pending, ConsumersStory, 1, "may be pending|never|not delivered"),
    (mistakes.begin_counts_again, ConsumersStory, 8, FALLS),
    (mistakes.deliver_once_more, ConsumersStory, 0, "delivered too often"),
    (mistakes.delete_in_memory_alone, ConsumersStory, 58, DELETED),
    (mistakes.keep_what_is_acknowledged_in_hand, ConsumersStory, 1, ENDED),
    (mistakes.ignore_the_limit_of_pending_messages, ConsumersStory, 0, "may be pending"),
    (mistakes.never_wait_for_acknowledgements, ConsumersStory, 1, "never|not delivered|only"),
    (mistakes.show_no_leader_epochs, RetentionStory, 7, f"never delivered|{REMOVED}"),
    (mistakes.go_back_by_any_answer, RetentionStory, 38, f"{ENDED}|{FALLS}"),
    (mistakes.forget_leader_epochs_at_a_reset, RetentionStory, 440, "never delivered"),
    (mistakes.forget_leader_epochs_of_what_was_picked, RetentionStory, 2482, "never delivered"),
    (mistakes.tell_of_half_a_reset, RetentionStory, 98, f"never delivered|{REMOVED}"),
    (mistakes.remove_what_is_delivered, RetentionStory, 0, REMOVED),
    (mistakes.remove_what_is_in_the_place_of_lost_messages, RetentionStory, 36, REMOVED),
    (mistakes.remember_removals_that_failed, RetentionStory, 1, THERE),
    (mistakes.keep_where_filters_began, RetentionStory, 25, f"never delivered|{REMOVED}|{THERE}"),
    (mistakes.serve_before_all_have_a_say, RetentionStory, 60, REMOVED),
    (mistakes.restore_what_was_restored, ConsumersStory, 1, f"{ENDED}|{FALLS}|{DELETED}"),
]
"""The mistake, where it shows, from which seed on in today's code, and how."""


@pytest.mark.parametrize(
    ("plant", "world", "first", "shows"), MISTAKES, ids=[case[0].__name__ for case in MISTAKES]
)
def test_a_planted_mistake_is_caught(
    plant: Plant, world: MakeTimed, first: int, shows: str, player: Player
) -> None:
    seeds, problems = range(first, first + 60), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for caught in seeds:
            ending = player.ending(world, caught)
            problems += ending.problem.splitlines()[:1]
            if re.match(f"seed {caught}: Violation: .*({shows})", ending.problem):
                break
        else:
            pytest.fail(f"nobody noticed, or something else: {problems}")
    assert not player.ending(world, caught, until_us=ending.time_us).problem
