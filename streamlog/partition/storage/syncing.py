"""When a partition's log is synced, and who waits for it. On the event loop."""

import asyncio
from collections.abc import Callable

from streamlog.errors import StorageFailed, StreamlogError
from streamlog.log.sync import SyncTicket
from streamlog.partition.pending_appends import PendingAppend
from streamlog.partition.state import PartitionState
from streamlog.partition.storage.flusher import Flusher


class Syncing:
    """What the flusher has to do with one partition: it is the flusher's ``Syncable``."""

    __slots__ = (
        "_committed", "_flusher", "_is_due", "_state", "_synced", "_unsynced", "_waiting",
        "_went_offline", "closed", "to_settle", "to_sync",
    )  # fmt: skip

    def __init__(
        self,
        state: PartitionState,
        flusher: Flusher,
        *,
        committed: Callable[[list[PendingAppend], int], None],
        synced: Callable[[], None],
        unsynced: Callable[[], None],
        went_offline: Callable[[StreamlogError], None],
    ) -> None:
        """``committed``: what that did, and the high watermark before; ``unsynced``: something
        waits for the next interval.
        """
        self.to_sync = False
        self.to_settle = False
        self.closed = False
        self._state = state
        self._flusher = flusher
        self._committed = committed
        self._synced = synced
        self._unsynced = unsynced
        self._went_offline = went_offline
        self._is_due = False
        """A sync was asked for while another one, which may not cover all, or a cut ran."""
        self._waiting: list[asyncio.Future[None]] = []
        """For the end of the sync or cut that runs or is about to."""

    def keep(self) -> None:
        """Have what is new synced soon, or let it count unsynced, as the policy says."""
        if self._state.sync == "commit":
            self._flusher.sync(self)
        else:
            self._flusher.settle(self)

    def sync_soon(self) -> None:
        """Whatever the policy says."""
        self._flusher.sync(self)

    def settle_soon(self) -> None:
        """What is kept may count now."""
        self._flusher.settle(self)

    # For the flusher

    def begin_sync(self) -> SyncTicket | None:
        """Raises Overloaded: try again later."""
        ticket = None
        self._is_due = not self.is_quiet
        try:
            if not self.closed:
                ticket = self._state.begin_sync()
        except StorageFailed as error:
            self._went_offline(error)
        if ticket is None and self.is_quiet:
            self.ended()
        return ticket

    def finish_sync(self) -> bool:
        state = self._state
        before = state.high_watermark
        self._committed(state.finish_sync(), before)
        self._synced()
        self.ended()
        log = state.log
        upper_offset = log.log_end_offset if state.sync == "commit" else log.sealed_end
        return log.recovery_point < upper_offset and state.failure is None

    def sync_failed(self, error: StorageFailed) -> None:
        self._state.sync_failed(error)
        self._went_offline(error)
        self.ended()

    def settle(self) -> None:
        state = self._state
        if state.failure is not None or self.closed:
            return
        before = state.high_watermark
        self._committed(state.settle(), before)
        if state.sync == "interval":
            self._unsynced()
        elif state.log.recovery_point < state.log.sealed_end and state.syncing is None:
            # Sealed segments are synced under every policy, so that a start has one to check.
            self._flusher.sync(self)

    # Waiting

    @property
    def is_quiet(self) -> bool:
        """Neither a sync nor a cut runs."""
        return self._state.syncing is None and not self._state.cutting

    async def wait_quiet(self) -> None:
        """Nor does a cleaning, which is called off."""
        cleaning = self._state.cleaning
        while not self.is_quiet or cleaning.running is not None:
            if cleaning.running is not None:
                cleaning.running.call_off()
            await self._wait_for_end()

    async def wait_uncut(self) -> None:
        """No cut runs."""
        while self._state.cutting:
            await self._wait_for_end()

    async def wait_synced(self) -> None:
        """All that is appended by now is synced; or the partition is offline or closed."""
        state, target = self._state, self._state.log.log_end_offset
        while state.log.recovery_point < target and state.failure is None and not self.closed:
            self._flusher.sync(self)
            await self._wait_for_end()

    async def wait_kept(self) -> None:
        """What a follower has may be acknowledged, and no cut runs; or it is offline or closed."""
        await self.wait_uncut()
        if self._state.sync == "commit":
            await self.wait_synced()

    def ended(self) -> None:
        """A sync, a cut or a cleaning has."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        if self._is_due and self.is_quiet:
            self._flusher.sync(self)

    async def _wait_for_end(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting
