"""What a partition's run has of fast batches, compiled.

Nearly all messages of a fast batch are the next one of a batch that is known: the parser takes these by itself. It
asks ``admit`` about all others. ``fast_batches`` decides about batches, and is the only user of what is here.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, final

SOURCES: int

class InFlight(NamedTuple):
    """What one run had of a batch, until it is committed."""

    awaited: int
    """The offset that is to be committed."""
    first: int
    """The numbers of the messages in the batch."""
    last: int
    sequence: int
    """Of the stream, of the last of them that was stored; 0: none was."""

class Entry(NamedTuple):
    """A message of a batch that is in the run, or is in the log already."""

    batch: FastBatch
    number: int
    position: int
    """In the run; of a repeated one where it would have been."""
    repeated_of: int
    """The offset of the first message with its id; -1: it is in the run."""

@final
class FastBatch:
    """One that is open. All that is told of a message is told by its number in the batch, from 1."""

    batch_id: Final[bytes]
    gap_ok: Final[bool]
    flow_max: Final[int]
    """The publisher's wish."""
    flow: int
    """It is told after so many messages."""
    last: int
    """The last message that came, or was made up for by a gap."""
    persisted: int
    """The last message that is committed."""
    acked: int
    """As of the last flow ack."""
    sequence: int
    """Of the stream, of its last message that is committed; 0: none was."""
    commits: bool
    """It gets no message more; its ack is given as soon as ``last`` is persisted."""
    ended: bool
    repeated_of: int
    """Of a batch whose only message is repeated: the offset of the first one; else -1."""
    deadline_ms: int
    in_flight: deque[InFlight]
    index: Final[int]
    """In the run; -1: the run has nothing of it."""
    position: Final[int]
    """Of its last message in the run; -1: there is none."""
    repeated: Final[int]
    """The highest offset that its repeated messages in the run wait for; -1: there are none."""
    run_first: Final[int]
    """The numbers of its messages in the run."""
    run_last: Final[int]

    def __init__(self, batch_id: bytes, *, gap_ok: bool, flow_max: int) -> None: ...
    @property
    def reply(self) -> bytes:
        """Of the message that came last."""

@final
class FastRun:
    """Of one partition. Not thread-safe; one owner."""

    is_open: bool
    """The parser may take what follows without asking."""
    admit: (
        Callable[[bytes, bytes, bytes, bool], bool | bytes | tuple[bytes | None, bytes, bytes]]
        | None
    )
    """``admit(header_block, subject, reply, has_payload)`` decides about a message: False, it is not stored, and
    ``admit`` has seen to the answer; True, it is; or what it is stored as, alone or (None: as it came) with a header
    that takes the place of its own of that name.
    """
    touched: list[FastBatch]
    """Batches of which the run has something."""

    def hear(self, batch: FastBatch, reply: bytes) -> None:
        """A message of it came with this reply; those that follow may be of the same kind."""

    def note(self, batch: FastBatch, number: int, position: int, repeated_of: int = -1) -> None:
        """A message goes into the run there, or is repeated."""

    def forget(self, batch: FastBatch) -> None:
        """It has ended."""

    def take(self) -> list[Entry]:
        """All that the run has, in order; it has nothing afterwards."""

    def clear(self) -> None:
        """The run is appended: it has nothing any more."""

    def follows(self, reply: bytes, position: int) -> bool:
        """As the parser does it, for tests: whether the message with this reply is the next one of a batch that
        is known; then it is in the run.
        """
