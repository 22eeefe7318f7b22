"""What watchers are told is made once between two beats, however many ask for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

from streamlog.acl.rules import RuleBook
from streamlog.authz.audit import Audit
from streamlog.authz.permissions import Permissions
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.http.console.cluster_snapshot import (
    ClusterSnapshot,
    CoordinatedTransaction,
    LocalReplicaState,
)
from streamlog.http.console.event_log import EventLog
from streamlog.http.console.live import Broadcast, Live, WatchedPartitions
from streamlog.http.console.overview import WORK_MAX
from streamlog.http.console.principal_views import UNUSED_BEATS, PrincipalViews
from streamlog.http.console.query import ROWS, Query
from streamlog.http.console.traffic import Traffic
from streamlog.http.console.view import View
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId, TopicPartition
from streamlog.transactions.transaction import new_transaction
from tests.page_world import LocalPartitions, image, moment, partition, stream
from tests.restricted import ALICE, rule

STREAMS = 10_000


class World:
    def __init__(self) -> None:
        self.image = image(stream("s", partition()))
        self.permissions: Permissions | None = None
        """Of who asks."""
        self.transactions: tuple[CoordinatedTransaction, ...] = ()
        self.fetched: list[str] = []
        """Lists for which others were asked."""
        self.looks = 0
        traffic, chronicle = Traffic(), EventLog()
        self.live = Live(
            moment=self.moment,
            held=self.held,
            moves=lambda _: (),
            away=self.away,
            survey=self.survey,
            views=PrincipalViews(lambda sees: View(LocalPartitions(), traffic, chronicle, sees)),
            permissions=lambda _: self.permissions,
            traffic=traffic,
            chronicle=chronicle,
            interest=WatchedPartitions(),
            clients_max=100,
            fetch=self.fetch,
        )

    def moment(self) -> ClusterSnapshot:
        self.looks += 1
        return moment(self.image, transactions=self.transactions)

    async def fetch(self, query: Query) -> None:
        self.fetched.append(query.show)

    async def held(self) -> dict[TopicPartition, LocalReplicaState]:
        return {}

    async def away(self) -> dict[TopicPartition, int]:
        return {}

    async def survey(self) -> None:
        """There is nothing to be found."""

    async def broadcast(self, **query: Any) -> Broadcast:
        shown = self.live._views.of(self.permissions, self.live._beats)
        return await self.live._broadcast(shown, Query(**query))

    async def whole(self, **query: Any) -> bytes:
        """What a new watcher is told."""
        broadcast = await self.broadcast(**query)
        return broadcast.since(0, self.live._history)

    async def told(self, **query: Any) -> dict[str, Any]:
        """The same, read."""
        return json.loads((await self.whole(**query)).partition(b"data: ")[2])  # type: ignore[no-any-return]


async def test_a_hundred_watchers_cost_one_look() -> None:
    world = World()
    first = await world.whole()
    assert all(it is first for it in await asyncio.gather(*(world.whole() for _ in range(100))))
    assert await world.whole(show="partitions") is not first
    assert world.looks == 1, "also for a watcher of something else"


async def test_only_rows_that_have_changed_are_told() -> None:
    world = World()
    world.image = many()
    broadcast = await world.broadcast()
    assert (broadcast.version, broadcast.since(1, world.live._history)) == (1, b"")
    for number in (3, 4711):  # one that is shown, and one that is not
        old, world.image = world.image, with_trouble(world.image, number)
        world.live.changed(old, world.image)
        assert await world.broadcast() is broadcast
        told = json.loads(broadcast.since(broadcast.version - 1, world.live._history)[19:])
        assert [*told.get("rows", {})] == (["s-00003"] if number == 3 else [])
        assert "keys" not in told and "nodes" not in told
    assert len(json.loads(broadcast.since(1, world.live._history)[19:])["rows"]) == ROWS, (
        "too far behind"
    )


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
        self._overview = world.live._views.of(world.permissions, 0).view.overview
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
    assert all(it["cluster"]["under_replicated"] == 1 for it in told)
    assert "s-04711/0" in str(told[0]["findings"])


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
        assert told["total"] == (round_of + 1) * 5
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
    assert told["total"] == 3
    assert told["cluster"]["metadata_offset"] == 10


async def test_a_change_is_told_at_once() -> None:
    world = World()
    assert "t" not in (await world.told())["rows"]
    old, world.image = world.image, image(stream("t", partition()), offset=8)
    world.live.changed(old, world.image)
    assert "t" in (await world.told())["rows"]
    assert world.looks == 2


async def test_one_stream_is_told_with_its_configuration() -> None:
    world = World()
    told = await world.told(show="partitions", stream="s")
    assert (told["stream"]["name"], told["stream"]["config"]["replicas"]) == ("s", 3)
    assert [*told["rows"]] == ["s/0"]
    nothing = await world.told(show="partitions", stream="none")
    assert (nothing["stream"], nothing["keys"]) == (None, [])
    assert (await world.told(show="summary"))["keys"] == []


async def test_a_new_watcher_is_told_of_what_has_been() -> None:
    """Charts begin with what is known by then; those who watch already are told of the last look."""
    world = World()
    world.live._seats.taken = 1
    for second in range(4):
        await world.live._measure(1_000 * second)
        world.live._ring()
        broadcast = await world.broadcast()
    assert [it[0] for it in (await world.told())["history"]] == [1_000, 2_000, 3_000]
    told = json.loads(broadcast.since(broadcast.version - 1, world.live._history)[19:])
    assert told == {"traffic": [3_000, 0, 0]}


async def test_moves_are_noted_only_while_a_client_watches() -> None:
    world, asked = World(), []
    world.live._moves = lambda go_on: asked.append(go_on) or ()  # type: ignore[func-returns-value]
    running = asyncio.create_task(world.live.run())
    await asyncio.sleep(0)
    assert asked == []
    world.live._seats.taken = 1
    world.live._is_measuring = True
    await world.live._measure(0)
    world.live._seats.taken = 0
    running.cancel()
    running = asyncio.create_task(world.live.run())
    await asyncio.sleep(0)
    running.cancel()
    assert asked == [True, False]


def alice(world: World, *rules: str) -> None:
    """It is she who asks, by these rules."""
    book = RuleBook.of(*map(rule, rules))
    authorization = AuthorizationService(
        AuthorizationSection(), lambda: book, Audit(), enforced=True
    )
    world.permissions = authorization.access_of(ALICE)


async def test_who_may_not_know_every_stream_is_told_of_the_others_only() -> None:
    world = World()
    world.image = image(stream("orders", partition()), stream("secret", partition(leader=-1)))
    alice(world, "describe topic orders")
    for show in ("streams", "partitions", "events"):
        told = await world.whole(show=show)
        assert b"secret" not in told
        assert json.loads(told.partition(b"data: ")[2])["total"] == (show != "events")
    told_of = await world.told(stream="secret")
    assert (told_of["stream"], told_of["cluster"]["streams"]) == (None, 1)
    assert told_of["cluster"]["leaderless"] == 0
    world.permissions = None
    assert b"secret" in await world.whole()


async def test_who_may_not_know_a_transactional_id_is_not_told_of_it() -> None:
    world = World()
    kept = new_transaction(1, 60_000, 0)
    world.transactions = tuple(
        CoordinatedTransaction(name, kept, NodeId(1)) for name in ("bills", "secret")
    )
    alice(world, "describe transactional_id bills")
    told = await world.told(show="transactions")
    assert (told["keys"], told["total"]) == (["bills"], 1)
    alice(world, "describe topic *")
    assert (await world.told(show="transactions"))["keys"] == []
    world.permissions = None
    assert (await world.told(show="transactions"))["keys"] == ["bills", "secret"]


async def test_a_right_that_is_given_or_taken_away_counts_at_the_next_look() -> None:
    world = World()
    world.image = image(stream("orders", partition()), stream("secret", partition()))
    for rules, seen in (((), []), (("describe topic *",), ["orders", "secret"]), ((), [])):
        alice(world, *rules)
        world.live._ring()
        assert (await world.told())["keys"] == seen


async def test_a_view_of_one_principal_costs_what_changes() -> None:
    """And is let go when it is used no more."""
    world = World()
    world.image = many()
    alice(world, "describe topic s-0*")
    async with watched(world) as turns:
        await world.told()
    assert turns.longest <= 2 * WORK_MAX
    world.live._seats.taken = 1
    async with watched(world) as turns:
        old, world.image = world.image, with_trouble(world.image, 3)
        world.live.changed(old, world.image)
        assert (await world.told(only="under_replicated"))["total"] == 1
    assert turns.total <= 2
    world.permissions = None
    for _ in range(UNUSED_BEATS + 1):
        world.live._ring()
    await world.told()
    assert len(list(world.live._views)) == 1
