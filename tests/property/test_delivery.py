"""A delivery does what a list of pending records does that is scanned for each question."""

from dataclasses import dataclass, field

from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamlog.delivery.delivery import (
    RESTORED_STEP_MS,
    Delivered,
    Delivery,
    DeliveryLimits,
    Exhausted,
    Place,
    Position,
)
from streamlog.delivery.state_encoding import DeliveryState
from streamlog.errors import CorruptData

EXAMPLES = 300
STEPS = 60
PARTITIONS = 3
waits = st.sampled_from([0, 50, 100, 250, 1_000])
limits_of_any_kind = st.builds(
    DeliveryLimits,
    ack_wait_ms=waits,
    backoff_ms=st.lists(waits, max_size=3).map(tuple),
    deliveries_max=st.integers(0, 3),
    pending_max=st.integers(0, 6),
)
firsts = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.sampled_from([0, 0, 0, 1, 2])),
    min_size=1,
    max_size=6,
)
"""Of the next records in which partition, and how many of them are passed over."""
takes = st.integers(0, 3)
places = st.builds(Place, st.integers(0, PARTITIONS - 1), st.integers(0, 30))


@dataclass
class NaivePending:
    place: Place
    sequence: int
    count: int
    deadline_ms: int | None
    """None: it is in the queue."""


@dataclass
class NaiveDelivery:
    """Scans all it has, every time."""

    limits: DeliveryLimits
    needs_acks: bool
    next_offsets: dict[int, int]
    ends: dict[int, int]
    sequence: int = 0
    pending: list[NaivePending] = field(default_factory=list)
    queue: list[NaivePending] = field(default_factory=list)

    def wait_ms(self, count: int, limits: DeliveryLimits | None = None) -> int:
        limits = limits or self.limits
        for number, wait_ms in enumerate(limits.backoff_ms, 1):
            if number == count:
                return wait_ms
        return limits.backoff_ms[-1] if limits.backoff_ms else limits.ack_wait_ms

    def find(self, place: Place) -> NaivePending | None:
        return next((it for it in self.pending if it.place == place), None)

    def deliver(self, place: Place, now_ms: int) -> Delivered:
        self.sequence += 1
        self.next_offsets[place.partition] = self.ends[place.partition] = place.offset + 1
        if self.needs_acks:
            deadline_ms = now_ms + self.wait_ms(1)
            self.pending.append(NaivePending(place, self.sequence, 1, deadline_ms))
        return Delivered(place, self.sequence, 1)

    def is_exhausted(self, record: NaivePending) -> bool:
        return self.limits.deliveries_max != 0 and record.count >= self.limits.deliveries_max

    def take_redelivery(self, now_ms: int) -> Delivered | Exhausted | None:
        if not self.queue:
            return None
        record = self.queue[0]
        if self.is_exhausted(record):
            return self.take_exhausted()
        self.queue.remove(record)
        self.sequence += 1
        record.count += 1
        record.deadline_ms = now_ms + self.wait_ms(record.count)
        return Delivered(record.place, self.sequence, record.count)

    def take_exhausted(self) -> Exhausted | None:
        for record in self.queue:
            if self.is_exhausted(record):
                self.remove([record])
                return Exhausted(record.place, record.sequence, record.count)
        return None

    def remove(self, records: list[NaivePending]) -> int:
        self.pending = [it for it in self.pending if it not in records]
        self.queue = [it for it in self.queue if it not in records]
        return len(records)

    def ack(self, place: Place) -> bool:
        return self.remove([it for it in self.pending if it.place == place]) == 1

    def ack_all(self, place: Place) -> int:
        if place.offset >= self.next_offsets[place.partition]:
            return 0
        own = [it for it in self.pending if it.place.partition == place.partition]
        through = max((it.sequence for it in own if it.place.offset <= place.offset), default=0)
        return self.remove([it for it in self.pending if it.sequence <= through])

    def nak(self, place: Place, now_ms: int, delay_ms: int) -> bool:
        record = self.find(place)
        if record is not None and delay_ms > 0:
            self.queue = [it for it in self.queue if it is not record]
            record.deadline_ms = now_ms + delay_ms
        elif record is not None:
            record.deadline_ms = None
            if record not in self.queue:
                self.queue.append(record)
        return record is not None

    def in_progress(self, place: Place, now_ms: int) -> bool:
        record = self.find(place)
        if record is not None and record.deadline_ms is not None:
            record.deadline_ms = now_ms + self.wait_ms(record.count)
        return record is not None

    def expire(self, now_ms: int) -> None:
        for record in sorted(self.pending, key=lambda it: it.sequence):
            if record.deadline_ms is not None and record.deadline_ms <= now_ms:
                record.deadline_ms = None
                self.queue.append(record)

    def start_moved(self, partition: int, offset: int) -> int:
        self.next_offsets[partition] = max(self.next_offsets[partition], offset)
        self.ends[partition] = max(self.ends[partition], offset)
        own = [it for it in self.pending if it.place.partition == partition]
        return self.remove([it for it in own if it.place.offset < offset])

    def new_limits(self, limits: DeliveryLimits) -> None:
        for record in self.pending:
            if record.deadline_ms is not None:
                record.deadline_ms += self.wait_ms(record.count, limits)
                record.deadline_ms -= self.wait_ms(record.count)
        self.limits = limits

    def restored(self, now_ms: int, later_ms: int) -> None:
        for record in self.pending:
            if record.deadline_ms is not None:
                left_ms = 0
                while left_ms < record.deadline_ms - now_ms:
                    left_ms += RESTORED_STEP_MS
                record.deadline_ms = later_ms + left_ms

    @property
    def ack_floor(self) -> Position:
        floor = min((it.sequence - 1 for it in self.pending), default=self.sequence)
        offsets = {}
        for number, end in self.ends.items():
            own = [it.place.offset for it in self.pending if it.place.partition == number]
            offsets[number] = min(own, default=end)
        return Position(floor, offsets)


class DeliveryMachine(RuleBasedStateMachine):
    """Hypothesis leaves out most rules of most stories, so that each story begins with deliveries,
    and each rule that makes records due may take them.
    """

    @initialize(
        limits=limits_of_any_kind,
        needs_acks=st.sampled_from([True, True, True, False]),
        starts=st.lists(st.integers(0, 5), min_size=PARTITIONS, max_size=PARTITIONS),
        delivered=firsts,
    )
    def begin(
        self,
        limits: DeliveryLimits,
        needs_acks: bool,
        starts: list[int],
        delivered: list[tuple[int, int]],
    ) -> None:
        by_partition = dict(enumerate(starts))
        self.now_ms = 0
        self.floor = Position(0, dict.fromkeys(range(PARTITIONS), 0))
        self.gone: set[Place] = set()
        """Places that are never delivered again."""
        self.delivery = Delivery(limits, starts=by_partition, needs_acks=needs_acks)
        self.naive = NaiveDelivery(limits, needs_acks, dict(by_partition), dict(by_partition))
        self.deliver_firsts(delivered)

    def both(self, got: object, expected: object) -> None:
        assert got == expected

    @rule(aheads=firsts)
    def deliver(self, aheads: list[tuple[int, int]]) -> None:
        self.deliver_firsts(aheads)

    def deliver_firsts(self, aheads: list[tuple[int, int]]) -> None:
        for partition, ahead in aheads:
            pending_max = self.naive.limits.pending_max
            has_room = len(self.naive.pending) < pending_max or pending_max == 0
            assert self.delivery.has_room == (has_room or not self.naive.needs_acks)
            if self.delivery.has_room:
                place = Place(partition, self.delivery.next_offset(partition) + ahead)
                got = self.delivery.deliver(place, self.now_ms)
                self.both(got, self.naive.deliver(place, self.now_ms))

    @rule(count=takes)
    def take_redeliveries(self, count: int) -> None:
        self.take(count)

    def take(self, count: int) -> None:
        for _ in range(count):
            got = self.delivery.take_redelivery(self.now_ms)
            event(f"redelivery: {type(got).__name__}")
            self.both(got, self.naive.take_redelivery(self.now_ms))
            if got is not None:
                assert got.place not in self.gone
            if isinstance(got, Exhausted):
                self.gone.add(got.place)

    @rule()
    def take_exhausted(self) -> None:
        got = self.delivery.take_exhausted()
        self.both(got, self.naive.take_exhausted())
        if got is not None:
            assert got.place not in self.gone
            self.gone.add(got.place)

    @rule(data=st.data(), way=st.sampled_from(["ack", "terminate", "forget"]))
    def end(self, data: st.DataObject, way: str) -> None:
        place = self.any_place(data)
        self.both(getattr(self.delivery, way)(place), self.naive.ack(place))
        assert not self.delivery.ack(place)
        if place.offset < self.delivery.next_offset(place.partition):
            self.gone.add(place)

    @rule(data=st.data())
    def ack_all(self, data: st.DataObject) -> None:
        place = self.any_place(data)
        self.both(self.delivery.ack_all(place), self.naive.ack_all(place))

    @rule(data=st.data(), delay_ms=st.sampled_from([-1, 0, 0, 50, 300]), count=takes)
    def nak(self, data: st.DataObject, delay_ms: int, count: int) -> None:
        place = self.any_place(data)
        got = self.delivery.nak(place, self.now_ms, delay_ms)
        self.both(got, self.naive.nak(place, self.now_ms, delay_ms))
        self.take(count)

    @rule(data=st.data())
    def in_progress(self, data: st.DataObject) -> None:
        place = self.any_place(data)
        got = self.delivery.in_progress(place, self.now_ms)
        self.both(got, self.naive.in_progress(place, self.now_ms))

    @rule(passed_ms=st.sampled_from([0, 10, 50, 100, 400, 1_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(count=takes)
    def expire(self, count: int) -> None:
        self.delivery.expire(self.now_ms)
        self.naive.expire(self.now_ms)
        self.take(count)

    @rule(count=takes)
    def next_deadline(self, count: int) -> None:
        if (deadline_ms := self.delivery.next_deadline_ms) is not None:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.expire(0)
            assert self.delivery.has_redelivery
            self.take(count)

    @rule(partition=st.integers(0, PARTITIONS - 1), ahead=st.integers(-3, 3))
    def skip(self, partition: int, ahead: int) -> None:
        before = self.naive.next_offsets[partition]
        self.delivery.skip(partition, before + ahead)
        self.naive.next_offsets[partition] = max(before, before + ahead)

    @rule(partition=st.integers(0, PARTITIONS - 1), above=st.integers(-1, 3))
    def start_moved(self, partition: int, above: int) -> None:
        offset = max(0, self.naive.ack_floor.offsets[partition] + above)
        got = self.delivery.start_moved(partition, offset)
        self.both(got, self.naive.start_moved(partition, offset))

    @rule(limits=limits_of_any_kind)
    def update(self, limits: DeliveryLimits) -> None:
        self.delivery.limits = limits
        self.naive.new_limits(limits)

    @rule(clock_ms=st.integers(-1_000, 1_000))
    def restore(self, clock_ms: int) -> None:
        """On another machine, with another clock."""
        later_ms = self.now_ms + clock_ms
        data = self.delivery.encode(self.now_ms)
        assert data == self.delivery.encode(self.now_ms), "encoding changes nothing"
        needs_acks, limits = self.naive.needs_acks, self.naive.limits
        self.delivery = Delivery.decode(data, limits, later_ms, needs_acks=needs_acks)
        assert self.delivery.encode(later_ms) == data
        self.naive.restored(self.now_ms, later_ms)
        self.now_ms = later_ms

    @invariant()
    def all_answers_are_the_same(self) -> None:
        if not hasattr(self, "naive"):
            return
        delivery, naive = self.delivery, self.naive
        assert delivery.limits == naive.limits
        assert delivery.delivered == Position(naive.sequence, naive.ends)
        assert delivery.ack_floor == naive.ack_floor
        assert delivery.pending_count == len(naive.pending)
        assert delivery.redelivered_count == sum(it.count > 1 for it in naive.pending)
        assert delivery.has_redelivery == bool(naive.queue)
        deadlines = [it.deadline_ms for it in naive.pending if it.deadline_ms is not None]
        assert delivery.next_deadline_ms == min(deadlines, default=None)
        for number, offset in naive.next_offsets.items():
            assert delivery.next_offset(number) == offset
            own = sorted(it.place.offset for it in naive.pending if it.place.partition == number)
            assert list(delivery.pending_offsets(number)) == own
        for record in naive.pending:
            assert delivery.is_pending(record.place)
            assert delivery.delivery_count(record.place) == record.count

    @invariant()
    def it_can_be_restored_at_any_moment(self) -> None:
        if not hasattr(self, "naive"):
            return
        data = self.delivery.encode(self.now_ms)
        restored = Delivery.decode(data, self.naive.limits, self.now_ms)
        assert restored.encode(self.now_ms) == data
        for record in self.naive.queue:
            got = restored.take_redelivery(self.now_ms)
            assert got is not None
            assert got.place == record.place

    @invariant()
    def the_floor_never_falls(self) -> None:
        if not hasattr(self, "naive"):
            return
        floor, before = self.delivery.ack_floor, self.floor
        assert before.sequence <= floor.sequence <= self.delivery.delivered.sequence
        for number, offset in floor.offsets.items():
            assert before.offsets[number] <= offset <= self.delivery.delivered.offsets[number]
        self.floor = floor

    def any_place(self, data: st.DataObject) -> Place:
        pending = [it.place for it in self.naive.pending]
        return data.draw(st.sampled_from(pending) | places if pending else places)


TestDelivery = DeliveryMachine.TestCase
TestDelivery.settings = settings(
    max_examples=EXAMPLES // 2, stateful_step_count=STEPS, deadline=None
)


@st.composite
def states(draw: st.DrawFn) -> bytes:
    """States in the making: of these, many can almost be, and some can."""
    numbers = st.integers(0, 8) | st.sampled_from([127, 128, 300, 2**62 - 1, 2**63 - 1, 2**64])
    out = bytearray([1])
    for value in draw(st.lists(numbers, max_size=40)):
        rest = value
        while rest >= 0x80:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def is_a_state(data: bytes) -> bool:
    """Either it is corrupt, or a delivery can go on from it: never anything else."""
    try:
        delivery = Delivery.decode(data, DeliveryLimits(), 0)
    except CorruptData:
        return False
    assert delivery.pending_count <= delivery.delivered.sequence
    again = delivery.encode(0)
    assert Delivery.decode(again, DeliveryLimits(), 0).encode(0) == again
    delivery.expire(2**70)
    while delivery.take_redelivery(0) is not None:
        pass
    for number, offset in delivery.delivered.offsets.items():
        delivery.ack_all(Place(number, offset - 1))
    assert delivery.pending_count == 0
    return True


@settings(max_examples=1_000, deadline=None)
@given(data=st.binary(max_size=60) | states())
def test_bytes_are_a_state_or_corrupt(data: bytes) -> None:
    event(f"a state: {is_a_state(data)}")


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_damaged_states_are_states_or_corrupt(data: st.DataObject) -> None:
    delivery = Delivery(DeliveryLimits(), starts={0: 3, 1: 200})
    for number in data.draw(st.lists(st.integers(0, 2), max_size=20)):
        delivery.deliver(Place(number, delivery.next_offset(number)), 0)
    for number in data.draw(st.lists(st.integers(0, 2), max_size=10)):
        delivery.nak(Place(number, delivery.delivered.offsets.get(number, 1) - 1), 0)
    whole = delivery.encode(0)
    assert is_a_state(whole)
    for end in range(len(whole)):
        assert not is_a_state(whole[:end]), "what is cut off is missing"
    assert not is_a_state(whole + b"\x00")
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    event(f"damaged, but a state: {is_a_state(bytes(damaged))}")


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=states())
def test_no_state_holds_more_than_is_allowed(data: bytes) -> None:
    try:
        state = DeliveryState.decode(data, pending_max=2)
    except CorruptData:
        return
    assert sum(len(it.pending) for it in state.partitions.values()) <= 2
