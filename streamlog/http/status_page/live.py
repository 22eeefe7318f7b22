"""``/api/...``: what the page shows, asked for once or told as it changes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from aiohttp import web

from streamlog.clock import wall_ms
from streamlog.errors import InvalidRequest
from streamlog.http.status_page.cluster_snapshot import ClusterSnapshot
from streamlog.http.status_page.event_log import EventLog
from streamlog.http.status_page.query import LISTS, Query
from streamlog.http.status_page.rates import Rates
from streamlog.http.status_page.sse import ClientLimit, Events, MayStay, anybody
from streamlog.http.status_page.view import View
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
PAUSE_S: Final = 0.2
"""The least between two messages to one client, however quickly the metadata changes."""
KEEP_ALIVE_BEATS: Final = 15


class Live:
    """``run`` as a task; ``changed`` at each change of the image, after the node has acted on it.

    While no page is open, a look a second is all that it costs: who the controller is, and whether
    the node is ready, so that it can be told later when that changed.
    """

    def __init__(
        self,
        *,
        moment: Callable[[], ClusterSnapshot],
        ends: Callable[[], Awaitable[Mapping[TopicPartition, int]]],
        survey: Callable[[], Awaitable[None]],
        view: View,
        rates: Rates,
        chronicle: EventLog,
        interest: WatchedPartitions,
        clients_max: int,
        may_stay: MayStay = anybody,
    ) -> None:
        """``ends`` and ``survey`` look at every partition here, in turns; a moment tells of the
        last survey.
        """
        self._moment = moment
        self._ends = ends
        self._survey = survey
        self._turns = asyncio.Lock()
        """Held while a look is prepared, so that many at once do not take a turn each."""
        self._view = view
        self._rates = rates
        self._chronicle = chronicle
        self._interest = interest
        self._seats = ClientLimit(clients_max, "http.status_clients_max", may_stay)
        self._beat = ChangeSignal()
        self._shared: tuple[asyncio.Event, dict[Query, dict[str, str]]] | None = None
        """What watchers are told between two beats, by what they asked for."""
        self._known: tuple[int | None, Mapping[str, str]] | None = None

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
                self._rates.look(moment.now_ms, await self._ends())
            self._beat.ring()
            await asyncio.sleep(PERIOD_S)

    def is_watched(self, now_ms: int) -> bool:
        return self._seats.taken > 0 or self._interest.is_fresh(now_ms)

    def changed(self, old: MetadataImage, new: MetadataImage) -> None:
        """Sent at once to all open pages."""
        now_ms = wall_ms()
        self._chronicle.changed(old, new, now_ms)
        if self.is_watched(now_ms):  # else the next look compares all streams, in turns
            self._view.overview.follow(new)
        self._beat.ring()

    def close(self) -> None:
        """Ends all streams of events."""
        self._beat.close()

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

    async def _status(self, request: web.Request) -> web.Response:
        async with self._turns:
            return _json(self._view.summary(await self._prepared(None)))

    async def _list(self, request: web.Request) -> web.Response:
        query = _query(request, show=request.path.rpartition("/")[2])
        async with self._turns:
            moment = await self._look(query)
            found = self._view.list(moment, query)
        page = {"page": query.page, "size": query.size, "total": found.total, "rows": found.rows}
        return _json(page)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        query = _query(request)

        async def tell(events: Events) -> None:
            await self._tell(events, query)

        return await self._seats.serve(request, tell)

    async def _tell(self, events: Events, query: Query) -> None:
        """Only what has changed since the last time, part by part."""
        told: dict[str, str] = {}
        silent = 0
        while not self._beat.closed and await events.goes_on():
            rung = self._beat.next  # a change while this one is told is not missed
            texts = await self._texts(query)
            new = {name: text for name, text in texts.items() if told.get(name) != text}
            if new:
                body = ",".join(f"{json.dumps(name)}:{text}" for name, text in new.items())
                await events.send_text("state", f"{{{body}}}")
                told, silent = texts, 0
            elif (silent := silent + 1) >= KEEP_ALIVE_BEATS:
                await events.keep_alive()
                silent = 0
            await asyncio.sleep(PAUSE_S)
            await rung.wait()

    async def _texts(self, query: Query) -> dict[str, str]:
        """Made once for all who ask for the same between two beats, not for each of them."""
        async with self._turns:
            if query not in self._since_beat():
                moment = await self._look(query)
                parts = self._view.whole(moment, query)
                self._since_beat()[query] = {  # another beat may have been, before that moment
                    name: json.dumps(part, separators=(",", ":")) for name, part in parts.items()
                }
            return self._since_beat()[query]

    def _since_beat(self) -> dict[Query, dict[str, str]]:
        if self._shared is None or self._shared[0] is not self._beat.next:
            self._shared = (self._beat.next, {})
        return self._shared[1]

    async def _look(self, query: Query) -> ClusterSnapshot:
        moment = await self._prepared(query)
        self._interest.note(moment.now_ms, self._view.shown_partitions(moment, query))
        return moment

    async def _prepared(self, query: Query | None) -> ClusterSnapshot:
        """The present moment, whatever takes long of a look at it done. ``_turns`` is held."""
        await self._survey()
        moment = self._moment()
        for _ in range(ROUNDS_MAX):
            has_waited = False
            for _ in self._view.prepare(moment, query):
                has_waited = True
                await asyncio.sleep(0)
            if not has_waited:
                break
            moment = self._moment()
        return moment


def _query(request: web.Request, *, show: str | None = None) -> Query:
    try:
        return Query.of(request.query, show=show)
    except InvalidRequest as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


def _json(body: dict[str, Any]) -> web.Response:
    return web.Response(
        text=json.dumps(body, separators=(",", ":")), content_type="application/json"
    )
