"""Files of one replica are lost: nothing that was acknowledged is, and nothing is silent."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from streamlog.errors import StreamlogError
from streamlog.partition import replica_manager as registry_module
from streamlog.record.batch import CRC_POSITION, CRC_START, batches
from tests.log_folder import make_batch
from tests.partition_world import World, publish, tp, values_of
from tests.unit.partition.replica_world import TIMEOUT_S, ReplicaWorld, until

SMALL: dict[str, Any] = {"segment_bytes": 4096}
COUNT = 18

Loss = Callable[[Path], None]


def removed(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 700)


def swapped(file: Path) -> None:
    """For one of the same size, with whole batches of the same offsets and right checksums, as
    another partition might have it.
    """
    made = bytearray()
    for _, batch in batches(file.read_bytes()):
        body = bytearray(batch)
        middle = len(body) // 2
        body[middle : middle + 100] = b"x" * 100
        body[CRC_POSITION:CRC_START] = crc32c(body[CRC_START:]).to_bytes(4, "big")
        made += body
    other = file.with_suffix(".other")
    other.write_bytes(made)
    other.replace(file)


LOSSES = [removed, emptied, cut]
WHICH = {"first": 0, "middle": 1, "active": -1}


def folder(path: Path, number: int) -> Path:
    return path / str(number) / "streams" / "s" / "0"


def segments(path: Path, number: int) -> list[Path]:
    return sorted(folder(path, number).glob("*.log"))


def contents(path: Path, number: int) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in segments(path, number)}


def batch_starts(data: bytes) -> Iterator[int]:
    position = 0
    for header, _ in batches(data):
        yield position
        position += header.size_bytes


async def filled(world: ReplicaWorld) -> list[bytes | None]:
    for number in (1, 2, 3):
        await world.start(number, **SMALL)
    world.controller.create("s", replicas=3)
    await world.spread()
    values: list[bytes | None] = [bytes([65 + i]) * 1000 for i in range(COUNT)]
    for value in values:
        await publish(world.leader.partition(), value or b"")
    await until(lambda: all(world[it].partition().high_watermark == COUNT for it in (1, 2, 3)))
    return values


async def is_whole_again(world: ReplicaWorld, path: Path, values: list[bytes | None]) -> None:
    def is_mended() -> bool:
        damaged = [it for it in (1, 2, 3) if world[it].partition().is_damaged]
        return world.isr() == {1, 2, 3} and not damaged

    async with asyncio.timeout(TIMEOUT_S):
        while not is_mended():  # it may have joined just when damage was found
            for number in (1, 2, 3):
                await world.beat(number)
            await asyncio.sleep(0.01)
    for number in (1, 2, 3):
        await until(lambda number=number: world[number].partition().log_end_offset == COUNT)  # type: ignore[misc]
        partition = world[number].partition()
        assert (partition.log_start_offset, partition.is_damaged) == (0, False)
        assert await values_of(partition) == values
    assert contents(path, 1) == contents(path, 2) == contents(path, 3)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda it: it.__name__)
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_lost_while_the_node_was_down(
    tmp_path: Path, role: str, which: str, loss: Loss
) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        node = world.leader if role == "leader" else world.followers[0]
        number = int(node.node_id)
        await world.stop(number)
        loss(segments(tmp_path, number)[WHICH[which]])
        await world.start(number, **SMALL)
        partition = world[number].partition()
        assert partition.is_ailing or number not in world.isr()
        assert partition.log_start_offset == 0
        await world.beat(number)
        await is_whole_again(world, tmp_path, values)
        assert not world[number].registry.gone(), "others had them"


@pytest.mark.parametrize("position", [-1, 9], ids=["content", "length"])
async def test_the_last_batch_is_damaged_after_all_were_killed(
    tmp_path: Path, position: int
) -> None:
    """It was acknowledged. No checkpoint knows it, and no power was lost that could have torn it.

    The damaged one is back first, and may lead until it says what it lacks.
    """
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        number = int(world.leader.node_id)
        for node in tuple(world.nodes.values()):
            await node.stop()
        world.controller.live.clear()
        for checkpoint in (tmp_path / str(number)).glob("*-checkpoint"):
            checkpoint.unlink()
        active = segments(tmp_path, number)[-1]
        data = bytearray(active.read_bytes())
        data[position if position < 0 else list(batch_starts(bytes(data)))[-1] + position] ^= 1
        active.write_bytes(data)
        await world.start(number, **SMALL)
        assert not world[number].partition().is_leader
        for other in {1, 2, 3} - {number}:
            await world.start(other, **SMALL)
        await world.beat(number)
        await is_whole_again(world, tmp_path, values)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda it: it.__name__)
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_lost_while_the_node_runs(tmp_path: Path, role: str, which: str, loss: Loss) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        node = world.leader if role == "leader" else world.followers[0]
        number = int(node.node_id)
        loss(segments(tmp_path, number)[WHICH[which]])
        partition = node.partition()
        await partition.reader.check_files()
        assert partition.is_damaged
        await world.beat(number)
        assert world.leader is not node
        await is_whole_again(world, tmp_path, values)


@pytest.mark.parametrize("which", ["first", "middle"])
@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
async def test_swapped_for_another_of_the_same_size(
    tmp_path: Path, role: str, which: str, *, is_running: bool
) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        node = world.leader if role == "leader" else world.followers[0]
        number = int(node.node_id)
        if not is_running:
            await world.stop(number)
        swapped(segments(tmp_path, number)[WHICH[which]])
        if not is_running:
            await world.start(number, **SMALL)
        partition = world[number].partition()
        if is_running:
            await partition.reader.check_files()
        else:  # nobody reads it
            await until(lambda: world[number].metrics.corrupt_batches._value.get() == 1)
        await world.beat(number)
        await is_whole_again(world, tmp_path, values)


async def test_a_checksum_that_rots_on_the_last_holder_costs_one_batch(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        number = int(world.leader.node_id)
        for node in list(world.followers):
            await world.stop(int(node.node_id))
        partition = world[number].partition()
        with segments(tmp_path, number)[1].open("r+b") as opened:
            opened.seek(CRC_POSITION)
            opened.write(b"rots")
        await partition.reader.check_files()
        assert partition.is_damaged
        with pytest.raises(StreamlogError, match="the checksum is wrong"):
            await values_of(partition, 3)
        assert await values_of(partition, 4) == values[4:]


@pytest.mark.parametrize("loss", [removed, emptied], ids=lambda it: it.__name__)
async def test_the_last_holder_says_what_it_lacks_and_keeps_its_start(
    tmp_path: Path, loss: Loss
) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        number = int(world.leader.node_id)
        for node in list(world.followers):
            await world.stop(int(node.node_id))
        await world.stop(number)
        lost = segments(tmp_path, number)[0]
        loss(lost)
        await world.start(number, **SMALL)
        await world.beat(number)
        await until(lambda: world[number].partition().is_leader)
        partition = world[number].partition()
        assert (partition.is_damaged, partition.log_start_offset) == (True, 0)
        with pytest.raises(StreamlogError, match=lost.name):
            await values_of(partition)
        assert await values_of(partition, 3) == values[3:]
        await partition.shorten(3)  # as an operator may, who gives up on them
        assert not partition.is_damaged


async def test_a_reader_that_finds_no_file_has_it_fetched_again(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        node = world.followers[0]
        number = int(node.node_id)
        await world.stop(number)
        node = await world.start(number, **SMALL)  # which has no file open
        await until(lambda: world.isr() == {1, 2, 3})
        segments(tmp_path, number)[0].unlink()
        with pytest.raises(StreamlogError):
            await values_of(node.partition())
        assert node.partition().is_damaged
        await world.beat(number)
        await is_whole_again(world, tmp_path, values)


async def test_what_was_mended_and_is_lost_again_is_told_again(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        number = int(world.followers[0].node_id)
        for _ in range(2):
            partition = world[number].partition()
            emptied(segments(tmp_path, number)[1])
            await partition.reader.check_files()
            assert partition.is_damaged
            await is_whole_again(world, tmp_path, values)


@pytest.mark.parametrize("loss", [emptied, cut], ids=lambda it: it.__name__)
@pytest.mark.parametrize("which", WHICH)
async def test_a_lost_file_that_is_read_again(tmp_path: Path, which: str, loss: Loss) -> None:
    """What reading finds where the file ends early hides as much as is missing."""
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        node = world.followers[0]
        number = int(node.node_id)
        loss(segments(tmp_path, number)[WHICH[which]])
        partition = node.partition()
        await partition.reader.scrub(1 << 30)
        assert partition.is_damaged
        await world.beat(number)
        await is_whole_again(world, tmp_path, values)


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_lost_folder_under_a_running_node(tmp_path: Path, role: str) -> None:
    """What is appended to files that have no name does not count as a copy."""
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        node = world.leader if role == "leader" else world.followers[0]
        number = int(node.node_id)
        shutil.rmtree(folder(tmp_path, number))
        partition = node.partition()
        await partition.reader.check_files()
        assert partition.is_damaged
        await world.beat(number)
        await is_whole_again(world, tmp_path, values)


def longer(file: Path) -> None:
    """As if it were another log's."""
    with file.open("ab") as opened:
        opened.write(bytes(700))


def anothers(file: Path) -> None:
    """Batches of another log in place of its own, which are shorter, and its own size."""
    size, base = file.stat().st_size, int(file.stem)
    content = b"".join(make_batch(base + i, [b"another's"], epoch=0) for i in range(3))
    file.write_bytes(content.ljust(size, b"\xff"))


@pytest.mark.parametrize("loss", [longer, anothers], ids=lambda it: it.__name__)
@pytest.mark.parametrize("which", ["first", "middle"])
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_another_logs_segment_under_a_running_node(
    tmp_path: Path, role: str, which: str, loss: Loss
) -> None:
    """Its checksums are right, but it does not end where it must: none of it is believed."""
    async with ReplicaWorld(tmp_path, 0) as world:
        values = await filled(world)
        node = world.leader if role == "leader" else world.followers[0]
        number = int(node.node_id)
        loss(segments(tmp_path, number)[WHICH[which]])
        partition = node.partition()
        await partition.reader.scrub(1 << 30)
        assert partition.is_damaged
        await world.beat(number)
        assert world.leader is not node
        await is_whole_again(world, tmp_path, values)


@pytest.mark.parametrize("loss", [*LOSSES, shutil.rmtree], ids=lambda it: it.__name__)
async def test_what_the_last_replica_has_lost_is_told_until_somebody_says_that_he_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Loss
) -> None:
    monkeypatch.setattr(registry_module, "LOSSES_S", 0.01)
    world = World(tmp_path)
    async with world.node(**SMALL) as registry:
        await world.create("s")
        await world.create("whole")
        for number in range(COUNT):
            await publish(registry.partition(tp("s")), bytes([65 + number]) * 1000)
    files = sorted((tmp_path / "streams" / "s" / "0").glob("*.log"))
    loss(files[0].parent if loss is shutil.rmtree else files[-1])
    registry = await world.started(**SMALL)  # and is killed
    end = registry.partition(tp("s")).log_end_offset
    assert registry.partition(tp("s")).is_leader and end < COUNT
    assert registry.gone() == {tp("s"): (end, COUNT)}
    async with world.node(**SMALL) as registry:
        assert registry.gone() == {tp("s"): (end, COUNT)}
        assert await publish(registry.partition(tp("s")), b"new") == end
    async with world.node(**SMALL) as registry:
        assert registry.gone() == {tp("s"): (end, COUNT)}
        await asyncio.to_thread(Path(registry.gone_path(tp("s"))).unlink)
        await until(lambda: not registry.gone())
    async with world.node(**SMALL) as registry:
        assert not registry.gone()
