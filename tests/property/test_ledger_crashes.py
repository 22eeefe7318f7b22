"""The real core over the real files on a disk that crashes, fails and fills: no block is lost that
was told of, and none is cut twice.
"""

import errno
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import Unavailable
from streamlog.ledger.core.chain import ChainTip, configuration_in, find_genesis
from streamlog.ledger.core.consenter import AppendBlock, Consenter, RecordsConsumed
from streamlog.ledger.core.encoding import decode_block, encode_block
from streamlog.ledger.core.verifier import verify_chain
from streamlog.ledger.storage.store import BlockStore
from streamlog.log.settings import LogSettings
from tests.property.ledger_strategies import LedgerStream, ledger_stream
from tests.simulation.disk import PowerCut, SimDisk

FOLDER = Path("/ledger/c/blocks")
SETTINGS = LogSettings(segment_bytes=2048, segment_age_ms=2**62)
LIVES = 12


class Life:
    """One run of a node, from opening its files to its end."""

    def __init__(self, disk: SimDisk, stream: LedgerStream, rng: Random) -> None:
        self.rng = rng
        self.stream = stream
        self.store = BlockStore.open(FOLDER, disk, settings=SETTINGS)

    def kept(self) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < self.store.height:
            found.extend(block.data for block in self.store.read(len(found), max_bytes=300))
        return found

    def consenter(self) -> Consenter:
        if not self.store.height:
            genesis = find_genesis(self.stream.records)
            assert genesis is not None
            self.append([encode_block(genesis)])
        last = decode_block(self.store.block(self.store.height - 1))
        config = configuration_in(decode_block(self.store.block(last.metadata.last_configuration)))
        return Consenter(ChainTip.of(last), config)

    def append(self, blocks: list[bytes]) -> None:
        self.store.append(self.store.height, blocks)
        if self.rng.random() < 0.7:
            self.store.sync()

    def order(self, count_max: int | None = None) -> None:
        """All there is or so many records, some at a time."""
        consenter = self.consenter()
        rest = [r for r in self.stream.records if r.offset >= consenter.next_offset][:count_max]
        while rest:
            count = self.rng.randint(1, 10)
            effects = consenter.step(RecordsConsumed(rest[:count]))
            del rest[:count]
            blocks = [effect.block for effect in effects if isinstance(effect, AppendBlock)]
            if blocks:
                assert blocks[0].number == self.store.height
                self.append([encode_block(block) for block in blocks])
        self.store.sync()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 80))
def test_a_ledger_survives_its_disk(seed: int, size: int) -> None:
    rng, stream = Random(seed), ledger_stream(seed, size)
    disk = SimDisk(seed)
    told = 0
    for _ in range(LIVES):
        told = lived(disk, stream, rng, told)
    disk.capacity_bytes = None
    life = Life(disk, stream, rng)
    life.order()
    assert life.kept() == stream.blocks
    assert verify_chain(life.kept()).height == len(stream.blocks)


def lived(disk: SimDisk, stream: LedgerStream, rng: Random, told: int) -> int:
    """One life, at the end of which so many blocks are durable as it has told of."""
    disk.calls_left = rng.choice((None, rng.randint(0, 20), rng.randint(0, 120)))
    if rng.random() < 0.3:
        operation = rng.choice(("pwrite", "sync", "create", "rename", "sync_directory"))
        disk.fail(operation, rng.choice((errno.EIO, errno.ENOSPC)), skip=rng.randint(0, 15))
    disk.capacity_bytes = rng.choice((None, None, disk.used_bytes() + rng.randint(0, 4_000)))
    disk.short_writes = rng.random() < 0.3
    life: Life | None = None
    try:
        life = Life(disk, stream, rng)
        assert life.store.height >= told
        assert life.kept() == stream.blocks[: life.store.height]
        life.order(rng.randint(0, 15))
        life.store.close()
    except (PowerCut, Unavailable):
        pass
    if life is not None:
        told = max(told, life.store.synced_height)
    if rng.random() < 0.6:
        disk.crash()
    else:
        disk.kill()
    return told
