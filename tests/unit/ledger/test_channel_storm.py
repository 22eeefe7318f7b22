"""A channel whose disk fails, and which is stopped at any moment, goes on with the same chain."""

import asyncio
import contextlib
import errno
from pathlib import Path
from random import Random

import pytest

from streamlog.errors import BlockNotReady, StreamlogError
from streamlog.ledger.channel import channel as channel_module
from streamlog.ledger.core.encoding import decode_block
from streamlog.ledger.core.entry import Message, time_to_cut
from streamlog.ledger.deliver import DeliverRequest, deliver
from streamlog.model import TopicPartition
from tests.kafka_node import KafkaNode
from tests.ledger_channel import ServedChannel, config_of, limits
from tests.unit.failing_disk import FailingDisk
from tests.unit.ledger.channel.test_channel import offline, put

LIVES = 12
STREAM = TopicPartition("c", 0)


@pytest.mark.parametrize("seed", [0, 1, 4])
async def test_a_chain_goes_on_through_a_storm(
    tmp_path: Path, node: KafkaNode, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(channel_module, "PAUSE_S", 0.01)
    rng, disk = Random(seed), FailingDisk()
    genesis = config_of("c", limits=limits(batch_size=2))
    served = ServedChannel(tmp_path, node.address, genesis=genesis, disk=disk)
    async with served:
        await served.ready()
    partition = node.local[STREAM]
    seen: dict[int, bytes] = {}
    for _ in range(LIVES):
        async with served:
            reading = asyncio.create_task(read(served, seen))
            for _ in range(rng.randint(1, 8)):
                values = (Message(None, b"%d" % n) for n in range(rng.randint(1, 30)))
                put(partition, *values, time_to_cut(len(seen), "x"))
                await asyncio.sleep(rng.random() * 0.004)
                if rng.random() < 0.3:
                    code = rng.choice((errno.EIO, errno.ENOSPC))
                    disk.faults.break_(rng.choice(("sync", "pwrite")), code=code, path="blocks")
                    await asyncio.sleep(rng.random() * 0.01)
                    disk.faults.mend()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
    hashes = offline(partition)
    async with served:
        await served.height(len(hashes))
        kept = [block.block.hash for block in await served.blocks()]
    assert kept == hashes
    assert {number: decode_block(data).hash for number, data in seen.items()} == {
        number: hashes[number] for number in seen
    }


async def read(served: ServedChannel, seen: dict[int, bytes]) -> None:
    """All blocks, again and again; each is the one that it was before."""
    await served.channel.opened.wait()
    while True:
        following = 0
        request = DeliverRequest(start=following)
        with contextlib.suppress(BlockNotReady, StreamlogError):
            async for run in deliver(served.channel.ledger, request, alive_s=0.005):
                if not run:
                    break
                for block in run:
                    assert block.number == following
                    assert seen.setdefault(block.number, block.data) == block.data
                    following += 1
        await asyncio.sleep(0)
