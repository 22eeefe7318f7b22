"""Consumer groups, as a program sees them that is in none: their coordinators, and what these say."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self, TypeVar

from kio.schema.errors import ErrorCode

from streamlog.client.cluster import Cluster, with_retries
from streamlog.client.topology import NodeInfo
from streamlog.errors import (
    GroupNotEmpty,
    GroupNotFound,
    InvalidRequest,
    MalformedFrame,
    Unavailable,
)
from streamlog.model import NO_EPOCH, NodeId, TopicPartition
from streamlog.wire import registry
from streamlog.wire.consumer_protocol import PROTOCOL_TYPE, read_assignment
from streamlog.wire.control import Message
from streamlog.wire.errors import check

PATIENCE_MS: Final = 30_000
GROUPS_AT_ONCE: Final = 100
"""In one request."""
NAME_SHOWN: Final = 60

_NOT_OURS_TO_COMMIT: Final = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.non_empty_group,
    }
)
"""What a commit from outside is told while the group has members."""

EMPTY: Final = "Empty"
DEAD: Final = "Dead"
"""What a coordinator calls a group that it does not know."""

NOT_COMMITTED: Final = -1


T = TypeVar("T")


class CommittedInfo(NamedTuple):
    """Where a group is in a partition: it goes on with the record at ``offset``."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class GroupMemberInfo(NamedTuple):
    """One consumer of a group."""

    member_id: str
    instance_id: str | None
    """Of a static member (KIP-345)."""
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """Empty while the group has not agreed on who takes what, and where it speaks no protocol
    that we know."""

    @property
    def name(self) -> str:
        """As a sentence calls it."""
        return f"{self.instance_id or self.client_id or self.member_id} at {self.host}"


class GroupInfo(NamedTuple):
    """A group at one moment, as its coordinator knows it."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: NodeId
    members: tuple[GroupMemberInfo, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any], coordinator: NodeId) -> Self:
        """Of an entry of a DescribeGroups answer; raises what its error code stands for.

        From version 6 on a group that is not there is an error, before that it was dead (KIP-1043).
        """
        if fields["error_code"] == ErrorCode.group_id_not_found:
            return cls(fields["group_id"], DEAD, "", "", coordinator, ())
        check(fields["error_code"], f"group {fields['group_id']!r}")
        return cls(
            fields["group_id"],
            fields["group_state"],
            fields["protocol_type"],
            fields["protocol_data"],
            coordinator,
            tuple(_member(it, fields["protocol_type"]) for it in fields["members"]),
        )

    @property
    def exists(self) -> bool:
        return self.state != DEAD


class Groups:
    """Consumer groups, for those who are not in one: look at them, set their offsets, remove them.

    Each group has a coordinator, the leader of its partition of the offsets' stream. Who that is
    is asked once. Where it has moved, is loading, or cannot be reached, it is asked again, for
    ``patience_ms``, and then RequestTimedOut is raised.
    """

    def __init__(self, cluster: Cluster, *, patience_ms: int = PATIENCE_MS) -> None:
        self._cluster = cluster
        self._patience_ms = patience_ms
        self._coordinators: dict[str, NodeInfo] = {}  # as last heard; forgotten when proved wrong

    async def ids(self) -> list[str]:
        """The groups of all nodes, in order. Each node tells of those that it coordinates."""
        self._coordinators = await self._patiently(self._list)
        return sorted(self._coordinators)

    async def coordinator(self, group_id: str) -> NodeInfo:
        """The node that answers for the group; tells of one that there is none of, too."""
        if group_id not in self._coordinators:
            self._coordinators[group_id] = await self._find_coordinator(group_id)
        return self._coordinators[group_id]

    async def describe(self, group_id: str) -> GroupInfo:
        """A group that there is none of is ``DEAD``."""

        def read(answer: Message, node: NodeInfo) -> GroupInfo:
            (fields,) = answer["groups"]
            return GroupInfo.of(fields, node.node_id)

        return await self._ask(group_id, registry.DESCRIBE_GROUPS, {"groups": [group_id]}, read)

    async def committed(self, group_id: str) -> dict[TopicPartition, CommittedInfo]:
        """All that the group has committed and that has not expired."""
        return (await self.all_committed([group_id]))[group_id]

    async def all_committed(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, CommittedInfo]]:
        """Of several groups, in one request to each coordinator: it costs that a commit's time."""
        left, found = set(group_ids), dict[str, dict[TopicPartition, CommittedInfo]]()

        async def ask() -> None:
            by_node: dict[NodeInfo, list[str]] = {}
            for group_id in sorted(left):
                by_node.setdefault(await self.coordinator(group_id), []).append(group_id)
            for node, ids in by_node.items():
                for start in range(0, len(ids), GROUPS_AT_ONCE):
                    found.update(await self._committed(node, ids[start : start + GROUPS_AT_ONCE]))
            left.difference_update(found)

        await self._patiently(ask)
        return found

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedInfo]) -> None:
        """For a group without members; it need not be there yet.

        Raises GroupNotEmpty, and what else the coordinator answers for the first partition refused:
        those before it may have been committed.
        """
        values = {
            "group_id": group_id,
            "generation_id_or_member_epoch": -1,
            "generation_id": -1,
            "member_id": "",
            "retention_time": -1,
            "topics": _by_topic(
                {
                    tp: {
                        "committed_offset": it.offset,
                        "committed_leader_epoch": it.leader_epoch,
                        "committed_metadata": it.metadata,
                    }
                    for tp, it in offsets.items()
                }
            ),
        }

        def read(answer: Message, _: NodeInfo) -> None:
            for topic in answer["topics"]:
                for it in topic["partitions"]:
                    code = it["error_code"]
                    if code in _NOT_OURS_TO_COMMIT:
                        raise GroupNotEmpty(f"group {group_id!r} has members")
                    check(code, f"group {group_id!r}, {topic['name']}-{it['partition_index']}")

        await self._ask(group_id, registry.OFFSET_COMMIT, values, read)

    async def delete(self, group_id: str) -> None:
        """The group and all that it committed. Raises GroupNotFound, GroupNotEmpty."""
        asked = 0

        def read(answer: Message, _: NodeInfo) -> None:
            (result,) = answer["results"]
            check(result["error_code"], f"group {group_id!r}")

        async def ask() -> None:
            nonlocal asked
            asked += 1
            await self._at_coordinator(
                group_id, registry.DELETE_GROUPS, {"groups_names": [group_id]}, read
            )

        try:
            await self._patiently(ask)
        except GroupNotFound:
            if asked == 1:  # else an earlier request has done it, whose answer was lost
                raise

    async def delete_offsets(self, group_id: str, tps: Iterable[TopicPartition]) -> None:
        """What the group committed in these. Raises GroupNotFound; GroupNotEmpty where a member
        reads one of them.
        """

        def read(answer: Message, _: NodeInfo) -> None:
            check(answer["error_code"], f"group {group_id!r}")
            for topic in answer["topics"]:
                for it in topic["partitions"]:
                    if it["error_code"] == ErrorCode.group_subscribed_to_topic:
                        text = f"members of group {group_id!r} read stream {topic['name']!r}"
                        raise GroupNotEmpty(text)
                    check(it["error_code"], f"group {group_id!r}, {topic['name']}")

        values = {"group_id": group_id, "topics": _by_topic({tp: {} for tp in tps})}
        await self._ask(group_id, registry.OFFSET_DELETE, values, read)

    async def _committed(
        self, node: NodeInfo, group_ids: list[str]
    ) -> dict[str, dict[TopicPartition, CommittedInfo]]:
        """What ``node`` coordinates; coordinators of groups that have moved are looked up again."""
        groups = [{"group_id": group_id, "topics": None} for group_id in group_ids]
        try:
            answer = await self._cluster.ask(node, registry.OFFSET_FETCH, {"groups": groups})
            return {it["group_id"]: committed_in(it) for it in answer["groups"]}
        except Unavailable:
            for group_id in group_ids:
                self._coordinators.pop(group_id, None)
            raise

    async def _list(self) -> dict[str, NodeInfo]:
        found: dict[str, NodeInfo] = {}
        for node in (await self._cluster.topology([])).nodes.values():
            answer = await self._cluster.ask(node, registry.LIST_GROUPS, {})
            check(answer["error_code"], f"the groups of node {node.node_id}")
            found.update((it["group_id"], node) for it in answer["groups"])
        return found

    async def _ask(
        self, group_id: str, key: int, values: Message, read: Callable[[Message, NodeInfo], T]
    ) -> T:
        return await self._patiently(lambda: self._at_coordinator(group_id, key, values, read))

    async def _at_coordinator(
        self, group_id: str, key: int, values: Message, read: Callable[[Message, NodeInfo], T]
    ) -> T:
        node = await self.coordinator(group_id)
        try:
            return read(await self._cluster.ask(node, key, values), node)
        except Unavailable:
            self._coordinators.pop(group_id, None)
            raise

    async def _find_coordinator(self, group_id: str) -> NodeInfo:
        request = {"key": group_id, "key_type": 0, "coordinator_keys": [group_id]}
        answer = await self._cluster.ask_any(registry.FIND_COORDINATOR, request)
        (found,) = answer.get("coordinators", (answer,))
        if found["error_code"] == ErrorCode.invalid_group_id:
            raise InvalidRequest(f"{group_id[:NAME_SHOWN]!r} is no name that a group may have")
        check(found["error_code"], f"the coordinator of group {group_id!r}")
        return NodeInfo(NodeId(found["node_id"]), found["host"], found["port"], None)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await with_retries(ask, self._patience_ms)


def _by_topic(partitions: Mapping[TopicPartition, Message]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, fields in partitions.items():
        topics.setdefault(tp.stream, []).append({"partition_index": tp.partition, **fields})
    return [{"name": name, "partitions": fields} for name, fields in topics.items()]


def _member(fields: Mapping[str, Any], protocol_type: str) -> GroupMemberInfo:
    partitions: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        try:
            partitions = read_assignment(fields["member_assignment"])
        except MalformedFrame:
            partitions = ()  # whatever a foreign assignor wrote: the rest is worth showing
    return GroupMemberInfo(
        fields["member_id"],
        fields.get("group_instance_id"),
        fields["client_id"],
        fields["client_host"].removeprefix("/"),
        tuple(sorted(partitions)),
    )


def committed_in(fields: Mapping[str, Any]) -> dict[TopicPartition, CommittedInfo]:
    """Of a group in an OffsetFetch answer; partitions without a commit are left out."""
    about = f"group {fields['group_id']!r}"
    check(fields["error_code"], about)
    return dict(_commits(fields, about))


def _commits(
    found: Mapping[str, Any], about: str
) -> Iterator[tuple[TopicPartition, CommittedInfo]]:
    for topic in found["topics"]:
        for it in topic["partitions"]:
            tp = TopicPartition(topic["name"], it["partition_index"])
            check(it["error_code"], f"{about}, {tp}")
            if it["committed_offset"] != NOT_COMMITTED:
                epoch = it.get("committed_leader_epoch", NO_EPOCH)
                yield tp, CommittedInfo(it["committed_offset"], epoch, it["metadata"] or "")
