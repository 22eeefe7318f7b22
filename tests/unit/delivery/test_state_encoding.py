"""A delivery goes on from its bytes as if nothing had happened."""

import pytest

from streamlog.delivery.delivery import RESTORED_STEP_MS, Delivered, Delivery, DeliveryLimits, Place
from streamlog.delivery.state_encoding import DeliveredPartition, DeliveryState, PendingState
from streamlog.errors import CorruptData

LIMITS = DeliveryLimits(ack_wait_ms=1_000)


def test_a_thousand_neighbours_take_little_room() -> None:
    delivery = Delivery(LIMITS, starts={0: 10_000_000})
    for offset in range(10_000_000, 10_001_000):
        delivery.deliver(Place(0, offset), 0)
    assert len(delivery.encode(0)) < 40
    delivery.expire(1_000)
    assert len(delivery.encode(1_000)) < 45
    for index in range(1_000):
        delivery.take_redelivery(1_000 + index)
    assert len(delivery.encode(2_000)) < 100, "ten steps of deadlines"


def test_a_hundred_thousand_that_have_nothing_in_common_take_little_each() -> None:
    delivery = Delivery(LIMITS, starts={0: 0, 1: 0})
    for number in range(100_000):
        partition = number * number % 7 % 2
        offset = delivery.next_offset(partition) + number % 3
        delivery.deliver(Place(partition, offset), number * 97)
    assert len(delivery.encode(0)) < 100_000 * 12


def test_a_new_delivery_is_a_few_bytes() -> None:
    data = Delivery(LIMITS, starts={3: 5}).encode(0)
    assert data == bytes([1, 0, 1, 3, 5, 0, 0])
    again = Delivery.decode(data, LIMITS, 0)
    assert (again.next_offset(3), again.delivered.offsets) == (5, {3: 5})


@pytest.mark.parametrize("start", [127, 128, 129, 16_383, 16_384, 2**62])
def test_numbers_of_all_lengths(start: int) -> None:
    delivery = Delivery(LIMITS, starts={start % 1_000: start})
    again = Delivery.decode(delivery.encode(0), LIMITS, 0)
    assert again.delivered.offsets == {start % 1_000: start}


def test_what_remains_of_a_wait_goes_on_rounded_up() -> None:
    delivery = Delivery(LIMITS, starts={0: 0})
    delivery.deliver(Place(0, 0), 0)
    for passed_ms, remains_ms in ((0, 1_000), (1, 1_000), (99, 1_000), (100, 900), (2_000, 0)):
        again = Delivery.decode(delivery.encode(passed_ms), LIMITS, 50_000)
        assert again.next_deadline_ms == 50_000 + remains_ms
        assert remains_ms % RESTORED_STEP_MS == 0


def test_the_queue_keeps_its_order() -> None:
    delivery = Delivery(LIMITS, starts={0: 0})
    for offset in range(4):
        delivery.deliver(Place(0, offset), 0)
    for offset in (2, 0, 3):
        delivery.nak(Place(0, offset), 0)
    delivery.take_redelivery(0)
    delivery.nak(Place(0, 2), 0)
    again = Delivery.decode(delivery.encode(0), LIMITS, 0)
    assert (again.pending_count, again.redelivered_count) == (4, 1)
    taken = [again.take_redelivery(0) for _ in range(4)]
    assert taken[:2] == [Delivered(Place(0, 0), 6, 2), Delivered(Place(0, 3), 7, 2)]
    assert taken[2:] == [Delivered(Place(0, 2), 8, 3), None]


def test_without_acks_it_stays_so() -> None:
    delivery = Delivery(LIMITS, starts={0: 0}, needs_acks=False)
    delivery.deliver(Place(0, 0), 0)
    again = Delivery.decode(delivery.encode(0), LIMITS, 0, needs_acks=False)
    again.deliver(Place(0, 1), 0)
    assert (again.pending_count, again.delivered.sequence) == (0, 2)


GOOD = DeliveryState(
    sequence=5,
    partitions={
        0: DeliveredPartition(9, 9, [PendingState(3, 1, 2, None), PendingState(4, 3, 1, 7)]),
        2: DeliveredPartition(4, 6, [PendingState(1, 2, 1, None)]),
    },
    due=[2, 1],
)


def with_pending(*pending: PendingState, due: tuple[int, ...] = ()) -> DeliveryState:
    return DeliveryState(5, {0: DeliveredPartition(9, 9, list(pending))}, list(due))


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        ("deliveries are missing", GOOD._replace(sequence=3)),
        ("a sequence is above the last one", with_pending(PendingState(3, 6, 1, 0))),
        ("not delivered", with_pending(PendingState(9, 1, 1, 0))),
        ("never delivered", with_pending(PendingState(3, 1, 0, 0))),
        ("too small", with_pending(PendingState(3, 0, 1, 0))),
        ("not ascend", with_pending(PendingState(3, 1, 1, 0), PendingState(3, 2, 1, 0))),
        ("not ascend", with_pending(PendingState(3, 1, 1, 0), PendingState(4, 1, 1, 0))),
        ("queue", GOOD._replace(due=[2, 2])),
        ("queue", GOOD._replace(due=[2, 3])),
        ("bytes follow", GOOD._replace(due=[2, 1, 3])),
        ("ends too early", GOOD._replace(due=[])),
        ("offset is too large", DeliveryState(0, {0: DeliveredPartition(1, 2**63, [])}, [])),
        ("number is too large", DeliveryState(2**62, {}, [])),
        (
            "same sequence",
            DeliveryState(
                5,
                {it: DeliveredPartition(9, 9, [PendingState(1, 1, 1, 0)]) for it in range(2)},
                [],
            ),
        ),
    ],
)
def test_what_cannot_be_is_corrupt(problem: str, state: DeliveryState) -> None:
    assert DeliveryState.decode(GOOD.encode(), 3) == GOOD
    with pytest.raises(CorruptData, match=problem):
        DeliveryState.decode(state.encode(), 1_000)


@pytest.mark.parametrize(
    ("problem", "data"),
    [
        ("format 2, not 1", b"\x02\x00\x00"),
        ("ends too early", b""),
        ("ends too early", b"\x01\x80"),
        ("too long", b"\x01" + b"\x80" * 9 + b"\x00"),
        ("out of order", bytes([1, 0, 2, 1, 0, 0, 0, 1, 0, 0, 0])),
        ("run is empty", bytes([1, 1, 1, 0, 1, 0, 1, 0, 0])),
        ("too large", bytes([1, 9, 1, 0, 9, 0, 2, 1, 3])),
    ],
)
def test_bytes_that_are_none_of_ours_are_corrupt(problem: str, data: bytes) -> None:
    with pytest.raises(CorruptData, match=problem):
        Delivery.decode(data, LIMITS, 0)


def test_more_pending_records_than_allowed_are_corrupt() -> None:
    """A few bytes would do for more than memory has room for."""
    with pytest.raises(CorruptData, match="too large"):
        DeliveryState.decode(GOOD.encode(), 2)


def test_each_wait_goes_on_by_itself() -> None:
    """Also of a record between two others that wait for something else."""
    delivery = Delivery(LIMITS, starts={0: 0})
    for offset in range(3):
        delivery.deliver(Place(0, offset), 0)
    delivery.in_progress(Place(0, 1), 800)
    again = Delivery.decode(delivery.encode(900), LIMITS, 900)
    again.expire(1_000)
    assert again.due_offsets(0, 0, 3) == [0, 2]
    again.expire(1_799)
    assert again.due_count == 2
    again.expire(1_800)
    assert again.due_offsets(0, 0, 3) == [0, 1, 2]
    assert again.due_offsets(1, 0, 3) == []
    assert [again.is_due(Place(0, offset)) for offset in range(4)] == [True, True, True, False]
    assert again.redeliver(Place(0, 1), 1_800) == Delivered(Place(0, 1), 4, 2)
    assert again.redeliver(Place(0, 1), 1_800) is None, "it is not due any more"
    assert not again.is_due(Place(0, 1))


def test_one_record_that_was_never_delivered_among_others_is_damage() -> None:
    counts = (1, 0)
    pending = [PendingState(offset, offset + 1, count, 3) for offset, count in enumerate(counts)]
    data = DeliveryState(2, {0: DeliveredPartition(2, 2, pending)}, []).encode()
    with pytest.raises(CorruptData, match="never delivered"):
        DeliveryState.decode(data, 10)


def test_what_begins_again_has_given_up_nothing() -> None:
    limits = DeliveryLimits(ack_wait_ms=1_000, deliveries_max=1)
    delivery = Delivery(limits, starts={0: 0})
    delivery.deliver(Place(0, 0), 0)
    delivery.expire(1_000)
    delivery.reset({0: 0})
    assert delivery.take_exhausted() is None
    delivery.deliver(Place(0, 0), 2_000)
    assert delivery.take_exhausted() is None
