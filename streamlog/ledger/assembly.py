"""Messages of a delivery put together to blocks again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamlog.errors import CorruptBlock
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import configuration_in
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.encoding import decode_block, decode_records
from streamlog.ledger.core.entry import SIGNATURE_HEADER, SIGNER_HEADER
from streamlog.ledger.core.signing import BlockSignature, signature_of
from streamlog.ledger.protocol import NUMBER_HEADER, PART_HEADER
from streamlog.record.codec import Record


@dataclass(frozen=True, slots=True)
class DeliveredBlock:
    """A block as a node has delivered it: whole, its data those of its header."""

    block: Block
    encoded: bytes
    signature: BlockSignature | None = None
    """Of the node that delivered it; to be checked with a ``Keyring`` of the consenters."""

    @property
    def number(self) -> int:
        return self.block.number

    def records(self) -> Iterator[Record]:
        """Raises CorruptBlock."""
        return decode_records(self.block.data)

    @property
    def configuration(self) -> ChannelConfig | None:
        """Raises CorruptBlock for one that cannot be read."""
        return configuration_in(self.block) if self.block.is_configuration else None


class Assembly:
    """Takes the messages of blocks in their order; raises CorruptBlock for another one.

    ``next``: the number of the block that is to come; None: whichever is the first.
    """

    def __init__(self, following: int | None) -> None:
        self.next = following
        self._parts: list[bytes] = []
        self._first: Mapping[str, str] = {}

    def take(self, headers: Mapping[str, str], payload: bytes) -> DeliveredBlock | None:
        """A block, if that was the last part of it."""
        number, part, count = _place(headers)
        if self.next is None:
            self.next = number
        if number != self.next or part != len(self._parts):
            raise CorruptBlock(f"block {number}, part {part} came where {self.next} was to come")
        if part == 0:
            self._first = headers
        self._parts.append(payload)
        if part + 1 < count:
            return None
        encoded, self._parts = b"".join(self._parts), []
        block = decode_block(encoded)
        if block.number != number:
            raise CorruptBlock(f"block {block.number} came as block {number}")
        self.next = number + 1
        return DeliveredBlock(block, encoded, _signature(self._first))


def _place(headers: Mapping[str, str]) -> tuple[int, int, int]:
    try:
        part, _, count = headers.get(PART_HEADER, "0/1").partition("/")
        return int(headers[NUMBER_HEADER]), int(part), int(count)
    except (KeyError, ValueError):
        raise CorruptBlock("a message of a delivery does not say what it is") from None


def _signature(headers: Mapping[str, str]) -> BlockSignature | None:
    signer, text = headers.get(SIGNER_HEADER), headers.get(SIGNATURE_HEADER)
    if not signer or not text:
        return None
    try:
        return BlockSignature(signer, signature_of(text.encode()))
    except ValueError as error:
        raise CorruptBlock(f"{SIGNATURE_HEADER}: {error}") from None
