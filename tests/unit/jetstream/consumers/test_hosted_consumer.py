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
from tests.message_runs import one_by_one, run_of

END = 9


class Source:
    """A stream with messages at all offsets below END."""

    def __init__(self) -> None:
        self.meanwhile: Any = None
        """Called once, in the middle of a read."""

    async def read(self, *asked: Any, **more: Any) -> StreamPart:
        offset = asked[3]
        messages = [StoredMessage("a", it + 1, 0, b"", b"x") for it in range(offset, END)]
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return StreamPart(run_of(messages), END, 0, 0, END)


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
