"""A partition's erasures: appended by its leader, noted by its followers, kept in a file.

What is erased by a rule, and not because a caller waits for it, is *foreseen* first: a caller that asks
the leader does not find it any more from that moment on, and one erasure tells of many. A leader
that goes takes along what it has foreseen and not appended; the next one sees it by the same rule.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from streamlog.clock import wall_ms
from streamlog.condition import CORRECT_THEN_RESTART, Condition
from streamlog.errors import (
    StorageFailed,
    StreamlogError,
    Unavailable,
)
from streamlog.log.checked_file import owner_of
from streamlog.log.control_batches import note_all
from streamlog.log.control_load import history_of
from streamlog.log.erasure import erasures_file
from streamlog.log.transactions import transactions_file
from streamlog.partition.deletes.replicated import replicated
from streamlog.partition.state import Acknowledgement, PartitionState
from streamlog.record.erasure import erasure_batches
from streamlog.record.offset_set import OffsetSet

logger = logging.getLogger(__name__)

ERASURES_NOT_WRITTEN: Final = Condition(
    "SL-0228",
    "file of erasures is not written",
    CORRECT_THEN_RESTART,
    meaning="The file with the erased messages was not written. The next start reads them from "
    "the log.",
)

WAITS: Final = 10
"""How often ``say`` passes over what is foreseen for later, once or twice: five seconds and more."""
KEPT_BYTES_PER_S: Final = 256 * 1024
"""The files are written as a whole. Those of a log with many transactions change all the time, and have a bit for most
of its offsets: they are written no more than comes to that."""
_NEVER: Final = 2**63


class MessageDeletes:
    """On the event loop, but for ``keep``."""

    __slots__ = (
        "_appended",
        "_due_s",
        "_failed",
        "_foresaw",
        "_foreseen",
        "_gone",
        "_kept",
        "_later",
        "_latest",
        "_lost",
        "_said",
        "_state",
        "_waits",
        "losses",
    )  # fmt: skip

    def __init__(
        self,
        state: PartitionState,
        *,
        appended: Callable[[], None],
        failed: Callable[[StreamlogError], None],
        foreseen: Callable[[OffsetSet], None] = lambda _: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """``appended`` is called when something was: it is to be synced, and told; ``failed`` where
        it could not be; ``foreseen`` of what is, ``lost`` when it is not any more.
        """
        self._state = state
        self._appended = appended
        self._failed = failed
        self._foresaw = foreseen
        self._lost = lost
        self._foreseen = OffsetSet()
        """Not appended yet."""
        self._later, self._latest, self._waits = OffsetSet(), OffsetSet(), 0
        """Foreseen, but said only if the log's start does not pass them soon: those that have waited, those that came
        meanwhile, and how often ``say`` has passed them over.
        """
        self._said = OffsetSet()
        """Foreseen, appended, and not committed yet."""
        self._gone: OffsetSet | None = None
        """``erased`` as it was made last, if it is still so."""
        self.losses = 0
        """How often something that was foreseen was forgotten."""
        self._kept = 0, 0
        """The files have these versions of the erasures and of the transactions."""
        self._due_s = 0.0
        """They are not written again before that."""
        self.committed()

    @property
    def erased(self) -> OffsetSet:
        """By what is committed, and what is foreseen; and the erasures' own offsets."""
        committed = self._state.log.erasures.erased
        if not self.foresees:
            return committed
        if self._gone is None:
            self._gone = committed.copy()
            for foreseen in self._all_foreseen:
                self._gone.update(foreseen)
        return self._gone

    @property
    def foresees(self) -> bool:
        """Something that the log does not say yet, as far as is committed."""
        return any(self._all_foreseen)

    @property
    def _all_foreseen(self) -> tuple[OffsetSet, ...]:
        return self._said, self._foreseen, self._later, self._latest

    def foresee(self, offsets: OffsetSet, *, later: bool = False) -> None:
        """As the leader: these committed messages are to be erased, and not found from now on. ``later``: the log is
        likely to begin behind them soon, and then no erasure need name them.
        """
        (self._latest if later else self._foreseen).update(offsets)
        self._gone = None
        self._foresaw(offsets)

    def start_moved(self, offset: int) -> None:
        """The log begins there, durably: no erasure need name what is below."""
        if self.foresees:
            for foreseen in (self._foreseen, self._later, self._latest):
                foreseen.keep_between(offset, _NEVER)
            self._gone = None

    async def settle(self) -> None:
        """Return once it is committed that all is erased that is foreseen by now. Raises as ``erase``."""
        settled = OffsetSet()
        for foreseen in self._all_foreseen:
            settled.update(foreseen)
        settled.keep_between(self._state.log.log_start_offset, _NEVER)
        if settled:
            await self.erase(settled)
        for foreseen in (self._foreseen, self._later, self._latest):
            foreseen.remove_all(settled)
        self._gone = None

    def say(self) -> None:
        """Append what is foreseen, one erasure at a time. Where it cannot be, it is tried again."""
        if not self._state.is_leader:
            self._forget()
        if self._later or self._latest:
            self._waits += 1
            if self._waits >= WAITS:
                self._foreseen.update(self._later)
                self._later, self._latest, self._waits = self._latest, OffsetSet(), 0
        if not self._foreseen or self._said:
            return
        with suppress(StreamlogError):  # which has been told
            self._say_foreseen()

    def say_at_once(self) -> None:
        """Append all that is foreseen, before what is appended next builds on it: a leader that comes to have the
        one has the other, too. Raises as ``erase``.
        """
        self._foreseen.update(self._later)
        self._foreseen.update(self._latest)
        self._later, self._latest = OffsetSet(), OffsetSet()
        if self._foreseen:
            self._say_foreseen()

    def _say_foreseen(self) -> None:
        said = self._foreseen
        self.append(said, _Said(lambda: self._committed_as_said(said), self._forget))
        self._foreseen = OffsetSet()
        self._said.update(said)

    def _committed_as_said(self, said: OffsetSet) -> None:
        self.committed()
        self._said.remove_all(said)
        self._gone = None

    def _forget(self) -> None:
        """Who leads next foresees it again."""
        if self.foresees:
            self._foreseen, self._said, self._gone = OffsetSet(), OffsetSet(), None
            self._later, self._latest = OffsetSet(), OffsetSet()
            self.losses += 1
            self._lost()

    async def erase(self, erased: OffsetSet) -> None:
        """Return once it is committed that these are erased; and all that the log says is erased: who asks may
        have found nothing, or less, for the index of subjects does not wait for commits.

        Raises NotLeader, NotEnoughReplicas, StorageFull, StorageFailed, Overloaded, and
        RequestTimedOut where it may yet be committed.
        """
        state = self._state
        if erased:
            await replicated(
                state.tp, lambda ack: self.append(erased, ack), committed=self.committed
            )
        elif state.log.erasures.latest_offset >= state.high_watermark:
            await replicated(state.tp, self._await_said, committed=self.committed)

    def _await_said(self, ack: Acknowledgement) -> None:
        state = self._state
        state.check_writable()
        state.await_commit(state.log.log_end_offset, 0, time.perf_counter(), ack)

    def append(self, erased: OffsetSet, ack: Acknowledgement) -> None:
        """All of it, or as much as there was room for before this raises as ``erase``. ``ack``
        hears of the commit, never during this call.
        """
        state, log = self._state, self._state.log
        state.check_writable()
        state.check_min_isr()
        started, now_ms, base_offset, size = time.perf_counter(), wall_ms(), log.log_end_offset, 0
        batches = erasure_batches(
            erased, base_offset=base_offset, leader_epoch=state.leader_epoch, timestamp_ms=now_ms
        )
        try:
            for batch in batches:
                state.write(batch, now_ms)
                note_all(log.erasures, log.transactions, batch)
                size += len(batch)
        except StreamlogError as error:
            if size and not isinstance(error, StorageFailed):
                self._appended()  # what there was room for is in the log, and will be committed
            self._failed(error)
            raise
        state.await_commit(base_offset, size, started, ack)
        self._appended()

    def fetched(self, records: memoryview) -> None:
        """These whole batches were appended as a follower. Raises CorruptBatch."""
        log = self._state.log
        note_all(log.erasures, log.transactions, records)

    def committed(self) -> None:
        """The high watermark may have moved."""
        log = self._state.log
        erasures = log.erasures
        if erasures.latest_offset > erasures.last.offset and erasures.commit(
            self._state.high_watermark
        ):
            self._gone = None
        if log.transactions.first_unstable_offset is not None:
            log.transactions.commit(self._state.high_watermark)

    def was_cut(self) -> None:
        """The log is shorter now, or begins again."""
        self._gone = None
        self.committed()

    # The file

    @property
    def is_unkept(self) -> bool:
        """A file is behind, and it is time to write it: a start reads more of the log meanwhile."""
        log = self._state.log
        is_behind = self._kept != (log.erasures.version, log.transactions.version)
        return is_behind and time.monotonic() >= self._due_s

    async def keep(self, in_worker: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Write the files. A disk that refuses is told of, and tried again.

        What is erased comes first: of a marker that the other file has already, a start does not know any more what
        it has erased.
        """
        log = self._state.log
        erasures, transactions = log.erasures, log.transactions
        for known in (erasures, transactions):
            known.forget_below(log.known_start)
        versions = erasures.version, transactions.version
        erased, ongoing, history = erasures.snapshot(), transactions.snapshot(), history_of(log)
        unkept = erasures.unkept_offset, transactions.unkept_offset
        erasures.unkept_offset = transactions.unkept_offset = None
        beside, owner = log.beside, owner_of(log.beside.directory)
        are_new = versions[0] != self._kept[0], versions[1] != self._kept[1]

        size_bytes = 0

        def write() -> None:
            nonlocal size_bytes
            if are_new[0]:
                data = erasures_file.encode(erased, owner)
                beside.write(erasures_file.FILE_NAME, data)
                size_bytes += len(data)
            if are_new[1]:
                data = transactions_file.encode(ongoing, history, owner)
                beside.write(transactions_file.FILE_NAME, data)
                size_bytes += len(data)

        try:
            await in_worker(write)
        except Unavailable as error:
            erasures.unkept_offset = _first(unkept[0], erasures.unkept_offset)
            transactions.unkept_offset = _first(unkept[1], transactions.unkept_offset)
            tp = self._state.tp
            extra = {"stream": tp.stream, "partition": tp.partition, "problem": str(error)}
            logger.warning(ERASURES_NOT_WRITTEN, extra=extra)
        else:
            self._kept = versions
            self._due_s = time.monotonic() + size_bytes / KEPT_BYTES_PER_S
            erasures.kept_end = erased.latest_offset + 1
            transactions.kept_end = ongoing.latest_offset + 1


def _first(*offsets: int | None) -> int | None:
    """One may have come while another was written."""
    return min((it for it in offsets if it is not None), default=None)


class _Said:
    """No request waits. An ``Acknowledgement``."""

    def __init__(self, committed: Callable[[], None], lost: Callable[[], None]) -> None:
        self._committed = committed
        self._lost = lost

    def committed(self, base_offset: int) -> None:
        self._committed()

    def failed(self, error: StreamlogError) -> None:
        self._lost()
