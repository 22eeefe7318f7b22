"""Encrypted streams in the object store: read back with the key, and nothing in the clear."""

import errno
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import EncryptionKeyMissing, StorageFailed
from streamlog.log.encryption.inventory import data_keys
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.segment_key import SegmentKey
from streamlog.metadata import commands as c
from tests.unit.partition.replica_world import ReplicaWorld, until
from tests.unit.partition.tiering.test_tiered_partition import (
    COUNT,
    all_of,
    fill,
    objects,
    tiered,
    until_front_is_gone,
)
from tests.unit.partition.tiering.test_tiered_transactions import with_new_replica

K1, K2 = bytes(range(32)), bytes(32)
ONLY_K1 = KeyRing({"k1": K1}, "k1")
CLEAR = b"x" * 64
"""Of each value."""


def files_in_the_clear(folder: Path) -> list[Path]:
    return [it for it in folder.rglob("*") if it.is_file() and CLEAR in it.read_bytes()]


async def start_with(world: ReplicaWorld, number: int, keys: KeyRing) -> Any:
    world.keys = keys
    await world.stop(number)
    await world.start(number)
    return world[number].partition()


async def test_nothing_is_in_the_clear(tmp_path: Path) -> None:
    async with tiered(tmp_path, 2, keys=ONLY_K1, replicas=1, encrypted=True) as world:
        await fill(world)
        await until_front_is_gone(world.leader.partition())
        await all_of(world.leader.partition(), 0)
        assert objects(world)
        assert files_in_the_clear(tmp_path) == []  # the caches are there, too
        other = await with_new_replica(world)
        partition = world[other].partition()
        assert partition.local_log_start_offset > 20
        await all_of(partition, 0)
        await world.elect(other)
        await fill(world, COUNT, 2 * COUNT)
        await until_front_is_gone(partition, COUNT)
        await all_of(partition, 0, 2 * COUNT)
        assert files_in_the_clear(tmp_path) == []


async def test_a_read_whose_segment_goes_with_its_key_meanwhile_goes_on_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiered(tmp_path, 1, keys=ONLY_K1, encrypted=True, local_retention_ms=-2) as world:
        await fill(world)
        partition = world.leader.partition()
        await until(lambda: partition.tiered.tiered_end_offset == partition.state.log.sealed_end)
        partition = await start_with(world, 1, ONLY_K1)
        assert partition.local_log_start_offset == 0
        decrypted, waits = partition.reader.decrypted, list[Any]()

        async def late(part: Any) -> Any:
            if not waits:
                waits.append(part)
                config = world.controller.image.stream("s").config.changed(local_retention_ms=0)
                await world.ask(c.UpdateStream(config=config))
                await until_front_is_gone(partition)
            return await decrypted(part)

        monkeypatch.setattr(partition.reader, "decrypted", late)
        await all_of(partition, 0)
        assert waits


async def test_a_key_that_cannot_be_read_fails_the_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EIO, "no luck")

    async with tiered(tmp_path, 1, keys=ONLY_K1, encrypted=True, local_retention_ms=-2) as world:
        await fill(world)
        partition = await start_with(world, 1, ONLY_K1)
        with monkeypatch.context() as patch:
            patch.setattr(SegmentKey, "wrapped", fail)
            with pytest.raises(StorageFailed, match="no luck"):
                await partition.read(0, 1)
        await all_of(partition, 0)


async def test_objects_are_read_with_the_key_that_they_were_sealed_under(tmp_path: Path) -> None:
    both = KeyRing({"k1": K1, "k2": K2}, "k2")
    async with tiered(tmp_path, 1, keys=ONLY_K1, encrypted=True) as world:
        await fill(world)
        await until_front_is_gone(world.leader.partition())
        partition = await start_with(world, 1, both)
        folder = tmp_path / "1"
        await until(lambda: {it.key_name for it in data_keys(folder)} == {"k2"})
        await all_of(partition, 0)
        await fill(world, COUNT, 2 * COUNT)
        await until_front_is_gone(partition, COUNT)
        await all_of(partition, 0, 2 * COUNT)
        partition = await start_with(world, 1, KeyRing({"k2": K2}, "k2"))
        with pytest.raises(EncryptionKeyMissing):
            await partition.read(0, 1)
        start = partition.local_log_start_offset
        await all_of(partition, start, 2 * COUNT)
        partition = await start_with(world, 1, both)
        await all_of(partition, 0, 2 * COUNT)
