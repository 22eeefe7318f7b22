"""An origin of this cluster that is deleted, restored or made again while it is read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID, uuid4

import pytest

from streamlog.errors import NotLeader
from streamlog.jetstream.consumers.stream_source import ConsumerStart, StartQuery, StreamPart
from streamlog.jetstream.mirroring import origin_feeds
from streamlog.jetstream.mirroring.origin_feeds import ClusterFeed
from streamlog.jetstream.mirroring.origin_reader import OriginMessage
from streamlog.metadata.image.image_types import PartitionImage, StreamImage
from streamlog.metadata.stream.stream_config import RESTORING, StreamConfig
from streamlog.metadata.stream.stream_origin import StreamOrigin
from streamlog.model import NodeId, TopicPartition
from streamlog.record.compiled.message_run import MessageRun
from tests.local_node import until

Message = tuple[int, int]
"""Sequence, and time in ms."""


class Origin:
    """The stream that has the name now, and what its leader answers: the part of a cluster that a feed asks."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.messages = list[Message]()
        self.looks = 0
        self.make()

    def make(
        self,
        *,
        is_restoring: bool = False,
        messages: Sequence[Message] = (),
        restored_end: int = 0,
        after_ms: int = 1_000,
    ) -> None:
        self.now_ms += after_ms
        self.messages = list(messages)
        self._image = StreamImage(
            StreamConfig.of(name="s", subjects=("s",)),
            uuid4(),
            self.now_ms,
            (_PARTITION,),
            restored_end=restored_end,
        )
        if is_restoring:
            self._set(metadata={RESTORING: "1 x"})

    def restored(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)
        self._set(metadata={})

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.now_ms += 10
            self.messages.append((len(self.messages) + 1, self.now_ms))

    def _set(self, **settings: Any) -> None:
        it = self._image
        self._image = StreamImage(
            it.config.changed(**settings),
            it.stream_id,
            it.created_ms,
            it.partitions,
            restored_end=it.restored_end,
        )

    # As a MetadataImage

    def stream(self, _: str) -> StreamImage:
        self.looks += 1
        return self._image

    # As a StreamSource

    async def start(self, _: TopicPartition, stream_id: UUID, query: StartQuery) -> ConsumerStart:
        self._check(stream_id)
        if query.policy == "all":
            return ConsumerStart(0)
        assert query.policy == "by_start_time"
        late = [sequence for sequence, at_ms in self.messages if at_ms >= query.value]
        return ConsumerStart(late[0] - 1 if late else len(self.messages))

    async def read(
        self, _: TopicPartition, stream_id: UUID, __: object, offset: int, *, limit: int
    ) -> StreamPart:
        self._check(stream_id)
        some = [it for it in self.messages if it[0] > offset][:limit]
        run = MessageRun.of([("s", sequence, at_ms, b"", b"") for sequence, at_ms in some])
        end = len(self.messages)
        return StreamPart(run, some[-1][0] if some else end, 0, 0, end)

    async def wait(self, *_: object) -> None:
        await asyncio.sleep(0.001)

    def _check(self, stream_id: UUID) -> None:
        if stream_id != self._image.stream_id:
            raise NotLeader("another stream has the name")


_PARTITION = PartitionImage((NodeId(1),), NodeId(1), 0, (NodeId(1),), 0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin_feeds, "PAUSE_S", 0.001)
    monkeypatch.setattr(origin_feeds, "PAUSE_S_MAX", 0.001)


@asynccontextmanager
async def fed(
    origin: Origin, *, wanted_partitions: int | None = None
) -> AsyncIterator[tuple[ClusterFeed, list[Message]]]:
    taken = list[Message]()

    async def store(messages: Sequence[OriginMessage]) -> None:
        taken.extend((it.sequence, it.timestamp_ms) for it in messages)

    source: Any = origin
    feed = ClusterFeed(
        StreamOrigin("s"),
        0,
        source,
        lambda: source,
        index_name="s",
        position=0,
        store=store,
        wanted_partitions=wanted_partitions,
    )
    task = asyncio.create_task(feed.run())
    try:
        yield feed, taken
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_stream_that_is_being_restored_is_not_read() -> None:
    """It is empty at first, as one that was made again."""
    origin = Origin()
    origin.publish(20)
    async with fed(origin) as (feed, taken):
        await until(lambda: len(taken) == 20)
        kept = list(origin.messages)
        origin.make(is_restoring=True, restored_end=20)
        looks = origin.looks
        await until(lambda: origin.looks > looks + 5)
        error = feed.state().error
        assert error is not None and error["description"] == "stream not found"
        origin.restored(kept)
        origin.publish(5)
        await until(lambda: len(taken) >= 25)
        assert taken == origin.messages


RESTORED = pytest.mark.parametrize(
    "restored", [{"restored_end": 10}, {"after_ms": 100_000}], ids=["snapshot", "backup"]
)
"""Of a snapshot the metadata says what is in it. A backup is told by messages that are older than the stream."""


@RESTORED
async def test_what_is_new_behind_an_older_backup_is_taken(restored: dict[str, Any]) -> None:
    origin = Origin()
    origin.publish(20)
    async with fed(origin) as (_, taken):
        await until(lambda: len(taken) == 20)
        first = list(taken)
        origin.make(messages=origin.messages[:10], **restored)
        origin.publish(5)
        await until(lambda: len(taken) >= 25)
        assert taken == [*first, *origin.messages[10:]]


@RESTORED
async def test_what_a_backup_took_from_the_source_is_not_taken_again(
    restored: dict[str, Any],
) -> None:
    """Nothing is new in it yet."""
    origin = Origin()
    origin.publish(20)
    async with fed(origin) as (_, taken):
        await until(lambda: len(taken) == 20)
        origin.make(messages=origin.messages[:10], **restored)
        looks = origin.looks
        await until(lambda: origin.looks > looks + 5)
        assert len(taken) == 20
        origin.publish(1)
        await until(lambda: len(taken) > 20)
        assert taken[20:] == origin.messages[10:]


@pytest.mark.parametrize("behind_ms", [0, 500])
async def test_stream_that_is_made_again_is_read_from_its_beginning(behind_ms: int) -> None:
    """Also where the clock of its leader is behind that of the controller."""
    origin = Origin()
    origin.publish(3)
    async with fed(origin) as (_, taken):
        await until(lambda: len(taken) == 3)
        first = list(taken)
        origin.make()
        origin.now_ms -= behind_ms
        origin.publish(5)
        await until(lambda: len(taken) >= 8)
        assert taken == [*first, *origin.messages]


@RESTORED
async def test_mirror_does_not_go_on_with_other_messages_at_its_sequences(
    restored: dict[str, Any],
) -> None:
    origin = Origin()
    origin.publish(20)
    async with fed(origin, wanted_partitions=1) as (feed, taken):
        await until(lambda: len(taken) == 20)
        origin.make(messages=origin.messages[:10], **restored)
        origin.publish(20)
        looks = origin.looks
        await until(lambda: origin.looks > looks + 5)
        error = feed.state().error
        assert error is not None and "made again" in error["description"]
        assert len(taken) == 20
