"""The assignor of share groups: what holds for every assignment."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from streamlog.groups.assignors import AssignorMember, assign_simple

TOPICS = [UUID(int=it) for it in range(3)]
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 6))
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS)), max_size=9)
owned = st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7)))


@given(partition_counts, subscriptions, st.data())
def test_every_partition_has_a_member_and_every_member_a_partition(
    partitions: dict[UUID, int], wishes: list[frozenset[UUID]], data: st.DataObject
) -> None:
    members = {f"m{at}": AssignorMember(it, data.draw(owned)) for at, it in enumerate(wishes)}
    found = assign_simple(members, partitions)
    assert found.keys() == members.keys()
    for member_id, mine in found.items():
        for topic_id, number in mine:
            assert topic_id in members[member_id].topics
            assert number < partitions[topic_id]
        assert bool(mine) == bool(members[member_id].topics & partitions.keys())
    for topic_id, count in partitions.items():
        if any(topic_id in it.topics for it in members.values()):
            for number in range(count):
                assert any((topic_id, number) in mine for mine in found.values())


@given(partition_counts, st.frozensets(st.sampled_from(TOPICS), min_size=1), st.data())
def test_where_all_subscribe_to_the_same_they_share_evenly_and_keep_what_they_have(
    partitions: dict[UUID, int], topics: frozenset[UUID], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 12))
    members = {f"m{at}": AssignorMember(topics, data.draw(owned)) for at in range(count)}
    found = assign_simple(members, partitions)
    loads = [len(it) for it in found.values()]
    assert max(loads) - min(loads) <= 1
    held = [
        sum((topic_id, number) in mine for mine in found.values())
        for topic_id in topics & partitions.keys()
        for number in range(partitions[topic_id])
    ]
    assert not held or max(held) - min(held) <= 1
    again = {name: AssignorMember(topics, found[name]) for name in members}
    assert assign_simple(again, partitions) == found


@given(partition_counts, st.integers(1, 12))
def test_a_member_that_comes_takes_from_others_only_what_it_is_to_have(
    partitions: dict[UUID, int], count: int
) -> None:
    topics = frozenset(TOPICS)
    before = assign_simple({f"m{at}": AssignorMember(topics) for at in range(count)}, partitions)
    members = {name: AssignorMember(topics, mine) for name, mine in before.items()}
    after = assign_simple({**members, "new": AssignorMember(topics)}, partitions)
    total = sum(partitions.values())
    if total > count:
        kept = sum(len(before[name] & after[name]) for name in before)
        assert kept == total - len(after["new"])


def test_members_that_share_partitions_keep_those_that_they_have() -> None:
    first, second = (TOPICS[0], 0), (TOPICS[0], 1)
    held = {"a": second, "b": first, "c": first}
    topics = frozenset(TOPICS[:1])
    members = {name: AssignorMember(topics, frozenset({place})) for name, place in held.items()}
    found = assign_simple(members, {TOPICS[0]: 2})
    assert found == {name: {place} for name, place in held.items()}
