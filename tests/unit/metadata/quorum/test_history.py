from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from streamlog.errors import OffsetOutOfRange
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import find_snapshots, snapshot_path
from streamlog.metadata.quorum.history import MetadataHistory
from tests.unit.metadata_folder import DISK, Node

T = TypeVar("T")


class AtOnce:
    """Whatever is to be read is read."""

    async def read(self, call: Callable[[], T]) -> T:
        return call()


class Kept:
    """A folder with some metadata, and the images there were, by offset."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.node = Node(directory)
        self.images: dict[int, MetadataImage] = {}
        self.note()
        self.node.register(1)
        self.note()
        self.history = MetadataHistory(AtOnce(), self.node.store, lambda: self.node.image)

    @property
    def end(self) -> int:
        return self.node.image.offset

    def note(self) -> None:
        self.images[self.node.image.offset] = self.node.image

    def create(self, *names: str) -> int:
        for name in names:
            self.node.create(name, partitions=3)
            self.note()
        return self.end

    def snapshot(self) -> int:
        self.node.snapshot()
        return self.end

    def damage(self, offset: int) -> None:
        (found,) = (it for it in find_snapshots(DISK, self.directory) if it.end_offset == offset)
        path = snapshot_path(self.directory, found)
        path.write_bytes(path.read_bytes()[:-3])


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


async def replayed(kept: Kept, image: MetadataImage) -> MetadataImage:
    """``image``, and all that follows it."""
    while found := await kept.history.read(image.offset):
        for batch in found:
            image = image.apply_all(batch.records, offset=batch.base_offset, epoch=batch.epoch)
    return image


async def test_from_any_offset_on_it_leads_to_the_image(kept: Kept) -> None:
    middle = kept.create("a", "b")
    kept.snapshot()
    end = kept.create("c", "d")
    assert kept.history.end is kept.node.image
    for offset in range(end + 2):
        image = await kept.history.begin(offset)
        assert image.offset == (end if offset >= end else middle if offset >= middle else 0)
        assert image == kept.images[image.offset]
        assert await replayed(kept, image) == kept.node.image


async def test_it_begins_in_the_middle_of_a_batch(kept: Kept) -> None:
    before = kept.end
    kept.create("a")
    (batch,) = await kept.history.read(before + 2)
    assert (batch.base_offset, len(batch.records), batch.end_offset) == (before + 2, 2, kept.end)


async def test_what_is_let_go_is_missing(kept: Kept) -> None:
    kept.create("a")
    oldest = kept.snapshot()
    newest = kept.create("b")
    kept.snapshot()
    kept.create("c")
    assert kept.node.store.start_offset == oldest
    with pytest.raises(OffsetOutOfRange):
        await kept.history.read(oldest - 1)
    for offset, begins in ((0, oldest), (oldest - 1, oldest), (oldest, oldest), (newest, newest)):
        image = await kept.history.begin(offset)
        assert image == kept.images[begins]
        assert await replayed(kept, image) == kept.node.image


async def test_damaged_snapshots_are_passed_over(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.create("a")
    oldest = kept.snapshot()
    kept.create("b")
    newest = kept.snapshot()
    end = kept.create("c")
    kept.damage(oldest)
    assert (await kept.history.begin(0)).offset == newest
    assert "snapshot damaged" in caplog.text
    kept.damage(newest)
    assert (await kept.history.begin(0)).offset == end


async def test_what_is_not_committed_is_not_told(kept: Kept) -> None:
    committed = kept.node.image
    kept.create("a")
    history = MetadataHistory(AtOnce(), kept.node.store, lambda: committed)
    assert await history.read(committed.offset) == []
    assert (await history.begin(kept.end)) is committed


async def test_times_are_the_controllers(kept: Kept) -> None:
    before = kept.end
    kept.node.store.append([*kept.images[before].records()][:1], 2, 1_234)
    history = MetadataHistory(AtOnce(), kept.node.store, lambda: MetadataImage("c", before + 1))
    (batch,) = await history.read(before)
    assert (batch.time_ms, batch.epoch) == (1_234, 2)
