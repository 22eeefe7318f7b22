"""What happens to a member of the quorum, and what it wants done about it. Pure.

``Raft.step(event, now_ms)`` returns effects. The shell carries them out **in order**, each finished
before the next begins; that alone makes a vote durable before it is answered and records durable
before they are counted.
"""

from dataclasses import dataclass
from enum import Enum

from streamlog.model import NodeId
from streamlog.raft.messages import Answer, Request, SnapshotId
from streamlog.raft.voters import ReplicaKey, VoterSet

Token = object
"""Stands for one request that waits for its answer; the shell's own."""

# Events


@dataclass(frozen=True, slots=True)
class Tick:
    """``Raft.deadline_ms`` has come."""


@dataclass(frozen=True, slots=True)
class StoodStill:
    """This node could not hear of anything for ``by_ms``, until now."""

    by_ms: int


@dataclass(frozen=True, slots=True)
class Received:
    """A request came in; a ``Reply`` with the same token answers it, now or later."""

    token: Token
    request: Request


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The sender of the request no longer waits."""

    token: Token


@dataclass(frozen=True, slots=True)
class Answered:
    """A peer's answer to a request that was sent."""

    peer: NodeId
    request: Request
    answer: Answer


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer: not delivered, or none in time."""

    peer: NodeId
    request: Request


@dataclass(frozen=True, slots=True)
class PeerGone:
    """The peer's process is certainly not there: its port refuses connections."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's shell has written records of its epoch up to ``end_offset``, not yet synced."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Synced:
    """The log is on the disk up to ``end_offset``: the leader's own, or what ``Append`` wrote."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class VotersCommitted:
    """The newest voters in the log are others: appended, fetched, cut off or in a snapshot.

    They hold at once, committed or not; ``offset`` is where they stand, -1 for the configured ones.
    """

    voters: VoterSet
    offset: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """What ``InstallSnapshot`` asked for is done: the log begins, empty, at the snapshot's end."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """It could not be had; fetching again tells what to do."""


@dataclass(frozen=True, slots=True)
class Resign:
    """Give up leadership, in favour of ``successor`` if one is named."""

    successor: NodeId | None = None


Event = (
    Tick
    | StoodStill
    | Received
    | Abandoned
    | Answered
    | Failed
    | PeerGone
    | Appended
    | Synced
    | VotersCommitted
    | SnapshotInstalled
    | SnapshotFailed
    | Resign
)

# Effects


class Role(Enum):
    """What a member is to the quorum in its epoch."""

    OBSERVER = "observer"
    FOLLOWER = "follower"
    UNATTACHED = "unattached"
    """Knows an epoch and no leader."""
    PROSPECTIVE = "prospective"
    """Asks for pre-votes."""
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"
    """Was leader of the epoch, and acts no more in it."""


@dataclass(frozen=True, slots=True)
class SaveVote:
    """Durable before the next effect: the epoch, and for whom the vote in it was given."""

    epoch: int
    voted_for: ReplicaKey | None


@dataclass(frozen=True, slots=True)
class Send:
    """To a peer; its answer or failure comes back as an event, with this very request. A failed
    send needs no retry.
    """

    peer: NodeId
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    """To the request of ``token``."""

    token: Token
    answer: Answer


@dataclass(frozen=True, slots=True)
class Append:
    """Write fetched batches at the end of the log and sync them; ``Synced`` comes back."""

    records: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log, durably; never below the high watermark."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Fetch this snapshot from ``leader`` and begin the log again at its end."""

    leader: NodeId
    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class Committed:
    """All below is on a majority, synced, for good."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """Role, epoch or known leader is another. A new leader's shell appends a record at once."""

    role: Role
    epoch: int
    leader: NodeId | None


@dataclass(frozen=True, slots=True)
class WentBack:
    """To be reported: a replica ends at ``end_offset`` that had acknowledged all below
    ``known_end``. Its folder is an older copy, unless an older request has overtaken.
    """

    replica: ReplicaKey
    known_end: int
    end_offset: int


Effect = (
    SaveVote
    | Send
    | Reply
    | Append
    | Truncate
    | InstallSnapshot
    | Committed
    | RoleChanged
    | WentBack
)
