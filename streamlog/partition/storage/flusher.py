"""Group commit for all partitions: threads sync, the event loop does the rest."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from streamlog.clock import monotonic_ms
from streamlog.errors import StorageFailed, Unavailable
from streamlog.log.log import SyncTicket
from streamlog.log.storage.shared_sync import SharedSync
from streamlog.metrics import NodeMetrics
from streamlog.partition.state import PartitionState, Step
from streamlog.partition.storage.sync_stalls import SyncStalls
from streamlog.partition.storage.sync_threads import SyncThreads

logger = logging.getLogger(__name__)

THREADS: Final = 4
"""Syncs that run at once, each of another log."""
MANIFEST_THREADS: Final = 16
"""The same, where a shared sync leaves the logs whose manifests are behind to be synced one by one:
the more of these wait for the disk at once, the more a commit of the file system covers.
"""
RETRY_S: Final = 0.1
TOGETHER_MIN: Final = 16
"""So many that wait are synced by one sync of the file system, where that can be."""
TOGETHER_MAX: Final = 1_000
NO_NUMBER: Final = -1
"""Of a sync that no publisher waits for."""


class Syncable(Protocol):
    """What the flusher needs of a partition."""

    # Only the flusher writes these: it waits to be synced, to be settled.
    to_sync: bool
    to_settle: bool

    @property
    def state(self) -> PartitionState: ...
    def carry_out(self, step: Step) -> None: ...


Begun = tuple[Syncable, SyncTicket]
Failures = list[BaseException | None]


class Flusher:
    """A partition waits in line until a thread is free, so that one sync covers all that came
    meanwhile.

    ``run`` is to be a task: it ends by raising what no partition can handle.
    """

    def __init__(self, metrics: NodeMetrics, *, awake_ms: Callable[[], int] = monotonic_ms) -> None:
        """``awake_ms``: a clock that may stand still while the node does."""
        self._metrics = metrics
        self._awake_ms = awake_ms
        self._stalls = SyncStalls()
        """Of syncs that publishers wait for. Those of many files at once may take long."""
        self.shared: SharedSync | None = None
        """To be set before the first sync."""
        self._is_together = False  # a shared sync runs
        self._is_ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._crashed: asyncio.Future[None] | None = None
        self._threads = ThreadPoolExecutor(max_workers=MANIFEST_THREADS, thread_name_prefix="sync")
        self._sync_threads = SyncThreads(THREADS)
        self._to_sync: deque[Syncable] = deque()
        self._to_settle: list[Syncable] = []
        self._running = 0  # syncs in worker threads, at most THREADS
        self._awake = False  # a turn of ``_work`` is scheduled

    def open(self) -> None:
        """On the event loop that it is to serve."""
        self._loop = asyncio.get_running_loop()
        self._crashed = self._loop.create_future()

    async def run(self) -> None:
        """Never returns; raises what a sync raised that is not a failing disk."""
        assert self._crashed is not None, "open comes first"
        await asyncio.shield(self._crashed)

    def sync(self, partition: Syncable) -> None:
        """Sync it soon; several calls in a turn of the loop are one."""
        if not partition.to_sync:
            partition.to_sync = True
            self._to_sync.append(partition)
            self._wake()

    def sync_at_once(self, partition: Syncable) -> None:
        """As ``sync``, but now where nothing else waits to be synced: what one client waits for by itself. What comes
        during this sync shares the next one. Not while the partition carries out a step.
        """
        if self._to_sync or self._running or self._is_together or partition.to_sync:
            self.sync(partition)
            return
        try:
            ticket = self._ticket_of(partition)
            if ticket is not None:
                self._begin_alone((partition, ticket))
        except BaseException as error:
            self._crash(error)

    def _ticket_of(self, partition: Syncable) -> SyncTicket | None:
        """None: nothing is to be synced now."""
        try:
            ticket = partition.state.begin_sync()
        except Unavailable:
            self._later(partition)
            return None
        if isinstance(ticket, Step):
            partition.carry_out(ticket)
            return None
        return ticket

    def stall_ms(self) -> int:
        """For so long publishers have waited for the disk in vain."""
        return self._stalls.stall_ms(self._awake_ms())

    def oldest_sync_ms(self) -> int:
        """For so long the sync has run that publishers have waited for longest."""
        return self._stalls.oldest_ms(self._awake_ms())

    def settle(self, partition: Syncable) -> None:
        """Have it settle at the end of this turn, without a sync."""
        if not partition.to_settle:
            partition.to_settle = True
            self._to_settle.append(partition)
            self._wake()

    def hurry(self) -> None:
        """The node ends: the sooner all is synced the better, whatever others write meanwhile."""
        self._is_ending = True

    def close(self) -> None:
        """Let the threads go; what they do is finished first, but no shared sync may run."""
        self._threads.shutdown(wait=False)
        self._sync_threads.close()
        if self.shared is not None:
            self.shared.close()
            self.shared = None

    def give_up(self) -> None:
        """The process ends before all is synced: what has not begun does not begin."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _wake(self) -> None:
        if not self._awake:
            assert self._loop is not None, "open comes first"
            self._awake = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Settle what waits for that; have threads sync what waits in line, while some are free.

        What comes during a shared sync waits for the next one, so that it covers the more. Logs
        whose manifests are behind keep the other threads busy.
        """
        self._awake = False
        try:
            settling, self._to_settle = self._to_settle, []
            for partition in settling:
                partition.to_settle = False
                partition.carry_out(partition.state.settle())
            line = self._to_sync
            while line and self._running < THREADS and not self._is_together:
                shared = self._shared_sync()
                begun: list[Begun] = []
                for _ in range(min(len(line), TOGETHER_MAX) if shared else 1):
                    partition = line.popleft()
                    partition.to_sync = False
                    ticket = self._ticket_of(partition)
                    if ticket is not None:
                        begun.append((partition, ticket))
                if shared:
                    together = [it for it in begun if not it[1].needs_own_syncs]
                    begun = [it for it in begun if it[1].needs_own_syncs]
                    if together:
                        self._is_together = True
                        self._threads.submit(self._run, together, shared, time.perf_counter())
                for it in begun:
                    self._begin_alone(it)
        except BaseException as error:
            self._crash(error)

    def _begin_alone(self, it: Begun) -> None:
        """One file is synced by a thread that does nothing else; all others by one in Python."""
        self._running += 1
        partition, ticket = it
        started = time.perf_counter()
        descriptor, number = ticket.descriptor, NO_NUMBER

        def ended(error: OSError | None) -> None:
            """What publishers wait for comes first."""
            took_s = time.perf_counter() - started
            try:
                try:
                    ticket.ended(error)
                except StorageFailed as failure:
                    partition.carry_out(partition.state.sync_failed(failure))
                else:
                    partition.carry_out(partition.state.finish_sync())
            except BaseException as failure:
                self._crash(failure)
            ticket.release()
            if number != NO_NUMBER:
                self._stalls.ended(number, self._awake_ms())
            self._running -= 1
            self._metrics.fsync_duration_seconds.observe(took_s)
            self._work()

        if descriptor is not None:
            try:
                self._sync_threads.sync(descriptor, ended)
            except OSError:  # too few file descriptors to begin such threads
                pass
            else:
                if partition.state.sync == "commit":
                    number = self._stalls.began(self._awake_ms())
                return
        self._threads.submit(self._run, [it], None, started)

    def _shared_sync(self) -> SharedSync | None:
        """One sync of the file system, where enough wait for it to be worth its while."""
        shared = self.shared
        if shared is None or len(self._to_sync) < TOGETHER_MIN:
            return None
        may_share = shared.is_usable if self._is_ending else shared.is_advisable
        return shared if may_share else None

    def _later(self, partition: Syncable) -> None:
        """Too many open files, say: nothing is lost, but it must be tried again."""
        assert self._loop is not None
        self._loop.call_later(RETRY_S, self.sync, partition)

    def _run(self, begun: list[Begun], shared: SharedSync | None, started: float) -> None:
        """In a worker thread: sync one log by itself, or all by the shared sync."""
        failures: Failures = [None]
        try:
            if shared is None:
                begun[0][1].run()
            else:
                failures = sync_together([ticket for _, ticket in begun], shared)
        except BaseException as error:
            failures = [error] * len(begun)
        assert self._loop is not None, "open comes first"
        with suppress(RuntimeError):  # after ``give_up`` the loop may be closed
            self._loop.call_soon_threadsafe(self._ended, begun, failures, shared, started)

    def _ended(
        self, begun: list[Begun], failures: Failures, shared: SharedSync | None, started: float
    ) -> None:
        if shared is None:
            self._running -= 1
        else:
            self._is_together = False
        took_s = time.perf_counter() - started
        try:
            for (partition, _), failure in zip(begun, failures, strict=True):
                if failure is None:
                    partition.carry_out(partition.state.finish_sync())
                elif isinstance(failure, StorageFailed):
                    partition.carry_out(partition.state.sync_failed(failure))
                else:
                    raise failure
        except BaseException as error:
            self._crash(error)
        self._metrics.fsync_duration_seconds.observe(took_s)
        self._work()

    def _crash(self, error: BaseException) -> None:
        if self._crashed is not None and not self._crashed.done():
            self._crashed.set_exception(error)


def sync_together(tickets: Sequence[SyncTicket], shared: SharedSync) -> Failures:
    """In a worker thread; what each raised.

    Epochs that are stored again, as in all logs that are written to after a start,
    take no syncs of their own either: the new files are written beside the old ones, the first
    shared sync makes them durable with the logs' content, all are renamed, and the second one makes
    that durable.

    Whenever power is cut, a log has its old epochs or its new ones, and these only with the batches
    they are about, as after a sync of the log alone: there is no new file under the old one's name
    before the first shared sync has ended. Which logs have theirs may be any of them. One whose
    epochs are old has batches of a later epoch than they know, which its recovery finds and then
    reads the epochs from the batches; what is beside them is removed as a stray. No log counts as
    synced, and its recovery point does not rise, before the second sync has ended.
    """
    for ticket in tickets:
        ticket.stage()
    is_synced = shared.sync(file for ticket in tickets for file in ticket.files)
    if not is_synced:
        return [_failure_of(ticket.run) for ticket in tickets]
    failures = [_failure_of(ticket.put_in_place) for ticket in tickets]
    are_placed = not any(ticket.is_placed for ticket in tickets) or shared.sync()
    for at, ticket in enumerate(tickets):
        if failures[at] is None:
            failures[at] = _failure_of(partial(ticket.run, is_synced=True, are_placed=are_placed))
    return failures


def _failure_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None
