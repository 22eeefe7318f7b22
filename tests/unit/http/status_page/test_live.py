"""What watchers are told is made once between two beats, however many ask for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

from streamlog.http.status_page.cluster_snapshot import ClusterSnapshot
from streamlog.http.status_page.event_log import EventLog
from streamlog.http.status_page.live import Live, WatchedPartitions
from streamlog.http.status_page.overview import WORK_MAX
from streamlog.http.status_page.query import Query
from streamlog.http.status_page.rates import Rates
from streamlog.http.status_page.view import View
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition
from tests.page_world import LocalPartitions, image, moment, partition, stream

STREAMS = 10_000


class World:
    def __init__(self) -> None:
        self.image = image(stream("s", partition()))
        self.looks = 0
        rates, chronicle = Rates(), EventLog()
        self.live = Live(
            moment=self.moment,
            ends=self.ends,
            survey=self.survey,
            view=View(LocalPartitions(), rates, chronicle),
            rates=rates,
            chronicle=chronicle,
            interest=WatchedPartitions(),
            clients_max=100,
        )

    def moment(self) -> ClusterSnapshot:
        self.looks += 1
        return moment(self.image)

    async def ends(self) -> dict[TopicPartition, int]:
        return {}

    async def survey(self) -> None:
        """There is nothing to be found."""

    async def told(self, **query: Any) -> dict[str, str]:
        return await self.live._texts(Query(**query))


async def test_a_hundred_watchers_cost_one_look() -> None:
    world = World()
    first = await world.told()
    assert all(it is first for it in await asyncio.gather(*(world.told() for _ in range(100))))
    assert world.looks == 1
    assert await world.told(show="partitions") is not first
    assert world.looks == 2, "who asks for something else"


def many(*troubled: int) -> MetadataImage:
    """Of ten thousand streams, these are not in sync."""
    whole, partly = partition(), partition(isr=(1, 2))
    return image(
        *(
            stream(f"s-{number:05}", partly if number in troubled else whole)
            for number in range(STREAMS)
        )
    )


def with_trouble(known: MetadataImage, number: int) -> MetadataImage:
    """As the node is told of it: what changed is named."""
    name = f"s-{number:05}"
    changed = replace(known.streams[name], partitions=(partition(isr=(1, 2)),))
    return replace(
        known,
        streams=known.streams.set(name, changed),
        offset=known.offset + 1,
        parent_offset=known.offset,
        touched=frozenset({name}),
    )


class Turns:
    """How much of the overview is worked in each turn of the event loop."""

    def __init__(self, world: World) -> None:
        self._overview = world.live._view.overview
        self.worked = [self._overview.worked]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.worked.append(self._overview.worked)

    @property
    def longest(self) -> int:
        return max(b - a for a, b in pairwise(self.worked))

    @property
    def total(self) -> int:
        return self.worked[-1] - self.worked[0]


@asynccontextmanager
async def watched(world: World) -> AsyncIterator[Turns]:
    turns = Turns(world)
    running = asyncio.create_task(turns.run())
    await asyncio.sleep(0)
    yield turns
    await asyncio.sleep(0)
    running.cancel()


async def test_no_look_holds_the_loop_for_all_streams() -> None:
    """Nor do many at once, each of something else."""
    world = World()
    world.image = many(4711)
    async with watched(world) as turns:
        told = await asyncio.gather(
            *(
                world.told(show=show, filter=filtered)
                for show in ("streams", "partitions")
                for filtered in ("", "1", "2", "3")
            )
        )
    assert turns.total == 2 * STREAMS, "each once: looked at, and its partition counted"
    assert turns.longest <= 2 * WORK_MAX
    assert all('"under_replicated":1' in it["cluster"] for it in told)
    assert "s-04711/0" in told[0]["findings"]


async def test_an_image_costs_what_it_changed() -> None:
    """However often that is, and whether or not somebody looks in between."""
    world = World()
    world.image = many()
    await world.told()
    for round_of in range(3):
        async with watched(world) as turns:
            for number in range(5):
                old, world.image = world.image, with_trouble(world.image, round_of * 5 + number)
                world.live.changed(old, world.image)
            told = await world.told(show="partitions", only="under_replicated")
        assert told["total"] == str((round_of + 1) * 5)
        assert turns.total <= 5 * 2


async def test_what_changes_while_a_look_is_prepared_is_told() -> None:
    world = World()
    world.image = many()
    asked = asyncio.create_task(world.told(show="partitions", only="under_replicated"))
    for number in range(3):
        await asyncio.sleep(0)
        old, world.image = world.image, with_trouble(world.image, number)
        world.live.changed(old, world.image)
    told = await asked
    assert told["total"] == "3"
    assert '"metadata_offset":10' in told["cluster"]


async def test_a_change_is_told_at_once() -> None:
    world = World()
    assert '"name":"t"' not in (await world.told())["rows"]
    old, world.image = world.image, image(stream("t", partition()), offset=8)
    world.live.changed(old, world.image)
    assert '"name":"t"' in (await world.told())["rows"]
    assert world.looks == 2
