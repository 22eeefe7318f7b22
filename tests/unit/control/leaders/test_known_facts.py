"""The state of a partition that is told again is the one that is found."""

import random
from pathlib import Path

import pytest

from streamlog.control.leaders.partition_state import KnownFacts, state_of
from streamlog.errors import StreamlogError
from tests.partition_world import World, publish, tp


@pytest.mark.parametrize("seed", range(4))
async def test_a_known_state_is_what_would_be_found(tmp_path: Path, seed: int) -> None:
    chosen, world, facts = random.Random(seed), World(tmp_path), KnownFacts()
    async with world.node() as registry:
        await world.create("s", sync="os", retention_messages=40)
        partition = registry.partition(tp("s"))
        for _ in range(60):
            match chosen.randrange(4):
                case 0 | 1:
                    await publish(
                        partition, *[b"x" * chosen.randrange(50)] * chosen.randrange(1, 4)
                    )
                case 2 if partition.high_watermark:
                    await partition.purge(chosen.randrange(partition.high_watermark + 1))
                case 3:
                    await facts.state(partition)
            told = await facts.state(partition)
            assert told == await state_of(partition, KnownFacts())
            assert await facts.state(partition) is told, "nothing has changed"
    with pytest.raises(StreamlogError):
        await facts.state(partition)
