"""``/api/messages``: a page of a stream's messages, from an offset, a time or the end, or a search.

A search is bounded: it looks at so many records, bytes and seconds at most, says what it has looked
at, and where the next request goes on. Between two pieces it rests as long as the last one took, so
that it takes no more than half of a core, and only so many run at once.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from aiohttp import web

from streamlog.clock import wall_ms
from streamlog.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    StreamlogError,
    StreamNotFound,
)
from streamlog.http.console.messages.decode import DECODED_BYTES_MAX, Decoding, Schemas, shown
from streamlog.http.console.messages.message_filter import MessageFilter
from streamlog.http.console.messages.partition_source import PartitionSource, Taken
from streamlog.http.console.messages.tail import NOT_READABLE, MayRead, everyone
from streamlog.http.console.query import TEXT_MAX, number
from streamlog.metadata.stream.stream_config import PARTITIONS_MAX
from streamlog.model import TopicPartition
from streamlog.record.codec import Record

COUNT: Final = 50
COUNT_MAX: Final = 200
VALUE_SHOWN_MAX: Final = 4_096
"""Characters of a value in a list; of one message alone all of it is shown, see ``DECODED_BYTES_MAX``."""
RECORDS_MAX: Final = 50_000
BYTES_MAX: Final = 32 << 20
TIME_MAX_S: Final = 2.0
BROWSERS_MAX: Final = 4
"""Searches at the same time; further ones get a 503 with Retry-After."""
PARTITIONS_AT_ONCE: Final = 32
OFFSET_MAX: Final = (1 << 63) - 1

FIRST_WINDOW: Final = 16
WINDOW_MAX: Final = 4_096
WINDOW_BYTES: Final = 4 << 20
"""Backwards a partition is looked at window by window, each forwards; they grow up to this."""

_AGO: Final = re.compile(r"-(?P<count>\d{1,9})(?P<unit>[smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: ``end`` (the newest first), ``start``, an offset, or a time."""

    is_end: bool = False
    offset: int | None = None
    time_ms: int | None = None
    back: int | None = None
    """So many before the end."""

    @classmethod
    def of(cls, text: str, now_ms: int) -> Self:
        """``end``, ``start``, ``1234``, ``-100``, ``-15m``, ``2026-11-26T08:00:00Z``. Raises
        InvalidRequest.
        """
        text = text.strip()
        if text in ("", "end"):
            return cls(is_end=True)
        if text == "start":
            return cls(offset=0)
        if text.isascii() and text.isdecimal() and len(text) < 20:
            return cls(offset=min(int(text), OFFSET_MAX))
        if ago := _AGO.fullmatch(text):
            return cls(time_ms=now_ms - int(ago["count"]) * _UNIT_MS[ago["unit"]])
        if text[:1] == "-" and text[1:].isascii() and text[1:].isdecimal() and len(text) < 20:
            return cls(back=int(text[1:]))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidRequest(
                "from: end, start, an offset, -100 (before the end), -15m (ago), or a time as in"
                " 2026-11-26T08:00:00Z"
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return cls(time_ms=round(moment.timestamp() * 1_000))


@dataclass(frozen=True, slots=True)
class BrowseQuery:
    """``partition``: None for all; ``at``: where each goes on, instead of ``start``."""

    stream: str
    partition: int | None
    start: Start
    count: int
    wanted: MessageFilter
    at: Mapping[int, int]

    @classmethod
    def of(cls, given: Mapping[str, str], all_of: Callable[[str], Sequence[str]]) -> Self:
        """From a URL. Raises InvalidRequest, in one line that says what may stand there."""
        partition = given.get("partition", "") or "all"
        return cls(
            given.get("stream", "")[:TEXT_MAX],
            None if partition == "all" else number(given, "partition", 0, PARTITIONS_MAX),
            Start.of(given.get("from", "end"), wall_ms()),
            number(given, "count", COUNT, COUNT_MAX, least=1),
            MessageFilter.of(given, all_of),
            _places(given.get("at", "")),
        )


def _places(text: str) -> dict[int, int]:
    """``partition:offset`` of each, with commas."""
    found: dict[int, int] = {}
    for part in text.split(",") if text else ():
        given = dict(zip(("partition", "at"), part.split(":", 1), strict=False))
        found[number(given, "partition", -1, PARTITIONS_MAX)] = number(given, "at", -1, OFFSET_MAX)
    if len(found) > PARTITIONS_AT_ONCE:
        raise InvalidRequest(f"at: at most {PARTITIONS_AT_ONCE} partitions")
    return found


class Budget:
    """What one request may look at."""

    def __init__(
        self,
        records: int = RECORDS_MAX,
        size_bytes: int = BYTES_MAX,
        seconds: float = TIME_MAX_S,
    ) -> None:
        self.records = self.size_bytes = 0
        self._records_max, self._bytes_max = records, size_bytes
        self._until_s = time.monotonic() + seconds

    def share(self, left: int) -> "Budget":
        """Of what is left, for the next of so many."""
        return Budget(
            max(1, (self._records_max - self.records) // left),
            max(1, (self._bytes_max - self.size_bytes) // left),
            max(0.05, (self._until_s - time.monotonic()) / left),
        )

    def spend(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes

    @property
    def spent(self) -> str:
        """What there is no more of; empty while there is."""
        if self.records >= self._records_max:
            return "records"
        if self.size_bytes >= self._bytes_max:
            return "bytes"
        return "time" if time.monotonic() >= self._until_s else ""


@dataclass(frozen=True, slots=True)
class PartitionMatches:
    """Of one partition: what was found, in the order in which it is shown, and where to go on."""

    found: list[Taken]
    next: int | None
    """The offset to go on from, or below which; None: there is no more."""
    start: int = 0
    end: int = 0


class Browse:
    """The route, and how many search at once."""

    def __init__(
        self,
        *,
        open_partition: Callable[[TopicPartition], PartitionSource],
        partitions_of: Callable[[str], int],
        refused: Callable[[], str],
        schemas: Schemas,
        may_read: MayRead = everyone,
    ) -> None:
        """As ``Tail``; ``partitions_of`` a stream, raises StreamNotFound."""
        self._open = open_partition
        self._partitions_of = partitions_of
        self._refused = refused
        self._schemas = schemas
        self._may_read = may_read
        self._searching = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/messages", self._messages),
            web.get("/api/message", self._message),
            web.get("/api/schemas", self._names),
        ]

    async def _names(self, _: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(self._schemas.names))

    async def _messages(self, request: web.Request) -> web.Response:
        return await self._answered(request, self._found)

    async def _message(self, request: web.Request) -> web.Response:
        """One, with its whole value."""
        return await self._answered(request, self._one)

    async def _answered(self, request: web.Request, answer: Any) -> web.Response:
        refused = self._refused()
        if refused:
            return web.Response(status=403, text=f"{refused}\n")
        name = request.query.get("stream", "")[:TEXT_MAX]
        if not self._may_read(request, name):  # whether there is one or not
            return web.Response(status=403, text=f"{NOT_READABLE.format(name=name)}\n")
        if self._searching >= BROWSERS_MAX:
            text = f"{BROWSERS_MAX} searches run already: try again\n"
            return web.Response(status=503, text=text, headers={"Retry-After": "1"})
        self._searching += 1
        try:
            return _json(await answer(request))
        except (StreamNotFound, PartitionNotFound) as error:
            return web.Response(status=404, text=f"{error}\n")
        except (InvalidRequest, OffsetOutOfRange) as error:
            return web.Response(status=400, text=f"{error}\n")
        except StreamlogError as error:
            return web.Response(status=503, text=f"{error}\n")
        finally:
            self._searching -= 1

    async def _one(self, request: web.Request) -> dict[str, Any]:
        decoding = await self._schemas.asked(request.query)
        partition = number(request.query, "partition", 0, PARTITIONS_MAX)
        offset = number(request.query, "offset", 0, OFFSET_MAX)
        tp = TopicPartition(request.query.get("stream", "")[:TEXT_MAX], partition)
        source = self._open(tp)
        try:
            start, end = await source.bounds()
            if not start <= offset < end:
                raise OffsetOutOfRange(offset, start, end)

            def take(record: Record) -> Taken:
                return shown(record, decoding, most=DECODED_BYTES_MAX)

            piece = await source.look(offset, offset + 1, take, 1)
        finally:
            source.close()
        return {"partition": partition, "start": start, "end": end, "records": piece.taken}

    async def _found(self, request: web.Request) -> dict[str, Any]:
        query = BrowseQuery.of(request.query, lambda name: request.query.getall(name, []))
        decoding = await self._schemas.asked(request.query)
        numbers = self._numbers(query)
        budget = Budget()
        found: dict[int, PartitionMatches] = {}
        why = ""
        for left, partition in zip(range(len(numbers), 0, -1), numbers, strict=True):
            source = self._open(TopicPartition(query.stream, partition))
            try:
                part = budget.share(left)
                one = replace(query, partition=partition)
                found[partition] = await search(source, one, decoding, part)
            finally:
                source.close()
            budget.spend(part.records, part.size_bytes)
            why = why or part.spent
        records, places = merged(found, query)
        if len(records) >= query.count:
            why = "count"
        return {
            "stream": query.stream,
            "partitions": self._partitions_of(query.stream),
            "records": records,
            "scanned": budget.records,
            "scanned_bytes": budget.size_bytes,
            "why": (why or "time") if places else "end",
            "next": ",".join(f"{it}:{at}" for it, at in places.items()),
            "bounds": {str(it): [one.start, one.end] for it, one in found.items()},
        }

    def _numbers(self, query: BrowseQuery) -> Sequence[int]:
        """Raises InvalidRequest, StreamNotFound, PartitionNotFound."""
        count = self._partitions_of(query.stream)
        if query.at:
            if max(query.at) >= count:
                raise PartitionNotFound(f"stream {query.stream!r} has {count} partitions")
            return sorted(query.at)
        if query.partition is not None:
            if query.partition >= count:
                raise PartitionNotFound(f"stream {query.stream!r} has {count} partitions")
            return [query.partition]
        if count > PARTITIONS_AT_ONCE:
            raise InvalidRequest(
                f"partition: name one; at most {PARTITIONS_AT_ONCE} are looked at together"
            )
        return range(count)


def merged(
    found: Mapping[int, PartitionMatches], query: BrowseQuery
) -> tuple[list[Taken], dict[int, int]]:
    """The first ``count`` of all partitions by time, and where each goes on."""
    sign = -1 if query.start.is_end else 1
    of_all = [
        {"partition": partition, **it} for partition, one in found.items() for it in one.found
    ]
    of_all.sort(key=lambda it: (sign * it["timestamp_ms"], it["partition"], sign * it["offset"]))
    records, rest = of_all[: query.count], of_all[query.count :]
    places = {it: one.next for it, one in found.items() if one.next is not None}
    for it in reversed(rest):  # the first one that is left over is where its partition goes on
        places[it["partition"]] = it["offset"] + (1 if query.start.is_end else 0)
    return records, places


async def search(
    source: PartitionSource, query: BrowseQuery, decoding: Decoding, budget: Budget
) -> PartitionMatches:
    """In one partition. Raises StreamlogError."""
    start, end = await source.bounds()
    take = taking(query.wanted, decoding)
    assert query.partition is not None, "one of them"
    at = query.at.get(query.partition)
    if query.start.is_end:
        below = end if at is None else min(at, end)
        return await _backwards(source, (start, below, end), query.count, take, budget)
    if at is None:
        at = await _first(source, query.start, start, end)
    return await _forwards(source, (max(start, at), start, end), query.count, take, budget)


async def _first(source: PartitionSource, wanted: Start, start: int, end: int) -> int:
    if wanted.time_ms is not None:
        return await source.offset_at(wanted.time_ms)
    if wanted.back is not None:
        return max(start, end - wanted.back)
    return wanted.offset or start


async def _forwards(
    source: PartitionSource, place: tuple[int, int, int], count: int, take: Any, budget: Budget
) -> PartitionMatches:
    at, start, end = place
    found: list[Taken] = []
    while at < end and len(found) < count and not budget.spent:
        began_s = time.monotonic()
        piece = await source.look(at, end, take, count - len(found))
        found += piece.taken
        budget.spend(piece.records, piece.size_bytes)
        at = piece.next_offset
        await _rest(began_s, budget)
    return PartitionMatches(found, at if at < end else None, start, end)


async def _backwards(
    source: PartitionSource, place: tuple[int, int, int], count: int, take: Any, budget: Budget
) -> PartitionMatches:
    start, below, end = place
    found: list[Taken] = []
    window = FIRST_WINDOW
    while below > start and len(found) < count and not budget.spent:
        began_s = time.monotonic()
        first = max(start, below - window)
        of_window, records, size_bytes = await _window(source, first, below, take)
        budget.spend(records, size_bytes)
        of_window.reverse()
        wanted = of_window[: count - len(found)]
        found += wanted
        below = first if len(wanted) == len(of_window) else int(wanted[-1]["offset"])
        window = _next_window(window, records, size_bytes)
        await _rest(began_s, budget)
    return PartitionMatches(found, below if below > start else None, start, end)


async def _window(
    source: PartitionSource, first: int, below: int, take: Any
) -> tuple[list[Taken], int, int]:
    """All of it: what is shown of it are its last ones."""
    found: list[Taken] = []
    at, records, size_bytes = first, 0, 0
    while at < below:
        piece = await source.look(at, below, take, below - at)
        found += piece.taken
        records, size_bytes = records + piece.records, size_bytes + piece.size_bytes
        at = piece.next_offset
    return found, records, size_bytes


def _next_window(window: int, records: int, size_bytes: int) -> int:
    """Twice as many offsets, unless their records would be too large."""
    if not records:
        return min(2 * window, 1 << 20)  # a compacted log has few records among many offsets
    affordable = WINDOW_BYTES * window // max(1, size_bytes)
    return max(1, min(2 * window, affordable, WINDOW_MAX * max(1, window // records)))


async def _rest(began_s: float, budget: Budget) -> None:
    if not budget.spent:
        await asyncio.sleep(min(0.1, time.monotonic() - began_s))


def taking(wanted: MessageFilter, decoding: Decoding) -> Callable[[Record], Taken | None]:
    """What is made of a record that is wanted; in a worker thread."""

    def take(record: Record) -> Taken | None:
        if not wanted.accepts_head(record):
            return None
        decoded = None
        if wanted.needs_value:
            if record.value is None:
                return None
            decoded = decoding.decode(bytes(record.value))
            if not wanted.accepts_value(
                decoded.text, decoded.value, is_structured=decoded.is_structured
            ):
                return None
        return shown(record, decoding, decoded=decoded, most=VALUE_SHOWN_MAX)

    return take


def _json(body: dict[str, Any]) -> web.Response:
    return web.Response(
        text=json.dumps(body, separators=(",", ":")), content_type="application/json"
    )
