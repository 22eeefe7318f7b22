"""A share partition against a table of all records, each with its state, as KIP-932 tells it."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from streamlog.errors import InvalidRecordState
from streamlog.shares.share_partition import (
    AcknowledgeType,
    BatchRange,
    ReadBatches,
    ShareAcknowledgement,
    SharePartition,
    Wish,
)

MEMBERS = ("a", "b", "c")
LOCK_MS = 100
COUNT_MAX = 3
types_of_acks = st.sampled_from(AcknowledgeType)


@dataclass
class Record:
    """As the oracle knows it."""

    state: str = "available"
    count: int = 0
    owner: str = ""
    deadline_ms: int = 0


@dataclass
class Oracle:
    records: dict[int, Record] = field(default_factory=dict)
    """Those that were acquired once, and are not done with."""
    done: set[int] = field(default_factory=set)

    def give_up(self) -> None:
        for offset, it in tuple(self.records.items()):
            if it.state == "available" and it.count >= COUNT_MAX:
                del self.records[offset]
                self.done.add(offset)


class SharePartitionStory(RuleBasedStateMachine):
    """Batches come, members acquire, acknowledge, are late, and the leader changes."""

    @initialize(start=st.integers(0, 5), locks_max=st.integers(1, 30))
    def begin(self, start: int, locks_max: int) -> None:
        self.now_ms = 0
        self.start, self.end, self.log_start = start, start, 0
        self.next = start
        """No record below was never acquired."""
        self.locks_max = locks_max
        self.batches: list[BatchRange] = []
        self.oracle = Oracle()
        self.share = SharePartition.starting(start, LOCK_MS, COUNT_MAX, locks_max)

    @rule(gap=st.integers(0, 3), size=st.integers(1, 6))
    def append(self, gap: int, size: int) -> None:
        first = self.end + gap
        self.batches.append(BatchRange(first, first + size - 1))
        self.end = first + size

    @rule(
        member=st.sampled_from(MEMBERS),
        records_max=st.integers(0, 8),
        is_strict=st.booleans(),
        batch_records=st.integers(0, 4),
        read_batches=st.integers(1, 5),
    )
    def acquire(
        self, member: str, records_max: int, is_strict: bool, batch_records: int, read_batches: int
    ) -> None:
        records = self.oracle.records
        available = [it for it, record in sorted(records.items()) if record.state == "available"]
        has_room = len(records) < self.locks_max
        wanted = available[0] if available else self.next if has_room else None
        assert self.share.wanted_offset == wanted
        if wanted is None:
            return
        read = [it for it in self.batches if it.last >= wanted][:read_batches]
        is_all = not read or read[-1] == self.batches[-1]
        read_end = self.end if is_all else read[-1].last + 1
        wish = Wish(records_max, is_strict, batch_records)
        before, version, held = self.next, self.share.version, len(records)
        part = ReadBatches(wanted, max(read_end, wanted), read)
        found = self.share.acquire(member, part, wish, self.now_ms)
        offsets = [offset for it in found for offset in range(it.first, it.last + 1)]
        assert offsets == sorted(set(offsets))
        assert not found or self.share.version > version
        may_be_new = {o for it in read for o in range(max(it.first, before), it.last + 1)}
        for it in found:
            for offset in range(it.first, it.last + 1):
                record = records.get(offset)
                if record is None:
                    assert offset in may_be_new
                    record = records[offset] = Record()
                assert record.state == "available"
                record.state, record.owner = "acquired", member
                record.count += 1
                record.deadline_ms = self.now_ms + LOCK_MS
                assert it.count == record.count
        if records_max and is_strict:
            assert len(offsets) <= records_max
        if is_strict:
            assert len(records) <= max(self.locks_max, held)
        # Nothing that was available, and read, is left out before something that was taken.
        if offsets:
            skipped = [it for it in available if wanted <= it < offsets[-1] and it not in offsets]
            assert not skipped
            self.next = max(self.next, offsets[-1] + 1)
        limit = records_max or 10**9
        if not is_strict and len(offsets) < limit and has_room:
            assert may_be_new <= set(offsets) | set(range(before)) or len(records) >= self.locks_max
        self.next = max(self.next, self.share.progress.end_offset)
        assert self.next <= self.end

    @rule(member=st.sampled_from(MEMBERS), data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        records = self.oracle.records
        if not records:
            return
        first = data.draw(st.sampled_from(sorted(records)))
        last = first + data.draw(st.integers(0, 3))
        size = last - first + 1
        types = data.draw(
            st.lists(types_of_acks, min_size=1, max_size=1)
            | st.lists(types_of_acks, min_size=size, max_size=size)
        )
        floor = min(records)
        asked = [it for it in range(first, last + 1) if it >= floor]
        is_good = all(
            it in records and records[it].state == "acquired" and records[it].owner == member
            for it in asked
        )
        before = self.share.version
        try:
            has_changed = self.share.acknowledge(
                member, [ShareAcknowledgement(first, last, types)], self.now_ms
            )
        except InvalidRecordState:
            assert not is_good
            assert self.share.version == before
            return
        assert is_good
        is_final = False
        for offset in asked:
            type_ = types[0] if len(types) == 1 else types[offset - first]
            if type_ is AcknowledgeType.RELEASE:
                records[offset].state = "available"
            elif type_ is AcknowledgeType.RENEW:
                records[offset].deadline_ms = self.now_ms + LOCK_MS
            else:
                is_final = True
                del records[offset]
                self.oracle.done.add(offset)
        count = len(self.oracle.done)
        self.oracle.give_up()
        assert has_changed == (is_final or len(self.oracle.done) > count)

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.share.release_all(member, self.now_ms)
        for it in self.oracle.records.values():
            if it.owner == member and it.state == "acquired":
                it.state = "available"
        self.oracle.give_up()

    @rule(ms=st.integers(1, 60))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        deadline_ms = self.share.next_deadline_ms
        self.share.expire(self.now_ms)
        held = [it for it in self.oracle.records.values() if it.state == "acquired"]
        assert (deadline_ms is None) == (not held)
        for it in held:
            if it.deadline_ms <= self.now_ms:
                it.state = "available"
        self.oracle.give_up()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.end))
        self.log_start = offset
        self.batches = [it for it in self.batches if it.last >= offset]
        self.share.start_moved(offset)
        for it in [it for it in self.oracle.records if it < offset]:
            del self.oracle.records[it]
            self.oracle.done.add(it)
        self.next = max(self.next, offset)
        # A batch that is cut in two stays whole in the log, and its records below the start are gone.
        self.batches = [BatchRange(max(it.first, offset), it.last) for it in self.batches]

    @rule()
    def another_leader(self) -> None:
        state = self.share.state(self.now_ms)
        self.now_ms = 7  # another clock
        self.share = SharePartition.restored(state, 7, LOCK_MS, COUNT_MAX, self.locks_max)
        for it in self.oracle.records.values():
            it.state = "available"
        self.oracle.give_up()

    @invariant()
    def it_knows_what_the_oracle_knows(self) -> None:
        if not hasattr(self, "oracle"):
            return
        records = self.oracle.records
        start, end, pending = self.share.progress
        assert pending == len(records)
        assert start == (min(records) if records else end)
        assert not records or max(records) < end
        assert self.share.has_locks == any(it.state == "acquired" for it in records.values())


TestSharePartition = SharePartitionStory.TestCase
TestSharePartition.settings = settings(stateful_step_count=40, max_examples=300, deadline=None)
