"""Logs with transactions, against a reader that goes through all batches for each answer.

A leader and a follower; crashes, power cuts, elections clean and unclean, purges, starts with files of every age.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.log_folder import read_batches
from tests.simulation.disk import SimDisk
from tests.transactional_log import Oracle, TransactionalLog, pieces_of, told

PRODUCERS = st.integers(1, 3)


class TransactionMachine(RuleBasedStateMachine):
    """``known``: the high watermark, as each log knows it."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.leader, self.follower = (TransactionalLog(SimDisk(seed + it)) for it in range(2))
        self.known = {self.leader: 0, self.follower: 0}
        self.checkpoint = {self.leader: (0, 0, (0, 0)), self.follower: (0, 0, (0, 0))}
        self.epoch = 0

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), roll=st.booleans())
    def write(self, producer_id: int, count: int, roll: bool) -> None:
        self.leader.write(producer_id, count, epoch=self.epoch)
        if roll:
            self.leader.log.roll()

    @rule(count=st.integers(1, 3))
    def write_plain(self, count: int) -> None:
        self.leader.append(*((b"k", b"plain") for _ in range(count)), epoch=self.epoch)

    @rule(producer_id=PRODUCERS, is_commit=st.booleans())
    def mark(self, producer_id: int, is_commit: bool) -> None:
        self.leader.mark(producer_id, is_commit=is_commit, epoch=self.epoch)

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        """Records that a user deletes are other ones than those of aborted transactions."""
        plain = [
            it.base_offset
            for it, _ in read_batches(self.leader.log)
            if it.producer_id < 0 and not it.is_control
        ]
        plain = [it for it in plain if it < self.known[self.leader]]
        if plain:
            self.leader.erase([data.draw(st.sampled_from(plain))], epoch=self.epoch)

    @rule(part=st.just(1.0) | st.floats(0, 1))
    def commit(self, part: float) -> None:
        ends = [it.next_offset for it, _ in read_batches(self.leader.log)]
        before = self.known[self.leader]
        ends = [before, *(it for it in ends if it > before)]
        self.hear(self.leader, ends[int(part * (len(ends) - 1))])

    def hear(self, log: TransactionalLog, high_watermark: int) -> None:
        end = log.log.log_end_offset
        self.known[log] = max(self.known[log], min(high_watermark, end))
        log.commit(self.known[log])

    @rule(max_bytes=st.just(100_000) | st.integers(1, 1_000))
    def fetch(self, max_bytes: int) -> None:
        leader, log = self.leader.log, self.follower
        with leader.read(log.log.log_end_offset, max_bytes, leader.log_end_offset) as piece:
            log.fetch(memoryview(piece.read()))
        self.hear(log, self.known[self.leader])

    @rule(is_clean=st.booleans())
    def fail_over(self, is_clean: bool) -> None:
        """The follower leads. Unclean: it may lack what was committed."""
        if is_clean:
            while self.follower.log.log_end_offset < self.known[self.leader]:
                self.fetch(100_000)
        self.leader, self.follower = self.follower, self.leader
        self.epoch += 1
        end = self._common_end()
        self.follower.log.truncate_to(end)
        self.known[self.follower] = min(self.known[self.follower], end)
        self.follower.commit(self.known[self.follower])

    def _common_end(self) -> int:
        ours, theirs = (list(read_batches(it.log)) for it in (self.leader, self.follower))
        end = max(self.leader.log.log_start_offset, self.follower.log.log_start_offset)
        mine = {it.base_offset: (it, batch) for it, batch in ours}
        for header, batch in theirs:
            if header.base_offset >= end and mine.get(header.base_offset) != (header, batch):
                break
            end = max(end, header.next_offset)
        return end

    @rule(of_follower=st.booleans(), files=st.sampled_from(["both", "erasures", "none"]))
    def write_checkpoint(self, of_follower: bool, files: str) -> None:
        log = self.follower if of_follower else self.leader
        log.sync()
        if files != "none":
            log.keep(erasures_alone=files == "erasures")
        self.checkpoint[log] = (log.checkpoint, self.known[log], log.known)
        log.log.recovery_limit.lift()

    @rule(of_follower=st.booleans(), cut=st.booleans())
    def crash(self, of_follower: bool, cut: bool) -> None:
        log = self.follower if of_follower else self.leader
        if cut:
            log.disk.crash()
        else:
            log.disk.kill()
        point, high_watermark, kept = self.checkpoint[log]
        log.come_back(point, high_watermark, kept)
        self.known[log] = min(high_watermark, log.log.log_end_offset)
        if log is self.leader and self.follower.log.log_end_offset > self._common_end():
            end = self._common_end()
            self.follower.log.truncate_to(end)
            self.known[self.follower] = min(self.known[self.follower], end)
            self.follower.commit(self.known[self.follower])
            self.epoch += 1

    @rule(of_follower=st.booleans())
    def close(self, of_follower: bool) -> None:
        log = self.follower if of_follower else self.leader
        log.sync()
        log.keep()
        self.checkpoint[log] = (log.checkpoint, self.known[log], log.known)
        log.log.recovery_limit.lift()
        log.log.close()
        log.come_back(*self.checkpoint[log])

    @rule(
        producer_id=PRODUCERS,
        is_clean=st.booleans(),
        cut=st.booleans(),
        more=st.integers(0, 3),
        is_commit=st.sampled_from([None, True, False]),
    )
    def keep_and_cut_and_crash(
        self, producer_id: int, is_clean: bool, cut: bool, more: int, is_commit: bool | None
    ) -> None:
        """What happens seldom by itself: the files know batches that were cut off, and others are in their places."""
        self.fetch(100_000)
        self.write(producer_id, 2, False)
        if is_commit is not None:
            self.mark(producer_id, is_commit)
        if not is_clean:
            self.commit(1.0)
        self.write_checkpoint(of_follower=False, files="both")
        self.fail_over(is_clean)
        for _ in range(more):
            self.mark(producer_id % 3 + 1, True)
            self.write_plain(2)
        while self.follower.log.log_end_offset < self.leader.log.log_end_offset:
            self.fetch(100_000)
        self.follower.sync()
        self.crash(of_follower=True, cut=cut)

    # What must hold

    @invariant()
    def all_is_as_the_batches_say(self) -> None:
        for log in (self.leader, self.follower):
            oracle, found = Oracle(pieces_of(log), self.known[log]), log.log.transactions
            stable = found.stable_offset(self.known[log], log.log.log_start_offset)
            assert stable == oracle.stable_offset
            assert told(found.aborted) == oracle.aborted_between(0, 2**62)
            for start in range(0, self.known[log], 3):
                for end in (start + 1, start + 4, stable):
                    wanted = oracle.aborted_between(start, end)
                    assert told(found.aborted_between(start, end)) >= wanted or end > stable

    @invariant()
    def aborted_records_and_markers_are_no_messages(self) -> None:
        for log in (self.leader, self.follower):
            oracle = Oracle(pieces_of(log), self.known[log])
            transactional = {at for it in oracle.pieces for at in range(it.offset, it.end)}
            assert set(log.log.erasures.erased) & transactional == oracle.no_messages
            assert not set(log.log.erasures.unremoved) & transactional


class EncryptedTransactionMachine(TransactionMachine):
    """Likewise, each log being encrypted for some of the time."""

    @rule(encrypts=st.booleans(), of_follower=st.booleans())
    def switch(self, encrypts: bool, of_follower: bool) -> None:
        (self.follower if of_follower else self.leader).encrypt(encrypts)


for machine, examples in ((TransactionMachine, 80), (EncryptedTransactionMachine, 40)):
    machine.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
TestTransactions = TransactionMachine.TestCase
TestEncryptedTransactions = EncryptedTransactionMachine.TestCase
