"""Server-side assignors: whole, fair and sticky, whatever the members subscribe to."""

from itertools import product
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from streamlog.groups.assignors import (
    ASSIGNORS,
    Assignment,
    AssignorMember,
    AssignorMembers,
    Partitions,
    assign_uniform,
)

TOPICS = [UUID(int=number) for number in range(4)]
partitions_of = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 6))
some_topics = st.frozensets(st.sampled_from(TOPICS))
subscriptions = st.dictionaries(st.sampled_from("abcdef"), some_topics, min_size=1)


def subscribers(
    topics: dict[str, frozenset[UUID]], before: Assignment | None = None
) -> AssignorMembers:
    known = before or {}
    return {it: AssignorMember(wanted, known.get(it, frozenset())) for it, wanted in topics.items()}


def check(members: AssignorMembers, partitions: Partitions, found: Assignment) -> None:
    """Each partition that is wanted by a member is one member's, who wants it."""
    assert found.keys() == members.keys()
    places = [place for mine in found.values() for place in mine]
    wanted = {
        (topic_id, number)
        for topic_id, count in partitions.items()
        if any(topic_id in it.topics for it in members.values())
        for number in range(count)
    }
    assert len(places) == len(set(places))
    assert set(places) == wanted
    for member_id, mine in found.items():
        assert {topic_id for topic_id, _ in mine} <= members[member_id].topics


@given(st.sampled_from(sorted(ASSIGNORS)), subscriptions, partitions_of)
def test_every_partition_has_one_reader(
    name: str, topics: dict[str, frozenset[UUID]], partitions: dict[UUID, int]
) -> None:
    members = subscribers(topics)
    found = ASSIGNORS[name](members, partitions)
    check(members, partitions, found)
    assert ASSIGNORS[name](members, partitions) == found


@given(st.integers(1, 6), st.integers(0, 6), some_topics, partitions_of, partitions_of)
def test_members_that_want_the_same_have_as_much_and_keep_it(
    count: int,
    later: int,
    wanted: frozenset[UUID],
    partitions: dict[UUID, int],
    after: dict[UUID, int],
) -> None:
    first = assign_uniform(subscribers({f"m{it}": wanted for it in range(count)}), partitions)
    members = subscribers({f"m{it}": wanted for it in range(max(1, later))}, first)
    found = assign_uniform(members, after)
    check(members, after, found)
    loads = [len(mine) for mine in found.values()]
    assert max(loads) - min(loads) <= 1
    # Naively: no partition moved from a member that could have kept it.
    total = sum(after.get(it, 0) for it in wanted)
    share, more = divmod(total, len(members))
    valid = {
        it: sum(n < after.get(t, 0) and t in wanted for t, n in member.assigned)
        for it, member in members.items()
    }
    order = sorted(valid, key=lambda it: (-valid[it], it))
    for place, it in enumerate(order):
        kept = len(found[it] & members[it].assigned)
        assert kept == min(valid[it], share + (place < more))


@given(subscriptions, partitions_of)
def test_no_move_makes_two_members_more_equal(
    topics: dict[str, frozenset[UUID]], partitions: dict[UUID, int]
) -> None:
    members = subscribers(topics)
    found = assign_uniform(members, partitions)
    for giver, taker in product(found, found):
        movable = any(topic_id in topics[taker] for topic_id, _ in found[giver])
        assert not movable or len(found[giver]) - len(found[taker]) < 2
    again = assign_uniform(subscribers(topics, found), partitions)
    assert again == found


@given(st.integers(1, 5), st.integers(1, 9))
def test_range_gives_the_same_numbers_of_topics_that_are_alike(count: int, partitions: int) -> None:
    members = subscribers({f"m{it}": frozenset(TOPICS) for it in range(count)})
    found = ASSIGNORS["range"](members, dict.fromkeys(TOPICS, partitions))
    for mine in found.values():
        numbers = [sorted(n for t, n in mine if t == topic) for topic in TOPICS]
        assert all(it == numbers[0] for it in numbers)
        assert numbers[0] == list(
            range(min(numbers[0], default=0), max(numbers[0], default=-1) + 1)
        )
