"""How far a group is behind."""

import pytest

from streamlog.cli.group.client import check_empty
from streamlog.cli.group.commands import standings, total_lag
from streamlog.client.groups import CommittedInfo, GroupInfo, GroupMemberInfo
from streamlog.errors import GroupNotEmpty
from streamlog.model import NodeId, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def member(name: str, *partitions: TopicPartition) -> GroupMemberInfo:
    return GroupMemberInfo(f"{name}-1", None, name, "127.0.0.1", partitions)


def group(*members: GroupMemberInfo) -> GroupInfo:
    return GroupInfo("g", "Stable", "consumer", "range", NodeId(1), members)


def test_what_is_committed_and_what_is_read() -> None:
    found = standings(
        group(member("x", A0), member("y", A1)),
        {B0: CommittedInfo(5), A0: CommittedInfo(3)},
        {A0: 10},
    )
    assert [(it.tp, it.lag, it.member and it.member.client_id) for it in found] == [
        (A0, 7, "x"),
        (A1, None, "y"),
        (B0, None, None),
    ]


def test_a_lag_is_never_negative() -> None:
    (found,) = standings(group(), {A0: CommittedInfo(11)}, {A0: 10})
    assert found.lag == 0


def test_a_sum_of_which_a_part_is_not_known_is_not_known() -> None:
    committed = {A0: CommittedInfo(3), B0: CommittedInfo(5)}
    assert total_lag(standings(group(), committed, {A0: 10, B0: 6})) == 8
    assert total_lag(standings(group(), committed, {A0: 10})) is None
    assert total_lag([]) is None
    idle = standings(group(member("x", A0, A1)), {A0: CommittedInfo(3)}, {A0: 10, A1: 4})
    assert total_lag(idle) == 7


def test_who_is_in_the_way() -> None:
    check_empty(group())
    with pytest.raises(GroupNotEmpty, match=r"has 1 member \(x at 127.0.0.1\); stop them first"):
        check_empty(group(member("x")))
    with pytest.raises(GroupNotEmpty, match=r"5 members \(a at .*, b at .*, c at .*, and 2 more\)"):
        check_empty(group(*map(member, "abcde")))
