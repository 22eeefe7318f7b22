"""What the members of the quorum say to each other. Pure; ``wire`` gives each its Kafka form.

An epoch is Raft's term. Offsets are of the metadata log; upper ends are exclusive.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from streamlog.model import NO_EPOCH, EpochEnd, NodeId
from streamlog.raft.voters import ReplicaKey


class Fault(Enum):
    """Why a request was not carried out."""

    NONE = "none"
    FENCED_EPOCH = "fenced epoch"
    """The sender's epoch is older than ours; the answer names ours."""
    UNKNOWN_EPOCH = "unknown epoch"
    """The sender's epoch is newer; the node that is asked will learn of it in time."""
    NOT_LEADER = "not the leader"
    """The answer names the leader, if it is known."""
    WRONG_VOTERS = "other voters"
    """An empty log, and another list of voters in the configuration."""
    OUT_OF_RANGE = "offset out of range"


class SnapshotId(NamedTuple):
    """A snapshot holds all below ``end_offset``, the last of it written in ``epoch``."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Raft 5.2 with pre-vote (thesis 9.6, KIP-996): ``epoch`` is the one that is stood for; a
    pre-vote only asks.
    """

    epoch: int
    candidate: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool
    voters_id: UUID
    """Fingerprint of the configured voters; compared only while a log is empty."""


@dataclass(frozen=True, slots=True)
class VoteAnswer:
    """``epoch`` and ``leader`` are the answerer's."""

    epoch: int
    leader: NodeId | None
    granted: bool
    voter: ReplicaKey
    fault: Fault = Fault.NONE
    silence_ms: int = 0
    """For so long at least the voter has not heard from any leader."""


@dataclass(frozen=True, slots=True)
class BeginEpochRequest:
    """A new leader makes itself known to voters that do not fetch yet."""

    epoch: int
    leader: NodeId


@dataclass(frozen=True, slots=True)
class EndEpochRequest:
    """The leader resigns; ``successors`` are the voters, the one most caught up first."""

    epoch: int
    leader: NodeId
    successors: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class EpochAnswer:
    """To both of the above."""

    epoch: int
    leader: NodeId | None
    fault: Fault = Fault.NONE


@dataclass(frozen=True, slots=True)
class RaftFetchRequest:
    """A replica has all below ``offset`` synced; its last batch is of ``last_epoch``."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int = NO_EPOCH
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """One of: a fault; where histories part; a snapshot to be fetched first; records.

    The records are those from the request's offset up to ``end_offset``, which the shell reads out
    of the log, or, on the receiving side, has in ``records``.
    """

    epoch: int
    leader: NodeId | None
    fault: Fault = Fault.NONE
    high_watermark: int = -1
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None
    end_offset: int = -1
    records: bytes | memoryview = b""


Request = VoteRequest | BeginEpochRequest | EndEpochRequest | RaftFetchRequest
Answer = VoteAnswer | EpochAnswer | FetchAnswer
