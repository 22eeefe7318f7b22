"""A coordinator that takes over: when the consumers of the log may be used."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from immutables import Map

from streamlog.config import ConsumersSection
from streamlog.errors import NotLeader, StreamNotFound
from streamlog.jetstream.consumers import consumer_coordinator
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.consumer_coordinator import (
    ConsumerCoordinator,
    HostedConsumer,
    StreamFeed,
    Surroundings,
)
from streamlog.jetstream.consumers.consumer_records import (
    ConsumerKey,
    KeptConsumer,
    consumer_record,
)
from streamlog.jetstream.consumers.consumer_statistics import ConsumerCounts
from streamlog.jetstream.consumers.stream_source import StreamSource
from streamlog.jetstream.errors import ApiRefused
from streamlog.metadata.image.image_types import PartitionImage, StreamImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId, TopicPartition
from streamlog.nats.router import Callback, Router, Subscription
from streamlog.partition.state import Acknowledgement
from streamlog.record.codec import RecordRun
from tests.led_partition import FakeSlice
from tests.local_node import until

STREAM_ID = uuid4()
NAMES = ("a", "b", "c")


class StateLog:
    """A partition of ``__consumer_state`` whose leader has read ``records``, as far as a coordinator asks."""

    def __init__(self, records: list[tuple[bytes, bytes | None]]) -> None:
        self.tp = TopicPartition("__consumer_state", 0)
        self.is_leader = self.high_watermark_known = True
        self.leader_epoch = 1
        self.log_start_offset, self.high_watermark = 0, len(records)
        run = RecordRun()
        for key, value in records:
            run.append(key, value, [])
        self._data = run.seal(base_offset=0, leader_epoch=1, timestamp_ms=1, max_timestamp_ms=1)

        self.appended = list[Acknowledgement]()
        """Each waits for its commit."""

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    def check_min_isr(self) -> None: ...

    def append(self, _: RecordRun, ack: Acknowledgement, *, leader_epoch: int) -> None:
        assert leader_epoch == self.leader_epoch
        self.appended.append(ack)

    async def read(self, _: int, __: int) -> FakeSlice:
        return FakeSlice(self._data)

    def add_watcher(self, _: Callable[[], None]) -> None: ...
    def remove_watcher(self, _: Callable[[], None]) -> None: ...


class Turns:
    """In which a coordinator restores one consumer after the other."""

    def __init__(self) -> None:
        self._may_go = asyncio.Semaphore(0)

    async def wait(self) -> None:
        await self._may_go.acquire()

    def end(self) -> None:
        self._may_go.release()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    turns = Turns()
    monkeypatch.setattr(consumer_coordinator, "AT_ONCE", 1)
    monkeypatch.setattr(consumer_coordinator, "_others_turn", turns.wait)
    return turns


def coordinator(
    *more: tuple[bytes, bytes | None],
    consumers: ConsumersSection | None = None,
    router: Router | None = None,
    **settings: Any,
) -> ConsumerCoordinator:
    """Of a stream with three consumers."""
    place = PartitionImage((NodeId(1),), NodeId(1), 0, (NodeId(1),), 0)
    config = StreamConfig.of(name="s", subjects=("s",), **settings)
    stream = StreamImage(config, STREAM_ID, 0, (place,))
    image = MetadataImage("cluster", streams=Map({"s": stream}))
    records = [
        consumer_record(
            ConsumerKey("s", name), KeptConsumer(ConsumerConfig(name=name), STREAM_ID, 1)
        )
        for name in NAMES
    ]
    state: Any = StateLog([*records, *more])

    async def end_others(_: int, __: int) -> None: ...

    source: Any = SimpleNamespace()
    interest: Any = SimpleNamespace()
    around = Surroundings(
        node_id=NodeId(1),
        domain="",
        settings=consumers or ConsumersSection(),
        router=Router() if router is None else router,
        source=source,
        image=lambda: image,
        lease_held=lambda: True,
        advise=lambda *_: None,
        measure=lambda *_: None,
        end_others=end_others,
        counts=ConsumerCounts(),
        interest=interest,
        consumed=lambda _: [],
    )
    return ConsumerCoordinator(state, 1, around)


async def test_consumer_is_served_while_others_rest(turns: Turns) -> None:
    made = coordinator()
    running = asyncio.create_task(made.run())
    await until(lambda: made.is_serving)
    assert not made.is_open
    assert made.find(ConsumerKey("s", "c")).key.consumer == "c"
    with pytest.raises(ApiRefused):
        made.find(ConsumerKey("s", "d"))
    assert list(made.consumers) == [ConsumerKey("s", "c")]
    used = made.consumers[ConsumerKey("s", "c")]
    for _ in NAMES:
        turns.end()
    await until(lambda: made.is_open)
    assert made.names_of("s") == [*NAMES]
    assert made.find(ConsumerKey("s", "c")) is used, "it is restored once"
    made.close()
    await running


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
async def test_none_is_served_before_all_have_a_say_in_what_is_removed(
    turns: Turns, retention: str
) -> None:
    made = coordinator(retention=retention)
    running = asyncio.create_task(made.run())
    await until(lambda: made.is_serving)
    turns.end()
    await until(lambda: bool(made.consumers))
    for name in NAMES:
        assert made.known(ConsumerKey("s", name)) is None
        with pytest.raises(NotLeader):
            made.find(ConsumerKey("s", name))
    for _ in NAMES:
        turns.end()
    await until(lambda: made.is_open)
    assert made.find(ConsumerKey("s", "a")).key.consumer == "a"
    made.close()
    await running


async def test_nothing_is_served_where_a_record_does_not_decode(turns: Turns) -> None:
    key, _ = consumer_record(ConsumerKey("s", "b"), None)
    made = coordinator((key, b"{"))
    running = asyncio.create_task(made.run())
    await until(lambda: made.is_serving)
    for _ in NAMES:
        turns.end()
    with suppress(BaseExceptionGroup):
        await running
    assert running.exception() is not None
    assert "CorruptData" in repr(running.exception())
    assert not (made.is_serving or made.is_open)
    with pytest.raises(NotLeader):
        made.find(ConsumerKey("s", "b"))


@pytest.mark.parametrize("confirm_acks", ["kept", "applied"])
async def test_an_acknowledgement_is_confirmed_once_it_is_kept_or_at_once(
    confirm_acks: Any,
) -> None:
    router, confirmed = Router(), list[bytes]()

    def failed(error: Exception) -> None:
        raise error

    def heard(subject: bytes, *_: object) -> None:
        confirmed.append(subject)

    router.add(Subscription(Callback(router, failed=failed), b"reply", target=heard))
    made = coordinator(consumers=ConsumersSection(confirm_acks=confirm_acks), router=router)
    running = asyncio.create_task(made.run())
    await until(lambda: made.is_open)
    state: Any = made.partition
    made.confirm(made.find(ConsumerKey("s", "a")), "reply")
    assert confirmed == ([b"reply"] if confirm_acks == "applied" else [])
    await until(lambda: bool(state.appended))  # soon, in either case
    state.appended[0].committed(0)
    await until(lambda: bool(confirmed))
    assert confirmed == [b"reply"], "once"
    made.close()
    await running


class WaitingSource:
    """A stream in which nothing comes until it is deleted."""

    def __init__(self) -> None:
        self.is_deleted = asyncio.Event()

    async def wait(self, _tp: TopicPartition, _stream_id: UUID, _offset: int) -> tuple[int, int]:
        await self.is_deleted.wait()
        raise StreamNotFound("there is no stream 's'")


async def test_a_feed_of_a_deleted_stream_ends() -> None:
    """Streams may come and go with their consumers as long as a node runs."""
    source, ended = WaitingSource(), list[StreamFeed]()
    async with asyncio.TaskGroup() as group:

        def run(work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
            return group.create_task(work())

        feed = StreamFeed(
            TopicPartition("s", 0), STREAM_ID, cast("StreamSource", source), run, ended.append
        )
        consumer = cast("HostedConsumer", object())
        feed.wait(consumer, 0)
        feed.forget(consumer)
        assert not feed.is_idle, "it is still asking"
        source.is_deleted.set()
    assert ended == [feed]
