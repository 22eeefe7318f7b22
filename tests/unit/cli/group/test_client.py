"""How the commands ask about groups: pages, groups that go meanwhile, answers that are lost."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from streamlog.cli.group.client import GroupClient
from streamlog.cli.group.commands import missing
from streamlog.errors import GroupForbidden, GroupNotEmpty, GroupNotFound, RequestTimedOut


class Answers:
    """A cluster with so many groups; what it is told to raise comes first."""

    def __init__(self, *names: str, missing_nodes: tuple[int, ...] = ()) -> None:
        self.names = sorted(names)
        self.missing_nodes = [missing_nodes]
        self.errors: list[Exception] = []
        self.hidden: set[str] = set()
        self.gone: set[str] = set()
        self.asked: list[str] = []

    async def operate(self, name: str, arguments: Mapping[str, Any]) -> Any:
        self.asked.append(name)
        if self.errors:
            raise self.errors.pop(0)
        if name == "groups.list":
            offset = arguments["offset"]
            page = self.names[offset : offset + min(2, arguments["limit"])]
            rows = [
                {"group": it, "state": "Empty", "protocol_type": "", "members": 0} for it in page
            ]
            there = (
                self.missing_nodes.pop(0) if len(self.missing_nodes) > 1 else self.missing_nodes[0]
            )
            return {"total": len(self.names), "groups": rows, "missing_nodes": list(there)}
        group = arguments["group"]
        if name == "groups.delete":
            if group not in self.names:
                raise GroupNotFound(group)
            self.names.remove(group)
            return None
        if group in self.hidden:
            raise GroupForbidden(group)
        if group in self.gone:
            raise GroupNotFound(group)
        return {
            "group": group, "state": "Stable", "coordinator": 2, "members": [{}],
            "partitions": [{}, {}], "lag": 5, "group_type": "consumer",
        }  # fmt: skip


def client(answers: Answers, patience_ms: int = 60_000) -> GroupClient:
    return GroupClient(cast(Any, answers), patience_ms=patience_ms)


async def test_all_groups_page_by_page() -> None:
    answers = Answers("a", "b", "c", "hidden", "gone")
    answers.hidden, answers.gone = {"hidden"}, {"gone"}
    found = await client(answers).all()
    assert [it["group"] for it in found.groups] == ["a", "b", "c", "hidden"]
    assert answers.asked.count("groups.list") == 3
    known = {"state": "Stable", "coordinator": 2, "members": 1, "partitions": 2, "lag": 5}
    known["type"] = "consumer"
    assert found.groups[0] == {"group": "a", **known}
    told = found.groups[3]
    assert (told["state"], told["coordinator"], told["lag"]) == ("Empty", None, None)


async def test_nodes_that_do_not_answer_are_waited_for_and_then_named() -> None:
    answers = Answers("a")
    answers.missing_nodes = [(3,), ()]
    assert (await client(answers).all()).missing_nodes == []
    lost = await client(Answers("a", missing_nodes=(2, 3, -1)), patience_ms=0).all()
    assert lost.missing_nodes == [2, 3, -1] and [it["group"] for it in lost.groups] == ["a"]
    said = missing(lost.missing_nodes)
    assert "no answer from node 2, 3 and partitions of __consumer_offsets have no leader" in said


async def test_a_group_that_was_deleted_by_a_request_whose_answer_was_lost_is_deleted() -> None:
    answers = Answers("a")
    answers.errors = [RequestTimedOut("perhaps")]
    answers.names.remove("a")
    await client(answers).delete("a")
    with pytest.raises(GroupNotFound):
        await client(answers).delete("a")


async def test_what_does_not_help_is_not_asked_again() -> None:
    answers = Answers("a")
    answers.errors = [GroupNotEmpty("members")]
    with pytest.raises(GroupNotEmpty):
        await client(answers).delete("a")
    assert answers.asked == ["groups.delete"]
