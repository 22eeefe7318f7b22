"""The administrator of groups, and a coordinator that answers as its test wants it."""

from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.errors import ErrorCode

from streamlog.client import retry
from streamlog.client.cluster import Cluster
from streamlog.client.groups import CommittedInfo, Groups
from streamlog.errors import GroupNotEmpty, GroupNotFound, RequestTimedOut, StreamlogError
from streamlog.kafka import dispatch
from streamlog.model import TopicPartition
from streamlog.wire import registry
from streamlog.wire.entity import entity
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Coordinator:
    """Answers each request with the next of ``answers``, the last one again and again."""

    def __init__(self, node: KafkaNode, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, Any]] = []
        self._node = node
        self._patch = patch
        self.answers(
            registry.FIND_COORDINATOR,
            {
                "coordinators": [
                    {"key": "g", "node_id": NODE, "host": "127.0.0.1", "port": node.port}
                ]
            },
        )

    def answers(self, key: int, *answers: dict[str, Any]) -> None:
        left = list(answers)

        async def handle(request: Any, *_: Any) -> dict[str, Any]:
            self.asked.append((key, dict(request)))
            return left.pop(0) if len(left) > 1 else left[0]

        waiting = key in dispatch._WAITING_HANDLERS
        table = dispatch._WAITING_HANDLERS if waiting else dispatch._HANDLERS
        self._patch.setitem(table, key, handle)

    def count(self, key: int) -> int:
        return sum(asked == key for asked, _ in self.asked)


@pytest.fixture
def coordinator(node: KafkaNode, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    return Coordinator(node, monkeypatch)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(retry, "BACKOFF_MS", 1)
    yield


def described(**fields: Any) -> dict[str, Any]:
    group = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer", **fields}
    return {"groups": [{"protocol_data": "range", "error_code": 0, "members": [], **group}]}


def refused(code: ErrorCode) -> dict[str, Any]:
    return described(error_code=code, group_state="", protocol_type="")


def offsets(**fields: Any) -> dict[str, Any]:
    one = {"partition_index": 0, "committed_offset": 7, "metadata": "mine", "error_code": 0}
    none = {"partition_index": 1, "committed_offset": -1, "metadata": "", "error_code": 0}
    topics = [{"name": "a", "partitions": [one, none]}]
    return {"topics": topics, "groups": [{"group_id": "g", "topics": topics, **fields}]}


def committed(code: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "error_code": code}
    return {"error_code": 0, "topics": [{"name": "a", "partitions": [partition]}]}


async def test_a_group_with_its_members(node: KafkaNode, coordinator: Coordinator) -> None:
    assignment = bytearray(2)
    topics = [{"topic": "a", "partitions": [1, 0]}]
    entity(ConsumerProtocolAssignment).write(assignment, {"assigned_partitions": topics})
    member = {
        "member_id": "x-1",
        "client_id": "x",
        "client_host": "/10.0.0.7",
        "member_assignment": bytes(assignment),
    }
    coordinator.answers(registry.DESCRIBE_GROUPS, described(members=[member]))
    async with Cluster.at(node.address) as cluster:
        group = await Groups(cluster).describe("g")
    assert (group.state, group.assignor, group.coordinator) == ("Stable", "range", NODE)
    (found,) = group.members
    assert found.partitions == (A0, A1)
    assert found.name == "x at 10.0.0.7"


async def test_what_another_kind_of_member_has_is_not_guessed_at(
    node: KafkaNode, coordinator: Coordinator
) -> None:
    member = {"member_id": "x-1", "client_host": "h", "member_assignment": b"\x00"}
    for protocol_type in ("connect", "consumer"):
        answer = described(members=[member], protocol_type=protocol_type)
        coordinator.answers(registry.DESCRIBE_GROUPS, answer)
        async with Cluster.at(node.address) as cluster:
            (found,) = (await Groups(cluster).describe("g")).members
        assert found.partitions == ()


async def test_a_group_that_is_not_there_is_dead(node: KafkaNode, coordinator: Coordinator) -> None:
    """By its state, as coordinators told it before version 6, or by an error."""
    absent = described(error_code=ErrorCode.group_id_not_found, group_state="")
    for answer in (absent, described(group_state="Dead")):
        coordinator.answers(registry.DESCRIBE_GROUPS, answer)
        async with Cluster.at(node.address) as cluster:
            assert not (await Groups(cluster).describe("g")).exists


async def test_what_many_have_committed_is_asked_at_once(
    node: KafkaNode, coordinator: Coordinator
) -> None:
    refused = {"group_id": "b", "error_code": ErrorCode.not_coordinator, "topics": []}
    whole = {"groups": [{"group_id": it, "topics": []} for it in "ab"]}
    coordinator.answers(registry.OFFSET_FETCH, {"groups": [{"group_id": "a"}, refused]}, whole)
    async with Cluster.at(node.address) as cluster:
        assert await Groups(cluster).all_committed(["b", "a"]) == {"a": {}, "b": {}}
    assert coordinator.count(registry.OFFSET_FETCH) == 2


async def test_the_groups_of_every_node(node: KafkaNode, coordinator: Coordinator) -> None:
    groups = [{"group_id": "z"}, {"group_id": "b"}]
    loading = {"error_code": ErrorCode.coordinator_load_in_progress, "groups": []}
    coordinator.answers(registry.LIST_GROUPS, loading, {"error_code": 0, "groups": groups})
    coordinator.answers(registry.DESCRIBE_GROUPS, described(group_id="z"))
    async with Cluster.at(node.address) as cluster:
        asked = Groups(cluster)
        assert await asked.ids() == ["b", "z"]
        await asked.describe("z")
    assert coordinator.count(registry.FIND_COORDINATOR) == 0, "who lists it coordinates it"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
    ],
)
async def test_a_coordinator_that_moves_is_looked_for(
    node: KafkaNode, coordinator: Coordinator, code: ErrorCode
) -> None:
    coordinator.answers(registry.DESCRIBE_GROUPS, refused(code), refused(code), described())
    async with Cluster.at(node.address) as cluster:
        assert (await Groups(cluster).describe("g")).state == "Stable"
    assert coordinator.count(registry.FIND_COORDINATOR) == 3


async def test_one_that_is_not_to_be_found_is_told_of(
    node: KafkaNode, coordinator: Coordinator
) -> None:
    nobody = {"node_id": -1, "host": "", "error_code": ErrorCode.coordinator_not_available}
    coordinator.answers(registry.FIND_COORDINATOR, {"coordinators": [nobody]})
    async with Cluster.at(node.address) as cluster:
        with pytest.raises(RequestTimedOut, match=r"group 'g': coordinator not available.* 20 ms"):
            await Groups(cluster, patience_ms=20).describe("g")


async def test_what_was_committed(node: KafkaNode, coordinator: Coordinator) -> None:
    coordinator.answers(registry.OFFSET_FETCH, offsets())
    async with Cluster.at(node.address) as cluster:
        assert await Groups(cluster).committed("g") == {A0: CommittedInfo(7, -1, "mine")}
        coordinator.answers(registry.OFFSET_FETCH, offsets(error_code=ErrorCode.invalid_group_id))
        with pytest.raises(StreamlogError, match="invalid group id"):
            await Groups(cluster).committed("g")


@pytest.mark.parametrize("code", [ErrorCode.unknown_member_id, ErrorCode.illegal_generation])
async def test_a_commit_from_outside(
    node: KafkaNode, coordinator: Coordinator, code: ErrorCode
) -> None:
    coordinator.answers(registry.OFFSET_COMMIT, committed(0))
    async with Cluster.at(node.address) as cluster:
        groups = Groups(cluster)
        await groups.commit("g", {A0: CommittedInfo(3), A1: CommittedInfo(4)})
        coordinator.answers(registry.OFFSET_COMMIT, committed(code))
        with pytest.raises(GroupNotEmpty, match="group 'g' has members"):
            await groups.commit("g", {A0: CommittedInfo(3)})
    _, request = next(it for it in coordinator.asked if it[0] == registry.OFFSET_COMMIT)
    assert request["generation_id_or_member_epoch"] == -1
    (topic,) = request["topics"]
    assert [it["committed_offset"] for it in topic["partitions"]] == [3, 4]


async def test_a_group_is_removed(node: KafkaNode, coordinator: Coordinator) -> None:
    def result(code: int) -> dict[str, Any]:
        return {"results": [{"group_id": "g", "error_code": code}]}

    async with Cluster.at(node.address) as cluster:
        groups = Groups(cluster)
        coordinator.answers(registry.DELETE_GROUPS, result(0))
        await groups.delete("g")
        coordinator.answers(registry.DELETE_GROUPS, result(ErrorCode.non_empty_group))
        with pytest.raises(GroupNotEmpty):
            await groups.delete("g")
        absent = result(ErrorCode.group_id_not_found)
        coordinator.answers(registry.DELETE_GROUPS, absent)
        with pytest.raises(GroupNotFound):
            await groups.delete("g")
        lost = result(ErrorCode.request_timed_out)
        coordinator.answers(registry.DELETE_GROUPS, lost, absent)
        await groups.delete("g")


async def test_offsets_are_removed(node: KafkaNode, coordinator: Coordinator) -> None:
    async with Cluster.at(node.address) as cluster:
        groups = Groups(cluster)
        coordinator.answers(registry.OFFSET_DELETE, committed(0))
        await groups.delete_offsets("g", [A0, A1])
        coordinator.answers(registry.OFFSET_DELETE, committed(ErrorCode.group_subscribed_to_topic))
        with pytest.raises(GroupNotEmpty, match="members of group 'g' read stream 'a'"):
            await groups.delete_offsets("g", [A0])
