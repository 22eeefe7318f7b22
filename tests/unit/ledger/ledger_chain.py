"""Chains of blocks made by hand, for those who pull, check or store them."""

from collections.abc import Sequence
from typing import NamedTuple

from streamlog.ledger.core.block import NO_HASH, Block, BlockMetadata
from streamlog.ledger.core.chain import ChainLink, ChainTip, sealed
from streamlog.ledger.core.channel_config import ChannelConfig, OrderingNode
from streamlog.ledger.core.encoding import encode_block, encode_record
from streamlog.ledger.core.entry import KIND_HEADER
from streamlog.record.codec import Record

CHANNEL = "orders"


def config_of(
    *consenters: str, channel: str = CHANNEL, sequence: int = 0, keys: Sequence[str] = ()
) -> ChannelConfig:
    """With these nodes as its consenters, and their keys where they are given."""
    found = (*keys, *[None] * len(consenters))
    nodes = tuple(
        OrderingNode(name=name, public_key=key)
        for name, key in zip(consenters, found, strict=False)
    )
    return ChannelConfig(channel=channel, sequence=sequence, consenters=nodes)


class Content(NamedTuple):
    """What is in a record."""

    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class HandMadeChain:
    """Grows by a block at a time; each record's offset is the next of an imagined stream."""

    def __init__(self, config: ChannelConfig) -> None:
        self.channel = config.channel
        self._genesis = config
        self.blocks: list[Block] = []
        self._offset = 0
        self._last_configuration = 0
        self.configure(config)

    @property
    def height(self) -> int:
        return len(self.blocks)

    @property
    def tip(self) -> ChainTip:
        return ChainTip.of(self.blocks[-1])

    @staticmethod
    def tip_of(blocks: Sequence[Block]) -> ChainTip | None:
        return ChainTip.of(blocks[-1]) if blocks else None

    def twin(self, text: str) -> "HandMadeChain":
        """The same genesis, as long, and other records."""
        made = HandMadeChain(self._genesis)
        made.grow(self.height - 1, text)
        return made

    def elsewhere(self, channel: str) -> "HandMadeChain":
        """Another channel's, as long."""
        made = HandMadeChain(self._genesis.model_copy(update={"channel": channel}))
        made.grow(self.height - 1)
        return made

    def without_genesis(self) -> "HandMadeChain":
        """It begins with records."""
        made = HandMadeChain(self._genesis)
        made.blocks.clear()
        made._last_configuration = 5
        made.grow(1)
        return made

    def misplaced(self, number: int) -> Block:
        """Its hashes are right, and its offsets are those of the block before."""
        before, block = self.blocks[number - 1 : number + 1]
        header = block.header
        return sealed(
            ChainLink(self.channel, number, header.previous_hash),
            block.data,
            header.record_count,
            before.metadata,
        )

    @property
    def encoded(self) -> list[bytes]:
        return [encode_block(block) for block in self.blocks]

    def configure(self, config: ChannelConfig) -> Block:
        """A configuration block."""
        return self.configure_by(config.encode())

    def configure_by(self, text: bytes) -> Block:
        """With whatever text."""
        self._last_configuration = self.height
        return self._add([Content(text, ((KIND_HEADER, b"configuration"),))])

    def add(self, *values: bytes) -> Block:
        """A block of ordinary records."""
        return self._add([Content(value) for value in values])

    def grow(self, count: int, text: str = "record") -> None:
        """So many more blocks of one record each."""
        for _ in range(count):
            self.add(f"{text} {self.height}".encode())

    def _add(self, contents: Sequence[Content]) -> Block:
        first = self._offset
        data = b"".join(
            encode_record(Record(first + i, 0, None, content.value, content.headers))
            for i, content in enumerate(contents)
        )
        self._offset += len(contents)
        end = self._offset
        is_genesis = self._last_configuration == self.height == 0
        metadata = BlockMetadata(first, end, 0 if is_genesis else end, self._last_configuration)
        previous = self.blocks[-1].hash if self.blocks else NO_HASH
        block = sealed(
            ChainLink(self.channel, self.height, previous), data, len(contents), metadata
        )
        self.blocks.append(block)
        return block
