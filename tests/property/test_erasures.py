"""Logs whose records are erased, against a dictionary of all that was ever written.

A leader and a follower; crashes at any call, power cuts, full disks, truncations, starts.
"""

import contextlib
import itertools

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamlog.errors import StorageFull
from tests.erased_log import ErasedLog
from tests.log_folder import read_batches
from tests.simulation.disk import PowerCut, SimDisk


class ErasureMachine(RuleBasedStateMachine):
    """``written`` is what the leader's log was given; ``erasing`` what each erasure erases."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.leader = ErasedLog(SimDisk(seed))
        self.follower = ErasedLog(SimDisk(seed + 1))
        self.written: dict[int, bytes] = {}
        self.erasing: dict[int, set[int]] = {}
        self.committed = 0
        self.known = {self.leader: 0, self.follower: 0}  # the high watermark, as each knows it
        self.checkpoint = {self.leader: 0, self.follower: 0}
        self.epoch = 0
        self.serial = itertools.count()

    @rule(
        count=st.integers(1, 5),
        size=st.integers(0, 300),
        codec=st.sampled_from([0, 0, 0, 4]),
        roll=st.booleans(),
        new_epoch=st.sampled_from([False] * 5 + [True]),
    )
    def append(self, count: int, size: int, codec: int, roll: bool, new_epoch: bool) -> None:
        self.epoch += new_epoch
        values = [b"%d " % next(self.serial) + b"x" * size for _ in range(count)]
        base = self.leader.log.log_end_offset
        self.leader.append(*((b"k", value) for value in values), epoch=self.epoch, codec=codec)
        self.written |= {base + at: value for at, value in enumerate(values)}
        if roll:
            self.leader.log.roll()

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        """What is committed; a run of it, or a few."""
        start = data.draw(st.integers(0, self.committed))
        run = range(start, min(self.committed, start + data.draw(st.integers(0, 40))))
        step = data.draw(st.integers(1, 4))
        chosen = {it for it in run[::step] if it in self.written}
        if chosen:
            self.erasing[self.leader.log.log_end_offset] = chosen
            self.leader.erase(sorted(chosen), epoch=self.epoch)

    @rule(part=st.just(1.0) | st.floats(0, 1))
    def commit(self, part: float) -> None:
        synced = self.leader.sync()
        ends = [self.committed, *(it.next_offset for it, _ in read_batches(self.leader.log))]
        ends = sorted({it for it in ends if self.committed <= it <= synced})
        self.committed = ends[int(part * (len(ends) - 1))]
        self.hear(self.leader)

    def hear(self, log: ErasedLog) -> None:
        self.known[log] = max(self.known[log], min(self.committed, log.log.log_end_offset))
        log.log.erasures.commit(self.known[log])

    @rule(max_bytes=st.integers(1, 5_000))
    def fetch(self, max_bytes: int) -> None:
        """What is not committed as well."""
        leader, log = self.leader.log, self.follower
        with leader.read(log.log.log_end_offset, max_bytes, leader.log_end_offset) as piece:
            log.fetch(memoryview(piece.read()))
        self.hear(log)

    @rule(of_follower=st.booleans(), is_whole=st.booleans())
    def write_checkpoint(self, of_follower: bool, is_whole: bool = True) -> None:
        """All of it, or up to a moment before the limit of the one before is lifted."""
        log = self.follower if of_follower else self.leader
        log.keep()
        self.checkpoint[log] = log.checkpoint
        if is_whole:
            log.log.recovery_limit.lift()

    @rule(of_follower=st.booleans(), is_whole=st.booleans())
    def write_only_the_checkpoint(self, of_follower: bool, is_whole: bool = True) -> None:
        log = self.follower if of_follower else self.leader
        log.sync()
        self.checkpoint[log] = log.checkpoint
        if is_whole:
            log.log.recovery_limit.lift()

    @rule(of_follower=st.booleans(), roll=st.booleans(), overdue=st.booleans())
    def expunge(self, of_follower: bool, roll: bool, overdue: bool) -> None:
        log = self.follower if of_follower else self.leader
        if roll:
            log.log.roll()
        log.sync()
        log.expunge(self.known[log], overdue=overdue)

    @rule(calls=st.integers(0, 60), cut=st.booleans(), of_follower=st.booleans())
    def expunge_and_crash(self, calls: int, cut: bool, of_follower: bool) -> None:
        log = self.follower if of_follower else self.leader
        log.disk.calls_left = calls
        with contextlib.suppress(PowerCut):
            self.expunge(of_follower, True, True)
            self.write_checkpoint(of_follower)
        log.disk.calls_left = None
        self.crash(of_follower, cut)

    @rule(room=st.integers(0, 1_500), of_follower=st.booleans())
    def expunge_on_a_full_disk(self, room: int, of_follower: bool) -> None:
        log = self.follower if of_follower else self.leader
        log.sync()
        log.disk.capacity_bytes = log.disk.used_bytes() + room
        with contextlib.suppress(StorageFull):
            log.expunge(self.known[log])
        log.disk.capacity_bytes = None
        assert not log.log.failed

    @rule(of_follower=st.booleans(), cut=st.booleans())
    def crash(self, of_follower: bool, cut: bool) -> None:
        log = self.follower if of_follower else self.leader
        point = log.log.recovery_point
        if cut:
            log.disk.crash()
        else:
            log.disk.kill()
        log.come_back(self.checkpoint[log], self.known[log])
        assert log.log.log_end_offset >= point
        # A follower knows more to be committed than it has synced; what it has lost, it forgets.
        self.known[log] = min(self.known[log], log.log.log_end_offset)
        if log is self.leader:
            self.forget_cut()

    @rule(
        kept=st.sampled_from(["both", "checkpoint", "nothing"]),
        cut=st.booleans(),
        of_follower=st.booleans(),
        data=st.data(),
    )
    def erase_and_crash(self, kept: str, cut: bool, of_follower: bool, data: st.DataObject) -> None:
        """What happens seldom by itself."""
        self.append(3, 10, 0, False, False)
        self.commit(1.0)
        self.erase(data)
        self.commit(data.draw(st.sampled_from([0.0, 1.0])))
        self.fetch(5_000)
        match kept:
            case "both":
                self.write_checkpoint(of_follower)
            case "checkpoint":
                self.write_only_the_checkpoint(of_follower)
        self.crash(of_follower, cut)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        """Never below what is committed; the follower goes on in the leader's newer epoch."""
        end = self.leader.log.log_end_offset
        self.leader.log.truncate_to(self.committed + int(part * (end - self.committed)))
        self.epoch += 1
        self.forget_cut()

    @rule(cut=st.booleans(), of_follower=st.booleans(), synced=st.booleans(), data=st.data())
    def truncate_and_crash(
        self, cut: bool, of_follower: bool, synced: bool, data: st.DataObject
    ) -> None:
        """Below a checkpoint, which is still there when more has come than was cut off."""
        self.append(5, 10, 0, False, False)
        self.catch_up()
        (self.follower if of_follower else self.leader).sync()
        self.write_checkpoint(of_follower)
        self.truncate(0.0)
        self.append(1, 10, 0, False, False)
        self.commit(1.0)
        self.erase(data)
        self.append(5, 10, 0, False, False)
        self.commit(1.0)
        self.catch_up()
        if synced:
            self.follower.sync()
        self.crash(of_follower, cut)

    def catch_up(self) -> None:
        while self.follower.log.log_end_offset < self.leader.log.log_end_offset:
            self.fetch(5_000)

    def forget_cut(self) -> None:
        end = self.leader.log.log_end_offset
        assert end >= self.committed
        self.written = {at: value for at, value in self.written.items() if at < end}
        self.erasing = {at: gone for at, gone in self.erasing.items() if at < end}
        self.follower.log.truncate_to(end)
        if self.follower.log.log_end_offset > self.committed:
            self.follower.log.truncate_to(self.committed)
        self.epoch += 1

    # What must hold

    @invariant()
    def what_is_erased_is_known_and_nothing_else(self) -> None:
        for log in (self.leader, self.follower):
            high_watermark = self.known[log]
            gone = {at for at in self.erasing if at < high_watermark}
            erased = set().union(gone, *(self.erasing[at] for at in gone))
            assert set(log.log.erasures.erased) == erased

    @invariant()
    def behind_the_last_message_are_erasures_alone(self) -> None:
        for log in (self.leader, self.follower):
            end = log.log.log_end_offset
            messages_end = log.log.erasures.messages_end(end)
            assert all(at in self.erasing for at in range(messages_end, end))
            assert messages_end < end or end - 1 not in self.erasing

    @invariant()
    def what_is_told_of_the_last_message_is_the_same_on_both(self) -> None:
        for log in (self.leader, self.follower):
            high_watermark = end = self.known[log]
            while end - 1 in self.erasing:
                end -= 1
            told = log.log.erasures.committed_messages_end(high_watermark)
            assert max(told, log.log.log_start_offset) == max(end, log.log.log_start_offset)

    @invariant()
    def what_is_not_erased_is_there_as_it_was_written(self) -> None:
        """Whoever fetches from a leader that has removed records hears only later of why; until
        then it has not what is committed, and is not in sync.
        """
        erased = set().union(*(self.erasing[at] for at in self.erasing if at < self.committed))
        for log in (self.leader, self.follower):
            end = log.log.log_end_offset
            wanted = {at: it for at, it in self.written.items() if at < end and at not in erased}
            kept = {it.offset: it.value for it in log.kept()}
            assert {at: it for at, it in kept.items() if at not in erased} == wanted
            assert kept.items() <= self.written.items()

    @invariant()
    def what_was_removed_is_known_to_be(self) -> None:
        for log in (self.leader, self.follower):
            there = {it.offset for it in log.kept()}
            assert there & set(log.log.erasures.erased) <= set(log.log.erasures.unremoved)


class EncryptedErasureMachine(ErasureMachine):
    """Likewise, each log being encrypted for some of the time."""

    @rule(encrypts=st.booleans(), of_follower=st.booleans())
    def switch(self, encrypts: bool, of_follower: bool) -> None:
        (self.follower if of_follower else self.leader).encrypt(encrypts)


for machine, examples in ((ErasureMachine, 60), (EncryptedErasureMachine, 30)):
    machine.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
TestErasures = ErasureMachine.TestCase
TestEncryptedErasures = EncryptedErasureMachine.TestCase
