"""A compacted log, and one that follows it, against a list of all that was ever written.

Crashes at any call of a cleaning, full disks, truncations, tables that are too small.
"""

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamlog.errors import StorageFull
from streamlog.record.compiled.keys import KeyOffsets
from tests.compacted_log import RULES, Kept, KeyedLog, view
from tests.log_folder import check_end_checksums, read_batches
from tests.simulation.disk import PowerCut, SimDisk

KEYS = [b"k%d" % number for number in range(4)]
STAY_MS = RULES.delete_retention_ms


class CompactionMachine(RuleBasedStateMachine):
    """``written`` is all that is below the log end; ``committed`` the high watermark."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.leader = KeyedLog(SimDisk(seed))
        self.follower = KeyedLog(SimDisk(seed + 1))
        self.written: list[Kept] = []
        self.committed = 0
        self.epoch = 0
        self.now_ms = 10_000
        self.stored_dirty = {self.leader: 0, self.follower: 0}
        self.passed_ms: dict[int, int] = {}  # tombstone -> when a cleaning may first have passed it
        self.serial = itertools.count()

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5),
        dead=st.sets(st.integers(0, 4), max_size=2),
        size=st.integers(0, 200),
        new_epoch=st.sampled_from([False] * 7 + [True]),
        codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
        roll=st.booleans(),
    )
    def append(
        self, keys: list[bytes], dead: set[int], size: int, new_epoch: bool, codec: int, roll: bool
    ) -> None:
        self.epoch += new_epoch
        pairs = [
            (key, None if at in dead else b"%d " % next(self.serial) + b"x" * size)
            for at, key in enumerate(keys)
        ]
        base = self.leader.log.log_end_offset
        self.leader.append(*pairs, epoch=self.epoch, timestamp_ms=self.now_ms, codec=codec)
        self.written += [Kept(base + at, *pair) for at, pair in enumerate(pairs)]
        if roll:
            self.leader.log.roll()

    @rule(step_ms=st.sampled_from([1, 400, 1_500]))
    def pass_time(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule(part=st.just(1.0) | st.floats(0, 1))
    def commit(self, part: float) -> None:
        """Whole batches."""
        synced = self.leader.sync()
        ends = [self.committed, *(it.next_offset for it, _ in read_batches(self.leader.log))]
        ends = sorted({it for it in ends if self.committed <= it <= synced})
        self.committed = ends[int(part * (len(ends) - 1))]

    # Cleaning

    @rule(keys=st.sampled_from([2, 3, 1_000]), of_follower=st.booleans())
    def clean(self, keys: int, of_follower: bool) -> None:
        log = self.follower if of_follower else self.leader
        self._clean(log, keys)

    @rule()
    def clean_and_come_again(self) -> None:
        self._clean(self.leader, 1_000)
        self.now_ms += STAY_MS
        self._clean(self.leader, 1_000)

    @rule(calls=st.integers(0, 60), cut=st.booleans(), of_follower=st.booleans())
    def clean_and_crash(self, calls: int, cut: bool, of_follower: bool) -> None:
        log = self.follower if of_follower else self.leader
        log.disk.calls_left = calls
        with contextlib.suppress(PowerCut):
            self._clean(log, 1_000)
        log.disk.calls_left = None
        self._come_back(log, cut=cut)

    @rule(room=st.integers(0, 1_500), of_follower=st.booleans())
    def clean_on_a_full_disk(self, room: int, of_follower: bool) -> None:
        log = self.follower if of_follower else self.leader
        log.sync()
        before = log.kept()
        log.disk.capacity_bytes = log.disk.used_bytes() + room
        try:
            self._clean(log, 1_000)
        except StorageFull:
            assert not log.log.failed
            names = log.disk.names("/streams/s/0")
            assert not any(name.endswith((".cleaned", ".swap")) for name in names)
        log.disk.capacity_bytes = None
        assert set(log.kept()) <= set(before)

    def _clean(self, log: KeyedLog, keys: int) -> None:
        caught_up = (
            self.follower.log.recovery_point >= self.committed
        )  # only what is synced is acked
        upper = min(self.committed, log.log.log_end_offset)
        log.sync()
        if log is self.leader:
            for it in self.written:
                if it.value is None and it.offset < upper:
                    self.passed_ms.setdefault(it.offset, self.now_ms)
        log.clean(
            self.now_ms,
            upper=upper,
            memory_bytes=keys * KeyOffsets.BYTES_FOR_KEY,
            may_drop_tombstones=caught_up,
        )

    # The follower

    @rule(max_bytes=st.integers(1, 3_000), syncs=st.sampled_from([True, True, False]))
    def fetch(self, max_bytes: int, syncs: bool) -> None:
        leader, log = self.leader.log, self.follower.log
        with leader.read(log.log_end_offset, max_bytes, self.committed) as piece:
            data = memoryview(piece.read())
        while data:
            data = data[log.append_fetched(data) :]
        if syncs:
            self.follower.sync()

    @rule(key=st.sampled_from(KEYS))
    def delete_what_the_follower_has(self, key: bytes) -> None:
        """... which then lags behind."""
        plain: dict[str, Any] = {"size": 0, "new_epoch": False, "codec": 0, "roll": True}
        self.append([key], dead=set(), **plain)
        self.commit(1.0)
        self.fetch(3_000, syncs=True)
        self.append([key], dead={0}, **plain)
        self.commit(1.0)

    @rule()
    def follower_rolls(self) -> None:
        self.follower.log.roll()

    # Coming and going

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        """Never below what is committed."""
        end = self.leader.log.log_end_offset
        self.leader.log.truncate_to(self.committed + int(part * (end - self.committed)))
        self._forget_cut()

    @rule(of_follower=st.booleans(), lost=st.floats(0, 1))
    def reopen(self, of_follower: bool, lost: float) -> None:
        log = self.follower if of_follower else self.leader
        self.stored_dirty[log] = int(lost * log.log.first_dirty_offset)
        log.log.close()
        log.open(log.log.recovery_point, self.stored_dirty[log])

    @rule(of_follower=st.booleans(), cut=st.booleans())
    def crash(self, of_follower: bool, cut: bool) -> None:
        log = self.follower if of_follower else self.leader
        self.stored_dirty[log] = log.log.first_dirty_offset
        self._come_back(log, cut=cut)

    def _come_back(self, log: KeyedLog, *, cut: bool) -> None:
        point = log.log.recovery_point
        if cut:
            log.disk.crash()
        else:
            log.disk.kill()
        log.open(point, self.stored_dirty[log])
        assert log.log.log_end_offset >= point
        assert not log.log.recovery.damages
        if log is self.leader:
            self._forget_cut()

    def _forget_cut(self) -> None:
        end = self.leader.log.log_end_offset
        assert end >= self.committed
        self.written = [it for it in self.written if it.offset < end]
        self.passed_ms = {it: ms for it, ms in self.passed_ms.items() if it < end}

    # What must hold

    @invariant()
    def nothing_but_what_was_written_is_there(self) -> None:
        written = set(self.written)
        for log in (self.leader, self.follower):
            assert set(log.kept()) <= written
            check_end_checksums(log.log)

    @invariant()
    def the_last_value_of_each_key_is_there_and_no_older_one_passes_for_it(self) -> None:
        assert view(self.leader.kept()) == view(self.written)

    @invariant()
    def what_is_not_committed_is_all_there(self) -> None:
        tail = [it for it in self.leader.kept() if it.offset >= self.committed]
        assert tail == [it for it in self.written if it.offset >= self.committed]

    @precondition(lambda self: self.follower.log.log_end_offset >= self.committed)
    @invariant()
    def who_has_followed_has_the_same(self) -> None:
        end = self.follower.log.log_end_offset
        below = [it for it in self.written if it.offset < end]
        assert view(self.follower.kept()) == view(below)

    @invariant()
    def tombstones_stay_for_a_while(self) -> None:
        last = {it.key: it for it in self.written}
        kept = {it.offset for it in self.leader.kept()}
        for it in last.values():
            passed = self.passed_ms.get(it.offset)
            if it.value is None and (passed is None or self.now_ms < passed + STAY_MS):
                assert it.offset in kept

    @invariant()
    def epochs_are_told_by_the_batches(self) -> None:
        for log in (self.leader, self.follower):
            entries = log.log.epochs.entries
            assert [it.epoch for it in entries] == sorted({it.epoch for it in entries})

    def teardown(self) -> None:
        if hasattr(self, "leader"):
            for _ in range(2):
                self.clean(1_000, False)
            last = {it.key: it.offset for it in self.written if it.offset < self.committed}
            dirty = self.leader.log.first_dirty_offset
            for it in self.leader.kept():
                assert it.offset >= dirty or last[it.key] == it.offset or last[it.key] >= dirty


class EncryptedCompactionMachine(CompactionMachine):
    """Likewise, each log being encrypted for some of the time."""

    @rule(encrypts=st.booleans(), of_follower=st.booleans())
    def switch(self, encrypts: bool, of_follower: bool) -> None:
        (self.follower if of_follower else self.leader).encrypt(encrypts)


for machine, examples in ((CompactionMachine, 80), (EncryptedCompactionMachine, 40)):
    machine.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
TestCompaction = CompactionMachine.TestCase
TestEncryptedCompaction = EncryptedCompactionMachine.TestCase


@pytest.mark.parametrize("room", range(100, 180, 4))
def test_a_disk_that_fills_when_encryption_ends_leaves_no_cleaned_file(room: int) -> None:
    machine = EncryptedCompactionMachine()
    machine.start(seed=0)
    machine.switch(encrypts=True, of_follower=False)
    machine.delete_what_the_follower_has(key=b"k0")
    machine.switch(encrypts=False, of_follower=False)
    machine.clean_on_a_full_disk(of_follower=False, room=room)
    machine.teardown()
