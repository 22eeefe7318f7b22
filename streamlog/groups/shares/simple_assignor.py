"""The assignor of share groups (KIP-932), Kafka's ``simple``. Pure.

Members share partitions. Each partition of a topic that has subscribers is assigned to one of them at least, and
each member has one partition at least, if its topics have any. Where all members subscribe to the same, the
members of any two partitions, and the partitions of any two members, differ in number by one at most. A member
keeps what it has as far as that allows. The same input gives the same result.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from streamlog.groups.assignors import Assignment, AssignorMember, AssignorMembers, Partitions
from streamlog.groups.consumer_group_records import TopicPartitionId

SIMPLE: Final = "simple"


class _Quota:
    """``total`` is shared by ``count``: some have one more than the others."""

    def __init__(self, total: int, count: int) -> None:
        self._share, self._more = divmod(total, count)

    def takes(self, load: int) -> bool:
        """One that has ``load`` may have one more; then it has."""
        if load < self._share:
            return True
        if load == self._share and self._more > 0:
            self._more -= 1
            return True
        return False


def assign_simple(members: AssignorMembers, partitions: Partitions) -> Assignment:
    places = _places(members, partitions)
    subscribers = _subscribers(members, places)
    wanted = [it for it in places if subscribers[it]]
    readers = sorted(
        it for it in members if any(topic in partitions for topic in members[it].topics)
    )
    assigned: dict[str, set[TopicPartitionId]] = {it: set() for it in members}
    loads: dict[TopicPartitionId, int] = dict.fromkeys(wanted, 0)
    if not wanted or not readers:
        return {it: frozenset() for it in members}

    def assign(member_id: str, place: TopicPartitionId) -> None:
        assigned[member_id].add(place)
        loads[place] += 1

    for member_id, place in _kept(members, readers, loads):
        assign(member_id, place)
    for place in sorted(wanted, key=lambda it: (len(subscribers[it]), it)):
        if not loads[place]:
            assign(min(subscribers[place], key=lambda it: (len(assigned[it]), it)), place)
    for member_id in readers:
        if not assigned[member_id]:
            of_it = [it for it in wanted if it[0] in members[member_id].topics]
            if of_it:
                assign(member_id, min(of_it, key=lambda it: (loads[it], it)))
    return {it: frozenset(mine) for it, mine in assigned.items()}


def _places(members: AssignorMembers, partitions: Partitions) -> list[TopicPartitionId]:
    topics: set[UUID] = set().union(*(it.topics for it in members.values()))
    return [
        (topic_id, number)
        for topic_id in sorted(topics & partitions.keys())
        for number in range(partitions[topic_id])
    ]


def _subscribers(
    members: Mapping[str, AssignorMember], places: Iterable[TopicPartitionId]
) -> dict[TopicPartitionId, list[str]]:
    by_topic: dict[UUID, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topics:
            by_topic.setdefault(topic_id, []).append(member_id)
    return {place: by_topic.get(place[0], []) for place in places}


def _kept(
    members: AssignorMembers, readers: list[str], loads: Mapping[TopicPartitionId, int]
) -> Iterable[tuple[str, TopicPartitionId]]:
    """What members have and may keep, so that none has more than its part."""
    edges = max(len(readers), len(loads))
    of_members, of_places = _Quota(edges, len(readers)), _Quota(edges, len(loads))
    held: dict[TopicPartitionId, int] = {}
    for member_id in readers:
        mine = 0
        for place in sorted(members[member_id].assigned):
            if place not in loads or place[0] not in members[member_id].topics:
                continue
            # Only one side has parts of more than one: the other quota is 1.
            if len(readers) <= len(loads):
                if held.get(place, 0) or not of_members.takes(mine):
                    continue
            elif mine or not of_places.takes(held.get(place, 0)):
                continue
            mine += 1
            held[place] = held.get(place, 0) + 1
            yield member_id, place
