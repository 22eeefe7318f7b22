"""One consumer: plain cases. ``tests/property/test_consumer.py`` mixes them."""

import json
from random import Random
from typing import Any

import pytest

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.delivery.delivery import Delivery, Place
from streamlog.jetstream.consumers.acks import Ack, AckKind, AckSubject, FlowAnswer
from streamlog.jetstream.consumers.consumer import (
    AHEAD_MS,
    BURST_MS,
    READ_AHEAD,
    SEQUENCES_LEFT_OUT,
    WINDOW_BYTES_MIN,
    Advise,
    Confirm,
    Consumer,
    Deliver,
    DeliverRun,
    Effect,
    Tell,
    limits_of,
)
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from tests.message_runs import one_by_one, run_of

NOW_MS = 1_000
MS = 1_000_000
PULL = {"ack_policy": "explicit", "max_waiting": 512}
PUSH = {"ack_policy": "explicit", "deliver_subject": "d"}


def consumer(fields: dict[str, Any], **more: Any) -> Consumer:
    config = ConsumerConfig(name="c", **{**fields, **more})
    delivery = Delivery(
        limits_of(config), starts={0: 0, 1: 0}, needs_acks=config.ack_policy != "none"
    )
    return Consumer(
        config,
        delivery,
        now_ms=NOW_MS,
        rng=Random(7),
        flow_subject="fc",
        reply_prefix="$JS.ACK.s.c.",
    )


def taken(core: Consumer) -> list[Effect]:
    return one_by_one(core.take())


def message(offset: int, data: bytes = b"x", timestamp_ms: int = 0) -> StoredMessage:
    return StoredMessage("a", offset + 1, timestamp_ms, b"", data)


def fill(
    core: Consumer,
    *messages: StoredMessage,
    now_ms: int = NOW_MS,
    beyond: int = 0,
    partition: int = 0,
) -> list[Effect]:
    core.add(partition, run_of(messages), next_offset=messages[-1].sequence, beyond=beyond)
    core.pump(now_ms)
    return taken(core)


def pull(core: Consumer, inbox: str, now_ms: int = NOW_MS, **body: Any) -> list[Effect]:
    for name in ("expires", "idle_heartbeat"):
        if name in body:
            body[name] *= MS
    core.pull(inbox, json.dumps(body).encode(), now_ms)
    return taken(core)


def answer(
    core: Consumer, offset: int, ack: Ack, reply: str = "", now_ms: int = NOW_MS
) -> list[Effect]:
    core.acknowledged(AckSubject("s", "c", 1, offset + 1, 1, 0, 0, 0, 0), ack, reply, now_ms)
    return taken(core)


def tick(core: Consumer, now_ms: int) -> list[Effect]:
    core.tick(now_ms)
    return taken(core)


def shown(effects: list[Effect]) -> list[Any]:
    """Deliveries as subject, offset and count; statuses as subject, code and description."""
    return [
        (it.subject, it.delivered.place.offset, it.delivered.count)
        if isinstance(it, Deliver)
        else (it.subject, it.code, it.description)
        if isinstance(it, Tell)
        else it
        for it in effects
    ]


ACK, NAK = Ack(AckKind.ACK), Ack(AckKind.NAK)


# Pull requests


def test_requests_take_turns() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=2)
    pull(core, "j", batch=2)
    told = fill(core, *map(message, range(4)))
    assert shown(told) == [("i", 0, 1), ("j", 1, 1), ("i", 2, 1), ("j", 3, 1)]
    assert not core.waiting


def test_lone_request_gets_no_more_than_may_be_pending() -> None:
    core = consumer(PULL, max_ack_pending=2)
    pull(core, "i", batch=4)
    assert shown(fill(core, *map(message, range(5)))) == [("i", 0, 1), ("i", 1, 1)]
    assert shown(answer(core, 0, ACK)) == [("i", 2, 1)]
    assert shown(answer(core, 1, ACK)) == [("i", 3, 1)]
    assert not core.waiting
    assert answer(core, 2, ACK) == []


def test_lone_request_wants_the_rest_of_its_batch() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=5)
    told = fill(core, message(0), message(1), beyond=7)
    assert [it.pending for it in told if isinstance(it, Deliver)] == [8, 7]
    assert core.wants == 3
    assert shown(fill(core, *map(message, range(2, 9)))) == [("i", it, 1) for it in (2, 3, 4)]
    assert (core.wants, list(core.waiting)) == (0, [])
    assert shown(pull(core, "j", batch=1)) == [("j", 5, 1)]
    assert core.delivery.delivered.sequence == 6


def test_heartbeat_is_due_after_the_last_of_several_messages() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=5, expires=10_000, idle_heartbeat=500)
    fill(core, message(0), message(1), now_ms=NOW_MS + 400)
    assert tick(core, NOW_MS + 600) == []
    assert shown(tick(core, NOW_MS + 900)) == [("i", 100, "Idle Heartbeat")]
    push = consumer(PUSH, idle_heartbeat_ms=500)
    push.bind(True, NOW_MS)
    fill(push, message(0), message(1), now_ms=NOW_MS + 400)
    assert tick(push, NOW_MS + 600) == []
    assert shown(tick(push, NOW_MS + 900)) == [("d", 100, "Idle Heartbeat")]


def test_request_of_a_lower_priority_number_is_served_first() -> None:
    core = consumer(PULL, priority_policy="prioritized", priority_groups=("g",))
    core.pull("number", b"1", NOW_MS)
    pull(core, "i", group="g", priority=2)
    pull(core, "j", group="g", priority=1, batch=2)
    pull(core, "k", group="g", priority=1)
    told = fill(core, *map(message, range(5)))
    assert [it.subject for it in told if isinstance(it, Deliver)] == ["j", "k", "j", "i", "number"]


def test_more_is_read_only_for_those_that_wait() -> None:
    core = consumer(PULL, max_ack_pending=3)
    assert core.wants == 0
    pull(core, "i", batch=2)
    assert core.wants == 2
    pull(core, "j", batch=2)
    assert core.wants == 3
    fill(core, *map(message, range(3)))
    assert core.wants == 0


def test_acknowledgement_makes_room() -> None:
    core = consumer(PULL, max_ack_pending=1)
    pull(core, "i", batch=2)
    fill(core, message(0))
    assert core.wants == 0
    answer(core, 0, ACK)
    assert core.wants == 1


def test_request_expires() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=3, expires=100)
    fill(core, message(0))
    assert core.next_ms() == NOW_MS + 100
    (told,) = tick(core, NOW_MS + 100)
    headers = (("Nats-Pending-Messages", 2), ("Nats-Pending-Bytes", 0))
    assert told == Tell("i", 408, "Request Timeout", headers)


def test_request_that_is_over_gets_nothing_also_before_the_tick() -> None:
    core = consumer(PULL)
    pull(core, "i", expires=100)
    assert shown(fill(core, message(0), now_ms=NOW_MS + 100)) == [("i", 408, "Request Timeout")]


def test_request_has_heartbeats() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=5, expires=1_000, idle_heartbeat=100)
    fill(core, message(0), now_ms=NOW_MS + 50)
    tick(core, NOW_MS + 100)
    assert core.next_ms() == NOW_MS + 150
    (beat,) = tick(core, NOW_MS + 150)
    headers = (("Nats-Last-Consumer", 1), ("Nats-Last-Stream", 1))
    assert beat == Tell("i", 100, "Idle Heartbeat", headers)


def test_too_many_requests_are_refused_unless_they_have_heartbeats() -> None:
    core = consumer(PULL, max_waiting=1)
    pull(core, "i")
    assert shown(pull(core, "j")) == [("j", 409, "Exceeded MaxWaiting")]
    assert not pull(core, "j", expires=1_000, idle_heartbeat=100)
    assert [it.subject for it in core.waiting] == ["i"]


def test_request_to_nowhere_is_none() -> None:
    core = consumer(PULL)
    answer(core, 0, Ack(AckKind.NEXT))
    assert not core.waiting


def test_request_that_does_not_wait_ends_with_the_stream() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=2, no_wait=True)
    fill(core, message(0))
    core.end_of_stream(NOW_MS)
    assert shown(taken(core)) == [("i", 404, "No Messages")]


def test_request_that_does_not_wait_may_wait_for_a_first_message() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=2, no_wait=True, expires=100)
    core.end_of_stream(NOW_MS)
    assert not taken(core)
    fill(core, message(0))
    core.end_of_stream(NOW_MS)
    assert shown(taken(core)) == [("i", 404, "No Messages")]


def test_request_that_came_during_the_read_is_not_ended_by_it() -> None:
    core = consumer(PULL)
    pull(core, "i", no_wait=True)
    last_pull = core.last_pull
    pull(core, "j", no_wait=True)
    core.end_of_stream(NOW_MS, last_pull)
    assert shown(taken(core)) == [("i", 404, "No Messages")]
    core.end_of_stream(NOW_MS, core.last_pull)
    assert shown(taken(core)) == [("j", 404, "No Messages")]


def runs(core: Consumer) -> list[tuple[str, int, int]]:
    """Of deliveries that are runs: the subject, and the first and last consumer sequence."""
    return [
        (it.subject, it.sequence, it.sequence + it.stop - it.start - 1)
        for it in core.take()
        if isinstance(it, DeliverRun)
    ]


def test_request_that_does_not_wait_ends_where_others_wait_for_what_there_is() -> None:
    core = consumer(PULL, max_ack_pending=1)
    pull(core, "i", batch=5)
    fill(core, message(0), beyond=2)
    assert shown(pull(core, "j", no_wait=True)) == [("j", 408, "Requests Pending")]
    fill(core, message(1), beyond=9)
    assert not pull(core, "j", no_wait=True)


OVERFLOW = {**PULL, "priority_policy": "overflow", "priority_groups": ("g",)}
PINNED = {**OVERFLOW, "priority_policy": "pinned_client", "priority_timeout_ms": 500}


def test_overflow_request_waits_for_many_messages() -> None:
    core = consumer(OVERFLOW)
    pull(core, "far", group="g", min_pending=3, batch=9)
    assert (core.wants, core.needs_count) == (0, True)
    core.count(0, 2, NOW_MS)
    assert (core.wants, core.needs_count) == (0, True)
    core.count(0, 3, NOW_MS)
    assert (core.wants, core.needs_count) == (9, False)
    assert shown(fill(core, *map(message, range(3)))) == [("far", 0, 1)]
    pull(core, "near", group="g")
    assert shown(taken(core)) == []
    assert core.delivery.delivered.sequence == 2
    assert core.needs_count
    core.count(0, 2, NOW_MS)
    assert shown(taken(core)) == [("far", 2, 1)]


def test_overflow_request_waits_for_many_that_are_not_acknowledged() -> None:
    core = consumer(OVERFLOW)
    pull(core, "far", group="g", min_ack_pending=2, batch=9)
    pull(core, "near", group="g", batch=2)
    told = fill(core, *map(message, range(4)))
    assert shown(told) == [("near", 0, 1), ("near", 1, 1), ("far", 2, 1), ("far", 3, 1)]
    for offset in range(3):
        answer(core, offset, ACK)
    assert shown(fill(core, message(4))) == []
    pull(core, "near", group="g")
    assert shown(taken(core)) == []
    assert core.delivery.pending_count == 2


def test_message_in_hand_waits_for_a_request_that_may_have_it() -> None:
    core = consumer(OVERFLOW)
    pull(core, "near", group="g")
    fill(core, message(0))
    pull(core, "far", group="g", min_pending=2)
    answer(core, 0, Ack(AckKind.NAK))
    assert core.needs_message is None
    pull(core, "near", group="g")
    assert core.needs_message == Place(0, 0)
    core.provide(Place(0, 0), message(0), NOW_MS)
    assert shown(taken(core)) == [("near", 0, 2)]


def pins(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(it.subject, it.pin) for it in effects if isinstance(it, Deliver)]


def test_client_of_the_first_request_is_pinned() -> None:
    core = consumer(PINNED)
    pull(core, "i", group="g", batch=2)
    pull(core, "j", group="g", batch=2)
    told = fill(core, *map(message, range(4)))
    pin = core.pin
    assert Advise("PINNED", {"group": "g", "pinned_id": pin}) in told
    assert (len(pin), pins(told)) == (22, [("i", pin), ("i", pin)])
    assert shown(pull(core, "k", group="g", id="other")) == [("k", 423, "Nats-Pin-Id mismatch")]
    assert pins(pull(core, "i", group="g", id=pin)) == [("i", pin)]
    assert [it.subject for it in core.waiting] == ["j"]


def test_pin_ends_when_its_client_asks_for_nothing() -> None:
    core = consumer(PINNED)
    pull(core, "i", group="g")
    pull(core, "j", group="g")
    fill(core, *map(message, range(2)))
    before = core.pin
    pull(core, "i", NOW_MS + 300, group="g", id=before, batch=2)
    assert core.next_ms() == NOW_MS + 800
    assert not pins(tick(core, NOW_MS + 799))
    told = tick(core, NOW_MS + 800)
    assert Advise("UNPINNED", {"group": "g", "reason": "timeout"}) in told
    headers = (("Nats-Pending-Messages", 1), ("Nats-Pending-Bytes", 0))
    assert Tell("i", 423, "Nats-Wrong-Pin-Id", headers) in told
    assert not core.pin
    told = fill(core, message(2), now_ms=NOW_MS + 801)
    assert core.pin not in ("", before)
    assert pins(told) == [("j", core.pin)]


def test_client_that_is_gone_before_it_learns_of_its_pin_leaves_it_to_the_next() -> None:
    core = consumer({**PULL, **PINNED})
    pull(core, "gone", group="g", batch=2)
    told = fill(core, message(0), message(1))
    lost = core.pin
    first, second = [it for it in told if isinstance(it, Deliver)]
    assert [it.pins for it in (first, second)] == [True, False]
    core.not_sent(first, NOW_MS)
    core.not_sent(second, NOW_MS)
    assert Advise("UNPINNED", {"group": "g", "reason": "client gone"}) in taken(core)
    told = pull(core, "j", group="g")
    core.provide(Place(0, 0), message(0), NOW_MS)
    told += taken(core)
    assert core.pin not in ("", lost)
    assert pins(told) == [("j", core.pin)]


def test_client_that_knows_its_pin_may_come_again() -> None:
    core = consumer({**PULL, **PINNED})
    pull(core, "i", group="g", batch=2)
    first, second = [it for it in fill(core, message(0), message(1)) if isinstance(it, Deliver)]
    core.not_sent(second, NOW_MS)
    assert core.pin == first.pin
    told = pull(core, "i", group="g", id=core.pin)
    core.provide(Place(0, 1), message(1), NOW_MS)
    assert pins(told + taken(core)) == [("i", first.pin)]


def test_unpinned_client_is_told_so() -> None:
    core = consumer(PINNED)
    pull(core, "i", group="g", batch=2)
    fill(core, message(0))
    before = core.pin
    core.unpin("admin", NOW_MS)
    told = taken(core)
    assert Advise("UNPINNED", {"group": "g", "reason": "admin"}) in told
    assert [it.code for it in told if isinstance(it, Tell)] == [423]
    told = pull(core, "i", group="g", id=before)
    assert shown(told) == [("i", 423, "Nats-Wrong-Pin-Id")]
    assert not core.waiting


def test_samples_tell_how_long_an_acknowledgement_took() -> None:
    core = consumer(PULL, sample_freq="100%")
    pull(core, "i", batch=4)
    fill(core, *map(message, range(4)))
    told = answer(core, 1, ACK, now_ms=NOW_MS + 25)
    fields: dict[str, object] = {
        "consumer_seq": 2,
        "stream_seq": 2,
        "ack_time": 25 * MS,
        "deliveries": 1,
    }
    assert told == [Advise("ACK", fields)]
    core.acknowledged_runs([(0, 0, 4)], NOW_MS + 30)
    sampled = [it.fields["stream_seq"] for it in taken(core) if isinstance(it, Advise)]
    assert sampled == [1, 3, 4]


def test_share_of_acknowledgements_is_sampled() -> None:
    core = consumer(PULL, sample_freq="20", max_ack_pending=-1)
    pull(core, "i", batch=2_000)
    fill(core, *map(message, range(2_000)))
    core.acknowledged_runs([(0, 0, 2_000)], NOW_MS)
    assert 300 < len(taken(core)) < 500


def test_reset_begins_again() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=3)
    fill(core, *map(message, range(6)))
    answer(core, 0, ACK)
    answer(core, 2, Ack(AckKind.NAK))
    core.is_changed = False
    core.reset({0: 1, 1: 0}, NOW_MS)
    assert core.is_changed
    delivery = core.delivery
    assert (delivery.pending_count, delivery.has_redelivery, core.next_offset(0)) == (0, False, 1)
    assert core.delivery.next_deadline_ms is None
    pull(core, "i", batch=2)
    told = fill(core, *map(message, range(1, 3)))
    assert [it.delivered.sequence for it in told if isinstance(it, Deliver)] == [1, 2]
    assert shown(told) == [("i", 1, 1), ("i", 2, 1)]


def test_requests_of_one_inbox_share_a_run_in_turn() -> None:
    core = consumer(PULL)
    for batch in (1, 4, 2):
        pull(core, "i", batch=batch)
    core.add(0, run_of(map(message, range(6))), next_offset=6, beyond=0)
    core.pump(NOW_MS)
    assert runs(core) == [("i", 1, 6)]
    (left,) = core.waiting
    assert (left.request.batch, left.left, left.sent) == (4, 1, 3)
    assert core.wants == 1


def test_requests_of_two_inboxes_have_one_message_each() -> None:
    core = consumer(PULL)
    for inbox in "ij":
        pull(core, inbox, batch=2)
    core.add(0, run_of(map(message, range(3))), next_offset=3, beyond=0)
    core.pump(NOW_MS)
    assert shown(taken(core)) == [("i", 0, 1), ("j", 1, 1), ("i", 2, 1)]


def test_client_that_went_in_the_middle_of_a_run_leaves_the_rest_in_hand() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=5)
    core.add(0, run_of(map(message, range(5))), next_offset=5, beyond=0)
    core.pump(NOW_MS)
    (it,) = core.take()
    assert isinstance(it, DeliverRun)
    core.run_not_sent(it, 3, NOW_MS)
    assert (core.wants, core.needs_message) == (0, None)
    pull(core, "j", batch=5)
    for offset in (3, 4):
        assert core.needs_message == Place(0, offset)
        core.provide(Place(0, offset), message(offset), NOW_MS)
    assert shown(taken(core)) == [("j", 3, 1), ("j", 4, 1)]


def test_more_is_read_for_a_client_that_asks_again_and_again() -> None:
    core, offset, read = consumer(PULL), 0, []
    for _ in range(8):
        pull(core, "i", batch=1)
        read.append(core.reads)
        more = range(offset, offset + core.reads)
        core.add(0, run_of(map(message, more)), next_offset=more.stop, beyond=0)
        core.pump(NOW_MS)
        for _ in more[1:]:
            pull(core, "i", batch=1)
        offset = more.stop
    assert read == [1, 100, 200, 400, 800, 1_600, 3_200, READ_AHEAD]
    assert core.delivery.delivered.sequence == offset


def test_what_was_read_ahead_is_forgotten_when_nothing_asks_for_it() -> None:
    core = consumer(PULL)
    pull(core, "i")
    fill(core, *map(message, range(5)))
    assert (core.next_offset(0), core.next_ms()) == (5, NOW_MS + AHEAD_MS)
    tick(core, NOW_MS + AHEAD_MS - 1)
    assert core.next_offset(0) == 5
    tick(core, NOW_MS + AHEAD_MS)
    assert (core.next_offset(0), core.reads) == (1, 0)
    pull(core, "i", batch=2, now_ms=NOW_MS + AHEAD_MS)
    assert core.wants == core.reads == 2
    assert shown(fill(core, *map(message, range(1, 3)))) == [("i", 1, 1), ("i", 2, 1)]


def test_more_is_read_before_a_client_that_asks_again_and_again_has_all() -> None:
    core, offset = consumer(PULL, ack_policy="none"), 0
    while core.reads < READ_AHEAD:
        pull(core, "i", batch=10)
        more = range(offset, offset + max(10, core.reads))
        fill(core, *map(message, more), beyond=1_000)
        while core.next_offset(0) > core.delivery.next_offset(0):
            assert not core.is_running_low or core.reads == READ_AHEAD
            pull(core, "i", batch=10)
        offset = more.stop
    pull(core, "i", batch=10)
    fill(core, *map(message, range(offset, offset + 100)), beyond=1_000)
    assert (core.wants, core.is_running_low) == (0, False)
    pull(core, "i", batch=10)
    assert (core.wants, core.is_running_low, core.next_offset(0)) == (0, True, offset + 100)
    core.add(0, run_of([]), next_offset=offset + 110, beyond=1_000)
    assert not core.is_running_low, "it would read the same again and again"
    assert shown(pull(core, "i", batch=80))[-1] == ("i", offset + 99, 1), "nothing was passed over"
    pull(core, "i", batch=10)
    core.add(0, run_of([]), next_offset=offset + 110, beyond=1_000)
    assert core.next_offset(0) == offset + 110
    fill(core, *map(message, range(offset + 110, offset + 140)), beyond=1)
    assert core.is_running_low
    fill(core, message(offset + 140))
    assert not core.is_running_low, "there is nothing more"


def test_what_was_picked_is_kept() -> None:
    core = consumer(PULL, deliver_policy="last_per_subject")
    pull(core, "i")
    fill(core, *map(message, (1, 5)))
    assert core.next_ms() == NOW_MS + 30_000
    tick(core, NOW_MS + AHEAD_MS)
    assert core.next_offset(0) == 6
    assert shown(pull(core, "i", now_ms=NOW_MS + AHEAD_MS)) == [("i", 5, 1)]


def test_acknowledged_runs_count_once_and_only_what_was_delivered() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=6)
    fill(core, *map(message, range(6)))
    core.is_changed = False
    core.acknowledged_runs([(0, 1, 3), (0, 2, 4), (0, 5, 99), (1, 0, 5)], NOW_MS)
    assert core.is_changed
    assert [it for it in range(9) if core.delivery.is_pending(Place(0, it))] == [0, 4]
    core.is_changed = False
    core.acknowledged_runs([(0, 1, 3)], NOW_MS)
    assert not core.is_changed


def test_acknowledged_run_acks_all_before_its_last() -> None:
    core = consumer(PULL, ack_policy="all")
    pull(core, "i", batch=6)
    fill(core, *map(message, range(6)))
    core.acknowledged_runs([(0, 2, 4)], NOW_MS)
    assert [it for it in range(9) if core.delivery.is_pending(Place(0, it))] == [4, 5]


def test_request_that_does_not_wait_finds_nothing_at_a_paused_consumer() -> None:
    core = consumer(PULL)
    core.pause(NOW_MS + 500, NOW_MS)
    assert shown(pull(core, "i", no_wait=True)) == [("i", 404, "No Messages")]
    assert not pull(core, "j")


def test_pause_ends_a_request_that_does_not_wait() -> None:
    core = consumer(PULL, max_ack_pending=1)
    pull(core, "i")
    fill(core, message(0))
    pull(core, "j", no_wait=True)
    core.pause(NOW_MS + 500, NOW_MS)
    assert shown(taken(core)) == [("j", 404, "No Messages")]


def size_of(it: Deliver) -> int:
    delivered, at = it.delivered, it.message
    reply = f"$JS.ACK.s.c.{delivered.count}.{at.sequence}.{delivered.sequence}"
    return len(f"a{reply}.{at.timestamp_ms}000000.{it.pending}") + len(at.data)


def one_bytes() -> int:
    core = consumer(PULL)
    pull(core, "i")
    (it,) = fill(core, message(0), beyond=9)
    assert isinstance(it, Deliver)
    return size_of(it)


def test_request_is_full_when_its_bytes_are() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=5, max_bytes=one_bytes())
    assert shown(fill(core, message(0), beyond=9)) == [("i", 0, 1)]
    assert not core.waiting
    pull(core, "j")
    assert core.wants == 1


def test_message_that_is_too_large_ends_the_request() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=5, max_bytes=one_bytes() - 1)
    pull(core, "j")
    told = fill(core, message(0), beyond=9)
    assert shown(told) == [("i", 409, "Message Size Exceeds MaxBytes"), ("j", 0, 1)]


def test_batch_that_is_complete_before_its_bytes_says_so() -> None:
    core = consumer(PULL)
    pull(core, "i", max_bytes=one_bytes() + 7)
    first, last = fill(core, message(0), beyond=9)
    assert isinstance(first, Deliver)
    headers = (("Nats-Pending-Messages", 0), ("Nats-Pending-Bytes", 7))
    assert last == Tell("i", 409, "Batch Completed", headers)


def test_bytes_of_headers_only_are_those_that_are_sent() -> None:
    core = consumer(PULL, headers_only=True)
    size = one_bytes() - 1 + len("NATS/1.0\r\nNats-Msg-Size: 500\r\n\r\n")
    pull(core, "i", batch=5, max_bytes=size)
    assert shown(fill(core, message(0, b"x" * 500), beyond=9)) == [("i", 0, 1)]
    assert not core.waiting


def test_size_of_ten_that_are_left_is_not_that_of_nine() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=5, max_bytes=one_bytes())
    told = fill(core, *map(message, range(10)))  # nine match after it
    assert shown(told)[0] == ("i", 0, 1)
    assert not core.waiting


# Redelivery


def expired(core: Consumer, *, now_ms: int = NOW_MS + 30_000) -> list[Effect]:
    pull(core, "i")
    fill(core, message(0))
    return tick(core, now_ms)


def test_message_comes_again_once_its_wait_is_over() -> None:
    core = consumer(PULL)
    assert not expired(core)
    pull(core, "j", NOW_MS + 30_000)
    assert core.needs_message == Place(0, 0)
    core.provide(Place(0, 0), message(0), NOW_MS + 30_000)
    assert shown(taken(core)) == [("j", 0, 2)]


def test_message_does_not_become_due_while_it_is_read() -> None:
    core = consumer(PULL, ack_wait_ms=10)
    expired(core, now_ms=NOW_MS + 10)
    pull(core, "j", NOW_MS + 10, batch=5)
    for now_ms in range(NOW_MS + 20, NOW_MS + 5_000, 100):
        tick(core, now_ms)
    core.provide(Place(0, 0), message(0), NOW_MS + 5_000)
    assert shown(taken(core)) == [("j", 0, 2)]
    assert core.needs_message is None
    assert core.next_ms() == NOW_MS + 5_010


def test_message_is_not_given_up_while_it_is_read() -> None:
    core = consumer(PULL, ack_wait_ms=10, max_deliver=2)
    expired(core, now_ms=NOW_MS + 10)
    pull(core, "j", NOW_MS + 10)
    assert not tick(core, NOW_MS + 9_000)
    core.provide(Place(0, 0), message(0), NOW_MS + 9_000)
    assert shown(taken(core)) == [("j", 0, 2)]


def test_message_whose_request_ended_is_delivered_to_the_next_as_the_same_delivery() -> None:
    core = consumer(PULL, max_deliver=2)
    expired(core)
    now_ms = NOW_MS + 30_000
    pull(core, "j", now_ms, expires=10)
    core.provide(Place(0, 0), message(0), now_ms + 10)
    assert shown(taken(core)) == [("j", 408, "Request Timeout")]
    assert core.needs_message is None
    pull(core, "k", now_ms + 20)
    core.provide(Place(0, 0), message(0), now_ms + 20)
    (it,) = taken(core)
    assert isinstance(it, Deliver)
    assert (it.delivered.count, it.delivered.sequence) == (2, 2)


def test_requests_that_are_too_small_do_not_use_up_deliveries() -> None:
    core = consumer(PULL, max_deliver=2)
    expired(core)
    now_ms = NOW_MS + 30_000
    for _ in range(5):
        pull(core, "small", now_ms, max_bytes=1)
        core.provide(Place(0, 0), message(0), now_ms)
        assert shown(taken(core)) == [("small", 409, "Message Size Exceeds MaxBytes")]
    pull(core, "j", now_ms)
    core.provide(Place(0, 0), message(0), now_ms)
    assert shown(taken(core)) == [("j", 0, 2)]


@pytest.mark.parametrize("policy", ["explicit", "none"])
def test_message_that_nobody_got_is_the_same_delivery_later(policy: str) -> None:
    core = consumer(PULL, ack_policy=policy, max_deliver=1)
    pull(core, "gone")
    (it,) = fill(core, message(0))
    assert isinstance(it, Deliver)
    core.not_sent(it, NOW_MS)
    assert not tick(core, NOW_MS + 90_000)
    pull(core, "j", NOW_MS + 90_000)
    assert core.needs_message == Place(0, 0)
    core.provide(Place(0, 0), message(0), NOW_MS + 90_000)
    (again,) = taken(core)
    assert again == it._replace(subject="j")


def test_acknowledgement_of_the_delivery_before_takes_a_message_from_the_hand() -> None:
    core = consumer(PULL)
    expired(core)
    pull(core, "j", NOW_MS + 30_000)
    answer(core, 0, ACK, now_ms=NOW_MS + 30_000)
    core.provide(Place(0, 0), message(0), NOW_MS + 30_000)
    assert not taken(core)


def test_refusal_of_the_delivery_before_does_not_bring_a_message_twice() -> None:
    core = consumer(PULL)
    expired(core)
    now_ms = NOW_MS + 30_000
    pull(core, "j", now_ms, batch=5)
    answer(core, 0, NAK, now_ms=now_ms)
    core.provide(Place(0, 0), message(0), now_ms)
    assert shown(taken(core)) == [("j", 0, 2)]
    assert core.needs_message is None


def test_refusal_of_the_delivery_before_does_not_give_up_the_last_one() -> None:
    core = consumer(PULL, max_deliver=2)
    expired(core)
    now_ms = NOW_MS + 30_000
    pull(core, "j", now_ms)
    told = answer(core, 0, NAK, now_ms=now_ms)
    assert [it.kind for it in told if isinstance(it, Advise)] == ["MSG_NAKED"]
    core.provide(Place(0, 0), message(0), now_ms)
    assert shown(taken(core)) == [("j", 0, 2)]


def test_message_that_is_gone_is_not_delivered_again() -> None:
    core = consumer(PULL)
    expired(core)
    pull(core, "j", NOW_MS + 30_000)
    core.provide(Place(0, 0), None, NOW_MS + 30_000)
    assert not taken(core)
    assert core.delivery.pending_count == 0


def test_message_is_given_up_when_nothing_waits() -> None:
    core = consumer(PULL, max_deliver=1)
    fields: dict[str, object] = {"stream_seq": 1, "deliveries": 1}
    assert expired(core) == [Advise("MAX_DELIVERIES", fields)]
    assert core.delivery.pending_count == 0


def test_refused_message_is_given_up_at_once() -> None:
    core = consumer(PULL, max_deliver=1)
    pull(core, "i")
    fill(core, message(0))
    told = answer(core, 0, NAK)
    assert [it.kind for it in told if isinstance(it, Advise)] == ["MSG_NAKED", "MAX_DELIVERIES"]


def test_lower_limit_gives_up_what_is_due() -> None:
    core = consumer(PULL)
    expired(core)
    core.reconfigure(ConsumerConfig(name="c", max_deliver=1, **PULL), NOW_MS + 30_000)  # type: ignore[arg-type]
    assert [it.kind for it in taken(core) if isinstance(it, Advise)] == ["MAX_DELIVERIES"]


# Acknowledgements


def test_acknowledgement_is_confirmed_if_its_client_waits() -> None:
    core = consumer(PULL)
    pull(core, "i")
    fill(core, message(0))
    assert not answer(core, 0, NAK)[1:]
    assert answer(core, 0, ACK, "r") == [Confirm("r")]
    assert core.delivery.pending_count == 0


def test_acknowledgement_of_all() -> None:
    core = consumer(PULL, ack_policy="all")
    pull(core, "i", batch=3)
    fill(core, *map(message, range(3)))
    answer(core, 1, ACK)
    assert core.delivery.pending_count == 1


def test_acknowledgement_may_ask_for_the_next_message() -> None:
    core = consumer(PULL, max_ack_pending=1)
    pull(core, "i")
    fill(core, message(0))
    answer(core, 0, Ack(AckKind.NEXT, next_request=b"1"), "j")
    assert core.wants == 1
    assert shown(fill(core, message(1))) == [("j", 1, 1)]


def test_room_of_an_acknowledgement_with_a_bad_request_is_used() -> None:
    core = consumer(PULL, max_ack_pending=2)
    pull(core, "i", batch=5)
    fill(core, message(0), message(1))
    core.add(0, run_of([message(2)]), next_offset=3, beyond=0)
    told = answer(core, 0, Ack(AckKind.NEXT, next_request=b"{"), "j")
    assert [it[:2] for it in shown(told)] == [("j", 400), ("i", 2)]


def test_termination_tells_why() -> None:
    core = consumer(PULL)
    pull(core, "i")
    fill(core, message(0))
    (told,) = answer(core, 0, Ack(AckKind.TERM, reason="no"))
    assert isinstance(told, Advise)
    assert (told.kind, told.fields["reason"], told.fields["deliveries"]) == (
        "MSG_TERMINATED",
        "no",
        1,
    )


# Push


def bound(**more: Any) -> Consumer:
    core = consumer(PUSH, **more)
    core.bind(True, NOW_MS)
    return core


def test_push_waits_for_a_subscriber() -> None:
    core = consumer(PUSH)
    assert core.wants == 0
    core.bind(True, NOW_MS)
    assert core.wants > 0
    assert shown(fill(core, message(0))) == [("d", 0, 1)]


def test_push_that_lost_its_subscriber_goes_on_with_the_next() -> None:
    core = bound(ack_policy="none")
    first, second = fill(core, message(0), message(1))
    assert isinstance(first, Deliver) and isinstance(second, Deliver)
    core.not_sent(first, NOW_MS)
    core.not_sent(second, NOW_MS)
    assert core.needs_message is None
    core.bind(True, NOW_MS)
    for offset in (0, 1):
        assert core.needs_message == Place(0, offset)
        core.provide(Place(0, offset), message(offset), NOW_MS)
    told = taken(core)
    assert [it.delivered.sequence for it in told if isinstance(it, Deliver)] == [1, 2]


def test_push_is_blocked_while_its_subscriber_is_behind() -> None:
    core = bound()
    core.block(True, NOW_MS)
    assert core.wants == 0
    core.block(False, NOW_MS)
    assert core.wants > 0


def test_push_beats_while_it_is_idle() -> None:
    core = bound(idle_heartbeat_ms=100)
    fill(core, message(0), now_ms=NOW_MS + 50)
    assert core.next_ms() == NOW_MS + 150
    assert shown(tick(core, NOW_MS + 150)) == [("d", 100, "Idle Heartbeat")]
    core.bind(False, NOW_MS + 200)
    assert not tick(core, NOW_MS + 300)


def test_flow_control_stops_at_the_window_and_goes_on_with_the_answer() -> None:
    core = bound(flow_control=True, idle_heartbeat_ms=100)
    half = b"x" * (WINDOW_BYTES_MIN // 2)
    told = fill(core, *(message(number, half) for number in range(4)))
    asked = Tell("d", 100, "FlowControl Request", reply="fc.1")
    assert told[1] == asked and shown(told) == [("d", 0, 1), shown([asked])[0], ("d", 1, 1)]
    (beat,) = tick(core, NOW_MS + 100)
    assert isinstance(beat, Tell) and ("Nats-Consumer-Stalled", "fc.1") in beat.headers
    core.flow_answered("fc.0", NOW_MS + 100)
    assert not taken(core)
    core.flow_answered("fc.1", NOW_MS + 100)
    assert ("d", 2, 1) in shown(taken(core))


def test_flow_control_asks_again_after_a_message_that_is_larger_than_the_window() -> None:
    core = bound(flow_control=True, idle_heartbeat_ms=100)
    told = fill(
        core,
        message(0, b"x" * (WINDOW_BYTES_MIN // 2)),
        message(1, b"x" * WINDOW_BYTES_MIN * 3),
        message(2),
    )
    assert ("d", 2, 1) not in shown(told)
    core.flow_answered("fc.1", NOW_MS)
    (again,) = taken(core)
    assert isinstance(again, Tell) and again.reply == "fc.2"
    core.flow_answered("fc.2", NOW_MS)
    assert shown(taken(core)) == [("d", 2, 1)]


def test_subscriber_that_comes_again_begins_with_a_window_of_its_own() -> None:
    core = bound(flow_control=True, idle_heartbeat_ms=100)
    fill(core, message(0, b"x" * WINDOW_BYTES_MIN), message(1))
    core.bind(False, NOW_MS)
    core.bind(True, NOW_MS)
    assert shown(taken(core)) == [("d", 1, 1)]


FLOW = {"ack_policy": "flow_control", "flow_control": True, "idle_heartbeat_ms": 1_000}


def asked_by(told: list[Effect]) -> list[str]:
    return [it.reply for it in told if isinstance(it, Tell) and it.reply]


def test_answer_to_flow_control_acknowledges_what_it_names() -> None:
    core = bound(**FLOW, max_ack_pending=3)
    told = fill(core, *map(message, range(5)))
    assert asked_by(told) == ["fc.1"]
    assert shown(told)[:3] == [("d", 0, 1), ("d", 1, 1), ("d", 2, 1)]
    assert core.flow_answered("fc.0", NOW_MS, FlowAnswer(2, 2)) == 0
    assert core.flow_answered("fc.1", NOW_MS, FlowAnswer(2, 2)) == 2
    assert core.is_changed
    told = taken(core)
    assert ("d", 3, 1) in shown(told) and ("d", 4, 1) in shown(told)
    assert core.delivery.ack_floor.offsets[0] == 2
    assert asked_by(told) == ["fc.2"]
    assert core.flow_answered("fc.2", NOW_MS, FlowAnswer(5, 99)) == 3


def test_nothing_else_acknowledges_by_flow_control_and_nothing_comes_again_by_itself() -> None:
    core = bound(**FLOW)
    fill(core, message(0), message(1))
    assert not answer(core, 0, Ack(AckKind.ACK), "reply")
    assert not answer(core, 0, Ack(AckKind.NAK))
    core.acknowledged_runs([(0, 0, 2)], NOW_MS)
    assert core.delivery.pending_count == 2
    told = tick(core, NOW_MS + 1_000)
    assert shown(told)[0] == ("d", 100, "Idle Heartbeat") and asked_by(told) == ["fc.1"]
    core.flow_answered("fc.1", NOW_MS + 1_000)
    assert not asked_by(taken(core)), (
        "one that acknowledges nothing is asked with the next heartbeat"
    )
    assert core.next_ms() == NOW_MS + 2_000
    assert not [it for it in tick(core, NOW_MS + 10**9) if isinstance(it, Deliver)]


def test_reset_forgets_what_was_asked() -> None:
    core = bound(**FLOW, max_ack_pending=1)
    assert asked_by(fill(core, message(0))) == ["fc.1"]
    core.reset({0: 0}, NOW_MS)
    assert core.flow_answered("fc.1", NOW_MS, FlowAnswer(1, 1)) == 0
    assert shown(fill(core, message(0)))[0] == ("d", 0, 1)


def test_another_coordinator_leaves_sequences_out() -> None:
    core = bound(**FLOW)
    fill(core, message(0))
    core.begin_again()
    (second, *_) = fill(core, message(1))
    assert isinstance(second, Deliver) and second.delivered.sequence == SEQUENCES_LEFT_OUT + 2


# The pace


def test_rate_limit_holds_for_small_messages() -> None:
    core = bound(rate_limit_bps=8_000_000)  # a byte in a microsecond
    core.add(
        0, run_of([message(it, b"x" * 100) for it in range(10_000)]), next_offset=10_000, beyond=0
    )
    core.pump(NOW_MS)
    now_ms, sizes = NOW_MS, [size_of(it) for it in taken(core) if isinstance(it, Deliver)]
    while now_ms < NOW_MS + 500:
        next_ms = core.next_ms()
        assert next_ms is not None and next_ms > now_ms
        now_ms = next_ms
        sizes += [size_of(it) for it in tick(core, now_ms) if isinstance(it, Deliver)]
    elapsed_ms = now_ms - NOW_MS
    assert elapsed_ms * 1_000 <= sum(sizes) <= (elapsed_ms + BURST_MS) * 1_000 + 200


def test_pace_wakes_nobody_when_nobody_is_there() -> None:
    core = bound(rate_limit_bps=8)
    fill(core, message(0), message(1))
    assert (core.next_ms() or 0) > NOW_MS
    core.bind(False, NOW_MS)
    tick(core, NOW_MS + 10_000_000)
    core.delivery.ack(Place(0, 0))
    assert core.next_ms() is None


def test_rate_limit_wakes_for_a_message_that_is_due_again() -> None:
    core = bound(rate_limit_bps=8_000, ack_wait_ms=10)
    fill(core, message(0, b"x" * 1_000))  # worth a second
    tick(core, NOW_MS + 10)
    next_ms = core.next_ms()
    assert next_ms is not None and NOW_MS + 900 < next_ms < NOW_MS + 1_100
    tick(core, next_ms)
    assert core.needs_message == Place(0, 0)


def test_another_rate_limit_holds_at_once() -> None:
    core = bound(rate_limit_bps=8)
    fill(core, message(0), message(1))
    core.reconfigure(
        ConsumerConfig(name="c", ack_policy="explicit", deliver_subject="d", rate_limit_bps=10**9),
        NOW_MS,
    )
    assert shown(taken(core)) == [("d", 1, 1)]


def replayed(core: Consumer, now_ms: int) -> list[int]:
    return [it.delivered.place.offset for it in tick(core, now_ms) if isinstance(it, Deliver)]


def test_replay_keeps_the_pace_also_from_one_read_to_the_next() -> None:
    core = consumer(PULL, replay_policy="original")
    pull(core, "i", batch=9)
    fill(core, message(0, timestamp_ms=5_000), beyond=2)
    core.add(0, run_of([message(1, timestamp_ms=5_200)]), next_offset=2, beyond=1)
    assert replayed(core, NOW_MS) == []
    assert core.next_ms() == NOW_MS + 200
    assert replayed(core, NOW_MS + 200) == [1]


def test_replay_ends_with_the_messages_that_were_there() -> None:
    core = consumer(PULL, replay_policy="original")
    pull(core, "i", batch=9)
    fill(core, message(0, timestamp_ms=5_000))
    assert shown(fill(core, message(1, timestamp_ms=95_000))) == [("i", 1, 1)]


def test_pause_holds_everything_back_until_its_time() -> None:
    core = consumer(PULL)
    pull(core, "i", batch=5)
    core.pause(NOW_MS + 100, NOW_MS)
    assert core.wants == 0
    assert not fill(core, message(0))
    assert core.next_ms() == NOW_MS + 100
    assert shown(tick(core, NOW_MS + 100)) == [("i", 0, 1)]


# The stream


def test_first_deliveries_go_on_after_what_was_passed_over() -> None:
    core = consumer(PULL)
    pull(core, "i")
    core.add(0, run_of([]), next_offset=7, beyond=0)
    assert core.next_offset(0) == 7


def test_purge_takes_what_was_read() -> None:
    core = consumer(PULL)
    fill(core, message(0), message(1))
    core.start_moved(0, 1, NOW_MS)
    assert shown(pull(core, "i")) == [("i", 1, 1)]


def test_what_was_read_before_a_purge_is_not_delivered_after_it() -> None:
    core = consumer(PULL)
    pull(core, "i")
    core.start_moved(0, 5, NOW_MS)
    assert shown(fill(core, message(4), message(5))) == [("i", 5, 1)]


def test_other_filters_do_not_get_what_those_before_read() -> None:
    core = consumer(PULL)
    fill(core, message(0), beyond=3)
    core.reconfigure(
        ConsumerConfig(name="c", ack_policy="explicit", max_waiting=512, filter_subject="b"), NOW_MS
    )
    assert not pull(core, "i")
    assert core.wants == 1 and core.next_offset(0) == 0


# Whether it is used


def test_consumer_is_abandoned_when_it_was_not_used_for_long() -> None:
    core = consumer(PULL, inactive_threshold_ms=500)
    assert core.next_ms() == NOW_MS + 500
    assert core.is_abandoned(NOW_MS + 500)
    assert not core.is_abandoned(NOW_MS + 499)


def test_end_of_a_long_request_is_a_use() -> None:
    core = consumer(PULL, inactive_threshold_ms=500)
    pull(core, "i", expires=10_000)
    assert shown(tick(core, NOW_MS + 10_000)) == [("i", 408, "Request Timeout")]
    assert not core.is_abandoned(NOW_MS + 10_499)
    assert core.is_abandoned(NOW_MS + 10_500)


def test_client_that_goes_has_used_it_until_then() -> None:
    core = consumer(PULL, inactive_threshold_ms=500)
    pull(core, "i")
    core.drop_pulls("i", NOW_MS + 10_000)
    assert not core.is_abandoned(NOW_MS + 10_499)


def test_requests_are_told_that_the_consumer_goes() -> None:
    core = consumer(PULL)
    pull(core, "i")
    core.end_pulls(409, "Consumer Deleted")
    assert shown(taken(core)) == [("i", 409, "Consumer Deleted")]
    assert not core.waiting


@pytest.mark.parametrize("is_kept", [True, False])
def test_message_that_was_given_up_is_held_until_it_is_acknowledged_late(is_kept: bool) -> None:
    core = consumer(PULL, max_deliver=1, ack_wait_ms=100)
    core.keeps_given_up = is_kept
    fill(core, message(0), message(1))
    pull(core, "inbox", batch=2)
    tick(core, NOW_MS + 100)
    assert core.delivery.pending_count == 0
    assert {number: list(it) for number, it in core.given_up.items()} == (
        {0: [0, 1]} if is_kept else {}
    )
    core.is_changed = False
    answer(core, 1, Ack(AckKind.NAK))
    assert not core.is_changed
    answer(core, 1, Ack(AckKind.ACK))
    assert core.is_changed is is_kept
    if is_kept:
        assert list(core.given_up[0]) == [0]
        core.start_moved(0, 1, NOW_MS + 100)
    assert not core.given_up
