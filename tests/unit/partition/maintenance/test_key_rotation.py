"""Encrypted partitions over real files, and what becomes of them when the node gets another key."""

import asyncio
import threading
from typing import Any

import pytest

from streamlog.errors import EncryptionKeyMissing, StreamlogError
from streamlog.log.encryption.inventory import data_keys
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.segment_key import SegmentKey
from streamlog.log.manifest import MANIFEST_NAME
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.storage.disk import OsFile
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.partition.replica_manager import ReplicaManager
from tests.partition_world import World, publish, tp, values_of
from tests.unit.failing_disk import FailingDisk
from tests.unit.partition.replica_world import until

SMALL: dict[str, Any] = {"segment_bytes": 4096}
K1, K2 = bytes(range(32)), bytes(32)
VALUES = [bytes([65 + at]) * 1500 for at in range(8)]


async def fill(world: World, registry: ReplicaManager, name: str = "s") -> None:
    await world.create(name, encrypted=True)
    for value in VALUES:
        await publish(registry.partition(tp(name)), value)


def needed(world: World) -> set[str | None]:
    return {it.key_name for it in data_keys(world.data_dir)}


async def test_records_are_read_and_not_found_on_the_disk(world: World) -> None:
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(**SMALL) as registry:
        await fill(world, registry)
        partition = registry.partition(tp("s"))
        assert await values_of(partition) == VALUES
        for file in world.data_dir.rglob("*"):
            assert not file.is_file() or not any(it[:100] in file.read_bytes() for it in VALUES)
        part: FileSlice | None = await partition.read(0, 1 << 20)
        assert part is not None
        assert part.held is not None
        part = partition.reader.read_now(0, 1 << 20, lambda: 8)
        assert part is not None
        assert part.held is not None


async def test_what_is_beside_the_log_is_encrypted_as_well(world: World) -> None:
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(**SMALL) as registry:
        await fill(world, registry)
        partition = registry.partition(tp("s"))
        partition.write_beside("ids", b"not for everybody")
        (file,) = world.data_dir.rglob("ids")
        assert b"everybody" not in file.read_bytes()
        assert partition.read_beside("ids") == b"not for everybody"


async def test_data_keys_get_under_the_new_key_and_the_old_one_may_go(world: World) -> None:
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(**SMALL) as registry:
        await fill(world, registry)
    assert needed(world) == {"k1"}
    world.keys = KeyRing({"k1": K1, "k2": K2}, "k2")
    async with world.node(**SMALL) as registry:
        await until(lambda: needed(world) == {"k2"})
        await until(lambda: world.metrics.old_data_keys._value.get() == 0)
        assert await values_of(registry.partition(tp("s"))) == VALUES
    world.keys = KeyRing({"k2": K2}, "k2")
    async with world.node(**SMALL) as registry:
        assert await values_of(registry.partition(tp("s"))) == VALUES
        await publish(registry.partition(tp("s")), b"more")


async def test_keys_of_a_deleted_stream_are_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another stream of its name has files of the same names by then, with keys of its own."""
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(**SMALL) as registry:
        await fill(world, registry)
        old = registry.partition(tp("s"))
        segment = old.state.log.segments.first
        assert segment.key is not None
        read_before = segment.key.wrapped()
        await world.delete("s")
        await fill(world, registry)
        monkeypatch.setattr(SegmentKey, "wrapped", lambda _: read_before)
        assert not await registry._key_rotation._is_changed(old, segment)
        monkeypatch.undo()
    async with world.node(**SMALL) as registry:
        assert await values_of(registry.partition(tp("s"))) == VALUES


async def test_without_its_key_a_partition_is_offline_and_says_why(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(**SMALL) as registry:
        await fill(world, registry)
    for keys in (KeyRing(), KeyRing({"k2": K2}, "k2")):
        world.keys = keys
        async with world.node(**SMALL) as registry:
            with pytest.raises(EncryptionKeyMissing, match="key"):
                registry.partition(tp("s"))
            if keys.active:  # what could not be opened is not done
                await until(lambda: world.metrics.old_data_keys._value.get() > 0)
        told = [it for it in caplog.records if it.getMessage() == "partition offline"]
        assert "give this node the key" in vars(told[-1])["remedy"]
        caplog.clear()
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(**SMALL) as registry:
        assert await values_of(registry.partition(tp("s"))) == VALUES


async def test_what_could_not_be_changed_is_told_and_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlog.partition.maintenance.key_rotation.AGAIN_S", 0.01)
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(**SMALL) as registry:
        await fill(world, registry)
    world.keys = KeyRing({"k1": K1, "k2": K2}, "k2")
    disk = FailingDisk()
    disk.faults.break_("pwrite", path=".key.tmp")
    async with world.node(disk, **SMALL) as registry:
        await until(lambda: world.metrics.old_data_keys._value.get() > 0)
        assert needed(world) == {"k1"}
        disk.faults.mend()
        await until(lambda: needed(world) == {"k2"})
        assert await values_of(registry.partition(tp("s"))) == VALUES


async def test_a_node_that_stops_in_the_middle_goes_on_at_its_next_start(world: World) -> None:
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(**SMALL) as registry:
        await fill(world, registry)
    world.keys = KeyRing({"k1": K1, "k2": K2}, "k2")
    disk = HeldDisk()
    async with world.node(disk, **SMALL) as registry:
        await asyncio.to_thread(disk.reached.wait, 10)
        workers = registry._workers
        releasing = asyncio.create_task(until(lambda: workers._shutdown))
        releasing.add_done_callback(lambda _: disk.go_on.set())
    assert needed(world) == {"k1", "k2"}
    async with world.node(**SMALL) as registry:
        await until(lambda: needed(world) == {"k2"})
        assert await values_of(registry.partition(tp("s"))) == VALUES


class HeldDisk(FailingDisk):
    """The second new file of a data key waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.reached, self.go_on = threading.Event(), threading.Event()

    def create(self, path: str) -> OsFile:
        if path.endswith(".key.tmp"):
            self.made += 1
            if self.made == 2:
                self.reached.set()
                assert self.go_on.wait(10)
        return super().create(path)


async def test_a_log_hears_whether_all_of_it_is_encrypted(world: World) -> None:
    """From the metadata, which say so of a stream that was encrypted when it was made; once it was
    not, that is never said again, after a snapshot of the metadata, too.
    """
    world.keys = KeyRing({"k1": K1}, "k1")

    def heard(registry: ReplicaManager) -> list[bool]:
        return [registry.partition(tp(it)).state.log.settings.encrypts_all for it in ("s", "later")]

    async with world.node(**SMALL) as registry:
        await fill(world, registry)
        await world.create("later")
        await world.update("later", encrypted=True)
        assert heard(registry) == [True, False]
    async with world.node(**SMALL) as registry:
        assert heard(registry) == [True, False]
        assert await values_of(registry.partition(tp("s"))) == VALUES
    image = world.image
    restored = MetadataImage(image.cluster_id).restored(
        image.records(), offset=image.offset, epoch=image.epoch
    )
    assert {it.name: it.once_clear for it in restored.streams.values()} == {
        "s": False,
        "later": True,
    }
    async with world.node(**SMALL) as registry:
        for encrypted in (False, True):
            await world.update("s", encrypted=encrypted)
            assert heard(registry) == [False, False]
    async with world.node(**SMALL) as registry:
        assert heard(registry) == [False, False]


@pytest.mark.parametrize("other", [tp("t"), tp("s", 1)])
async def test_a_segment_of_another_partition_is_not_served_with_its_key(
    world: World, other: TopicPartition
) -> None:
    """Of the same node, whose key opens the data keys of both."""
    world.keys = KeyRing({"k1": K1}, "k1")
    async with world.node(segment_bytes=4096) as registry:
        for name, partitions in (("s", 2), ("t", 1)):
            await world.create(name, partitions=partitions, encrypted=True)
        for at in (tp("s"), other):
            for _ in range(6):
                await publish(registry.partition(at), str(at).ljust(1000).encode())
    folders = [
        world.data_dir / "streams" / at.stream / str(at.partition) for at in (tp("s"), other)
    ]
    mine, theirs = folders
    for file in theirs.glob(f"{0:020}.*"):
        (mine / file.name).write_bytes(file.read_bytes())
    (mine / MANIFEST_NAME).unlink()  # which tells another segment by its checksums
    async with world.node() as registry:
        with pytest.raises(StreamlogError):
            await values_of(registry.partition(tp("s")))
        assert len(await values_of(registry.partition(other))) == 6
