"""What the quorum's core looks at in the metadata log. Pure."""

from typing import Protocol

from streamlog.model import EpochEnd
from streamlog.raft.messages import SnapshotId


class RaftLog(Protocol):
    """The log as it is now: effects that were carried out show at once, the others do not."""

    @property
    def start_offset(self) -> int:
        """What is below is only in the snapshot."""

    @property
    def end_offset(self) -> int:
        """The next offset to be written."""

    @property
    def last_epoch(self) -> int:
        """Of the last batch; of the snapshot at whose end an empty log begins; else NO_EPOCH."""

    @property
    def snapshot(self) -> SnapshotId | None:
        """The newest one; it ends at ``start_offset`` or above."""

    def epoch_end(self, epoch: int) -> EpochEnd:
        """The newest epoch up to ``epoch`` that has records here, and where it ends: where the
        next one begins, or the end of the log.
        """
