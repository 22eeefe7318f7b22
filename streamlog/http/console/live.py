"""``/api/...``: what the page shows, asked for once or told as it changes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from aiohttp import web

from streamlog.authz.permissions import Permissions
from streamlog.clock import wall_ms
from streamlog.errors import InvalidRequest
from streamlog.http.console.cluster_snapshot import ClusterSnapshot, LocalReplicaState
from streamlog.http.console.event_log import EventLog
from streamlog.http.console.principal_views import PrincipalView, PrincipalViews
from streamlog.http.console.query import LISTS, Query
from streamlog.http.console.sse import ClientLimit, Events, MayStay, anybody, event_bytes
from streamlog.http.console.traffic import Traffic
from streamlog.http.console.view import ShownRow
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition


class ChangeSignal:
    """Wakes all who wait, each time; it does not wait for them.

    ``next`` is the event of the next time: code that takes it before a look misses nothing.
    """

    def __init__(self) -> None:
        self.next = asyncio.Event()
        self.closed = False

    def ring(self) -> None:
        rung, self.next = self.next, asyncio.Event()
        rung.set()

    def close(self) -> None:
        """For good: all waits end."""
        self.closed = True
        self.ring()


FRESH_MS: Final = 10_000
PARTITIONS_MAX: Final = 1_000
"""Remembered; what was looked at longest ago goes."""


class WatchedPartitions:
    """``note`` at each look; ``partitions`` are those of the last ``FRESH_MS``."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, int] = {}
        self._last_ms: int | None = None

    def note(self, now_ms: int, partitions: Iterable[TopicPartition] = ()) -> None:
        self._last_ms = now_ms
        for tp in partitions:
            self._seen.pop(tp, None)
            self._seen[tp] = now_ms
        while len(self._seen) > PARTITIONS_MAX:
            del self._seen[next(iter(self._seen))]

    def is_fresh(self, now_ms: int) -> bool:
        """The page was watched lately."""
        return self._last_ms is not None and now_ms - self._last_ms < FRESH_MS

    def partitions(self, now_ms: int) -> set[TopicPartition]:
        for tp in [tp for tp, at_ms in self._seen.items() if now_ms - at_ms >= FRESH_MS]:
            del self._seen[tp]
        return set(self._seen)


PERIOD_S: Final = 1.0
ROUNDS_MAX: Final = 10
"""Of preparations of one look, each for what has changed during the one before."""
PAUSE_S: Final = 0.4
"""The least between two messages to one client, however quickly the metadata changes."""
KEEP_ALIVE_BEATS: Final = 15
BROADCAST_BEATS: Final = 60
"""A query that no client watches is forgotten after so many beats."""


class Broadcast:
    """What all who watch with one query are told: the whole, or what has changed since the last
    version. Each is put into words once, however many are told.
    """

    def __init__(self) -> None:
        self.version = 0
        self.beat = self.used = -1
        self._parts: dict[str, str] = {}
        self._rows: dict[str, ShownRow] = {}
        self._keys: list[str] = []
        self._changes = b""
        self._whole: bytes | None = None

    def update(self, parts: dict[str, str], rows: Sequence[ShownRow]) -> None:
        """As it is now: the JSON of parts by their names, and rows in their order."""
        said = [f'"{name}":{text}' for name, text in parts.items() if self._parts.get(name) != text]
        changed = [it for it in rows if self._rows.get(it.key) is not it]
        keys = [it.key for it in rows]
        if keys != self._keys:
            said.append(f'"keys":{json.dumps(keys)}')
        if changed:
            said.append(f'"rows":{_rows_json(changed)}')
        if not said and self.version:
            return
        self._parts, self._keys = parts, keys
        self._rows = {it.key: it for it in rows}
        self.version += 1
        self._changes = _event(said)
        self._whole = None

    def since(self, version: int, history: Callable[[], str]) -> bytes:
        """What takes a watcher from that version, 0 for none, to the present one; b"": nothing.
        ``history``: the JSON of what only a new watcher is told.
        """
        if version == self.version:
            return b""
        if version and version == self.version - 1:
            return self._changes
        if self._whole is None:
            said = [f'"{name}":{text}' for name, text in self._parts.items()]
            said.append(f'"keys":{json.dumps(self._keys)}')
            said.append(f'"rows":{_rows_json(self._rows.values())}')
            self._whole = _event([*said, f'"history":{history()}'])
        return self._whole


def _rows_json(rows: Iterable[ShownRow]) -> str:
    return "{" + ",".join(f"{json.dumps(it.key)}:{it.text}" for it in rows) + "}"


def _event(said: Sequence[str]) -> bytes:
    return event_bytes("state", "{" + ",".join(said) + "}")


def everyone_sees_all(_: web.Request) -> Permissions | None:
    """Where clients need not authenticate."""
    return None


async def nothing_to_fetch(_: Query) -> None:
    """This node knows all."""


class Live:
    """``run`` as a task; ``changed`` at each change of the image, after the node has acted on it.

    While no page is open, a look a second is all that it costs: who the controller is, and whether
    the node is ready, so that it can be told later when that changed. While one is, each look costs
    what has moved since the last one and the rows that are shown.
    """

    def __init__(
        self,
        *,
        moment: Callable[[], ClusterSnapshot],
        held: Callable[[], Awaitable[dict[TopicPartition, LocalReplicaState]]],
        moves: Callable[[bool], Iterable[tuple[TopicPartition, LocalReplicaState | None]]],
        away: Callable[[], Awaitable[Mapping[TopicPartition, int]]],
        survey: Callable[[], Awaitable[None]],
        views: PrincipalViews,
        traffic: Traffic,
        chronicle: EventLog,
        interest: WatchedPartitions,
        clients_max: int,
        may_stay: MayStay = anybody,
        permissions: Callable[[web.Request], Permissions | None] = everyone_sees_all,
        fetch: Callable[[Query], Awaitable[None]] = nothing_to_fetch,
    ) -> None:
        """``held`` looks at every partition here, in turns. ``moves`` are those that have moved
        since it was called last; they are noted until it is called with False. ``away``: ends of
        partitions that are not here, and are shown. ``survey`` is awaited before a moment, which
        tells of the last one. ``permissions``: by which who asks may know of streams; None: of every one.
        ``fetch`` is awaited before a list is shown that needs what other nodes know; watchers of other lists do
        not wait for it.
        """
        self._moment = moment
        self._held = held
        self._moves = moves
        self._away = away
        self._survey = survey
        self._turns = asyncio.Lock()
        """Held while a look is prepared, so that many at once do not take a turn each."""
        self._views = views
        self._permissions = permissions
        self._fetch = fetch
        self._traffic = traffic
        self._chronicle = chronicle
        self._interest = interest
        self._seats = ClientLimit(clients_max, "http.status_clients_max", may_stay)
        self._beat = ChangeSignal()
        self._beats = 0
        self._summaries: dict[PrincipalView, dict[str, str]] = {}
        self._summed = -1
        """The beat of the summaries."""
        self._seen: tuple[int, ClusterSnapshot] | None = None
        """Of a beat, for whatever is asked in it."""
        self._broadcasts: dict[tuple[PrincipalView, Query], Broadcast] = {}
        self._known: tuple[int | None, Mapping[str, str]] | None = None
        self._is_measuring = False

    @property
    def clients(self) -> int:
        return self._seats.taken

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/status", self._status),
            web.get("/api/live", self._live),
            *(web.get(f"/api/{name}", self._list) for name in LISTS),
        ]

    async def run(self) -> None:
        while True:
            moment = self._moment()
            self._note(moment)
            if self.is_watched(moment.now_ms):
                await self._measure(moment.now_ms)
            elif self._is_measuring:
                self._is_measuring = False
                self._moves(False)
            self._ring()
            await asyncio.sleep(PERIOD_S)

    async def _measure(self, now_ms: int) -> None:
        if not self._is_measuring or self._traffic.is_behind(now_ms):
            self._is_measuring = True
            self._moves(True)  # from now on
            known = await self._held()
            self._traffic.begin(now_ms, known)
            for it in self._views:
                it.view.forget()
            return
        moved = self._traffic.look(now_ms, self._moves(True), await self._away())
        for it in self._views:
            it.view.moved(moved)

    def is_watched(self, now_ms: int) -> bool:
        return self._seats.taken > 0 or self._interest.is_fresh(now_ms)

    def changed(self, old: MetadataImage, new: MetadataImage) -> None:
        """Sent at once to all open pages."""
        now_ms = wall_ms()
        self._chronicle.changed(old, new, now_ms)
        if self.is_watched(now_ms):  # else the next look compares all streams, in turns
            for it in self._views:
                it.view.follow(it.image(new))
        self._ring()

    def close(self) -> None:
        """Ends all streams of events."""
        self._beat.close()

    def _ring(self) -> None:
        self._beats += 1
        self._beat.ring()

    def _note(self, moment: ClusterSnapshot) -> None:
        """What no record of the metadata tells."""
        known, self._known = self._known, (moment.controller, moment.reasons)
        if known is None:
            return
        controller, reasons = known
        now_ms = moment.now_ms
        if controller != moment.controller:
            who = moment.controller
            text = "no controller is known" if who is None else f"node {who} is the controller"
            self._chronicle.note("controller", text, now_ms)
        for part, reason in moment.reasons.items():
            if part not in reasons:
                self._chronicle.note("ready", f"not ready: {reason}", now_ms)
        for part in reasons.keys() - moment.reasons.keys():
            self._chronicle.note("ready", f"{part}: all is well again", now_ms)

    def _view_for(self, request: web.Request) -> PrincipalView:
        """By the rules as they are now."""
        return self._views.of(self._permissions(request), self._beats)

    async def _status(self, request: web.Request) -> web.Response:
        async with self._turns:
            self._seen = None
            shown = self._view_for(request)
            summary = shown.view.summary(await self._prepared(shown, None))
        return _json(_text({**summary, "traffic": self._traffic.last}))

    async def _list(self, request: web.Request) -> web.Response:
        query = _query(request, show=request.path.rpartition("/")[2])
        await self._fetch(query)
        async with self._turns:
            self._seen = None
            shown = self._view_for(request)
            moment = await self._look(shown, query)
            found = shown.view.list(moment, query)
        rows = ",".join(it.text for it in found.shown)
        page = f'"page":{query.page},"size":{query.size},"total":{found.total}'
        return _json(f'{{{page},"rows":[{rows}]}}')

    async def _live(self, request: web.Request) -> web.StreamResponse:
        query = _query(request)

        async def tell(events: Events) -> None:
            await self._tell(events, request, query)

        return await self._seats.serve(request, tell)

    async def _tell(self, events: Events, request: web.Request, query: Query) -> None:
        """Only what has changed since the last time, part by part and row by row."""
        version = silent = 0
        broadcast: Broadcast | None = None
        while not self._beat.closed and await events.goes_on():
            await self._fetch(query)
            rung = self._beat.next  # a change while this one is told is not missed
            now = await self._broadcast(self._view_for(request), query)
            if now is not broadcast:
                broadcast, version = now, 0
            told = broadcast.since(version, self._history)
            version = broadcast.version
            if told:
                await events.send_bytes(told)
                silent = 0
            elif (silent := silent + 1) >= KEEP_ALIVE_BEATS:
                await events.keep_alive()
                silent = 0
            await asyncio.sleep(PAUSE_S)
            await rung.wait()

    async def _broadcast(self, shown: PrincipalView, query: Query) -> Broadcast:
        """As of this beat; looked at once for all who watch with the same query and see the same."""
        key = shown, query
        broadcast = self._broadcasts.get(key)
        if broadcast is None or broadcast.beat != self._beats:
            async with self._turns:
                broadcast = self._broadcasts.get(key)
                if broadcast is None:
                    broadcast = self._broadcasts[key] = Broadcast()
                if broadcast.beat != self._beats:
                    await self._update(broadcast, shown, query)
        broadcast.used = self._beats
        return broadcast

    async def _update(self, broadcast: Broadcast, shown: PrincipalView, query: Query) -> None:
        """``_turns`` is held."""
        moment = await self._look(shown, query)
        view = shown.view
        beat = self._beats  # there may have been another one, before that moment
        found = view.list(moment, query)
        broadcast.update(
            {
                **self._summary_of(shown, moment),
                "stream": _text(view.stream(moment, query.stream) if query.stream else None),
                "list": json.dumps(query.show),
                "page": str(query.page),
                "size": str(query.size),
                "total": str(found.total),
            },
            found.shown,
        )
        broadcast.beat = beat

    def _summary_of(self, shown: PrincipalView, moment: ClusterSnapshot) -> dict[str, str]:
        """Part by part; once for all queries of a beat."""
        if self._summed != self._beats:
            self._summed = self._beats
            self._summaries = {}
            self._broadcasts = {
                key: it
                for key, it in self._broadcasts.items()
                if self._beats - it.used < BROADCAST_BEATS
            }
            self._views.forget_unused(self._beats)
        found = self._summaries.get(shown)
        if found is None:
            parts = {**shown.view.summary(moment), "traffic": self._traffic.last}
            found = self._summaries[shown] = {name: _text(it) for name, it in parts.items()}
        return found

    def _history(self) -> str:
        return _text(list(self._traffic.history))

    async def _look(self, shown: PrincipalView, query: Query) -> ClusterSnapshot:
        moment = await self._prepared(shown, query)
        self._interest.note(moment.now_ms, shown.view.shown_partitions(moment, query))
        return moment

    async def _prepared(self, shown: PrincipalView, query: Query | None) -> ClusterSnapshot:
        """The present moment as it is shown, whatever takes long of a look at it done. ``_turns`` is held."""
        moment = shown.moment(await self._now())
        for _ in range(ROUNDS_MAX):
            has_waited = False
            for _ in shown.view.prepare(moment, query):
                has_waited = True
                await asyncio.sleep(0)
            if not has_waited:
                break
            self._seen = None
            moment = shown.moment(await self._now())
        return moment

    async def _now(self) -> ClusterSnapshot:
        """Once for all queries of a beat."""
        if self._seen is None or self._seen[0] != self._beats:
            await self._survey()
            self._seen = self._beats, self._moment()
        return self._seen[1]


def _query(request: web.Request, *, show: str | None = None) -> Query:
    try:
        return Query.of(request.query, show=show)
    except InvalidRequest as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


def _text(body: object) -> str:
    return json.dumps(body, separators=(",", ":"))


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")
