"""Records are delivered until they are acked, in JetStream's order and with its sequences."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from streamlog.delivery import delivery as module
from streamlog.delivery.delivery import (
    Delivered,
    Delivery,
    DeliveryLimits,
    Exhausted,
    Place,
    Position,
)
from streamlog.errors import BrokenInvariant
from tests.mutation import trial

WAIT_MS = 1_000
LIMITS = DeliveryLimits(ack_wait_ms=WAIT_MS)
A, B, C, D = (Place(0, offset) for offset in range(4))


def delivered(*places: Place, limits: DeliveryLimits = LIMITS) -> Delivery:
    """All of them at 0 ms."""
    delivery = Delivery(limits, starts={0: 0})
    for place in places:
        delivery.deliver(place, 0)
    return delivery


def redelivered(delivery: Delivery, now_ms: int) -> list[Place]:
    """All that is due."""
    places = []
    while (taken := delivery.take_redelivery(now_ms)) is not None:
        places.append(taken.place)
    return places


def test_each_delivery_takes_the_next_sequence() -> None:
    delivery = delivered()
    assert delivery.deliver(A, 0) == Delivered(A, 1, 1)
    assert delivery.deliver(B, 0) == Delivered(B, 2, 1)
    assert delivery.nak(A, 0)
    assert delivery.take_redelivery(0) == Delivered(A, 3, 2)
    assert delivery.deliver(C, 0) == Delivered(C, 4, 1)
    assert (delivery.pending_count, delivery.redelivered_count) == (3, 1)
    assert [delivery.delivery_count(it) for it in (A, B, C, D)] == [2, 1, 1, 0]
    assert delivery.delivered == Position(4, {0: 3})


def test_first_deliveries_go_forward() -> None:
    delivery = delivered(A, C)
    for place in (A, B, C):
        with pytest.raises(BrokenInvariant):
            delivery.deliver(place, 0)
    delivery.skip(0, 10)
    delivery.skip(0, 5)
    assert delivery.next_offset(0) == 10
    assert delivery.delivered == Position(2, {0: 3}), "what was skipped was not delivered"
    with pytest.raises(BrokenInvariant):
        delivery.deliver(Place(0, 9), 0)
    delivery.deliver(Place(0, 10), 0)
    with pytest.raises(BrokenInvariant):
        Delivery(LIMITS, starts={0: -1})


def test_of_an_unknown_partition_nothing_is_pending() -> None:
    delivery = delivered(A)
    assert list(delivery.pending_offsets(0)) == [0]
    assert list(delivery.pending_offsets(7)) == []
    assert delivery.next_offset(7) == 0
    assert not delivery.nak(Place(7, 0), 0)


def test_a_delay_may_be_a_millisecond() -> None:
    delivery = delivered(A)
    assert delivery.nak(A, 0, 1)
    assert delivery.take_redelivery(0) is None
    assert delivery.next_deadline_ms == 1
    delivery.expire(1)
    assert delivery.take_redelivery(1) == Delivered(A, 2, 2)


def test_the_ack_floor_is_below_the_lowest_pending_record() -> None:
    delivery = delivered(A, B, C)
    assert delivery.ack_floor == Position(0, {0: 0})
    assert delivery.ack(B)
    assert delivery.ack_floor == Position(0, {0: 0})
    assert delivery.ack(A)
    assert delivery.ack_floor == Position(2, {0: 2}), "it passes what was acked before"
    assert delivery.ack(C)
    assert delivery.ack_floor == delivery.delivered == Position(3, {0: 3})
    assert not delivery.ack(C)
    assert not delivery.ack(D), "not delivered yet"
    assert not delivery.ack(Place(7, 0)), "no such partition"


def test_a_redelivery_does_not_raise_the_ack_floor() -> None:
    delivery = delivered(A, B)
    delivery.nak(A, 0)
    assert delivery.take_redelivery(0) == Delivered(A, 3, 2)
    assert delivery.ack(B)
    assert delivery.ack_floor == Position(0, {0: 0})
    assert delivery.ack(A)
    assert delivery.ack_floor == Position(3, {0: 2})


def test_partitions_have_offsets_of_their_own_and_sequences_in_common() -> None:
    delivery = Delivery(LIMITS, starts={0: 5, 1: 7})
    for place in (Place(0, 5), Place(1, 7), Place(0, 6)):
        delivery.deliver(place, 0)
    assert delivery.ack(Place(0, 5))
    assert delivery.ack_floor == Position(1, {0: 6, 1: 7})
    assert delivery.ack(Place(0, 6))
    assert delivery.ack_floor == Position(1, {0: 7, 1: 7})
    assert delivery.delivered == Position(3, {0: 7, 1: 8})


def test_a_partition_that_was_added_later_begins_at_0() -> None:
    delivery = delivered(A)
    assert delivery.next_offset(9) == 0
    assert delivery.delivered.offsets == {0: 1}, "asking adds none"
    assert delivery.deliver(Place(9, 0), 0) == Delivered(Place(9, 0), 2, 1)
    assert delivery.delivered.offsets == {0: 1, 9: 1}


def test_a_record_is_due_when_its_wait_is_over() -> None:
    delivery = delivered(A)
    assert delivery.next_deadline_ms == WAIT_MS
    delivery.expire(WAIT_MS - 1)
    assert not delivery.has_redelivery
    assert delivery.take_redelivery(WAIT_MS) is None, "not expired yet"
    delivery.expire(WAIT_MS)
    assert delivery.has_redelivery
    assert delivery.next_deadline_ms is None
    assert delivery.take_redelivery(WAIT_MS + 5) == Delivered(A, 2, 2)
    assert not delivery.has_redelivery
    assert delivery.next_deadline_ms == 2 * WAIT_MS + 5


def test_the_queue_is_first_in_first_out_and_what_expires_together_in_order() -> None:
    delivery = delivered(A, B, C, D)
    delivery.in_progress(A, 10)
    delivery.nak(D, 20)
    delivery.expire(WAIT_MS + 10)
    assert redelivered(delivery, WAIT_MS + 10) == [D, A, B, C]


def test_nak_of_what_is_due_leaves_its_place_in_the_queue() -> None:
    delivery = delivered(A, B)
    delivery.nak(A, 0)
    delivery.nak(B, 0)
    assert delivery.nak(A, 0)
    assert redelivered(delivery, 0) == [A, B]


def test_waits_grow_by_backoff() -> None:
    delivery = delivered(A, limits=DeliveryLimits(WAIT_MS, backoff_ms=(10, 20)))
    waits, now_ms = [], 0
    for _ in range(4):
        deadline_ms = delivery.next_deadline_ms
        assert deadline_ms is not None
        waits.append(deadline_ms - now_ms)
        now_ms = deadline_ms
        delivery.expire(now_ms)
        delivery.take_redelivery(now_ms)
    assert waits == [10, 20, 20, 20]
    assert (delivery.delivery_count(A), delivery.redelivered_count) == (5, 1)
    assert delivery.in_progress(A, 5_000)
    assert delivery.next_deadline_ms == 5_020


def test_nak_makes_due_at_once_or_after_its_delay() -> None:
    delivery = delivered(A, B)
    assert delivery.nak(A, 5)
    assert delivery.has_redelivery
    assert delivery.nak(A, 5, 3_000), "it leaves the queue again"
    assert not delivery.has_redelivery
    delivery.ack(B)
    assert delivery.next_deadline_ms == 3_005
    delivery.expire(3_005)
    assert delivery.nak(A, 4_000)
    assert redelivered(delivery, 4_000) == [A], "queued once"
    assert delivery.nak(A, 4_000, 2**200)
    assert delivery.next_deadline_ms == 4_000 + module.DELAY_MAX_MS
    assert not delivery.nak(B, 0)


def test_progress_starts_the_wait_again_but_for_what_is_due() -> None:
    delivery = delivered(A, B)
    assert delivery.in_progress(A, 900)
    delivery.expire(WAIT_MS)
    assert delivery.in_progress(B, WAIT_MS)
    assert delivery.next_deadline_ms == 900 + WAIT_MS
    assert redelivered(delivery, WAIT_MS) == [B]
    delivery.ack(A)
    assert not delivery.in_progress(A, WAIT_MS)


@pytest.mark.parametrize("answer", ["ack", "terminate", "forget"])
def test_an_answer_takes_a_record_out_of_the_queue(answer: str) -> None:
    delivery = delivered(A, B)
    delivery.expire(WAIT_MS)
    assert getattr(delivery, answer)(A)
    assert not getattr(delivery, answer)(A)
    assert not delivery.is_pending(A)
    assert redelivered(delivery, WAIT_MS) == [B]
    delivery.expire(10 * WAIT_MS)
    assert redelivered(delivery, 10 * WAIT_MS) == [B]
    assert delivery.ack_floor == Position(1, {0: 1})


def test_a_record_is_given_up_after_its_last_delivery() -> None:
    delivery = delivered(A, B, limits=LIMITS._replace(deliveries_max=2))
    delivery.expire(WAIT_MS)
    assert redelivered(delivery, WAIT_MS) == [A, B]
    delivery.expire(2 * WAIT_MS)
    assert delivery.is_pending(A)
    assert delivery.ack_floor.sequence == 0
    assert delivery.take_redelivery(2 * WAIT_MS) == Exhausted(A, 1, 2)
    assert not delivery.is_pending(A)
    assert not delivery.ack(A)
    assert delivery.ack(B), "until it is reported an ack counts"
    assert delivery.take_redelivery(2 * WAIT_MS) is None
    assert delivery.redelivered_count == 0
    assert delivery.ack_floor == delivery.delivered == Position(4, {0: 2})


def test_exhausted_records_are_taken_with_nobody_to_deliver_to() -> None:
    limits = LIMITS._replace(deliveries_max=1, pending_max=3)
    delivery = delivered(A, B, C, limits=limits)
    assert not delivery.has_room
    assert delivery.take_exhausted() is None
    delivery.nak(B, 0)
    delivery.nak(A, 0)
    assert delivery.take_exhausted() == Exhausted(B, 2, 1)
    assert delivery.has_room
    assert delivery.take_exhausted() == Exhausted(A, 1, 1)
    assert delivery.take_exhausted() is None
    assert not delivery.has_redelivery
    assert delivery.pending_count == 1


def test_exhausted_records_leave_others_their_turn() -> None:
    delivery = delivered(A, B)
    delivery.nak(A, 0)
    delivery.take_redelivery(0)
    delivery.nak(B, 0)
    delivery.nak(A, 0)
    delivery.limits = LIMITS._replace(deliveries_max=2)
    assert delivery.take_exhausted() == Exhausted(A, 1, 2)
    assert redelivered(delivery, 0) == [B]


def test_a_higher_limit_saves_what_was_exhausted() -> None:
    delivery = delivered(A, limits=LIMITS._replace(deliveries_max=1))
    delivery.nak(A, 0)
    delivery.limits = LIMITS._replace(deliveries_max=2)
    assert delivery.take_exhausted() is None
    assert delivery.take_redelivery(0) == Delivered(A, 2, 2)


def test_no_more_than_pending_max_are_delivered_first() -> None:
    delivery = delivered(A, B, limits=LIMITS._replace(pending_max=2))
    assert not delivery.has_room
    delivery.expire(WAIT_MS)
    assert not delivery.has_room, "what is due is pending"
    assert redelivered(delivery, WAIT_MS) == [A, B], "redeliveries need no room"
    delivery.ack(A)
    assert delivery.has_room
    delivery.limits = LIMITS
    assert delivery.has_room


def test_there_is_a_ceiling_where_nothing_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_CEILING", 2)
    delivery = delivered(A, B)
    for pending_max in (0, 2, 5):
        delivery.limits = LIMITS._replace(pending_max=pending_max)
        assert not delivery.has_room
    with pytest.raises(BrokenInvariant):
        delivery.deliver(C, 0)


def test_without_acks_a_record_counts_as_acked_at_once() -> None:
    limits = LIMITS._replace(pending_max=1)
    delivery = Delivery(limits, starts={0: 0}, needs_acks=False)
    assert [delivery.deliver(it, 0).sequence for it in (A, C)] == [1, 2]
    assert delivery.has_room
    assert delivery.pending_count == 0
    assert delivery.next_deadline_ms is None
    assert delivery.ack_floor == delivery.delivered == Position(2, {0: 3})
    assert not delivery.ack(A)


def test_ack_all_acks_what_was_first_delivered_before() -> None:
    delivery = Delivery(LIMITS, starts={0: 0, 1: 0})
    order = [Place(0, 0), Place(1, 0), Place(0, 1), Place(1, 1)]
    for place in order:
        delivery.deliver(place, 0)
    assert delivery.ack_all(Place(0, 1)) == 3
    assert delivery.ack_floor == Position(3, {0: 2, 1: 1})
    assert delivery.ack_all(Place(0, 1)) == 0
    assert delivery.ack_all(Place(1, 2)) == 0, "not delivered yet"
    assert delivery.ack_all(Place(2, 0)) == 0, "no such partition"
    assert delivery.pending_count == 1


def test_ack_all_of_a_redelivery_leaves_what_was_delivered_before_it() -> None:
    delivery = delivered(A, B, C)
    delivery.nak(A, 0)
    assert delivery.take_redelivery(0) == Delivered(A, 4, 2)
    assert delivery.ack_all(A) == 1
    assert [delivery.is_pending(it) for it in (B, C)] == [True, True]
    assert delivery.ack(B)
    assert delivery.ack_all(B) == 0
    assert delivery.is_pending(C)


def test_what_is_gone_from_the_stream_is_not_delivered_again() -> None:
    delivery = delivered(A, B, C)
    delivery.nak(A, 0)
    assert delivery.start_moved(0, 2) == 2
    assert not delivery.has_redelivery
    assert delivery.ack_floor == Position(2, {0: 2})
    assert delivery.start_moved(0, 1) == 0
    assert delivery.next_offset(0) == 3
    assert delivery.start_moved(0, 50) == 1
    assert delivery.next_offset(0) == 50
    assert delivery.ack_floor == delivery.delivered == Position(3, {0: 50})


def test_new_limits_hold_for_pending_records() -> None:
    delivery = delivered(A, B)
    delivery.nak(A, 100, 5_000)
    delivery.limits = LIMITS._replace(ack_wait_ms=200)
    assert delivery.next_deadline_ms == 200
    delivery.ack(B)
    assert delivery.next_deadline_ms == 4_300
    delivery.limits = LIMITS._replace(backoff_ms=(1_500,))
    assert delivery.next_deadline_ms == 5_600


def test_deadlines_of_acked_records_are_swept() -> None:
    delivery = delivered(A)
    for offset in range(1, 10_000):
        delivery.deliver(Place(0, offset), 0)
        delivery.in_progress(A, 0)
        delivery.ack(Place(0, offset))
        assert len(delivery._deadlines) <= 2 * 2 + module.SWEPT_FROM
    delivery.ack(A)
    assert delivery.next_deadline_ms is None
    assert not delivery._deadlines


def lines_run(function: Callable[[], object]) -> int:
    """Of Python, by the function and all that it calls, but for what notes which lines the tests reach."""
    lines = 0

    def trace(frame: FrameType, kind: str, _arg: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename == trial.__file__:
            return None
        lines += kind == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines


def test_no_operation_visits_all_pending_records() -> None:
    """A hundred thousand are pending, half of them due."""
    count = 100_000
    delivery = delivered(*(Place(0, offset) for offset in range(count)))
    for offset in range(0, count, 2):
        delivery.nak(Place(0, offset), 0)
    delivery.limits = LIMITS._replace(deliveries_max=2)
    operations: list[Callable[[], object]] = [
        lambda: delivery.ack_floor,
        lambda: delivery.delivered,
        lambda: delivery.next_deadline_ms,
        lambda: delivery.deliver(Place(0, count), 0),
        lambda: delivery.take_redelivery(0),
        delivery.take_exhausted,
        lambda: delivery.nak(Place(0, 0), 0),
        delivery.take_exhausted,
        lambda: delivery.ack(Place(0, 50_000)),
        lambda: delivery.ack(Place(0, 50_001)),
        lambda: delivery.ack_all(Place(0, 1)),
        lambda: delivery.ack_floor,
        lambda: delivery.nak(Place(0, 3), 0, 10),
        lambda: delivery.nak(Place(0, 5), 0),
        lambda: delivery.in_progress(Place(0, 7), 0),
        lambda: delivery.start_moved(0, 4),
        lambda: delivery.forget(Place(0, 11)),
        lambda: delivery.expire(WAIT_MS - 1),
        lambda: delivery.next_deadline_ms,
    ]
    for number, operation in enumerate(operations):
        assert lines_run(operation) < 100, f"operation {number}"
