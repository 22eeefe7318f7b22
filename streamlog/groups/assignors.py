"""Server-side assignors: ``uniform`` and ``range`` of KIP-848, and ``simple`` of share groups (KIP-932). Pure.

Each is given the members, with the topics that they subscribe to and what they have now, and the
number of partitions of each topic. The same input gives the same result.

``uniform`` and ``range`` assign each partition of a topic that at least one member subscribes to
to exactly one of these members.

With ``simple``, members share partitions. Each partition of a topic that has subscribers is assigned to one of them
at least, and each member has one partition at least, if its topics have any. Where all members subscribe to the
same, the members of any two partitions, and the partitions of any two members, differ in number by one at most. A
member keeps what it has as far as that allows.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.groups.records import NOTHING, Assigned, TopicPartitionId


class AssignorMember(NamedTuple):
    """A member as an assignor sees it."""

    topics: frozenset[UUID]
    assigned: Assigned = NOTHING
    """Its part of the target assignment before."""
    instance_id: str | None = None


AssignorMembers = Mapping[str, AssignorMember]
Partitions = Mapping[UUID, int]
"""How many partitions each topic has."""
Assignment = dict[str, Assigned]


def assign_range(members: AssignorMembers, partitions: Partitions) -> Assignment:
    """Each topic by itself: its subscribers, in order, share ranges of its partitions.

    So a member has the same numbers of partitions in all topics that are alike. Static members are in the
    order of their instance ids, which they keep when they restart.
    """
    order = sorted(members, key=lambda it: (members[it].instance_id or it, it))
    found: dict[str, list[TopicPartitionId]] = {it: [] for it in members}
    for topic_id in sorted(_subscribed(members) & partitions.keys()):
        subscribers = [it for it in order if topic_id in members[it].topics]
        share, more = divmod(partitions[topic_id], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + share + (place < more)
            found[member_id] += ((topic_id, number) for number in range(start, end))
            start = end
    return {it: frozenset(assigned) for it, assigned in found.items()}


def assign_uniform(members: AssignorMembers, partitions: Partitions) -> Assignment:
    """Members with the same subscription have equally many partitions, give or take one; who has partitions
    keeps them as far as that allows.
    """
    subscriptions = {it.topics for it in members.values()}
    if len(subscriptions) <= 1:
        return _uniform_alike(members, partitions)
    return _uniform_mixed(members, partitions)


ASSIGNORS: Final[Mapping[str, Callable[[AssignorMembers, Partitions], Assignment]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}


def _subscribed(members: AssignorMembers) -> set[UUID]:
    return set().union(*(it.topics for it in members.values()))


def _kept(members: AssignorMembers, partitions: Partitions) -> dict[str, list[TopicPartitionId]]:
    """What each member may keep: partitions that there are, of topics that it subscribes to."""
    taken: set[TopicPartitionId] = set()
    found: dict[str, list[TopicPartitionId]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        mine = found[member_id] = []
        for place in sorted(member.assigned):
            topic_id, number = place
            if (
                topic_id in member.topics
                and number < partitions.get(topic_id, 0)
                and place not in taken
            ):
                taken.add(place)
                mine.append(place)
    return found


def _free(
    topics: Iterable[UUID], partitions: Partitions, kept: Mapping[str, list[TopicPartitionId]]
) -> list[TopicPartitionId]:
    taken = {place for mine in kept.values() for place in mine}
    return [
        place
        for topic_id in sorted(topics)
        for number in range(partitions.get(topic_id, 0))
        if (place := (topic_id, number)) not in taken
    ]


def _uniform_alike(members: AssignorMembers, partitions: Partitions) -> Assignment:
    if not members:
        return {}
    topics = next(iter(members.values())).topics
    share, more = divmod(sum(partitions.get(it, 0) for it in topics), len(members))
    kept = _kept(members, partitions)
    # Who has most keeps one more than the others, as many as there are to be.
    order = sorted(kept, key=lambda it: (-len(kept[it]), it))
    quotas = {member_id: share + (place < more) for place, member_id in enumerate(order)}
    for member_id, mine in kept.items():
        del mine[quotas[member_id] :]
    free = iter(_free(topics, partitions, kept))
    for member_id in order:
        mine = kept[member_id]
        mine += (next(free) for _ in range(quotas[member_id] - len(mine)))
    return {it: frozenset(mine) for it, mine in kept.items()}


def _uniform_mixed(members: AssignorMembers, partitions: Partitions) -> Assignment:
    subscribers: dict[UUID, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topics:
            if topic_id in partitions:
                subscribers.setdefault(topic_id, []).append(member_id)
    kept = {it: set(mine) for it, mine in _kept(members, partitions).items()}
    free = _free(subscribers, partitions, {it: sorted(mine) for it, mine in kept.items()})
    # Topics that fewer members may read have the narrower choice, and go first.
    free.sort(key=lambda it: (len(subscribers[it[0]]), it))
    for place in free:
        least = min(subscribers[place[0]], key=lambda it: (len(kept[it]), it))
        kept[least].add(place)
    _balance(kept, subscribers)
    return {it: frozenset(mine) for it, mine in kept.items()}


def _balance(kept: dict[str, set[TopicPartitionId]], subscribers: Mapping[UUID, list[str]]) -> None:
    """Move partitions between subscribers of their topics, until no move makes two members more equal.

    Each move makes the sum of the squares of the members' loads smaller: it ends.
    """
    has_moved = True
    while has_moved:
        has_moved = False
        for topic_id in sorted(subscribers):
            names = subscribers[topic_id]
            mine = {it: sorted(place for place in kept[it] if place[0] == topic_id) for it in names}
            while True:
                givers = [it for it in names if mine[it]]
                if not givers:
                    break
                most = max(givers, key=lambda it: (len(kept[it]), it))
                least = min(names, key=lambda it: (len(kept[it]), it))
                if len(kept[most]) - len(kept[least]) < 2:
                    break
                place = mine[most].pop()
                kept[most].remove(place)
                kept[least].add(place)
                mine[least].append(place)
                has_moved = True


# Share groups

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

    for member_id, place in _kept_shared(members, readers, loads):
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


def _kept_shared(
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
