"""Appends that are committed at once, compiled.

A leader that is alone in sync, and waits for no sync (``sync=os``, ``sync=interval``), has committed what
it has written: its high watermark is its log end. Everything that usually waits between the two, and the
objects that this takes, are left out: where each message is a batch of its own that is most of its cost.

Nothing is weaker than in the usual way. A record is written to its segment by ``write(2)`` before its
publisher is answered, so it outlives a kill of the process; a failed write raises, and nobody is answered.
The high watermark moves behind the log end, never before it.

Where anything waits, nothing overtakes it. A run of messages is refused with -1 then, and where the commit is
watched, and is appended in the usual way. A producer's batch is appended all the same: its acknowledgement waits
behind the others, for a sync or for followers, and its watchers hear of the commit when it comes.
"""

from asyncio import Future
from collections import deque
from collections.abc import Callable

from streamlog.config import SyncPolicy
from streamlog.errors import StreamlogError
from streamlog.log.log import PartitionLog, SyncTicket
from streamlog.metrics import NodeMetrics
from streamlog.partition.partition import PartitionContext
from streamlog.partition.state import Acknowledgement, PartitionState, PendingAppend
from streamlog.record.codec import RecordRun
from streamlog.replication.leader import LeaderProgress

SOURCES: int

class StateEnd:
    """What an append reads and changes of a partition's core."""

    log: PartitionLog
    high_watermark: int
    leader_epoch: int
    """As last heard. The leader stamps it into batches."""
    appended_bytes: int
    """By the last ``append``."""
    compression: int
    is_short: bool
    """Fewer replicas are in sync than must be: nothing is committed meanwhile."""
    is_behind_store: bool
    """It leads, and the object store has records beyond its log's end: it was elected unclean, or lost its disk."""
    failure: StreamlogError | None
    """Set once, when the disk failed or the partition is gone: nothing more is appended."""
    progress: LeaderProgress | None
    """While this node leads."""
    pending: deque[PendingAppend]
    """In order of their offsets; the leader's."""
    starts: list[PendingAppend]
    """Log starts that wait for the in-sync replicas; the leader's."""
    sync: SyncPolicy
    syncing: SyncTicket | None
    """At most one sync runs."""
    _may_act: Callable[[], bool] | None
    _has_room: Callable[[], bool] | None

    def append_run(self, run: RecordRun, now_ms: int, *, leader_epoch: int | None = None) -> int:
        """Seal ``run`` into one batch at the end of the log; the base offset. No one hears of its
        commit.

        Whatever happens, the run is empty afterwards. Raises NotLeader, also where the caller means
        another ``leader_epoch`` or the node's lease is over; StorageFull (nothing was kept, the
        next one may succeed) or StorageFailed, after which ``disk_failed`` is to follow;
        ObjectStoreUnavailable, see ``check_not_behind_store``.
        """

    def check_not_behind_store(self) -> None:
        """Raises ObjectStoreUnavailable while the object store has what this leader lacks: its next
        record would take the offset of another one.
        """

class PartitionEnd:
    """What an append reads and changes of a partition."""

    state: PartitionState
    _log: PartitionLog
    _metrics: NodeMetrics
    _surroundings: PartitionContext
    _commit_watchers: dict[Callable[[], None], bool]
    _end_watchers: dict[Callable[[], None], bool]
    _waiting: list[Future[None]]
    _is_carrying_out: bool

    def append_at_once(
        self, run: RecordRun, *, leader_epoch: int | None = None, now_ms: int | None = None
    ) -> int:
        """Append ``run`` as one batch, which is committed when this returns; its base offset. -1, and
        nothing was done: the commit has to wait, see ``append``. Raises as that.

        None but those who watch the log end are told anything during this call. ``now_ms``: the time
        of the batch; None: the clock's.
        """

    def append_produced(
        self, data: bytes | memoryview, count: int, timestamp_ms: int, ack: Acknowledgement
    ) -> int:
        """Append a batch that a producer sent, which is checked and not numbered: of ``count`` records, the latest of
        ``timestamp_ms``. It is kept as it is, but for its base offset and leader epoch. Its base offset; ``ack`` hears
        of the commit, and so do those who watch it: before this returns, where ``append_at_once`` could be. -1, and
        nothing was done: see ``produce``.
        """
