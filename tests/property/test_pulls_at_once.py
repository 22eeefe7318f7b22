"""A pull request that finds all its messages read is served as any other: the same goes out, and the same is kept."""

import json
import random
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.delivery.delivery import Delivery
from streamlog.jetstream.consumers.acks import Ack, AckKind, AckSubject
from streamlog.jetstream.consumers.consumer import Consumer, DeliverRun, Effect, limits_of
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.pull_request import PullRequest
from tests.message_runs import run_of

PARTITIONS = 2

configs = st.fixed_dictionaries(
    {
        "ack_policy": st.sampled_from(["explicit", "all", "none"]),
        "max_deliver": st.sampled_from([-1, 1, 2]),
        "max_ack_pending": st.sampled_from([-1, 3, 8]),
        "ack_wait_ms": st.sampled_from([5, 40]),
        "headers_only": st.sampled_from([False] * 5 + [True]),
        "replay_policy": st.sampled_from(["instant"] * 5 + ["original"]),
        "priority_policy": st.sampled_from(["none"] * 5 + ["prioritized"]),
        "max_waiting": st.sampled_from([1, 4]),
    }
)
pulls = st.tuples(
    st.just("pull"),
    st.integers(1, 5),
    st.sampled_from([0, 0, 0, 90, 1_000]),
    st.sampled_from([0, 25, 25]),
    st.booleans(),
)
events = st.one_of(
    pulls,
    pulls,
    st.tuples(st.just("read"), st.integers(0, PARTITIONS - 1), st.integers(4, 30)),
    st.tuples(st.just("acknowledge"), st.integers(0, 7), st.sampled_from(list(AckKind))),
    *[st.tuples(st.just("time"), st.sampled_from([1, 6, 30, 50]))] * 2,
    st.tuples(st.just("pause"), st.sampled_from([None, None, 30])),
)


class OneByOne(Consumer):
    """Has each request wait, and looks then what there is for it."""

    def _serve_at_once(self, subject: str, request: PullRequest, now_ms: int) -> bool:
        return False


class Counted(Consumer):
    def _serve_at_once(self, subject: str, request: PullRequest, now_ms: int) -> bool:
        is_served = super()._serve_at_once(subject, request, now_ms)
        event(f"at once: {is_served}")
        return is_served


def made(kind: type[Consumer], fields: dict[str, Any]) -> Consumer:
    if fields["priority_policy"] != "none":
        fields = {**fields, "priority_groups": ("g",)}
    config = ConsumerConfig(name="c", **fields)
    starts = dict.fromkeys(range(PARTITIONS), 0)
    delivery = Delivery(limits_of(config), starts=starts, needs_acks=fields["ack_policy"] != "none")
    return kind(config, delivery, now_ms=0, rng=random.Random(7), reply_prefix="$JS.ACK.s.c.")


def each(effects: list[Effect]) -> list[object]:
    """Runs message by message: how many went together is no matter."""
    found = list[object]()
    for it in effects:
        if isinstance(it, DeliverRun):
            found += [
                (one.subject, one.delivered, one.message, one.pending)
                for one in it.deliveries(it.start)
            ]
        else:
            found.append(it)
    return found


@settings(max_examples=1_000)
@given(configs, st.lists(events, min_size=5, max_size=40))
def test_a_request_that_finds_all_is_served_as_others_are(
    fields: dict[str, Any], happens: list[tuple[Any, ...]]
) -> None:
    both = made(Counted, fields), made(OneByOne, fields)
    now_ms, ends, inboxes, delivered = 0, [0] * PARTITIONS, 0, list[AckSubject]()
    both[0].add(0, run_of([]), next_offset=0, beyond=0)
    both[1].add(0, run_of([]), next_offset=0, beyond=0)
    for what, *more in happens:
        taken = list[list[Effect]]()
        if what == "read":
            number, count = more
            messages = [
                StoredMessage("a", ends[number] + place + 1, now_ms, b"", b"x" * place)
                for place in range(count)
            ]
            ends[number] += count
        elif what == "pull":
            inboxes += 1
        elif what == "time":
            now_ms += more[0]
        for core in both:
            if what == "read":
                core.add(number, run_of(messages), next_offset=ends[number], beyond=0)
                core.pump(now_ms)
            elif what == "pull":
                batch, max_bytes, expires_ms, no_wait = more
                body = {"batch": batch, "max_bytes": max_bytes, "no_wait": no_wait, "group": "g"}
                body["expires"] = expires_ms * 1_000_000
                core.pull(f"inbox.{inboxes % 3}", json.dumps(body).encode(), now_ms)
            elif what == "acknowledge" and delivered:
                place, kind = more
                core.acknowledged(
                    delivered[place % len(delivered)], Ack(kind, 0, "", b""), "", now_ms
                )
            elif what == "time":
                core.tick(now_ms)
            elif what == "pause":
                core.pause(None if more[0] is None else now_ms + more[0], now_ms)
            taken.append(core.take())
        assert each(taken[0]) == each(taken[1])
        for it in taken[0]:
            if isinstance(it, DeliverRun):
                delivered += [
                    AckSubject("s", "c", one.delivered.count, one.message.sequence, one.delivered.sequence,
                               0, 0, one.delivered.place.partition, 7)
                    for one in it.deliveries(it.start)
                ]  # fmt: skip
        told = [
            (it.wants, it.needs_message, it.last_pull, it.is_changed, it.last_delivered_ms,
             it.delivery.encode(now_ms), [pull.subject for pull in it.waiting])
            for it in both
        ]  # fmt: skip
        assert told[0] == told[1]
