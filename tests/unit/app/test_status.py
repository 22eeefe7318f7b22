"""What looks at every partition of the node lets others have their turn in between."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.app.status import NodeStatus
from streamlog.config import Settings
from streamlog.errors import StorageFailed
from streamlog.groups.group import Group
from streamlog.groups.records import CommittedOffset
from streamlog.groups.service import GroupProgressPage, progress_of
from streamlog.http.gauges.log_ends import LogEnds
from streamlog.http.gauges.partition_gauges import PartitionTotals
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.state import PartitionStatistics
from tests.partition_statistics import partition_statistics

COUNT = 1_000


class Kept:
    """A partition; ``asked`` counts what all of them are asked for."""

    asked = 0
    may_serve_reads = high_watermark_known = True
    high_watermark = 7

    def __init__(self, number: int) -> None:
        self.tp = TopicPartition("s", number)
        self.closed = number == 5
        self.is_damaged = number % 100 == 1
        self._failure = StorageFailed("I/O") if number % 100 == 2 else None

    @property
    def failure(self) -> StorageFailed | None:
        Kept.asked += 1
        return self._failure

    def statistics(self) -> PartitionStatistics:
        return partition_statistics(self.tp)


class Node:
    """Its services, as far as they are asked."""

    def __init__(self) -> None:
        self.kept = [Kept(number) for number in range(COUNT)]
        self.unopened = {TopicPartition("t", 0): StorageFailed("lost")}
        self.group = Group("g")
        self.group.offsets = {("s", it): CommittedOffset(1, -1, "", 0) for it in range(COUNT)}
        services: Any = SimpleNamespace()
        self.status = NodeStatus(
            node_id=NodeId(1),
            settings=Settings(node={"data_dir": "data"}),
            metadata=services,
            registry=self,  # type: ignore[arg-type]
            groups=self,  # type: ignore[arg-type]
            source=services,
            admin=services,
            readiness=services,
            troubles=list,
            loop_lag=services,
        )
        self.ends = LogEnds(
            wanted=self.wanted,
            local=self.local,  # type: ignore[arg-type]
            image=lambda: MetadataImage("c"),
        )

    def partitions(self) -> Iterator[Kept]:
        return iter(self.kept)

    def ailing(self) -> list[Kept]:
        return [it for it in self.kept if it.is_damaged or it._failure is not None]

    async def progress(self, partitions_max: int) -> GroupProgressPage:
        return GroupProgressPage(await progress_of([self.group], partitions_max), 0)

    async def wanted(self) -> list[TopicPartition]:
        return [it.tp for it in self.kept]

    def local(self, tp: TopicPartition) -> Kept:
        Kept.asked += 1
        return self.kept[tp.partition]

    # What is looked at

    async def survey(self) -> None:
        await self.status.survey()
        found = self.status._last
        assert len(found.failures) == COUNT // 100 + 1
        assert len(found.damaged) == COUNT // 100

    async def totals(self) -> None:
        totals = await PartitionTotals.of(self.partitions())  # type: ignore[arg-type]
        assert (totals.partitions, totals.failed) == (COUNT - 1, COUNT // 100)

    async def log_ends(self) -> None:
        assert len(await self.ends.known(await self.wanted())) == COUNT

    async def leaders_asked(self) -> None:
        assert await self.ends._by_leader() == {}

    async def groups(self) -> None:
        (found,) = (await self.progress(COUNT)).groups
        assert len(found.committed) == COUNT


LOOKS = [Node.totals, Node.log_ends, Node.leaders_asked, Node.groups]


@pytest.mark.parametrize("look", LOOKS, ids=lambda it: it.__name__)
async def test_others_have_their_turns(
    look: Callable[[Node], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With turns of no time each partition has its own, so that they can be counted."""
    monkeypatch.setattr("streamlog.fairness.TURN_S", 0.0)
    turns = longest = 0

    async def count_turns() -> None:
        nonlocal turns, longest
        while True:
            before = Kept.asked
            await asyncio.sleep(0)
            turns, longest = turns + 1, max(longest, Kept.asked - before)

    counting = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    await look(Node())
    counting.cancel()
    assert turns >= COUNT - 1
    assert longest <= 2


async def test_a_survey_asks_only_partitions_that_are_not_well() -> None:
    node, before = Node(), Kept.asked
    await node.survey()
    assert Kept.asked - before <= 2 * len(node.ailing()) < COUNT // 10
