"""A whole stream cut at once: what every ordering node must come to. Pure."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import ChainTip, configuration_in
from streamlog.ledger.core.consenter import AppendBlock, Consenter, RecordsConsumed
from streamlog.record.codec import Record

RUN_RECORDS: Final = 1_000


def cut_stream(genesis: Block, records: Iterable[Record]) -> Iterator[Block]:
    """The genesis, and all blocks that ``records``, the stream's from its start, are cut into.

    ``genesis.find_genesis`` has it out of the same records. What is pending at the end is in no
    block. Raises CorruptBlock for a block that is no configuration.
    """
    yield genesis
    consenter = Consenter(ChainTip.of(genesis), configuration_in(genesis))
    rest = iter(records)
    while run := list(islice(rest, RUN_RECORDS)):
        for effect in consenter.step(RecordsConsumed(run)):
            if isinstance(effect, AppendBlock):
                yield effect.block
