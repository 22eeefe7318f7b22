"""The share partitions that this node leads, and the share sessions of members that fetch from it."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.config import GroupsSection
from streamlog.errors import NotLeader
from streamlog.groups.records import StateKey
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.partition.partition import Partition
from streamlog.shares.led_share import LedShare, StateKeeper
from streamlog.shares.share_sessions import SessionKey, SharedPartition, ShareSession, ShareSessions

SWEEP_S: Final = 30.0
"""Between looks for share partitions that are not used any more."""
IDLE_MS: Final = 60_000
"""One that no session has for so long is let go of; its state is with the coordinator."""


class ShareStatistics(NamedTuple):
    """Of the share partitions that this node leads, and of those that it has led."""

    partitions: int
    sessions: int
    acquired: int
    acknowledged: int
    archived: int


class ShareService:
    """``run`` as a task, ``apply`` at each change of the image."""

    def __init__(
        self,
        *,
        settings: GroupsSection,
        keeper: StateKeeper,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self.sessions = ShareSessions(settings.share_sessions_max)
        self.clock_ms = clock_ms
        self._settings = settings
        self._keeper = keeper
        self._led: dict[StateKey, LedShare] = {}
        self._tasks: asyncio.Queue[Coroutine[Any, Any, None]] = asyncio.Queue()
        """To be carried out: a take-over or a save of each share partition at most."""
        self._stopping = False
        self._counted = (0, 0, 0)
        """What share partitions that are let go of had counted."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            while True:
                group.create_task(await self._tasks.get())

    def apply(self, _old: MetadataImage, _new: MetadataImage) -> None:
        """What is led here no longer is let go of."""
        for led in tuple(self._led.values()):
            if not led.leads:
                self._let_go(led)

    async def stop(self) -> None:
        """Members are told to look for other leaders."""
        self._stopping = True
        for led in tuple(self._led.values()):
            self._let_go(led)

    def led(self, group: str, partition: Partition) -> LedShare:
        """``partition``: led here. Raises NotLeader."""
        if not partition.is_leader:
            raise NotLeader(f"{partition.tp} is led by another node")
        if self._stopping:
            raise NotLeader("this node is about to stop")
        key = StateKey(group, UUID(bytes=partition.topic_id), partition.tp.partition)
        known = self._led.get(key)
        if known is not None:
            if known.leads and known.partition is partition:
                known.used_ms = self.clock_ms()
                return known
            self._let_go(known)
        found = self._led[key] = LedShare(
            key,
            partition,
            self._settings,
            self._keeper,
            clock_ms=self.clock_ms,
            start=self._tasks.put_nowait,
        )
        return found

    def known(self, group: str, places: Iterable[SharedPartition]) -> list[LedShare]:
        """Those of these partitions that are led here, and in use."""
        keys = (StateKey(group, *place) for place in places)
        return [it for key in keys if (it := self._led.get(key)) is not None]

    def close_session(self, key: SessionKey, session: ShareSession) -> None:
        """The member lets go of all that it has here; unless it has another session by now."""
        if self.sessions.remove(key, session):
            for led in self.known(key.group, session.partitions):
                led.release_all(key.member_id)

    def statistics(self) -> ShareStatistics:
        counts = [self._counted, *(_counts(it) for it in self._led.values())]
        acquired, acknowledged, archived = (sum(it) for it in zip(*counts, strict=True))
        return ShareStatistics(len(self._led), len(self.sessions), acquired, acknowledged, archived)

    def _let_go(self, led: LedShare) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]
            (acquired, acknowledged, archived), more = self._counted, _counts(led)
            self._counted = (acquired + more[0], acknowledged + more[1], archived + more[2])
        led.close(NotLeader(f"{led.partition.tp} is not led here, or about to be taken over again"))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now_ms = self.clock_ms()
            idle = [
                it
                for it in self._led.values()
                if not it.leads or (it.may_rest and now_ms - it.used_ms >= IDLE_MS)
            ]
            for led in idle:
                self._let_go(led)


def _counts(led: LedShare) -> tuple[int, int, int]:
    return led.acquired_count, led.acknowledged_count, led.archived_count
