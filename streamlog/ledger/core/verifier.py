"""Whether bytes are a chain: each block whole, in its place, and of the right records. Pure.

It needs nothing but the blocks. The genesis is taken at its word: compare its hash, or the tip's,
with one from a source that you trust.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from streamlog.errors import BrokenChain, BrokenInvariant, InvalidRequest
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import ChainTip, check_next, configuration_in, is_genesis
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.channel_policy import ChannelPolicy
from streamlog.ledger.core.encoding import decode_block, decode_records
from streamlog.ledger.core.entry import marked
from streamlog.record.codec import Record


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What was verified."""

    height: int
    tip: str
    """Header hash of the last block, in hexadecimal; empty where there is no block."""
    records: int
    """Ordinary ones."""
    configurations: int
    """The genesis is one."""
    config: ChannelConfig | None
    """In force after the last block."""


class ChainVerifier:
    """Takes the blocks of one chain, one after the other.

    From the genesis on; or after ``tip``, where ``config`` is in force. With a ``channel`` no other
    one's blocks are taken.
    """

    def __init__(
        self,
        tip: ChainTip | None = None,
        config: ChannelConfig | None = None,
        *,
        channel: str | None = None,
    ) -> None:
        if (tip is None) != (config is None):
            raise BrokenInvariant("a tip and its configuration go together")
        self.tip = tip
        self.records = 0
        self.configurations = 0
        self._channel = channel if tip is None else tip.channel
        self._admission = None if config is None else ChannelPolicy(config)

    @property
    def config(self) -> ChannelConfig | None:
        """In force after the last block."""
        return None if self._admission is None else self._admission.config

    def take(self, encoded: bytes) -> Block:
        """The next block. Raises CorruptBlock or BrokenChain, and is then as it was before."""
        return self.take_block(decode_block(encoded))

    def take_block(self, block: Block) -> Block:
        """As ``take``, of one that ``decode_block`` has opened."""
        if self.tip is None or self._admission is None:
            admission = self._check_genesis(block)
        else:
            check_next(self.tip, block)
            admission = self._check_records(block, self._admission)
        self._admission = admission
        self.tip = ChainTip.of(block)
        if block.is_configuration:
            self.configurations += 1
        else:
            self.records += block.header.record_count
        return block

    def report(self) -> ChainReport:
        tip = self.tip
        height, last = (0, "") if tip is None else (tip.height, tip.hash.hex())
        return ChainReport(height, last, self.records, self.configurations, self.config)

    def _check_genesis(self, block: Block) -> ChannelPolicy:
        header = block.header
        if self._channel not in (None, header.channel):
            raise BrokenChain(f"a block of channel {header.channel!r} in that of {self._channel!r}")
        if header.number != 0:
            raise BrokenChain(f"block {header.number} where the genesis, block 0, should be")
        if not is_genesis(block):
            raise BrokenChain("block 0 is not the one that its configuration record makes")
        return ChannelPolicy(configuration_in(block))

    def _check_records(self, block: Block, admission: ChannelPolicy) -> ChannelPolicy:
        """What is in force after the block."""
        header, metadata = block.header, block.metadata
        following, count = metadata.first_offset, 0
        for record in decode_records(block.data):
            if record.offset < following or (count == 0 and record.offset != following):
                raise BrokenChain(f"block {header.number}: offset {record.offset} is out of order")
            following, count = record.offset + 1, count + 1
            if not block.is_configuration:
                _check_ordinary(block, record, admission)
        if count != header.record_count or following != metadata.end_offset:
            raise BrokenChain(
                f"block {header.number}: {count} records up to offset {following}, its header says"
                f" {header.record_count} up to {metadata.end_offset}"
            )
        return _updated(block, admission) if block.is_configuration else admission


def verify_chain(blocks: Iterable[bytes], *, channel: str | None = None) -> ChainReport:
    """Of a whole chain, from its genesis. Raises CorruptBlock or BrokenChain."""
    verifier = ChainVerifier(channel=channel)
    for encoded in blocks:
        verifier.take(encoded)
    return verifier.report()


def _check_ordinary(block: Block, record: Record, admission: ChannelPolicy) -> None:
    if record.headers and marked(record) is not None:
        raise BrokenChain(f"block {block.number}: the record at {record.offset} is not ordinary")
    if admission.demands_signatures:
        try:
            admission.check_record(record)
        except InvalidRequest as error:
            raise BrokenChain(f"block {block.number}, offset {record.offset}: {error}") from None


def _updated(block: Block, admission: ChannelPolicy) -> ChannelPolicy:
    config = configuration_in(block)
    record = next(decode_records(block.data))
    try:
        admission.check_update(config)
        admission.check_administrator(record)
    except InvalidRequest as error:
        raise BrokenChain(f"block {block.number}: {error}") from None
    return ChannelPolicy(config)
