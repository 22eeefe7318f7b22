"""What coordinators say about consumer groups, as values."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from kio.schema.errors import ErrorCode

from streamlog.errors import MalformedFrame
from streamlog.model import NO_EPOCH, NodeId, TopicPartition
from streamlog.wire.consumer_protocol import PROTOCOL_TYPE, read_assignment
from streamlog.wire.errors import check

EMPTY: Final = "Empty"
DEAD: Final = "Dead"
"""What a coordinator calls a group that it does not know."""

NOT_COMMITTED: Final = -1


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
