"""What is told of a channel as it goes on, for metrics; nothing depends on it."""

from typing import Protocol

from streamlog.ledger.core.block import Block
from streamlog.ledger.core.consenter import SkipReason
from streamlog.ledger.core.cutter import CutReason


class Observer(Protocol):
    """Called by the event loop; must not block or raise."""

    def appended(self, block: Block, reason: CutReason | None) -> None:
        """It is durable. ``reason``: of a cut made here; None: it is the genesis, or was pulled."""

    def skipped(self, channel: str, reason: SkipReason) -> None:
        """A record of the stream is in no block."""

    def posted_time_to_cut(self, channel: str) -> None:
        """This node asks for a block to be cut."""

    def broadcast(self, channel: str, outcome: str, seconds: float, offset: int | None) -> None:
        """``ok``, or the name of the error. The time until it was committed; at which offset."""

    def delivered(self, channel: str, blocks: int, size_bytes: int) -> None:
        """To a reader."""

    def repaired(self, channel: str, blocks: int) -> None:
        """So many blocks were cut off a damaged ledger, to be cut again."""

    def following(self, channel: str, lag_blocks: int) -> None:
        """So many blocks consenters have, as far as is known, and this follower has not."""

    def refused(self, channel: str, reason: str) -> None:
        """A follower refused a peer, or what it gave."""


class Unobserved:
    """An observer that does not care."""

    def appended(self, block: Block, reason: CutReason | None) -> None:
        pass

    def skipped(self, channel: str, reason: SkipReason) -> None:
        pass

    def posted_time_to_cut(self, channel: str) -> None:
        pass

    def broadcast(self, channel: str, outcome: str, seconds: float, offset: int | None) -> None:
        pass

    def delivered(self, channel: str, blocks: int, size_bytes: int) -> None:
        pass

    def repaired(self, channel: str, blocks: int) -> None:
        pass

    def following(self, channel: str, lag_blocks: int) -> None:
        pass

    def refused(self, channel: str, reason: str) -> None:
        pass
