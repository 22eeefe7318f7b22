"""What happens to a follower of a channel, and what it wants done about it. Pure.

``Follower.step(event, now_ms)`` returns effects, which the shell carries out **in order**. Each
pull has a number of its own, so that what still arrives of an abandoned one is told from the next.
"""

from dataclasses import dataclass
from enum import StrEnum

from streamlog.ledger.core.block import Block
from streamlog.ledger.core.signing import BlockSignature


class FollowerRefusal(StrEnum):
    """Why a block or a peer was refused; also the values of a metric's label."""

    NUMBER = "number"  # a gap, or one again
    PREVIOUS_HASH = "previous-hash"
    CORRUPT = "corrupt"  # its data are not those of its header, or it is no block at all
    CHANNEL = "channel"  # another one's
    MALFORMED = "malformed"  # hashes are right, and it is no block that a node cuts
    SIGNATURE = "signature"  # none, or not by a consenter
    JOIN_BLOCK = "join-block"  # not the one that this node was told to join at
    UNKEPT = "unkept"  # a height was claimed, and nothing came
    UNREACHABLE = "unreachable"


# Events


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """``Follower.deadline_ms`` has come."""


@dataclass(frozen=True, slots=True)
class HeightTold:
    """A peer says how many blocks it has."""

    peer: str
    height: int


@dataclass(frozen=True, slots=True)
class BlockPulled:
    """The next one of a pull: a whole block, its data those of its header."""

    pull: int
    block: Block
    signature: BlockSignature | None = None


@dataclass(frozen=True, slots=True)
class CorruptPulled:
    """What came in a pull is no whole block."""

    pull: int
    detail: str


@dataclass(frozen=True, slots=True)
class PullEnded:
    """The peer says that this is all."""

    pull: int


@dataclass(frozen=True, slots=True)
class PeerFailed:
    """It cannot be reached, or refused to answer."""

    peer: str
    detail: str = ""


PullEvent = BlockPulled | CorruptPulled | PullEnded
Event = DeadlineReached | HeightTold | PeerFailed | PullEvent


# Effects


@dataclass(frozen=True, slots=True)
class AskHeight:
    """Ask the peer how many blocks it has; ``HeightTold`` or ``PeerFailed`` is the answer."""

    peer: str


@dataclass(frozen=True, slots=True)
class PullBlocks:
    """Ask the peer for its blocks in ``[start, stop)``. Whatever pull there was is over."""

    pull: int
    peer: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class EndPull:
    """Take no more of it."""

    pull: int


@dataclass(frozen=True, slots=True)
class AppendPulled:
    """It is the next block, and checked: write it. ``peer`` is where it came from."""

    block: Block
    peer: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the blocks from ``height`` on: what was onboarded does not lead to the join block."""

    height: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """A peer is avoided for so long; told for logs and metrics."""

    peer: str
    reason: FollowerRefusal
    number: int
    """Of the block that was to come."""
    avoided_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Diverged:
    """Every peer that was asked has another history than this node has at ``number``.

    Told once for each height. An operator has to look: either this ledger is wrong or all theirs.
    """

    number: int
    reason: FollowerRefusal


@dataclass(frozen=True, slots=True)
class HaltFollower:
    """Block ``number`` has a configuration in a later format: nobody here can judge what follows.
    The last effect of all.
    """

    number: int
    format: int


@dataclass(frozen=True, slots=True)
class Promote:
    """The newest configuration names this node: it is a consenter from ``height`` on. The last
    effect of all.
    """

    height: int


Effect = (
    AskHeight
    | PullBlocks
    | EndPull
    | AppendPulled
    | Discard
    | Refuse
    | Diverged
    | HaltFollower
    | Promote
)
