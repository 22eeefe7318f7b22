"""How a chain begins: block 0 is the first configuration of sequence 0 in the stream. Pure.

It may lie anywhere, for a stream that has records already can be ordered. The blocks after it have
the stream's records from ``start_offset`` on, also those before the genesis; the genesis record
itself is left out then, as any configuration is whose sequence has passed.
"""

from collections.abc import Iterable

from streamlog.errors import CorruptBlock, InvalidChannelConfig
from streamlog.ledger.core.block import NO_HASH, Block, BlockMetadata
from streamlog.ledger.core.chain import ChainLink, sealed
from streamlog.ledger.core.channel_config import FORMAT, ChannelConfig
from streamlog.ledger.core.encoding import decode_records, encode_record
from streamlog.ledger.core.entry import Configuration, LaterConfiguration, marked
from streamlog.record.codec import Record


def genesis_block(record: Record) -> Block | None:
    """Block 0, if the record may be a genesis. The first one of the stream is.

    Raises InvalidChannelConfig for a genesis that a later streamlog wrote: to pass it over would be
    to begin another chain.
    """
    entry = marked(record)
    if isinstance(entry, LaterConfiguration) and entry.sequence == 0:
        raise InvalidChannelConfig(
            f"the genesis at offset {record.offset} is of format {entry.format}, known here is"
            f" {FORMAT}: a later streamlog is needed"
        )
    if not isinstance(entry, Configuration):
        return None
    config = entry.config
    if config.sequence != 0 or config.start_offset > record.offset:
        return None
    metadata = BlockMetadata(record.offset, record.offset + 1, config.start_offset, 0)
    return sealed(ChainLink(config.channel, 0, NO_HASH), encode_record(record), 1, metadata)


def find_genesis(records: Iterable[Record]) -> Block | None:
    """Block 0 of the stream; None: these records have none. Raises InvalidChannelConfig."""
    for record in records:
        if record.headers and (block := genesis_block(record)) is not None:
            return block
    return None


def configuration_in(block: Block) -> ChannelConfig:
    """Of a configuration block. Raises CorruptBlock for one that has none."""
    records = list(decode_records(block.data))
    entry = marked(records[0]) if len(records) == 1 else None
    if not isinstance(entry, Configuration):
        raise CorruptBlock(f"block {block.number} is no configuration block that can be read")
    return entry.config


def is_genesis(block: Block) -> bool:
    """Whether the block is the one that its record makes."""
    try:
        records = list(decode_records(block.data))
        return len(records) == 1 and genesis_block(records[0]) == block
    except (CorruptBlock, InvalidChannelConfig):
        return False
