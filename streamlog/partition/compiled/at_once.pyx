# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Appends of runs and of what producers sent, compiled. ``at_once.pyi`` says what it means."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamlog.log.compiled.log_end cimport LogEnd
from streamlog.record.compiled.batch_header cimport BASE_OFFSET_POSITION, HEADER_BYTES, LEADER_EPOCH_POSITION
from streamlog.record.compiled.codec cimport RecordRun
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from time import perf_counter, time_ns

from streamlog.errors import NotLeader, ObjectStoreUnavailable, StorageFailed, StorageFull, StreamlogError

SOURCES = STREAMLOG_SOURCES


cdef class StateEnd:
    """What an append reads and changes of a partition's core."""

    def append_run(self, RecordRun run not None, int64_t now_ms, *, leader_epoch=None):
        """Seal ``run`` into one batch at the end of the log; the base offset. No one hears of its
        commit.

        Whatever happens, the run is empty afterwards. Raises NotLeader, also where the caller means
        another ``leader_epoch`` or the node's lease is over; StorageFull (nothing was kept, the
        next one may succeed) or StorageFailed, after which ``disk_failed`` is to follow.
        """
        cdef LogEnd log = self.log
        cdef int64_t base_offset = log.log_end_offset, next_offset
        cdef bytes batch
        try:
            self._check_writable(leader_epoch)
        except StreamlogError:
            run.clear()
            raise
        next_offset = base_offset + run.count
        batch = run.sealed(base_offset, <int>self.leader_epoch, now_ms, self.compression)
        try:
            log.append(batch, now_ms, (base_offset, next_offset, self.leader_epoch))
        except StorageFailed as error:
            self.failure = error
            raise
        self.appended_bytes = len(batch)
        return base_offset

    cdef _check_writable(self, leader_epoch):
        """Raises NotLeader, also where the caller means another epoch; StorageFull, StorageFailed;
        ObjectStoreUnavailable, see ``check_not_behind_store``.
        """
        if (
            self.failure is not None
            or self.progress is None
            or (leader_epoch is not None and <int64_t>leader_epoch != self.leader_epoch)
            or (self._may_act is not None and not self._may_act())
        ):
            raise self.failure or NotLeader(f"{self.tp} is not led by this node")
        if self._has_room is not None and not self._has_room():
            raise StorageFull("the disk is full")
        if self.is_behind_store:
            self.check_not_behind_store()

    def check_not_behind_store(self):
        """Raises ObjectStoreUnavailable while the object store has what this leader lacks: its next record would take
        the offset of another one.
        """
        if self.is_behind_store:
            raise ObjectStoreUnavailable(
                f"{self.tp}: this leader has yet to take over what the object store has beyond its log"
            )


cdef inline void put_big_endian(uint8_t* at, int64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        at[i] = <uint8_t>(<uint64_t>value >> (8 * (size - 1 - i)))


cdef class PartitionEnd:
    """What an append reads and changes of a partition."""

    def append_at_once(self, RecordRun run not None, *, leader_epoch=None, now_ms=None):
        """Append ``run`` as one batch, which is committed when this returns; its base offset. -1, and
        nothing was done: the commit has to wait, see ``append``. Raises as that.
        """
        cdef StateEnd state = self.state
        cdef int64_t base_offset
        cdef Py_ssize_t count = run.count
        if self._commit_watchers or self._has_to_wait():
            return -1  # with watchers the commit has its turn: none of them is told anything during this call
        started = perf_counter()
        appended_ms = time_ns() // 1_000_000 if now_ms is None else now_ms
        try:
            base_offset = state.append_run(run, appended_ms, leader_epoch=leader_epoch)
        except StreamlogError as error:
            self.append_failed(error)
            raise
        self._committed(count, started)
        return base_offset

    def append_produced(self, data, int64_t count, int64_t timestamp_ms, ack):
        """Append what a producer sent as it is, but for its base offset and leader epoch; its base offset. ``ack`` hears
        of the commit, before this returns where it has not to wait. -1, and nothing was done: see ``produce``.
        """
        cdef StateEnd state = self.state
        cdef LogEnd log = self._log
        cdef int64_t base_offset = log.log_end_offset
        cdef bint waits
        cdef Py_buffer view
        cdef bytes batch
        cdef uint8_t* at
        if state.progress is None or self._is_carrying_out:
            return -1
        waits = self._has_to_wait()
        started = perf_counter()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len < HEADER_BYTES:
                raise ValueError(f"a batch of {view.len} bytes")
            batch = PyBytes_FromStringAndSize(<const char*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        at = <uint8_t*>PyBytes_AS_STRING(batch)
        put_big_endian(at + BASE_OFFSET_POSITION, base_offset, 8)
        put_big_endian(at + LEADER_EPOCH_POSITION, state.leader_epoch, 4)
        try:
            state._check_writable(None)
            log.append(batch, timestamp_ms, (base_offset, base_offset + count, state.leader_epoch))
        except StorageFailed as error:
            state.failure = state.failure or error
            self.append_failed(error)
            raise
        except StreamlogError as error:
            self.append_failed(error)
            raise
        state.appended_bytes = len(batch)
        if waits:
            self._count(count)
            state.await_commit(base_offset, state.appended_bytes, started, ack)
            if self._end_watchers:
                self.grown()
            self._keep_at_once()
            return base_offset
        self._committed(count, started)
        ack.committed(base_offset)
        if self._commit_watchers:
            self._tell_commit_watchers()
        return base_offset

    cdef bint _has_to_wait(self):
        """What is appended is committed by being written where this leader is alone in sync, no sync is waited for and
        nothing waits that came before: ``settle``, in its turn, could find nothing else.
        """
        cdef StateEnd state = self.state
        cdef LogEnd log = self._log
        progress = state.progress
        return (
            progress is None
            or state.sync == "commit"
            or state.pending
            or state.starts
            or self._waiting
            or self._is_carrying_out
            or state.high_watermark != log.log_end_offset
            or progress._counted
            or progress._short
            or log.erasures._pending
        )

    cdef _tell_commit_watchers(self):
        """As ``carry_out`` does."""
        self._is_carrying_out = True
        try:
            for watcher, once in tuple(self._commit_watchers.items()):
                if once:  # before it is called: no other is lost if it raises
                    self._commit_watchers.pop(watcher, None)
                watcher()
        finally:
            self._is_carrying_out = False

    cdef _committed(self, int64_t count, double started):
        """So many records were appended."""
        cdef StateEnd state = self.state
        cdef LogEnd log = self._log
        cdef int64_t end_offset = log.log_end_offset
        state.high_watermark = state.progress.local(end_offset, end_offset)
        metrics, surroundings = self._metrics, self._surroundings
        self._count(count)
        surroundings.upkeep.offsets_changed(self)
        if state.sync == "interval":
            surroundings.upkeep.unsynced(self)
        elif log.recovery_point < log._active.segment.base_offset and state.syncing is None:
            surroundings.flusher.sync(self)  # of what was sealed, see ``settle``
        metrics.commit_latency_seconds.observe(perf_counter() - started)
        if self._end_watchers:
            self.grown()

    cdef _count(self, int64_t count):
        """So many records were appended as one batch."""
        metrics = self._metrics
        metrics.append_batches.count += 1
        metrics.append_records.count += count
        metrics.append_bytes.count += self.state.appended_bytes
