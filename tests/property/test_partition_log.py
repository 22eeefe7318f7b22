"""The log against a list of batches, with crashes, kills, full and failing disks in between."""

import errno
from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamlog.errors import StorageFailed, StorageFull
from streamlog.log.log import PartitionLog, SyncTicket
from streamlog.log.settings import LogSettings
from streamlog.log.storage.removal import Removal
from streamlog.record.batch import batches
from streamlog.record.offset_set import OffsetSet
from tests.later import Later
from tests.log_folder import FOLDER, check_end_checksums, make_batch, open_log, read_batches
from tests.simulation.disk import SimDisk

SETTINGS = LogSettings(segment_bytes=1_500, index_interval_bytes=250, segment_age_ms=400)


class Twin(NamedTuple):
    """A batch as the list has it."""

    base_offset: int
    next_offset: int
    timestamp_ms: int
    epoch: int
    data: bytes


class LogMachine(RuleBasedStateMachine):
    """``twins`` is what the log should have, ``synced`` the end of what it must not lose."""

    log: PartitionLog
    settings = SETTINGS

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.twins: list[Twin] = []
        self.ever: set[bytes] = set()
        self.synced = 0
        self.log_start = 0
        self.purged = 0  # the largest log start there ever was
        self.now_ms = 1_000
        self.epoch = 0
        self.ticket: SyncTicket | None = None
        self.went_when_full = False  # files may have: the checkpoint alone has the log start then
        self.log = self.opened()

    def opened(self, **known: Any) -> PartitionLog:
        return open_log(self.disk, self.settings, **known)

    def files_to_close(self) -> int:
        """How many files another thread will close, since they were removed while open."""
        return 0

    @property
    def end(self) -> int:
        """Where the log should end; after a purge of everything only the log knows."""
        return self.twins[-1].next_offset if self.twins else self.log.log_end_offset

    def kept(self) -> list[Twin]:
        return [twin for twin in self.twins if twin.next_offset > self.log.log_start_offset]

    # Writing

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 500),
        step_ms=st.integers(-50, 150),
        new_epoch=st.sampled_from([False] * 9 + [True]),
        is_sealed=st.booleans(),
    )
    def append(
        self, count: int, size: int, step_ms: int, new_epoch: bool, is_sealed: bool = False
    ) -> None:
        self.now_ms += step_ms
        self.epoch += new_epoch
        base = self.log.log_end_offset
        data = make_batch(
            base,
            [b"%d-%d" % (base, len(self.ever)) + b"x" * size] * count,
            timestamp_ms=self.now_ms,
            epoch=self.epoch,
        )
        try:
            sealed = (base, base + count, self.epoch) if is_sealed else None
            self.log.append(data, self.now_ms, sealed)
        except StorageFull:
            assert self.disk.capacity_bytes is not None
            return
        except StorageFailed:
            assert self.log.failed
            return
        self.twins.append(Twin(base, base + count, self.now_ms, self.epoch, data))
        self.ever.add(data)

    @rule()
    def roll(self) -> None:
        if not self.log.failed:
            try:
                self.log.roll()
            except StorageFull:
                assert self.disk.capacity_bytes is not None

    @precondition(lambda self: self.ticket is None and not self.log.failed)
    @rule()
    def begin_sync(self) -> None:
        self.ticket = self.log.begin_sync()

    @precondition(lambda self: self.ticket is not None)
    @rule(fails=st.integers(0, 9))
    def finish_sync(self, fails: int) -> None:
        assert self.ticket is not None
        ticket, self.ticket = self.ticket, None
        if fails == 0:
            self.disk.fail("sync", errno.EIO)
            self.disk.fail("sync_directory", errno.EIO)
        try:
            ticket.run()
        except StorageFailed:
            self.disk.faults.clear()
            assert self.log.failed
            return
        self.disk.faults.clear()
        if not self.log.failed:
            self.synced = self.log.finish_sync(ticket)

    @rule(room=st.none() | st.integers(0, 1_000))
    def fill_disk(self, room: int | None) -> None:
        self.disk.capacity_bytes = None
        if room is not None:
            self.disk.capacity_bytes = 0
            used = sum(self.disk.sizes("/streams/s/0").values())
            self.disk.capacity_bytes = used + room

    @rule(short=st.booleans())
    def write_short(self, short: bool) -> None:
        self.disk.short_writes = short

    @precondition(lambda self: self.ticket is None and not self.log.failed)
    @rule()
    def rest(self) -> None:
        try:
            if self.log.rest():
                assert self.log.is_resting
                assert self.disk.open_files == self.files_to_close()
        except StorageFull:
            assert self.disk.capacity_bytes is not None

    # Forgetting

    @rule(part=st.floats(0, 1))
    def purge(self, part: float) -> None:
        offset = int(part * self.log.log_end_offset)
        self.log.advance_log_start(offset)
        self.went_when_full |= self.disk.capacity_bytes is not None
        self.log_start = max(self.log_start, offset)
        assert self.log.log_start_offset == self.log_start

    @precondition(lambda self: not self.log.failed)
    @rule(
        kept_bytes=st.sampled_from([-1, 1, 600, 2_000]),
        kept_ms=st.sampled_from([-1, 200]),
        kept_messages=st.sampled_from([-1, 1, 5]),
        erased_count=st.sampled_from([0, 0, 3]),
    )
    def retain(
        self, kept_bytes: int, kept_ms: int, kept_messages: int, erased_count: int = 0
    ) -> None:
        self.log.settings = replace(
            self.settings,
            retention_bytes=kept_bytes,
            retention_ms=kept_ms,
            retention_messages=kept_messages,
        )
        before = self.log.log_start_offset
        erased = OffsetSet(range(before, before + erased_count))
        start, due_ms = self.log.trimmed_start(self.now_ms, self.synced, erased=erased)
        assert start == self.oracle_start(self.log.settings, erased)
        if due_ms is not None:
            first = next(it for it in self.twins if it.next_offset > start)
            assert due_ms == first.timestamp_ms + kept_ms + 1 > self.now_ms
        by_segments = self.log.retained_start(self.now_ms, self.synced, erased=erased)
        assert before <= by_segments <= start, "what is found without the indexes is not more"
        self.log.advance_log_start(start)
        self.went_when_full |= self.disk.capacity_bytes is not None
        self.log.settings = self.settings
        self.log_start = self.log.log_start_offset
        assert self.log.kept_bytes == self.bytes_since(self.log_start)

    def bytes_since(self, offset: int) -> int:
        """On the disk, where some may be encrypted: without an index."""
        places = (place for segment in self.log.segments for place in segment.head())
        return sum(it.end_position - it.position for it in places if it.next_offset > offset)

    def oracle_start(self, limits: LogSettings, erased: OffsetSet) -> int:
        """Batch for batch, and message for message: what goes is committed, and more than each limit keeps, or too
        old as all before it is.
        """
        start, upper = self.log.log_start_offset, self.synced
        there = [it for it in range(start, upper) if it not in erased]
        kept = limits.retention_messages
        if -1 < kept < upper - start and kept <= len(there):
            start = there[-kept]  # what is erased before these may go, too
        for twin in self.twins:
            is_committed = twin.next_offset <= upper
            if is_committed and -1 < limits.retention_bytes <= self.bytes_since(twin.next_offset):
                start = max(start, twin.next_offset)
        for twin in self.twins:
            if twin.next_offset > start:
                is_old = self.now_ms - twin.timestamp_ms > limits.retention_ms > -1
                if twin.next_offset > upper or not is_old:
                    break
                start = twin.next_offset
        return start

    @precondition(lambda self: not self.log.failed)
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + int(part * (end - start))
        cut = next((twin.base_offset for twin in self.twins if twin.next_offset > offset), end)
        self.log.truncate_to(offset)
        assert self.log.log_end_offset == cut
        self.twins = [twin for twin in self.twins if twin.next_offset <= offset]
        self.synced = min(self.synced, cut)
        self.log_start = self.log.log_start_offset

    # Reading

    @rule(at=st.floats(0, 1), above=st.floats(0, 1), max_bytes=st.integers(0, 4_000))
    def read(self, at: float, above: float, max_bytes: int) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + int(at * (end - start))
        upper = offset + int(above * (end - offset))
        with self.log.read(offset, max_bytes, upper) as piece:
            data = piece.read()
        first = next((twin for twin in self.twins if twin.next_offset > offset), None)
        if first is None or first.next_offset > upper:
            assert not data
            return
        got = [bytes(batch) for _, batch in batches(data)]
        index = self.twins.index(first)
        assert got == [twin.data for twin in self.twins[index : index + len(got)]]
        assert got
        assert sum(map(len, got)) == len(data)
        assert len(data) <= max(max_bytes, len(first.data))
        assert self.twins[index + len(got) - 1].next_offset <= upper

    @rule(time_ms=st.integers(500, 3_000), above=st.floats(0, 1))
    def find_time(self, time_ms: int, above: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        upper = start + int(above * (end - start))
        seen = [twin for twin in self.kept() if twin.base_offset < upper and upper > start]
        since = [twin for twin in seen if twin.timestamp_ms >= time_ms]
        expected = (max(since[0].base_offset, start), since[0].timestamp_ms) if since else None
        assert self.log.offset_for_timestamp(time_ms, upper) == expected
        latest = max(seen, key=lambda twin: (twin.timestamp_ms, -twin.base_offset), default=None)
        expected = (max(latest.base_offset, start), latest.timestamp_ms) if latest else None
        assert self.log.latest_timestamp(upper) == expected

    # Coming back

    @precondition(lambda self: self.ticket is None)
    @rule(checkpoint=st.floats(0, 1))
    def close_and_open(self, checkpoint: float) -> None:
        failed = self.log.failed
        self.log.close()
        assert self.disk.open_files == self.files_to_close()
        if failed:
            self.crash(checkpoint, knows_start=True)
            return
        full = self.disk.capacity_bytes is not None
        self.synced = max(self.synced, self.log.recovery_point)
        assert full or self.synced == self.log.log_end_offset
        self.disk.capacity_bytes = None
        self.log.recovery_limit.lift()  # as the last checkpoint of a stop does
        self.come_back(self.synced, self.log_start, lost_nothing=True)
        if not full:
            assert not self.log.recovery.scanned_segments

    @rule(checkpoint=st.floats(0, 1))
    def kill(self, checkpoint: float) -> None:
        self.disk.kill()
        self.come_back(int(checkpoint * self.synced), self.log_start, lost_nothing=True)

    @rule(checkpoint=st.floats(0, 1), knows_start=st.booleans())
    def crash(self, checkpoint: float, knows_start: bool) -> None:
        self.disk.crash()
        knows_start |= self.log_start > self.synced or self.went_when_full
        start = self.log_start if knows_start else 0
        self.come_back(int(checkpoint * self.synced), start, lost_nothing=False)

    def come_back(self, recovery_point: int, start: int, *, lost_nothing: bool) -> None:
        self.ticket = None
        self.went_when_full = False
        self.disk.capacity_bytes = None
        self.log = self.opened(recovery_point=recovery_point, log_start_offset=start)
        assert self.log.log_end_offset >= self.synced
        assert start <= self.log.log_start_offset <= max(self.log_start, start)
        found = list(read_batches(self.log))
        known = {twin.base_offset: twin for twin in self.twins}
        for header, data in found:
            assert data in self.ever
            if header.base_offset in known:
                assert known[header.base_offset].data == data
            else:
                assert header.next_offset <= self.log_start
        if lost_nothing:
            assert self.log.log_end_offset == self.end
        self.twins = [
            Twin(h.base_offset, h.next_offset, h.max_timestamp_ms, h.leader_epoch, data)
            for h, data in found
        ]
        self.log_start = self.log.log_start_offset
        self.synced = self.log.recovery_point
        assert self.synced == self.log.log_end_offset
        self.epoch = max([self.epoch, *(twin.epoch for twin in self.twins)])

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        expected: list[tuple[int, int]] = []
        self.purged = max(self.purged, self.log.log_start_offset)
        for twin in self.twins:
            if twin.next_offset <= self.purged:
                continue  # the log start may go back in a crash; old epochs do not come again
            if not expected or twin.epoch != expected[-1][0]:
                expected.append((twin.epoch, twin.base_offset))
        entries = [tuple(entry) for entry in self.log.epochs.entries]
        while len(entries) > 1 and entries[1][1] <= self.purged:
            del entries[0]
        assert entries[1:] == expected[1:] or not expected
        if expected:
            assert entries[0][0] == expected[0][0]
            assert entries[0][1] <= expected[0][1]

    @invariant()
    def sizes_add_up(self) -> None:
        sizes = self.disk.sizes("/streams/s/0")
        assert self.log.size_bytes == sum(
            size for name, size in sizes.items() if name.endswith(".log")
        )
        assert self.log.log_start_offset <= self.log.log_end_offset
        assert self.log.log_end_offset == self.end
        check_end_checksums(self.log)
        assert self.disk.open_files <= 16 + 9  # a ticket may have as many pinned

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.close_and_open(0.5) if self.ticket is None else self.crash(0.5, True)


class EncryptedLogMachine(LogMachine):
    """Likewise, but what is appended is encrypted or not, as somebody likes it at that moment."""

    settings = replace(SETTINGS, encrypts=True, encrypts_all=True)

    @rule(encrypts=st.booleans())
    def switch(self, encrypts: bool) -> None:
        always = encrypts and self.settings.encrypts_all
        self.log.settings = self.settings = replace(
            SETTINGS, encrypts=encrypts, encrypts_all=always
        )

    @rule()
    def append_in_the_dark(self) -> None:
        """Nothing of it is on the disk to be read."""
        before = len(self.twins)
        self.append(count=2, size=40, step_ms=1, new_epoch=False)
        if self.settings.encrypts and len(self.twins) > before:
            payload = self.twins[-1].data[61:]
            names = self.disk.sizes(str(FOLDER))
            assert not any(payload in self.disk.content(f"{FOLDER}/{name}") for name in names)

    @rule(offsets=st.integers(1, 5))
    def append_fetched(self, offsets: int) -> None:
        """Some batches in one go, as a follower does."""
        base, data, more = self.log.log_end_offset, b"", []
        for at in range(base, base + offsets):
            batch = make_batch(at, [b"%d-%d" % (at, len(self.ever))], timestamp_ms=self.now_ms,
                               epoch=self.epoch)  # fmt: skip
            more.append(Twin(at, at + 1, self.now_ms, self.epoch, batch))
            data += batch
            self.ever.add(batch)
        try:
            size = self.log.append_fetched(memoryview(data))
        except (StorageFull, StorageFailed):
            assert self.disk.capacity_bytes is not None or self.log.failed
            return
        done = self.log.log_end_offset - base
        assert size == sum(len(twin.data) for twin in more[:done])
        self.twins += more[:done]


class RemovingLogMachine(LogMachine):
    """Likewise, but what is removed is unlinked when a thread comes to it, or never."""

    def opened(self, **known: Any) -> PartitionLog:
        self.disk.kill()  # a process that is dead does nothing of what it queued
        self.later = Later()
        removal = Removal(self.disk, self.later)
        return open_log(self.disk, self.settings, removal=removal, **known)

    def files_to_close(self) -> int:
        return self.later.waiting("close")

    @rule(count=st.integers(1, 3))
    def unlink(self, count: int) -> None:
        self.later.run(count)

    @rule()
    def unlink_all(self) -> None:
        self.later.run()
        assert not [it for it in self.disk.sizes(str(FOLDER)) if it.endswith(".deleted")]


for machine in (LogMachine, EncryptedLogMachine, RemovingLogMachine):
    machine.TestCase.settings = settings(
        max_examples=150,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
TestPartitionLog = LogMachine.TestCase
TestEncryptedLog = EncryptedLogMachine.TestCase
TestRemovingLog = RemovingLogMachine.TestCase


def test_a_log_that_begins_again_at_its_start_ends_there_after_the_next_power_cut_too() -> None:
    """Also where the checkpoint of log starts, which alone knew the start, is lost then."""
    machine = LogMachine()
    machine.start(seed=0)
    machine.append(count=2, new_epoch=False, size=133, step_ms=0)
    machine.append(count=3, new_epoch=False, size=351, step_ms=0)
    machine.purge(part=0.5)
    machine.append(count=1, new_epoch=False, size=0, step_ms=0)
    machine.purge(part=0.5)
    machine.crash(checkpoint=0.0, knows_start=True)
    assert machine.log.log_end_offset == 3
    machine.crash(checkpoint=0.0, knows_start=False)
    assert machine.log.log_end_offset == 3
    machine.teardown()
