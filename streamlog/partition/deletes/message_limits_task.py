"""What rules take out of the logs that this node leads: a little at a time, log after log."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from streamlog.clock import wall_ms
from streamlog.condition import CORRECT_THEN_RESTART, FAULT, Condition
from streamlog.errors import StreamlogError
from streamlog.partition.maintenance.log_start import free_front
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

MESSAGES_NOT_TRIMMED: Final = Condition(
    "SL-0230",
    "messages are not trimmed",
    CORRECT_THEN_RESTART,
    meaning="A stream has more messages than its limits allow, because they could not be erased.",
)

LOOK_S: Final = 0.5
"""Between two looks: so long may pass until the log says what is to go."""
DUE_S: Final = 0.1
"""At least, between two times at which messages go that are due meanwhile."""
SHARE_MAX: Final = 0.1
"""Of the time, at most."""
_AT_ONCE: Final = 500
"""Partitions that are looked at before others have their turn."""


class MessageLimitsTask:
    """``run`` as a task; ``heard`` of each partition with its leadership or configuration. One that
    is not led here, or whose stream has no such rule, costs nothing from then on.
    """

    def __init__(self, *, now_ms: Callable[[], int] = wall_ms) -> None:
        self._now_ms = now_ms
        self._heard: dict[Partition, None] = {}
        """To be looked at for whether they are to be trimmed; in order, as ``_trimmed`` is, so that
        a simulation that is played again does the same.
        """
        self._trimmed: dict[Partition, None] = {}
        self._followed: set[Partition] = set()
        """Of which the index of subjects is kept for this."""
        self._failed: set[Partition] = set()

    async def run(self) -> None:
        """For as long as the node runs."""
        pause_s = LOOK_S
        while True:
            await self._pause(pause_s)
            started = time.monotonic()
            await self.look()
            spent_s = time.monotonic() - started
            pause_s = max(LOOK_S, spent_s / SHARE_MAX - spent_s)

    async def _pause(self, pause_s: float) -> None:
        """Readers do not find what is due meanwhile; the log says so after the next look."""
        end_s = time.monotonic() + pause_s
        while (left_s := end_s - time.monotonic()) > 0:
            known = [it.expiry.next_ms for it in self._trimmed if _expires(it)]
            first_ms = min((it for it in known if it is not None), default=None)
            due_s = left_s if first_ms is None else (first_ms - self._now_ms()) / 1_000
            await asyncio.sleep(min(left_s, max(due_s, DUE_S)))
            for partition in self._trimmed:
                if _expires(partition):
                    partition.expiry.take_due(self._now_ms())

    def heard(self, partition: Partition) -> None:
        """It is led here, or no longer, or its configuration is another one."""
        self._heard[partition] = None

    async def look(self) -> None:
        """At those that are trimmed, or may be by now."""
        heard, self._heard = self._heard, {}
        for done, partition in enumerate(self._trimmed | heard):
            if partition.config.is_trimmed and partition.is_leader:
                self._trimmed[partition] = None
                await self._look_at(partition)
            elif partition in self._trimmed or partition.erasing.foresees:
                self._let_go(partition)
            if done % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        self._trimmed = {it: None for it in self._trimmed if not it.closed}
        self._followed &= self._trimmed.keys()
        self._failed &= self._trimmed.keys()

    def _let_go(self, partition: Partition) -> None:
        """It is led elsewhere, or its messages stay."""
        self._trimmed.pop(partition, None)
        self._follow(partition, wanted=False)
        partition.expiry.forget()
        partition.erasing.say()

    def _follow(self, partition: Partition, *, wanted: bool) -> None:
        """Have its index kept, or not any more."""
        if wanted and partition not in self._followed:
            self._followed.add(partition)
            partition.subjects.want()
        elif not wanted and partition in self._followed:
            self._followed.discard(partition)
            partition.subjects.let_go()

    async def _look_at(self, partition: Partition) -> None:
        """What cannot be is told once, and tried again."""
        try:
            if _expires(partition):
                await partition.expiry.settle(self._now_ms())
            by_subject = partition.surplus.kept is not None or partition.config.leaves_markers
            self._follow(partition, wanted=by_subject)
            await partition.surplus.settle()
            partition.erasing.say()
            await free_front(partition)
        except Exception as error:  # a bug, too, must cost no more than this partition's trimming
            if partition not in self._failed:
                self._failed.add(partition)
                _tell(partition, error)
        else:
            self._failed.discard(partition)


def _tell(partition: Partition, error: Exception) -> None:
    if isinstance(error, StreamlogError):
        logger.warning(MESSAGES_NOT_TRIMMED, extra=partition.place(error))
    else:
        extra = {"stream": partition.tp.stream, "partition": partition.tp.partition}
        logger.error(FAULT.logged_as("messages could not be trimmed"), extra=extra, exc_info=error)


def _expires(partition: Partition) -> bool:
    """Its messages go when they have said."""
    config = partition.config
    return config.allow_ttl and not config.sealed and partition.is_leader
