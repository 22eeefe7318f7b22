"""What a peer gave for the next block: whether to believe it, and what is wrong with it. Pure."""

from dataclasses import dataclass
from typing import Final

from streamlog.errors import BrokenChain, CorruptBlock
from streamlog.ledger.core.block import NO_HASH, Block
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.encoding import decode_records
from streamlog.ledger.core.entry import LaterConfiguration, marked
from streamlog.ledger.core.follower_events import FollowerRefusal
from streamlog.ledger.core.signing import BlockSignature, Keyring
from streamlog.ledger.core.verifier import ChainVerifier

UNSIGNED: Final = Keyring(())


class PulledBlockRefused(Exception):
    """A block is not what it should be."""

    def __init__(self, reason: FollowerRefusal, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TooNew:
    """The next block is a configuration in a later format than is known here."""

    number: int
    format: int


def check_signature(keyring: Keyring, block: Block, signature: BlockSignature | None) -> None:
    """That somebody on the ring vouches for it; an empty ring asks for nobody. Raises Refused."""
    if len(keyring) and not (signature and keyring.is_block_signed(signature, block.hash)):
        problem = f"block {block.number} has no signature of a consenter"
        raise PulledBlockRefused(FollowerRefusal.SIGNATURE, problem)


def take_next(verifier: ChainVerifier, channel: str, block: Block) -> TooNew | None:
    """Have ``verifier`` take the block after those before. Raises Refused."""
    misplaced = _misplaced(verifier, channel, block)
    if misplaced is None:
        later = _later_format(block)
        if later is not None:
            return TooNew(block.number, later)
    try:
        verifier.take_block(block)
    except (BrokenChain, CorruptBlock) as error:
        raise PulledBlockRefused(misplaced or FollowerRefusal.MALFORMED, str(error)) from None
    return None


def keyring_of(config: ChannelConfig | None) -> Keyring:
    """The consenters' keys, where all of them have one; else blocks need not be signed."""
    if config is None:
        return UNSIGNED
    vouchers = config.vouchers
    return Keyring(vouchers) if len(vouchers) == len(config.consenters) else UNSIGNED


def _misplaced(verifier: ChainVerifier, channel: str, block: Block) -> FollowerRefusal | None:
    """What the verifier will not have it for, as far as its place goes."""
    header, tip = block.header, verifier.tip
    if header.channel != channel:
        return FollowerRefusal.CHANNEL
    if header.number != (tip.height if tip else 0):
        return FollowerRefusal.NUMBER
    if header.previous_hash != (tip.hash if tip else NO_HASH):
        return FollowerRefusal.PREVIOUS_HASH
    return None


def _later_format(block: Block) -> int | None:
    if not block.is_configuration or block.header.record_count != 1:
        return None
    try:
        entry = marked(next(decode_records(block.data)))
    except (CorruptBlock, StopIteration):
        return None
    return entry.format if isinstance(entry, LaterConfiguration) else None
