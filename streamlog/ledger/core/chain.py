"""The end of a chain, and what fits upon it. Pure."""

from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Self

from streamlog.errors import BrokenChain
from streamlog.ledger.core.block import Block, BlockHeader, BlockMetadata
from streamlog.ledger.core.cutter import BlockCut
from streamlog.ledger.core.encoding import encode_header


class ChainLink(NamedTuple):
    """The place of a block in a chain."""

    channel: str
    number: int
    previous_hash: bytes


@dataclass(frozen=True, slots=True)
class ChainTip:
    """What the next block depends upon, beside the stream and the configuration."""

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
