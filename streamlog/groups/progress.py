"""How far groups are, for those who watch them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamlog.fairness import cooperatively
from streamlog.groups.group import Group
from streamlog.groups.records import CommittedOffset
from streamlog.groups.requests import PartitionId
from streamlog.model import TopicPartition


class GroupProgress(NamedTuple):
    """A group at one moment."""

    group_id: str
    state: str
    member_count: int
    committed: Mapping[TopicPartition, int]
    """Where it goes on; its own copy."""


async def progress_of(groups: Iterable[Group], partitions_max: int) -> list[GroupProgress]:
    """Whole groups, as they are now, in the order of their names, while all that they have
    committed in is not more than ``partitions_max`` partitions; one that has committed nothing
    counts 1.

    By name, so that a group does not come and go with what others do.
    """
    found: list[tuple[Group, str, int, dict[PartitionId, CommittedOffset]]] = []
    left = partitions_max
    for group in sorted(groups, key=lambda it: it.name):
        left -= max(1, len(group.offsets))
        if left < 0:
            break
        found.append((group, group.state.value, len(group.members), dict(group.offsets)))
    return [
        GroupProgress(
            group.name,
            state,
            members,
            {
                TopicPartition(*place): it.offset
                async for place, it in cooperatively(offsets.items())
            },
        )
        for group, state, members, offsets in found
    ]
