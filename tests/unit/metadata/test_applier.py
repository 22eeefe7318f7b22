import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from streamlog.errors import NoController
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataRecord, StreamCreated
from streamlog.metadata.service import Applier
from streamlog.metadata.stream.stream_config import StreamConfig

EMPTY = MetadataImage("c")


def created(name: str) -> MetadataRecord:
    config = StreamConfig.of(name=name)
    return StreamCreated(stream_id=UUID(int=ord(name)), config=config, created_ms=0)


def after(image: MetadataImage, *names: str) -> MetadataImage:
    return image.apply_all([created(name) for name in names], offset=image.offset, epoch=1)


class Recorder:
    """A listener whose slow work can be held up."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []
        self.free = asyncio.Event()
        self.free.set()
        self.asked: list[str | None] = []

    async def begin(self, image: MetadataImage) -> None:
        self.seen.append(tuple(sorted(image.streams)))

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        self.seen.append(tuple(it.new.name for it in new.changes(old) if it.new))

    async def settled(self, stream: str | None) -> None:
        self.asked.append(stream)
        await self.free.wait()


@pytest.fixture
async def applier() -> AsyncIterator[Applier]:
    made = Applier(EMPTY)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.wait((task,))


async def test_listeners_hear_of_each_change(applier: Applier) -> None:
    recorder = Recorder()
    await applier.attach(recorder.apply, recorder.begin)
    image = after(EMPTY, "a")
    applier.committed(image)
    await applier.wait(image.offset)
    assert recorder.seen == [(), ("a",)]
    assert applier.image == image


async def test_what_comes_in_one_turn_is_taken_together(applier: Applier) -> None:
    recorder = Recorder()
    await applier.attach(recorder.apply, recorder.begin)
    first = after(EMPTY, "a")
    second = after(first, "b")
    third = after(second, "c")
    for image in (first, second, third):
        applier.committed(image)
    assert applier.image is EMPTY
    await applier.wait(third.offset)
    assert recorder.seen == [(), ("a", "b", "c")]


async def test_a_listener_with_slow_work_holds_no_image_back(applier: Applier) -> None:
    slow, other = Recorder(), Recorder()
    await applier.attach(slow.apply, slow.begin, slow.settled)
    await applier.attach(other.apply, other.begin, other.settled)
    slow.free.clear()
    first = after(EMPTY, "a")
    applier.committed(first)
    await applier.wait(first.offset)
    settling = asyncio.create_task(applier.wait_settled(first.offset, "a"))
    await asyncio.sleep(0)
    second = after(first, "b")
    applier.committed(second)
    await applier.wait(second.offset)
    assert slow.seen == other.seen == [(), ("a",), ("b",)]
    assert not settling.done()
    slow.free.set()
    await settling
    assert slow.asked == other.asked == ["a"]


async def test_settled_waits_for_the_image_first(applier: Applier) -> None:
    recorder = Recorder()
    await applier.attach(recorder.apply, recorder.begin, recorder.settled)
    image = after(EMPTY, "a")
    settling = asyncio.create_task(applier.wait_settled(image.offset))
    await asyncio.sleep(0)
    assert recorder.asked == []
    applier.committed(image)
    await settling
    assert recorder.asked == [None]


async def test_no_image_is_applied_while_a_listener_begins(applier: Applier) -> None:
    begins, may_end = asyncio.Event(), asyncio.Event()
    recorder = Recorder()

    async def begin(image: MetadataImage) -> None:
        begins.set()
        await may_end.wait()
        await recorder.begin(image)

    attaching = asyncio.create_task(applier.attach(recorder.apply, begin))
    await begins.wait()
    image = after(EMPTY, "a")
    applier.committed(image)
    for _ in range(5):
        await asyncio.sleep(0)
    assert applier.image is EMPTY
    may_end.set()
    await attaching
    await applier.wait(image.offset)
    assert recorder.seen == [(), ("a",)]


async def test_an_image_out_of_a_snapshot_is_compared_as_a_whole(applier: Applier) -> None:
    recorder = Recorder()
    await applier.attach(recorder.apply, recorder.begin)
    whole = EMPTY.restored(after(EMPTY, "a", "b").records(), offset=9, epoch=1)
    applier.committed(whole)
    await applier.wait(9)
    assert recorder.seen == [(), ("a", "b")]


async def test_whoever_comes_later_begins_with_what_there_is(applier: Applier) -> None:
    image = after(EMPTY, "a")
    applier.committed(image)
    await applier.wait(image.offset)
    recorder = Recorder()
    await applier.attach(recorder.apply, recorder.begin)
    applier.committed(after(image, "b"))
    await applier.wait(image.offset + 1)
    assert recorder.seen == [("a",), ("b",)]


async def test_an_older_image_changes_nothing(applier: Applier) -> None:
    image = after(EMPTY, "a")
    applier.committed(image)
    applier.committed(EMPTY)
    await applier.wait(image.offset)
    assert applier.image == image


async def test_who_waits_at_the_end_is_told() -> None:
    applier = Applier(EMPTY)
    task = asyncio.create_task(applier.run())
    waiting = asyncio.create_task(applier.wait(5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(NoController):
        await waiting


async def test_what_a_listener_raises_is_not_hidden() -> None:
    applier = Applier(EMPTY)

    async def begin(image: MetadataImage) -> None:
        pass

    def fail(old: MetadataImage, new: MetadataImage) -> None:
        raise RuntimeError("no")

    await applier.attach(fail, begin)
    applier.committed(after(EMPTY, "a"))
    with pytest.raises(RuntimeError):
        await applier.run()
