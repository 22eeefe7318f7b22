"""Somebody who offers blocks, and never the right ones for long."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from streamlog.ledger.core.chain import ChainLink, sealed
from streamlog.ledger.core.encoding import decode_block, encode_block

if TYPE_CHECKING:
    from tests.simulation.ordering_node import GIVEN
    from tests.simulation.ordering_world import OrderingWorld


NEXT_OFFSET: Final = range(94, 102)
"""Where it stands in a header."""


class LyingPeer:
    """Has the true chain, and changes it as it is asked. It has no consenter's key."""

    def __init__(self, name: str, world: "OrderingWorld") -> None:
        self.name = name
        self._world = world

    def tell_height(self) -> int | None:
        truth = len(self._world.truth())
        return self._world.rng.choice((truth, truth + 1, 10 * truth + 7, 0, None))

    def give(self, asker: str, start: int, stop: int) -> "list[GIVEN] | None":
        node = self._world.rng.choice(list(self._world.nodes.values()))
        honest = node.given(start, stop)
        if not honest:
            return []
        rng = self._world.rng
        lies: list[Callable[[list[GIVEN]], list[GIVEN]]] = [
            self._break_hash,
            self._leave_out,
            self._repeat,
            self._of_another_channel,
            self._cut_short,
            self._garble,
        ]
        if self._world.is_found_out(asker):
            lies += [self._forge] * 3
        return rng.choice(lies)(honest)

    def _place(self, blocks: "list[GIVEN]") -> int:
        return self._world.rng.randrange(len(blocks))

    def _break_hash(self, blocks: "list[GIVEN]") -> "list[GIVEN]":
        place = self._place(blocks)
        encoded, signature = blocks[place]
        changed = bytearray(encoded)
        position = self._world.rng.randrange(len(changed))
        if position in NEXT_OFFSET:
            position = 0  # only the next block would tell that it is another
        changed[position] ^= 1 << self._world.rng.randrange(8)
        return [*blocks[:place], (bytes(changed), signature), *blocks[place + 1 :]]

    def _leave_out(self, blocks: "list[GIVEN]") -> "list[GIVEN]":
        place = self._place(blocks)
        return blocks[:place] + blocks[place + 1 :]

    def _repeat(self, blocks: "list[GIVEN]") -> "list[GIVEN]":
        place = self._place(blocks)
        return blocks[: place + 1] + blocks[place:]

    def _of_another_channel(self, blocks: "list[GIVEN]") -> "list[GIVEN]":
        place = self._place(blocks)
        block = decode_block(blocks[place][0])
        header = block.header
        link = ChainLink("elsewhere", header.number, header.previous_hash)
        other = sealed(link, block.data, header.record_count, header.metadata)
        return [*blocks[:place], (encode_block(other), None), *blocks[place + 1 :]]

    def _cut_short(self, blocks: "list[GIVEN]") -> "list[GIVEN]":
        return blocks[: self._place(blocks)]

    def _garble(self, blocks: "list[GIVEN]") -> "list[GIVEN]":
        return [*blocks[: self._place(blocks)], (self._world.rng.randbytes(200), None)]

    def _forge(self, blocks: "list[GIVEN]") -> "list[GIVEN]":
        """From one block on a history of its own, with all hashes right."""
        place = self._place(blocks)
        forged = list(blocks)
        previous = decode_block(blocks[place][0]).header.previous_hash
        for position in range(place, len(blocks)):
            block = decode_block(blocks[position][0])
            header = block.header
            data = bytearray(block.data)
            if header.metadata.last_configuration != header.number:
                data[8:16] = bytes(8)  # the first record's time
            link = ChainLink(header.channel, header.number, previous)
            false = sealed(link, bytes(data), header.record_count, header.metadata)
            previous = false.hash
            forged[position] = (encode_block(false), blocks[position][1])
        return forged
