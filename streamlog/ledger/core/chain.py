"""A chain: how it begins, its end, and what may be appended to it. Pure.

Block 0, the genesis, is the first configuration of sequence 0 in the stream. It may lie anywhere,
for a stream that has records already can be ordered. The blocks after it have the stream's records
from ``start_offset`` on, also those before the genesis; the genesis record itself is left out then,
as any configuration is whose sequence has passed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Self

from streamlog.errors import BrokenChain, CorruptBlock, InvalidChannelConfig
from streamlog.ledger.core.block import NO_HASH, Block, BlockHeader, BlockMetadata
from streamlog.ledger.core.channel_config import FORMAT, ChannelConfig
from streamlog.ledger.core.cutter import BlockCut
from streamlog.ledger.core.encoding import decode_records, encode_header, encode_record
from streamlog.ledger.core.entry import Configuration, LaterConfiguration, marked
from streamlog.record.codec import Record


class ChainLink(NamedTuple):
    """The place of a block in a chain."""

    channel: str
    number: int
    previous_hash: bytes


@dataclass(frozen=True, slots=True)
class ChainTip:
    """What the next block depends on, beside the stream and the configuration."""

    channel: str
    number: int
    """Of the last block."""
    hash: bytes
    next_offset: int
    last_configuration: int

    @classmethod
    def of(cls, block: Block) -> Self:
        header, metadata = block.header, block.metadata
        return cls(
            header.channel,
            header.number,
            block.hash,
            metadata.next_offset,
            metadata.last_configuration,
        )

    @property
    def height(self) -> int:
        """So many blocks there are; the number of the next one."""
        return self.number + 1

    def extended(self, cut: BlockCut) -> Block:
        """The next block."""
        number = self.number + 1
        last_configuration = number if cut.is_configuration else self.last_configuration
        metadata = BlockMetadata(
            cut.first_offset, cut.end_offset, cut.next_offset, last_configuration
        )
        return sealed(
            ChainLink(self.channel, number, self.hash), cut.data, cut.record_count, metadata
        )


def sealed(link: ChainLink, data: bytes, record_count: int, metadata: BlockMetadata) -> Block:
    """A block with its hashes."""
    header = BlockHeader(*link, sha256(data).digest(), len(data), record_count, metadata)
    return Block(header, sha256(encode_header(header)).digest(), data)


def check_next(tip: ChainTip, block: Block) -> None:
    """Raises BrokenChain unless ``block`` is the one after ``tip``."""
    header, metadata = block.header, block.metadata
    if header.channel != tip.channel:
        raise BrokenChain(f"a block of channel {header.channel!r} in that of {tip.channel!r}")
    if header.number != tip.height:
        raise BrokenChain(f"block {header.number} where {tip.height} should be")
    if header.previous_hash != tip.hash:
        raise BrokenChain(
            f"block {header.number}: its previous hash is not the hash of block {tip.number}"
        )
    if metadata.last_configuration not in (tip.last_configuration, header.number):
        raise BrokenChain(
            f"block {header.number}: the last configuration is in block {tip.last_configuration},"
            f" not in {metadata.last_configuration}"
        )
    is_in_order = (
        tip.next_offset
        <= metadata.first_offset
        < metadata.end_offset
        <= metadata.next_offset
        < 2**63
    )
    if not is_in_order:
        raise BrokenChain(
            f"block {header.number}: offsets {metadata.first_offset} to {metadata.end_offset},"
            f" next {metadata.next_offset}, do not follow offset {tip.next_offset}"
        )
    if not 0 < header.record_count <= metadata.end_offset - metadata.first_offset:
        raise BrokenChain(
            f"block {header.number}: {header.record_count} records between offsets"
            f" {metadata.first_offset} and {metadata.end_offset}"
        )


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
