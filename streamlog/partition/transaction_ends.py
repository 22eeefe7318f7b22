"""A partition's transaction markers, appended by its leader. On the event loop."""

import time
from collections.abc import Callable

from streamlog.clock import wall_ms
from streamlog.errors import StreamlogError
from streamlog.partition.deletes.replicated import replicated
from streamlog.partition.state import Acknowledgement, PartitionState
from streamlog.record.transaction_marker import TransactionMarker, marker_batch


class TransactionEnds:
    """Has the transactions of producers end where their coordinator says so."""

    __slots__ = ("_appended", "_failed", "_state")

    def __init__(
        self,
        state: PartitionState,
        *,
        appended: Callable[[], None],
        failed: Callable[[StreamlogError], None],
    ) -> None:
        """``appended`` is called when something was: it is to be synced, and told; ``failed`` where it could not be."""
        self._state = state
        self._appended = appended
        self._failed = failed

    async def end(self, marker: TransactionMarker) -> None:
        """Return once the marker is committed. May be asked again.

        Raises NotLeader, NotEnoughReplicas, StorageFull, StorageFailed, Overloaded, and RequestTimedOut where it may
        yet be committed.
        """
        await replicated(self._state.tp, lambda ack: self._append(marker, ack))

    def _append(self, marker: TransactionMarker, ack: Acknowledgement) -> None:
        state, log = self._state, self._state.log
        state.check_writable()
        state.check_min_isr()
        started, now_ms, base_offset = time.perf_counter(), wall_ms(), log.log_end_offset
        batch = marker_batch(
            marker, base_offset=base_offset, leader_epoch=state.leader_epoch, timestamp_ms=now_ms
        )
        try:
            state.write(batch, now_ms)
        except StreamlogError as error:
            self._failed(error)
            raise
        state.await_commit(base_offset, len(batch), started, ack)
        self._appended()
