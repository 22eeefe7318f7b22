"""How far groups are, for those who watch them. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamlog.groups.group import Group
from streamlog.model import TopicPartition


class GroupProgress(NamedTuple):
    """A group at one moment."""

    group_id: str
    state: str
    member_count: int
    committed: Mapping[TopicPartition, int]
    """Where it goes on; its own copy."""


def progress_of(groups: Iterable[Group], partitions_max: int) -> list[GroupProgress]:
    """Whole groups, in the order of their names, while all that they have committed in is not more
    than ``partitions_max`` partitions; one that has committed nothing counts 1.

    By name, so that a group does not come and go with what others do.
    """
    found: list[GroupProgress] = []
    left = partitions_max
    for group in sorted(groups, key=lambda it: it.name):
        left -= max(1, len(group.offsets))
        if left < 0:
            break
        committed = {TopicPartition(*place): it.offset for place, it in group.offsets.items()}
        found.append(GroupProgress(group.name, group.state.value, len(group.members), committed))
    return found
