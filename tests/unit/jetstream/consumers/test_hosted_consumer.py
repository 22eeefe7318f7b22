"""A consumer whose stream is read while something else happens to it."""

from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.delivery.delivery import Delivery
from streamlog.jetstream.consumers.consumer import Consumer, limits_of
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.consumer_coordinator import HostedConsumer, clock_ms
from streamlog.jetstream.consumers.consumer_records import ConsumerKey, KeptConsumer
from streamlog.jetstream.consumers.stream_source import StreamPart
from streamlog.log.leader_epochs import EpochStart, LeaderEpochs
from tests.message_runs import one_by_one, run_of

END = 9


class Source:
    """A stream with messages at all offsets below END."""

    def __init__(self) -> None:
        self.meanwhile: Any = None
        """Called once, in the middle of a read."""
        self.epochs = LeaderEpochs([EpochStart(1, 0)])

    async def read(self, *asked: Any, **more: Any) -> StreamPart:
        offset = asked[3]
        shared_end = self.epochs.shared_end(more["epochs"], offset, END)
        if shared_end < offset:
            return StreamPart(run_of([]), offset, 0, 0, END, shared_end=shared_end)
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
