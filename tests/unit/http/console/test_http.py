"""The page's files, its JSON and its events, asked over a real socket."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from streamlog.config import HttpSection
from streamlog.errors import NotLeader, PartitionNotFound, StreamNotFound
from streamlog.http.console.cluster_snapshot import ClusterSnapshot
from streamlog.http.console.console import Console
from streamlog.http.console.messages.browse import BROWSERS_MAX, Browse
from streamlog.http.console.messages.decode import Schemas
from streamlog.http.console.messages.partition_source import LookedAt, Take
from streamlog.http.console.messages.tail import RECORDS_MAX, Tail
from streamlog.http.endpoints import HttpEndpoints, Readiness
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.record.codec import Record
from tests.page_world import image, moment, partition, stream

HOSTILE = "<img src=x onerror=alert(1)>"


class Nothing:
    """A node that keeps no partition."""

    def partition(self, tp: TopicPartition) -> Any:
        raise PartitionNotFound(f"{tp}")

    def partitions(self) -> list[Any]:
        return []

    def moved(self, *, go_on: bool) -> set[Any]:
        return set()


class Stored:
    """A partition with records of the numbers from 0 on."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.problem: str | None = None
        self.closed = False

    async def bounds(self) -> tuple[int, int]:
        if self.problem is not None:
            raise NotLeader(self.problem)
        return 0, self.end

    async def offset_at(self, timestamp_ms: int) -> int:
        return min(self.end, timestamp_ms)

    async def look(self, offset: int, stop: int, take: Take, most: int) -> LookedAt:
        last = min(self.end, stop, offset + 100)
        taken: list[dict[str, Any]] = []
        for n in range(offset, last):
            made = take(Record(n, n, None, f"{HOSTILE}{n}".encode(), ()))
            if made is not None:
                taken.append(made)
                if len(taken) == most:
                    return LookedAt(taken, n + 1, n + 1 - offset, 10)
        return LookedAt(taken, last, last - offset, 10)

    def close(self) -> None:
        self.closed = True


class World:
    """A site with the page, and what the page is told."""

    ticking: asyncio.Task[None]
    """Looks at everything once a second."""

    def __init__(self) -> None:
        self.image = image(stream("s", partition(), partition()))
        self.changes: dict[str, Any] = {}
        self.stored = Stored(100)
        self.refused = ""
        self.page = Console(
            settings=HttpSection(status_clients_max=2),
            moment=self.moment,
            survey=self.survey,
            image=lambda: self.image,
            partitions=Nothing(),  # type: ignore[arg-type]
            may_stay=self.may_stay,
            control=cast("Any", None),
        )
        self.tail = Tail(
            open_partition=self.open,
            schemas=Schemas(None),
            clients_max=1,
            refused=lambda: self.refused,
            may_read=lambda request, stream: (
                stream not in (request.headers.get("X-Deny"), *self.denied)
            ),
            may_stay=self.may_stay,
        )
        self.browse = Browse(
            open_partition=self.open,
            partitions_of=lambda name: len(self.image.stream(name).partitions),
            refused=lambda: self.refused,
            schemas=Schemas(None),
            may_read=lambda request, stream: (
                stream not in (request.headers.get("X-Deny"), *self.denied)
            ),
        )
        self.denied: set[str] = set()
        """Streams that nobody may read any more."""
        self.expelled: set[str] = set()
        """Tokens that are not let in any more."""
        self.broken = False
        self.site = HttpEndpoints(
            "127.0.0.1",
            0,
            registry=CollectorRegistry(),
            gauges=self.gauges,
            readiness=Readiness({}),
            loop_lag_s=lambda: 0.0,
            pages=self.routes,
        )

    async def survey(self) -> None:
        """There is nothing to be found."""

    async def gauges(self) -> list[Collector]:
        return []

    def routes(self) -> list[web.RouteDef]:
        """The page's, with a tail of what is stored here."""
        other = [*self.tail.routes(), *self.browse.routes()]
        paths = {it.path for it in other}
        return [*(it for it in self.page.routes() if it.path not in paths), *other]

    def moment(self, _: Console) -> ClusterSnapshot:
        if self.broken:
            raise RuntimeError("nobody has thought of this")
        return moment(self.image, **self.changes)

    def open(self, tp: TopicPartition) -> Stored:
        if tp.stream != "s":
            raise StreamNotFound(f"there is no stream {tp.stream!r}")
        return self.stored

    async def may_stay(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") not in self.expelled

    async def become(self, new: MetadataImage) -> None:
        old, self.image = self.image, new
        self.page.apply(old, new)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.site.port}{path}"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.site.start()
    async with asyncio.TaskGroup() as group:
        world.ticking = group.create_task(world.page.run())
        yield world
        world.ticking.cancel()
    world.page.close()
    world.tail.close()
    await world.site.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        yield session


async def next_event(answer: aiohttp.ClientResponse) -> tuple[str, Any]:
    """The next one with data."""
    name = ""
    async with asyncio.timeout(5):
        while True:
            line = (await answer.content.readline()).decode().rstrip("\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
            assert not answer.content.at_eof(), "the stream ended"


async def test_the_files_are_served(world: World, http: aiohttp.ClientSession) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/static/console.js", "text/javascript"),
        ("/static/console.css", "text/css"),
        ("/static/icon.svg", "image/svg+xml"),
    ):
        async with http.get(world.url(path)) as answer:
            assert (answer.status, answer.content_type) == (200, kind)
            text = await answer.text()
        for foreign in ("http://", "https://", "//cdn"):
            if path != "/static/icon.svg":
                assert foreign not in text, "everything is ours"
        assert "innerHTML" not in text and "style=" not in text and "onclick" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/../guard.py",
        "/static/%2e%2e/guard.py",
        "/static/..%2fguard.py",
        "/static/%2e%2e%2f%2e%2e%2fsite.py",
        "//etc/passwd",
        "/static//console.js",
        "/static/console.js/",
        "/static/console.js%00.css",
        "/..;/metrics",
        "/api/",
        "/api/%2e%2e/metrics/x",
        "/index.html",
        "\\..\\x",
    ],
)
async def test_tricks_with_paths_find_nothing(world: World, path: str) -> None:
    """As raw bytes, since clients put such paths in order before they ask."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.site.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    await writer.wait_closed()
    assert status in (b"404", b"400")


async def test_json_of_each_list(world: World, http: aiohttp.ClientSession) -> None:
    async with http.get(world.url("/api/partitions?size=1&page=1")) as answer:
        assert answer.content_type == "application/json"
        found = await answer.json()
        assert (found["total"], found["rows"][0]["partition"]) == (2, 1)
    async with http.get(world.url("/api/status")) as answer:
        assert (await answer.json())["cluster"]["id"] == "c-1"
    for wrong in ("/api/streams?size=9999", "/api/live?show=secrets", "/api/events?page=x"):
        async with http.get(world.url(wrong)) as answer:
            assert answer.status == 400
            assert (await answer.text()).count("\n") == 1
    async with http.post(world.url("/api/status")) as answer:
        assert answer.status == 405


async def test_changes_are_told_at_once_and_only_they(
    world: World, http: aiohttp.ClientSession
) -> None:
    async with http.get(world.url("/api/live?show=partitions")) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        name, first = await next_event(answer)
        assert (name, first["total"], first["findings"]) == ("state", 2, [])
        world.ticking.cancel()  # so that only the change itself can be what is told
        await world.become(image(*world.image.streams.values(), node_2={"fenced": True}, offset=8))
        while True:
            _, told = await next_event(answer)
            if "findings" in told:
                break
        assert "Node 2" in told["findings"][0]["what"]
        assert "list" not in told, "what is the same is not told again"
    async with http.get(world.url("/api/events")) as events:
        assert (await events.json())["rows"][0]["text"].startswith("node 2 is gone")


async def test_a_hostile_name_stays_text(world: World, http: aiohttp.ClientSession) -> None:
    world.changes["reasons"] = {"nats": f"not connected\n\nevent: state\ndata: {HOSTILE}"}
    async with http.get(world.url("/api/live")) as answer:
        name, told = await next_event(answer)
        assert name == "state"
        assert HOSTILE in told["findings"][0]["what"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_so_many_watch_and_no_more(world: World, http: aiohttp.ClientSession) -> None:
    async with http.get(world.url("/api/live")) as one, http.get(world.url("/api/live")) as two:
        await next_event(one)
        await next_event(two)
        async with http.get(world.url("/api/live")) as three:
            assert (three.status, three.headers["Retry-After"]) == (503, "5")
            assert "http.status_clients_max" in await three.text()
    async with asyncio.timeout(5):
        while True:
            async with http.get(world.url("/api/live")) as again:
                if again.status == 200:
                    break


async def test_a_client_that_takes_nothing_stops_nobody(
    world: World, http: aiohttp.ClientSession
) -> None:
    with socket.create_connection(("127.0.0.1", world.site.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.sendall(b"GET /api/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with http.get(world.url("/api/live")) as answer:
            await next_event(answer)
            for offset in range(8, 12):
                await world.become(image(offset=offset))
                _, told = await next_event(answer)
                assert told


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_other_sites_are_not_answered(
    world: World, http: aiohttp.ClientSession, site: str
) -> None:
    async with http.get(world.url("/api/status"), headers={"Sec-Fetch-Site": site}) as answer:
        assert answer.status == 403
    for own in ("same-origin", "none"):
        async with http.get(world.url("/api/status"), headers={"Sec-Fetch-Site": own}) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("localhost:9464", 200),
        ("console.localhost", 200),
        ("[::1]:9464", 200),
        ("10.0.0.7", 200),
    ],
)
async def test_names_made_to_point_here_are_not_answered(
    world: World, http: aiohttp.ClientSession, host: str, status: int
) -> None:
    for path in ("/api/status", "/metrics"):
        async with http.get(world.url(path), headers={"Host": host}) as answer:
            assert answer.status == status
    async with http.get(world.url("/healthz"), headers={"Host": host}) as answer:
        assert answer.status == 200


async def test_a_page_that_fails_ends_no_node(
    world: World,
    http: aiohttp.ClientSession,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamlog.http.console.console.PAUSE_S", 0.01)
    world.broken = True
    async with asyncio.timeout(10):
        while "a part of the console failed" not in caplog.text:  # noqa: ASYNC110 - a text
            await asyncio.sleep(0.01)
    world.broken = False
    async with http.get(world.url("/api/live")) as answer:
        await next_event(answer)
        await world.become(image(offset=9))
        assert (await next_event(answer))[1]["cluster"]["metadata_offset"] == 9


# The tail


async def test_a_tail_begins_with_the_newest_and_goes_on(
    world: World, http: aiohttp.ClientSession
) -> None:
    async with http.get(world.url("/api/tail?stream=s&last=3")) as answer:
        name, told = await next_event(answer)
        assert (name, told["high_watermark"]) == ("records", 100)
        assert [record["offset"] for record in told["records"]] == [97, 98, 99]
        assert told["records"][0]["value"]["text"] == f"{HOSTILE}97"
        world.stored.end = 101
        _, told = await next_event(answer)
        assert [record["offset"] for record in told["records"]] == [100]
        world.stored.end = 1_000
        _, told = await next_event(answer)
        assert (len(told["records"]), told["skipped"]) == (RECORDS_MAX, 899 - RECORDS_MAX)
        assert told["records"][-1]["offset"] == 999
        world.stored.end = 10  # another stream of that name
        world.stored.problem = "nobody leads"
        assert await next_event(answer) == ("problem", {"text": "nobody leads"})
        world.stored.problem = None
        world.stored.end = 12
        _, told = await next_event(answer)
        assert [record["offset"] for record in told["records"]] == [9, 10, 11]
    async with asyncio.timeout(5):
        while not world.stored.closed:  # noqa: ASYNC110 - what is awaited is a flag
            await asyncio.sleep(0.01)


async def test_a_tail_that_is_refused_says_why(world: World, http: aiohttp.ClientSession) -> None:
    for query, status, said in (
        ("stream=none", 404, "there is no stream 'none'"),
        ("stream=s&partition=x", 400, "partition: a number"),
        ("stream=s&last=1000", 400, "last: a number from 0 to 25"),
    ):
        async with http.get(world.url(f"/api/tail?{query}")) as answer:
            assert (answer.status, said in await answer.text()) == (status, True)
    async with http.get(world.url("/api/tail?stream=s")) as first:
        await next_event(first)
        async with http.get(world.url("/api/tail?stream=s")) as second:
            assert second.status == 503
    async with http.get(world.url("/api/tail?stream=s"), headers={"X-Deny": "s"}) as answer:
        assert (answer.status, "with the right READ" in await answer.text()) == (403, True)
    world.refused = "payloads are not shown"
    async with http.get(world.url("/api/tail?stream=s")) as answer:
        assert (answer.status, await answer.text()) == (403, "payloads are not shown\n")


# Messages


async def test_pages_of_messages(world: World, http: aiohttp.ClientSession) -> None:
    async with http.get(world.url("/api/messages?stream=s&partition=1&count=2")) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        found = await answer.json()
    assert [(it["partition"], it["offset"]) for it in found["records"]] == [(1, 99), (1, 98)]
    assert found["records"][0]["value"] == {
        "form": "text", "text": f"{HOSTILE}99", "size_bytes": 30, "cut": False,
    }  # fmt: skip
    assert (found["why"], found["next"], found["bounds"]) == ("count", "1:98", {"1": [0, 100]})
    async with http.get(world.url("/api/messages?stream=s&count=3")) as answer:
        both = await answer.json()
    assert [(it["partition"], it["offset"]) for it in both["records"]] == [
        (0, 99),
        (1, 99),
        (0, 98),
    ]
    assert both["next"] == "0:98,1:99"
    async with http.get(
        world.url("/api/messages?stream=s&partition=0&from=start&text=nowhere")
    ) as answer:
        nothing = await answer.json()
    assert (nothing["records"], nothing["why"], nothing["scanned"]) == ([], "end", 100)
    async with http.get(world.url("/api/message?stream=s&partition=0&offset=7")) as answer:
        assert (await answer.json())["records"][0]["offset"] == 7
    async with http.get(world.url("/api/schemas")) as answer:
        assert await answer.json() == {"avro": [], "protobuf": []}


async def test_messages_that_are_refused(world: World, http: aiohttp.ClientSession) -> None:
    for query, status, said in (
        ("stream=none", 404, "there is no stream 'none'"),
        ("stream=s&partition=2", 404, "has 2 partitions"),
        ("stream=s&at=7:1", 404, "has 2 partitions"),
        ("stream=s&partition=x", 400, "partition: a number"),
        ("stream=s&path=x", 400, "path: begins with $"),
        ("stream=s&decode=xml", 400, "decode: one of"),
        ("stream=s&decode=avro&schema=x", 400, "http.schemas_dir"),
    ):
        async with http.get(world.url(f"/api/messages?{query}")) as answer:
            assert (answer.status, said in (text := await answer.text())) == (status, True), text
            assert text.count("\n") == 1
    async with http.get(world.url("/api/message?stream=s&offset=100")) as answer:
        assert answer.status == 400
    world.stored.problem = "nobody leads"
    async with http.get(world.url("/api/messages?stream=s")) as answer:
        assert (answer.status, await answer.text()) == (503, "nobody leads\n")
    for name in ("s", "none"):
        denied = {"X-Deny": name}
        async with http.get(world.url(f"/api/messages?stream={name}"), headers=denied) as answer:
            assert (answer.status, "with the right READ" in await answer.text()) == (403, True)
    world.refused = "payloads are not shown"
    async with http.get(world.url("/api/message?stream=s&offset=1")) as answer:
        assert (answer.status, await answer.text()) == (403, "payloads are not shown\n")


async def test_so_many_search_and_no_more(world: World, http: aiohttp.ClientSession) -> None:
    world.browse._searching = BROWSERS_MAX
    async with http.get(world.url("/api/messages?stream=s")) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    world.browse._searching -= 1
    for _ in range(3):
        async with http.get(world.url("/api/messages?stream=s")) as answer:
            assert answer.status == 200


async def test_who_watches_is_let_go_when_the_node_stops(
    world: World, http: aiohttp.ClientSession
) -> None:
    async with (
        http.get(world.url("/api/live")) as live,
        http.get(world.url("/api/tail?stream=s")) as tail,
    ):
        await next_event(live)
        await next_event(tail)
        world.page.close()
        world.tail.close()
        async with asyncio.timeout(0.9):
            await world.site.stop()


async def ended(answer: aiohttp.ClientResponse) -> bytes:
    """What came until the server ended the stream."""
    async with asyncio.timeout(5):
        return await answer.content.read()


async def test_a_tail_ends_with_the_right_to_read(
    world: World, http: aiohttp.ClientSession
) -> None:
    async with http.get(world.url("/api/tail?stream=s&last=1")) as answer:
        await next_event(answer)
        world.denied.add("s")
        world.stored.end = 200
        assert b"records" not in await ended(answer)
    async with http.get(world.url("/api/tail?stream=s")) as again:
        assert again.status == 403


@pytest.mark.parametrize("path", ["/api/tail?stream=s", "/api/live"])
async def test_events_end_with_what_let_the_client_in(
    world: World, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("streamlog.http.console.sse.ADMISSION_CHECK_S", 0.0)
    old, new = {"Authorization": "Bearer old"}, {"Authorization": "Bearer new"}
    async with http.get(world.url(path), headers=old) as answer:
        await next_event(answer)
        world.expelled.add("Bearer old")
        await ended(answer)
    async with http.get(world.url(path), headers=new) as other:
        await next_event(other)
