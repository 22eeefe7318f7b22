"""A node that cuts blocks: what it is told, and what it wants done. Pure.

``Consenter.step(event)`` returns effects. The shell carries them out in order. It may die between
any two: a new ``Consenter`` made of the last block that was kept, and fed from its ``next_offset``
on, makes the same blocks again.

The node's clock has no say in where a block ends. When the timer of a pending block expires, the
node posts TTC-X, X being that block's number, and the first TTC-X in the stream cuts, on all nodes
in the same place. Others of the same X come too late; one for a later block is ignored as well,
and one that finds nothing pending cuts nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from streamlog.errors import (
    BrokenInvariant,
    InvalidChannelConfig,
    InvalidRequest,
    InvalidSignature,
    StaleConfiguration,
)
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import ChainTip
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.channel_policy import ChannelPolicy
from streamlog.ledger.core.cutter import BlockCut, CutReason, Cutter
from streamlog.ledger.core.encoding import encode_record
from streamlog.ledger.core.entry import (
    Configuration,
    LaterConfiguration,
    Marked,
    TimeToCut,
    marked,
)
from streamlog.record.codec import Record

REPEAT_MS_MIN: Final = 1_000
REPEAT_MS_MAX: Final = 60_000
"""A marker that does not show up in the stream is posted again, each time after twice as long."""

# Events


@dataclass(frozen=True, slots=True)
class RecordsConsumed:
    """Committed records of the stream, in order, as many as were at hand; none left out.

    Those before what has been consumed already are passed over.
    """

    records: Sequence[Record]
    has_more: bool = False
    """More is at hand, and comes next. No timer starts for what a marker may have cut long
    ago: nodes that catch up would fill the stream with stale ones, and have these to read as well.
    """


@dataclass(frozen=True, slots=True)
class TimerExpired:
    """The time of ``StartTimer`` is over."""

    number: int


Event = RecordsConsumed | TimerExpired

# Effects


class SkipReason(Enum):
    """Why a record is in no block, on any node."""

    MALFORMED = "malformed"
    SIGNATURE = "signature"
    """Unsigned, wrongly signed, or by a signer that may not."""
    STALE_CONFIGURATION = "stale-configuration"
    """Its sequence is not the next one; the genesis, when it is met again, is one of these."""
    INVALID_CONFIGURATION = "invalid-configuration"
    STALE_TIME_TO_CUT = "stale-time-to-cut"
    EARLY_TIME_TO_CUT = "early-time-to-cut"
    EMPTY_TIME_TO_CUT = "empty-time-to-cut"
    """The right number, but nothing was pending."""


@dataclass(frozen=True, slots=True)
class AppendBlock:
    """Keep this block, the next one of the chain."""

    block: Block
    reason: CutReason


@dataclass(frozen=True, slots=True)
class StartTimer:
    """There is one timer; another one that runs is replaced."""

    number: int
    """Of the pending block; comes back in ``TimerExpired``."""
    after_ms: int


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Nothing is pending."""


@dataclass(frozen=True, slots=True)
class PostTimeToCut:
    """Publish TTC-``number`` to the stream."""

    number: int


@dataclass(frozen=True, slots=True)
class ConfigurationChanged:
    """This configuration holds after block ``number``, which has just been appended."""

    config: ChannelConfig
    number: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """To be counted; nothing is to be done."""

    offset: int
    reason: SkipReason
    detail: str


@dataclass(frozen=True, slots=True)
class HaltChannel:
    """The channel goes on with a configuration that this version cannot read: cut no further."""

    offset: int
    detail: str


Effect = (
    AppendBlock
    | StartTimer
    | StopTimer
    | PostTimeToCut
    | ConfigurationChanged
    | Skipped
    | HaltChannel
)


class Consenter:
    """Cuts a channel's blocks after ``tip``, of which ``config`` is the configuration in force."""

    def __init__(self, tip: ChainTip, config: ChannelConfig) -> None:
        if config.channel != tip.channel:
            raise BrokenInvariant("the configuration is that of the chain")
        self.tip = tip
        """The last block that was cut; its ``AppendBlock`` may not be carried out yet."""
        self.admission = ChannelPolicy(config)
        self.next_offset = tip.next_offset
        """Everything below has been looked at; what is pending lies there, too."""
        self.is_halted = False
        self._cutter = Cutter(config.limits)
        self._timed: int | None = None
        """The number of the block that a timer runs for."""
        self._repeat_ms = 0

    @property
    def config(self) -> ChannelConfig:
        """In force for the next record."""
        return self.admission.config

    @property
    def pending_count(self) -> int:
        """Records that wait for their block to be cut."""
        return self._cutter.pending_count

    def step(self, event: Event) -> list[Effect]:
        """What is to be done about it, in this order."""
        if self.is_halted:
            return []
        if isinstance(event, TimerExpired):
            return self._expired(event.number)
        effects: list[Effect] = []
        self._consume(event.records, effects)
        self._set_timer(effects, may_start=not event.has_more)
        return effects

    def _expired(self, number: int) -> list[Effect]:
        if number != self._timed:
            return []
        after_ms, self._repeat_ms = self._repeat_ms, min(2 * self._repeat_ms, REPEAT_MS_MAX)
        return [PostTimeToCut(number), StartTimer(number, after_ms)]

    def _set_timer(self, effects: list[Effect], *, may_start: bool) -> None:
        pending = self.tip.height if self._cutter.pending_count and not self.is_halted else None
        if pending == self._timed:
            return
        if pending is None or not may_start:
            if self._timed is not None:
                effects.append(StopTimer())
            self._timed = None
            return
        self._timed = pending
        timeout_ms = self.config.limits.batch_timeout_ms
        self._repeat_ms = min(max(2 * timeout_ms, REPEAT_MS_MIN), REPEAT_MS_MAX)
        effects.append(StartTimer(pending, timeout_ms))

    def _consume(self, records: Sequence[Record], effects: list[Effect]) -> None:
        """Most records are ordinary, and end no block: little is done for each."""
        cutter, next_offset = self._cutter, self.next_offset
        for record in records:
            offset = record[0]
            if offset < next_offset:
                continue
            next_offset = offset + 1
            entry = marked(record) if record[4] else None
            if entry is not None:
                self._take(entry, record, effects)
                if self.is_halted:
                    break
            elif not self.admission.demands_signatures or self._is_admitted(record, effects):
                cuts = cutter.add(offset, encode_record(record))
                if cuts:
                    self._extend(cuts, effects)
        self.next_offset = next_offset

    def _is_admitted(self, record: Record, effects: list[Effect]) -> bool:
        try:
            self.admission.check_record(record)
        except InvalidSignature as error:
            effects.append(Skipped(record.offset, SkipReason.SIGNATURE, str(error)))
            return False
        return True

    def _extend(self, cuts: Sequence[BlockCut], effects: list[Effect]) -> None:
        for cut in cuts:
            block = self.tip.extended(cut)
            self.tip = ChainTip.of(block)
            effects.append(AppendBlock(block, cut.reason))

    def _take(self, entry: Marked, record: Record, effects: list[Effect]) -> None:
        if isinstance(entry, TimeToCut):
            self._take_marker(entry.number, record.offset, effects)
        elif isinstance(entry, Configuration):
            self._take_configuration(entry.config, record, effects)
        elif isinstance(entry, LaterConfiguration):
            self._take_later(entry, record, effects)
        else:
            effects.append(Skipped(record.offset, SkipReason.MALFORMED, entry.reason))

    def _take_marker(self, number: int, offset: int, effects: list[Effect]) -> None:
        following = self.tip.height
        if number == following and self._cutter.pending_count:
            self._extend(self._cutter.cut(offset + 1, CutReason.TIME), effects)
            return
        if number < following:
            reason = SkipReason.STALE_TIME_TO_CUT
        elif number > following:
            reason = SkipReason.EARLY_TIME_TO_CUT
        else:
            reason = SkipReason.EMPTY_TIME_TO_CUT
        effects.append(Skipped(offset, reason, f"TTC-{number}, the next block is {following}"))

    def _take_configuration(
        self, config: ChannelConfig, record: Record, effects: list[Effect]
    ) -> None:
        admission = self.admission
        try:
            admission.check_update(config)
            admission.check_administrator(record)
        except InvalidRequest as error:
            effects.append(Skipped(record.offset, _why_skipped(error), str(error)))
            return
        cuts = self._cutter.add_configuration(record.offset, encode_record(record))
        self._extend(cuts, effects)
        self.admission = ChannelPolicy(config)
        self._cutter.limits = config.limits
        effects.append(ConfigurationChanged(config, self.tip.number))

    def _take_later(self, entry: LaterConfiguration, record: Record, effects: list[Effect]) -> None:
        """Only one that would be in force stops the channel, and where signatures are demanded
        only a signed one.
        """
        try:
            if entry.sequence != self.config.sequence + 1:
                raise StaleConfiguration(f"sequence {entry.sequence}, of format {entry.format}")
            self.admission.check_administrator(record)
        except InvalidRequest as error:
            effects.append(Skipped(record.offset, _why_skipped(error), str(error)))
            return
        self.is_halted = True
        detail = (
            f"the configuration of channel {self.config.channel!r} at offset {record.offset} is of"
            f" format {entry.format}: a later streamlog is needed to go on"
        )
        effects.append(HaltChannel(record.offset, detail))


def _why_skipped(error: InvalidRequest) -> SkipReason:
    if isinstance(error, InvalidSignature):
        return SkipReason.SIGNATURE
    if isinstance(error, InvalidChannelConfig):
        return SkipReason.INVALID_CONFIGURATION
    return SkipReason.STALE_CONFIGURATION
