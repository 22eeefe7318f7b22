"""Which groups are told of, and what."""

from streamlog.groups.group import Group
from streamlog.groups.records import CommittedOffset
from streamlog.groups.service import progress_of
from streamlog.model import TopicPartition


def group(name: str, **offsets: int) -> Group:
    """``offsets``: of partition 0 of each stream."""
    made = Group(name)
    made.offsets = {(stream, 0): CommittedOffset(it, -1, "", 0) for stream, it in offsets.items()}
    return made


async def names(*groups: Group, partitions_max: int) -> list[str]:
    return [it.group_id for it in await progress_of(groups, partitions_max)]


async def test_a_group() -> None:
    live = group("x", a=7, b=3)
    (found,) = await progress_of([live], 100)
    assert (found.group_id, found.state, found.member_count) == ("x", "Empty", 0)
    assert found.committed == {TopicPartition("a", 0): 7, TopicPartition("b", 0): 3}
    live.offsets.clear()
    assert len(found.committed) == 2, "it is of one moment"


async def test_whole_groups_by_name_as_far_as_the_limit_goes() -> None:
    groups = [group("z"), group("y", a=1, b=1), group("x", a=1)]
    assert await names(*groups, partitions_max=4) == ["x", "y", "z"]
    assert await names(*groups, partitions_max=3) == ["x", "y"]
    assert await names(*groups, partitions_max=2) == ["x"], "never a part of a group"
    assert await names(*groups, partitions_max=0) == []
