"""What members ask for, what the core answers, and what it wants written. Pure."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from streamlog.coordination.effects import Now, SendReply, TransactionPart, Write
from streamlog.groups.records import Assigned, CommittedOffset, CurrentAssignment, MemberMetadata
from streamlog.groups.subscribed_topics import Matches
from streamlog.wire.error_codes import ErrorCode


class MatchTopics(NamedTuple):
    """Find out which topics the expressions stand for, away from the event loop; tell ``then``."""

    expressions: tuple[str, ...]
    then: Callable[[Matches, int, Now], "list[Effect]"]
    """``then(matches, version, now)``: the version of the metadata that was looked at."""


Effect = SendReply | Write | MatchTopics


NO_MEMBER = ""
NO_GENERATION = -1

PartitionId = tuple[str, int]
"""A topic's name and a partition's number."""


class GroupCaller(NamedTuple):
    """Who says that it is this member; ``instance_id`` of a static one (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    generation: int = NO_GENERATION


class JoinRequest(NamedTuple):
    """JoinGroup."""

    group: str
    caller: GroupCaller
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Names, the most wanted first, each with the member's metadata for it."""
    needs_known_id: bool = True
    """A new member is given an id first, with which it then joins (KIP-394)."""
    may_skip_assignment: bool = False
    """It understands that it leads, but has nothing to assign (KIP-814)."""


class JoinedMember(NamedTuple):
    """As the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to JoinGroup."""

    error: ErrorCode
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """All of them, for the leader; empty for others."""
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """SyncGroup."""

    group: str
    caller: GroupCaller
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]
    """By member id; empty but for the leader."""


class SyncedMember(NamedTuple):
    """The answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class CommitRequest(NamedTuple):
    """OffsetCommit; of partitions that exist."""

    group: str
    caller: GroupCaller
    offsets: dict[PartitionId, "OffsetToCommit"]
    retention_ms: int = -1
    """How long they are wanted; -1: as the node is set."""
    knows_epochs: bool = True
    """The generation may be a member's epoch (version 9)."""


class TransactionCommit(NamedTuple):
    """TxnOffsetCommit: an OffsetCommit that counts once the producer's transaction is committed."""

    commit: CommitRequest
    transaction: TransactionPart


class OffsetToCommit(NamedTuple):
    """What is to be kept of one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID


class FoundOffset(NamedTuple):
    """What is known of one partition; ``committed`` None: nothing."""

    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.none


class DescribedMember(NamedTuple):
    """As DescribeGroups tells of it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """As DescribeGroups and ListGroups tell of it."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...] = ()
    group_type: str = "classic"
    member_count: int = 0


class HeartbeatRequest(NamedTuple):
    """ConsumerGroupHeartbeat. None: as it was said before."""

    group: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    """"": none any more."""
    assignor: str | None = None
    owned: Assigned | None = None
    """What the member has."""
    needs_own_id: bool = True
    """The member makes its id itself (version 1)."""
    sees: Callable[[str], bool] | None = None
    """Whether the caller may know of a topic; None: of all."""


class HeartbeatAnswer(NamedTuple):
    """The answer to ConsumerGroupHeartbeat."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assigned: Assigned | None = None
    """None: as it was told before."""


class DescribedConsumer(NamedTuple):
    """A member as ConsumerGroupDescribe tells of it."""

    member_id: str
    metadata: MemberMetadata
    current: CurrentAssignment
    target: Assigned


class DescribedConsumerGroup(NamedTuple):
    """A group as ConsumerGroupDescribe tells of it."""

    group: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
