"""An ordering node without its shell: the real core, blocks kept as bytes, and crashes at will."""

from collections.abc import Callable, Sequence

from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import ChainTip, configuration_in
from streamlog.ledger.core.consenter import (
    AppendBlock,
    Consenter,
    Effect,
    Event,
    RecordsConsumed,
    TimerExpired,
)
from streamlog.ledger.core.encoding import decode_block, encode_block
from streamlog.record.codec import Record


class Crashed(Exception):
    """The node has died between two effects; what it kept, it has."""


class OrderingNode:
    """``fate`` is asked before each effect is carried out; it may raise Crashed.

    What is no ``AppendBlock`` goes to ``carry_out``.
    """

    def __init__(
        self,
        genesis: Block,
        fate: Callable[[], None] = lambda: None,
        carry_out: Callable[[Effect], None] = lambda _: None,
    ) -> None:
        self.kept: list[bytes] = [encode_block(genesis)]
        """What survives a crash."""
        self._fate = fate
        self._carry_out = carry_out
        self.consenter = self._started()

    @property
    def next_offset(self) -> int:
        return self.consenter.next_offset

    def restart(self) -> None:
        """From what was kept, and from nothing else."""
        self.consenter = self._started()

    def _started(self) -> Consenter:
        last = decode_block(self.kept[-1])
        tip = ChainTip.of(last)
        config = configuration_in(decode_block(self.kept[tip.last_configuration]))
        return Consenter(tip, config)

    def consume(self, records: Sequence[Record], *, has_more: bool = False) -> None:
        self._step(RecordsConsumed(records, has_more))

    def expire(self, number: int) -> None:
        self._step(TimerExpired(number))

    def _step(self, event: Event) -> None:
        for effect in self.consenter.step(event):
            self._fate()
            if isinstance(effect, AppendBlock):
                assert effect.block.number == len(self.kept), "a block twice, or left out"
                self.kept.append(encode_block(effect.block))
            else:
                self._carry_out(effect)
