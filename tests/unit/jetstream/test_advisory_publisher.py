import asyncio
import itertools
import json
from uuid import UUID

from streamlog.jetstream.advisories import WAITING_MAX, Advisories, AdvisoryPublisher
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import PartitionChanged, StreamCreated, StreamDeleted
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig
from streamlog.model import NodeId

ID = UUID(int=7)


class World:
    def __init__(self) -> None:
        self.is_controller = True
        self.said: list[tuple[str, dict[str, object]]] = []
        numbers = itertools.count()
        advisories = Advisories(
            node="node-1", domain="d", now_ms=lambda: 1_000, new_id=lambda: str(next(numbers))
        )
        self.telling = AdvisoryPublisher(
            advisories, self._publish, is_controller=lambda: self.is_controller
        )

    async def _publish(self, subject: str, payload: bytes) -> None:
        self.said.append((subject, json.loads(payload)))

    async def told(self) -> list[str]:
        """The subjects, without what all have in common."""
        running = asyncio.create_task(self.telling.run())
        await asyncio.sleep(0)
        running.cancel()
        said, self.said = self.said, []
        return [subject.removeprefix("$JS.EVENT.ADVISORY.STREAM.") for subject, _ in said]


def created(name: str = "orders", **settings: object) -> MetadataImage:
    config = StreamConfig.of(name=name, **settings)
    image = MetadataImage("c").apply(
        StreamCreated(stream_id=ID, config=config, created_ms=0), offset=0, epoch=1
    )
    return led(image, name, leader=1, isr=(1, 2), epoch=0, offset=1)


def led(
    image: MetadataImage, name: str, *, leader: int, isr: tuple[int, ...], epoch: int, offset: int
) -> MetadataImage:
    record = PartitionChanged(
        stream=name,
        partition=0,
        replicas=(NodeId(1), NodeId(2)),
        isr=tuple(map(NodeId, isr)),
        leader=NodeId(leader),
        leader_epoch=epoch,
        partition_epoch=offset,
    )
    return image.apply(record, offset=offset, epoch=1)


async def test_a_streams_life() -> None:
    world, empty = World(), MetadataImage("c")
    image = created(replicas=2, min_isr=2)
    world.telling.apply(empty, image)
    assert await world.told() == ["CREATED.orders", "LEADER_ELECTED.orders"]
    other = led(image, "orders", leader=2, isr=(2,), epoch=1, offset=2)
    world.telling.apply(image, other)
    assert await world.told() == ["LEADER_ELECTED.orders", "QUORUM_LOST.orders"]
    gone = other.apply(StreamDeleted(name="orders", stream_id=ID), offset=3, epoch=1)
    world.telling.apply(other, gone)
    assert await world.told() == ["DELETED.orders"]


async def test_nobody_else_tells_and_nobody_is_told_of_internal_streams() -> None:
    world = World()
    world.telling.apply(MetadataImage("c"), created(OFFSETS_STREAM))
    world.is_controller = False
    world.telling.apply(MetadataImage("c"), created())
    assert await world.told() == []


async def test_what_waits_is_bounded_and_the_oldest_goes() -> None:
    world = World()
    for number in range(WAITING_MAX + 2):
        world.telling.tell((str(number), b"{}"))
    assert world.telling.dropped == 2
    told = await world.told()
    assert (len(told), told[0]) == (WAITING_MAX, "2")
