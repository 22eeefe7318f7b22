"""What became of the configurations that were published: in force, or overtaken by another."""

import asyncio
from collections import OrderedDict
from typing import Final

from streamlog.errors import InvalidChannelConfig, InvalidSignature, StaleConfiguration
from streamlog.ledger.core.consenter import Skipped, SkipReason

NOTED_MAX: Final = 1_000
"""The last so many are known; nobody waits for older ones."""
_ERRORS: Final = {
    SkipReason.STALE_CONFIGURATION: StaleConfiguration,
    SkipReason.INVALID_CONFIGURATION: InvalidChannelConfig,
    SkipReason.SIGNATURE: InvalidSignature,
}


class SubmissionResults:
    """By the offset of the record; it may be known before the publisher has its acknowledgement."""

    def __init__(self) -> None:
        self._noted: OrderedDict[int, int | Skipped] = OrderedDict()
        self._changed = asyncio.Event()

    def note(self, offset: int, number: int) -> None:
        """It is in force, in this block."""
        self._put(offset, number)

    def note_skipped(self, effect: Skipped) -> None:
        """It is in no block."""
        if effect.reason in _ERRORS:
            self._put(effect.offset, effect)

    def _put(self, offset: int, outcome: int | Skipped) -> None:
        self._noted[offset] = outcome
        if len(self._noted) > NOTED_MAX:
            self._noted.popitem(last=False)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def of(self, offset: int, timeout_s: float) -> int | None:
        """The block that has it; None if that is not known in time.

        Raises StaleConfiguration, InvalidChannelConfig or InvalidSignature where it was overtaken.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while offset not in self._noted:
                    await self._changed.wait()
        except TimeoutError:
            return None
        outcome = self._noted[offset]
        if isinstance(outcome, Skipped):
            raise _ERRORS[outcome.reason](outcome.detail)
        return outcome
