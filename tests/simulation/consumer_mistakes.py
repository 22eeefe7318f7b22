"""Mistakes that a coordinator of consumers could make, to be planted one at a time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from streamlog.delivery.delivery import Delivery, DeliveryLimits
from streamlog.delivery.state_encoding import DeliveryState
from streamlog.jetstream.consumers import consumer_coordinator
from streamlog.jetstream.consumers.consumer import Consumer
from streamlog.jetstream.consumers.consumer_coordinator import (
    ConsumerCoordinator,
    HostedConsumer,
)
from streamlog.jetstream.consumers.consumer_records import (
    KeptConsumer,
    KeptConsumers,
    consumer_record,
)
from streamlog.jetstream.consumers.consumer_service import ConsumerService
from streamlog.jetstream.consumers.interest import Interest, Interests, Releases
from streamlog.record.offset_set import OffsetSet


def act_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerCoordinator, "may_act", property(lambda self: self.leads))


def let_earlier_coordinators_go_on(patch: pytest.MonkeyPatch) -> None:
    """Another node coordinates until it hears by itself that it does not lead."""

    async def end_others(self: ConsumerService, number: int, leader_epoch: int) -> None:
        """At once."""

    patch.setattr(ConsumerService, "_end_others", end_others)


def confirm_what_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    def confirm(self: ConsumerCoordinator, hosted: HostedConsumer, reply: str) -> None:
        self.around.router.publish(reply.encode(), b"")
        self.changed(hosted)

    patch.setattr(ConsumerCoordinator, "confirm", confirm)


def confirm_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """It is appended, which is enough for a leader that does not die."""

    def append_run(self: ConsumerCoordinator, records: Any, committed: Any, failed: Any) -> None:
        inner(self, records, lambda: None, failed)
        committed()

    inner = ConsumerCoordinator._append_run
    patch.setattr(ConsumerCoordinator, "_append_run", append_run)


def confirm_what_could_not_be_written(patch: pytest.MonkeyPatch) -> None:
    def append_run(self: ConsumerCoordinator, records: Any, committed: Any, _: Any) -> None:
        inner(self, records, committed, lambda error: committed())

    inner = ConsumerCoordinator._append_run
    patch.setattr(ConsumerCoordinator, "_append_run", append_run)


def take_states_of_namesakes(patch: pytest.MonkeyPatch) -> None:
    """A consumer that is made again goes on where the one before was."""

    def state_of(self: KeptConsumers, key: Any) -> bytes | None:
        return self._states[key][8:] if key in self._states else None

    patch.setattr(KeptConsumers, "state_of", state_of)
    patch.setattr(consumer_coordinator, "_tombstones", lambda key: [consumer_record(key, None)])
    patch.setattr(
        ConsumerCoordinator, "_append", _without_first_states(ConsumerCoordinator._append)
    )


def _without_first_states(inner: Any) -> Any:
    async def append(self: ConsumerCoordinator, records: Any) -> None:
        await inner(self, records[:1])

    return append


def load_what_is_known_to_be_committed(patch: pytest.MonkeyPatch) -> None:
    """A new leader knows that of its own, late."""

    async def until(_partition: Any, _condition: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr(consumer_coordinator, "until", until)


def confirm_what_is_not_delivered_here(patch: pytest.MonkeyPatch) -> None:
    """The delivery was another coordinator's; this one is about to deliver the message itself."""

    def acknowledged(self: HostedConsumer, acked: Any, ack: Any, reply: str) -> None:
        self.core.acknowledged(acked, ack, reply, consumer_coordinator.clock_ms())
        self.settle()

    patch.setattr(HostedConsumer, "acknowledged", acknowledged)


def forget_what_is_pending(patch: pytest.MonkeyPatch) -> None:
    """The next coordinator goes on after what was delivered."""

    def decode(data: bytes, pending_max: int) -> DeliveryState:
        state = inner(data, pending_max)
        partitions = {number: it._replace(pending=[]) for number, it in state.partitions.items()}
        return state._replace(partitions=partitions, due=[])

    inner = DeliveryState.decode
    patch.setattr(DeliveryState, "decode", decode)


def begin_counts_again(patch: pytest.MonkeyPatch) -> None:
    """The next coordinator takes each pending message for delivered once."""

    def decode(data: bytes, pending_max: int) -> DeliveryState:
        state = inner(data, pending_max)
        partitions = {
            number: it._replace(pending=[record._replace(count=1) for record in it.pending])
            for number, it in state.partitions.items()
        }
        return state._replace(partitions=partitions)

    inner = DeliveryState.decode
    patch.setattr(DeliveryState, "decode", decode)


def deliver_once_more(patch: pytest.MonkeyPatch) -> None:
    """A message is given up after one delivery too many."""

    def is_exhausted(self: Delivery, count: int) -> bool:
        return bool(0 < self._limits.deliveries_max < count)

    patch.setattr(Delivery, "_is_exhausted", is_exhausted)


def delete_in_memory_alone(patch: pytest.MonkeyPatch) -> None:
    """The next coordinator finds it again."""

    async def remove(self: ConsumerCoordinator, hosted: HostedConsumer) -> None:
        hosted.close("Consumer Deleted")
        self._drop(hosted.key)

    patch.setattr(ConsumerCoordinator, "_remove", remove)


def keep_what_is_acknowledged_in_hand(patch: pytest.MonkeyPatch) -> None:
    """Its message is being read, to be delivered again."""
    patch.setattr(Consumer, "_drop_from_hand", lambda _self: None)


def ignore_the_limit_of_pending_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delivery, "has_room", property(lambda _self: True))
    patch.setattr(Delivery, "room", property(lambda _self: 1_000))


def never_wait_for_acknowledgements(patch: pytest.MonkeyPatch) -> None:
    """What nobody acknowledges waits for ever."""
    patch.setattr(DeliveryLimits, "wait_ms", lambda _self, _count: 3_600_000)


# Streams that lose messages, or that consumers empty


def show_no_leader_epochs(patch: pytest.MonkeyPatch) -> None:
    """A consumer goes on after what was lost with a leader."""
    patch.setattr(Consumer, "read_epochs", lambda _self, _partition, _offset: ())


def go_back_by_any_answer(patch: pytest.MonkeyPatch) -> None:
    """Also by one of before it went back."""
    patch.setattr(HostedConsumer, "_has_read", lambda *_: True)


def forget_leader_epochs_at_a_reset(patch: pytest.MonkeyPatch) -> None:
    def reset(self: Consumer, *arguments: Any, **more: Any) -> None:
        self.epochs.clear()
        inner(self, *arguments, **more)

    inner = Consumer.reset
    patch.setattr(Consumer, "reset", reset)


def forget_leader_epochs_of_what_was_picked(patch: pytest.MonkeyPatch) -> None:
    """A reset leaves those alone that are below where it goes back to."""

    def reset(self: Consumer, offsets: Mapping[int, int], *arguments: Any, **more: Any) -> None:
        for partition, offset in offsets.items():
            if partition in self.epochs and offset <= self.next_offset(partition):
                self.epochs[partition].truncate(offset)
        inner(self, offsets, *arguments, **more)

    inner = Consumer.reset
    patch.setattr(Consumer, "reset", reset)


def tell_of_half_a_reset(patch: pytest.MonkeyPatch) -> None:
    """Where a consumer of a work queue begins now, with what it had come to before."""

    def reset(self: HostedConsumer, offsets: Mapping[int, int], *more: Any) -> None:
        self.kept_interests = {
            number: it._replace(begin=offsets[number], carried=OffsetSet())
            for number, it in (self.kept_interests or {}).items()
        }
        inner(self, offsets, *more)

    inner = HostedConsumer.reset
    patch.setattr(HostedConsumer, "reset", reset)


def remove_what_is_delivered(patch: pytest.MonkeyPatch) -> None:
    """It is not acknowledged yet."""

    def interests(self: HostedConsumer) -> dict[int, Interest]:
        return {number: it._replace(open=OffsetSet()) for number, it in inner(self).items()}

    inner = HostedConsumer.interests
    patch.setattr(HostedConsumer, "interests", interests)


def remove_what_is_in_the_place_of_lost_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Interests, "where", lambda self, _shared_end: self)


def remember_removals_that_failed(patch: pytest.MonkeyPatch) -> None:
    """As if they had been carried out."""
    patch.setattr(Releases, "forget", lambda _self: None)


def keep_where_filters_began(patch: pytest.MonkeyPatch) -> None:
    """Also where the stream has other messages by now."""
    patch.setattr(KeptConsumer, "below", lambda self, _number, _end: self)


def serve_before_all_have_a_say(patch: pytest.MonkeyPatch) -> None:
    """Also where consumers remove messages, one is used while others rest."""
    patch.setattr(ConsumerCoordinator, "_serves_early", lambda self, _: self.is_serving)


def restore_what_was_restored(patch: pytest.MonkeyPatch) -> None:
    """A consumer that was used while others rested is made a second time of what the log has."""

    def drop(self: KeptConsumers, key: Any) -> None:
        """It stays."""

    patch.setattr(KeptConsumers, "drop", drop)
