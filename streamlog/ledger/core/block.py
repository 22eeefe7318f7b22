"""A block: records of a stream, in order, chained to the block before. Pure."""

from dataclasses import dataclass
from typing import Final

HASH_BYTES: Final = 32
"""SHA-256."""
NO_HASH: Final = bytes(HASH_BYTES)
"""What the genesis has in place of a previous hash."""


@dataclass(frozen=True, slots=True)
class BlockMetadata:
    """Where in the stream a block comes from. The same on all nodes, and under the header hash."""

    first_offset: int
    """Of the first record."""
    end_offset: int
    """After the last record."""
    next_offset: int
    """Everything below has been consumed; a node with this block goes on here."""
    last_configuration: int
    """The number of the block with the configuration that holds after this one."""


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """What the next block's ``previous_hash`` vouches for."""

    channel: str
    number: int
    previous_hash: bytes
    data_hash: bytes
    """SHA-256 over ``Block.data``."""
    data_bytes: int
    record_count: int
    metadata: BlockMetadata


@dataclass(frozen=True, slots=True)
class Block:
    """Made by ``chain.ChainTip.extended`` and ``encoding.decode_block``, which see that it fits."""

    header: BlockHeader
    hash: bytes
    """SHA-256 over the encoded header."""
    data: bytes
    """The records, encoded; ``encoding.decode_records`` opens them."""

    @property
    def number(self) -> int:
        return self.header.number

    @property
    def metadata(self) -> BlockMetadata:
        return self.header.metadata

    @property
    def is_configuration(self) -> bool:
        """One configuration record, and nothing else."""
        return self.header.metadata.last_configuration == self.header.number
