"""A consumer whose stream is read while something else happens to it."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.delivery.delivery import Delivery, Place
from streamlog.jetstream.consumers.consumer import Consumer, Deliver, limits_of
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.consumer_coordinator import HostedConsumer, clock_ms
from streamlog.jetstream.consumers.consumer_records import ConsumerKey, KeptConsumer
from streamlog.jetstream.consumers.stream_source import (
    ConsumerStart,
    StartQuery,
    StreamMessage,
    StreamPart,
)
from streamlog.log.leader_epochs import EpochStart, LeaderEpochs
from streamlog.record.offset_set import OffsetSet
from tests.message_runs import one_by_one, run_of

END = 9


class Source:
    """A stream with messages at all offsets below END."""

    def __init__(self) -> None:
        self.meanwhile: Any = None
        """Called once, in the middle of a read."""
        self.epochs = LeaderEpochs([EpochStart(1, 0)])
        self.is_late = False
        """What it answers is what was so when it was asked."""
        self.asked = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def message(self, *asked: Any, **more: Any) -> StreamMessage:
        shared_end = self.epochs.shared_end(more["epochs"], more["end"], END)
        if shared_end < more["end"]:
            return StreamMessage(None, shared_end)
        return StreamMessage(StoredMessage("other", asked[2] + 1, 0, b"", b"x"))

    async def start(self, tp: Any, stream_id: Any, query: StartQuery) -> ConsumerStart:
        if query.policy == "last_per_subject":
            assert query.up_to is not None
            return ConsumerStart(query.up_to, list(range(query.up_to)))
        return ConsumerStart(query.value, None, self.epochs.between(0, query.value))

    async def read(self, *asked: Any, **more: Any) -> StreamPart:
        offset = asked[3]
        shared_end = self.epochs.shared_end(more["epochs"], offset, END)
        if self.is_late:
            self.is_late = False
            self.asked.set()
            await self.goes_on.wait()
        if shared_end < offset:
            return StreamPart(run_of([]), offset, 0, 0, END, shared_end=shared_end)
        if more.get("picked") is not None:
            picked = [StoredMessage("a", it + 1, 0, b"", b"x") for it in more["picked"]]
            return StreamPart(run_of(picked), picked[-1].sequence, 0, 0, END)
        messages = [StoredMessage("a", it + 1, 0, b"", b"x") for it in range(offset, END)]
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return StreamPart(run_of(messages), END, 0, 0, END, self.epochs.between(offset, END))


@pytest.mark.parametrize("reset_to", [0, 3, 7])
async def test_reset_while_the_stream_is_read_leaves_nothing_out(reset_to: int) -> None:
    config = ConsumerConfig(name="c", ack_policy="explicit", max_waiting=9)
    delivery = Delivery(limits_of(config), starts={0: 5})
    core = Consumer(config, delivery, now_ms=clock_ms(), rng=Random(1))
    source = Source()
    coordinator: Any = SimpleNamespace(around=SimpleNamespace(source=source))
    kept = KeptConsumer(config, UUID(int=1), 1, None, {})
    hosted = HostedConsumer(coordinator, ConsumerKey("s", "c"), kept, core, picked={}, partitions=1)
    core.pull("i", b'{"batch": 100}', clock_ms())
    source.meanwhile = lambda: hosted.reset({0: reset_to})
    for _ in range(2):
        await hosted._read(0, 100)
    delivered = [it.delivered.place.offset for it in one_by_one(core.take())]  # type: ignore[union-attr]
    assert delivered == list(range(reset_to, END))


async def test_consumer_goes_back_to_where_its_stream_has_other_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = ConsumerConfig(name="c", ack_policy="explicit", max_waiting=9)
    core = Consumer(
        config, Delivery(limits_of(config), starts={0: 0}), now_ms=clock_ms(), rng=Random(1)
    )
    source = Source()
    coordinator: Any = SimpleNamespace(
        around=SimpleNamespace(source=source), may_act=False, keep=lambda _: None
    )
    kept = KeptConsumer(config, UUID(int=1), 1, None, {})
    hosted = HostedConsumer(coordinator, ConsumerKey("s", "c"), kept, core, picked={}, partitions=1)
    core.pull("i", b'{"batch": 100}', clock_ms())
    await hosted._read(0, 100)
    assert len(list(one_by_one(core.take()))) == END
    assert hosted.interests()[0].next_offset == END
    source.epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 6)])
    core.pull("i", b'{"batch": 100}', clock_ms())
    assert await hosted._read(0, 100) == (True, 0)
    assert hosted.interests()[0].next_offset == 6
    assert core.delivery.pending_count == 6
    await hosted._read(0, 100)
    delivered = [it.delivered for it in one_by_one(core.take())]  # type: ignore[union-attr]
    assert [it.place.offset for it in delivered] == [6, 7, 8]
    assert [it.sequence for it in delivered] == [10, 11, 12]
    assert core.read_epochs(0, END) == (EpochStart(1, 0), EpochStart(3, 6))
    (told,) = [it for it in caplog.records if "goes back" in it.message]
    assert (told.was, told.offset) == (END, 6)  # type: ignore[attr-defined]


@pytest.mark.parametrize("offset", [2, 5])
async def test_last_messages_are_found_again_where_some_were_lost(offset: int) -> None:
    """They were picked as of offset 5; what comes after the loss is delivered whether it is the last one or not."""
    config = ConsumerConfig(name="c", deliver_policy="last_per_subject", max_waiting=9)
    core = Consumer(
        config, Delivery(limits_of(config), starts={0: 1}), now_ms=clock_ms(), rng=Random(1)
    )
    written = list[Any]()
    coordinator: Any = SimpleNamespace(
        around=SimpleNamespace(source=Source()), may_act=False, keep=written.append
    )
    kept = KeptConsumer(config, UUID(int=1), 1, None, {0: 5})
    hosted = HostedConsumer(
        coordinator, ConsumerKey("s", "c"), kept, core, picked={0: [1, 3, 4]}, partitions=1
    )
    hosted._rewind(0, offset)
    assert hosted.kept.resume_at == {0: min(offset, 5)}
    assert bool(written) == (offset < 5)
    assert hosted._unpicked == {0}


async def test_consumer_that_is_reset_beyond_what_it_has_read_stays_there() -> None:
    """What it knows of leader epochs ends where it had come to."""
    config = ConsumerConfig(name="c", ack_policy="explicit", max_waiting=9)
    core = Consumer(
        config, Delivery(limits_of(config), starts={0: 3}), now_ms=clock_ms(), rng=Random(1)
    )
    core.note_epochs(0, [EpochStart(1, 0)])
    source = Source()
    source.epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(2, 5)])
    coordinator: Any = SimpleNamespace(around=SimpleNamespace(source=source), may_act=False)
    kept = KeptConsumer(config, UUID(int=1), 1, None, {})
    hosted = HostedConsumer(coordinator, ConsumerKey("s", "c"), kept, core, picked={}, partitions=1)
    hosted.reset({0: 8})
    core.pull("i", b'{"batch": 100}', clock_ms())
    await hosted._read(0, 100)
    delivered = [it.delivered.place.offset for it in one_by_one(core.take())]  # type: ignore[union-attr]
    assert delivered == [8]


def hosted_on(
    source: Source, start: int = 0, resume_at: dict[int, int] | None = None, **config: Any
) -> HostedConsumer:
    """With a client that waits for many messages."""
    made = ConsumerConfig(name="c", ack_policy="explicit", max_waiting=9, **config)
    core = Consumer(
        made, Delivery(limits_of(made), starts={0: start}), now_ms=clock_ms(), rng=Random(1)
    )
    coordinator: Any = SimpleNamespace(
        around=SimpleNamespace(source=source),
        may_act=False,
        keep=lambda _: None,
        is_behind=lambda _: False,
    )
    kept = KeptConsumer(made, UUID(int=1), 1, None, resume_at or {})
    hosted = HostedConsumer(coordinator, ConsumerKey("s", "c"), kept, core, picked={}, partitions=1)
    core.pull("i", b'{"batch": 100}', clock_ms())
    return hosted


def delivered_by(hosted: HostedConsumer) -> list[int]:
    effects = one_by_one(hosted.core.take())
    return [it.delivered.place.offset for it in effects if isinstance(it, Deliver)]


async def test_message_in_the_place_of_a_lost_one_is_not_taken_for_it() -> None:
    """It may have another subject, and was not delivered before."""
    source = Source()
    hosted = hosted_on(source)
    core = hosted.core
    await hosted._read(0, 100)
    assert delivered_by(hosted) == list(range(END))
    source.epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 6)])
    core.delivery.nak(Place(0, 7), clock_ms())
    core.pump(clock_ms())
    assert core.needs_message == (0, 7)
    await hosted._step()
    assert delivered_by(hosted) == []
    assert core.next_offset(0) == 6
    await hosted._step()
    assert delivered_by(hosted) == [6, 7, 8]


async def test_answer_of_before_it_went_back_does_not_have_it_go_back_again() -> None:
    source = Source()
    hosted = hosted_on(source)
    await hosted._read(0, 100)
    source.epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 6)])
    source.is_late = True
    counted = asyncio.create_task(hosted._beyond(0))
    await source.asked.wait()
    for _ in range(2):
        await hosted._read(0, 100)
    assert delivered_by(hosted) == [*range(END), 6, 7, 8]
    source.goes_on.set()
    assert await counted == (0, END)
    assert hosted.core.delivery.next_offset(0) == END
    assert hosted.core.delivery.pending_count == END


@pytest.mark.parametrize("reset_to", [2, 7])
async def test_consumer_that_was_reset_goes_back_to_where_messages_were_lost(reset_to: int) -> None:
    """It has read, or passed over, what was before."""
    source = Source()
    source.epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(2, 5)])
    hosted = hosted_on(source)
    if reset_to == 2:
        await hosted._read(0, 100)
    offsets = {0: reset_to}
    hosted.reset(offsets, await hosted.reset_epochs(offsets))
    hosted.core.take()
    source.epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 1)])
    for _ in range(2):
        await hosted._read(0, 100)
    assert delivered_by(hosted) == list(range(1, END))


async def test_last_messages_are_picked_of_those_that_are_not_lost() -> None:
    source = Source()
    source.epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 4)])
    hosted = hosted_on(source, 1, {0: 7}, deliver_policy="last_per_subject")
    hosted.core.note_epochs(0, [EpochStart(1, 0), EpochStart(2, 6)])
    hosted._picked[0] = [1, 5, 6]
    assert await asyncio.wait_for(hosted._beyond(0), 5) == (0, END)
    assert hosted.kept.resume_at == {0: 4}
    for _ in range(3):
        await hosted._read(0, 100)
    assert delivered_by(hosted) == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_filters_of_before_hold_for_no_messages_in_the_place_of_lost_ones() -> None:
    """A work queue removed them undelivered, where such a message was in the hands of a client, or never."""
    source = Source()
    hosted = hosted_on(source)
    await hosted._read(0, 100)
    carried = {0: OffsetSet((2, 7)), 1: OffsetSet((8,))}
    hosted.kept = hosted.kept._replace(begins={0: 8, 1: 9}, carried=carried)
    source.epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 6)])
    await hosted._read(0, 100)
    interest = hosted.interests()[0]
    assert (interest.begin, interest.carried) == (6, OffsetSet((2,)))
    assert hosted.kept.begins[1] == 9
    assert hosted.kept.carried[1] == OffsetSet((8,))
