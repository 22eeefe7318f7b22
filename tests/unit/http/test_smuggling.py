"""Where a request ends is never a matter of opinion: what two servers could read in two ways is
refused, and its connection is closed, so that nothing behind it is read as another's request.

Both listeners, each as its node has it, with a token for metrics.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.web_protocol import RequestHandler
from prometheus_client import CollectorRegistry

from streamlog.acl.rules import RuleBook
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.config.token_file import Tokens
from streamlog.http.access import HttpAccess
from streamlog.http.endpoints import HttpEndpoints, Readiness
from streamlog.ledger.metrics import LedgerMetrics
from streamlog.ledger.site import HttpListener, LedgerSite
from tests.restricted import Heard

pytestmark = pytest.mark.filterwarnings("ignore:It is recommended to use web.RequestKey")

TOKEN = "a-token-of-some-length"
KNOWN = f"Authorization: Bearer {TOKEN}\r\n".encode()
LAST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + KNOWN + b"Connection: close\r\n\r\n"
"""What is smuggled. As a request of its own it is answered, and ends the connection."""
BODY = b"%x\r\n%b\r\n0\r\n\r\n" % (len(LAST), LAST)
"""In chunks."""


class Served:
    """A listener, and how often its metrics were read."""

    def __init__(self, tokens: Path, kind: str) -> None:
        self.scrapes = 0
        if kind == "node":
            access = AuthorizationService(AuthorizationSection(), RuleBook, Heard(), enforced=True)
            self.site: Any = HttpEndpoints(
                "127.0.0.1",
                0,
                registry=CollectorRegistry(),
                gauges=self.gauges,
                readiness=Readiness({}),
                loop_lag_s=lambda: 0.0,
                access=HttpAccess(access, token_file=tokens),
            )
        else:
            listener = HttpListener("127.0.0.1", 0, Tokens(tokens, key="--http-token-file"))
            metrics = LedgerMetrics(self.scraped)
            self.site = LedgerSite(listener, metrics=metrics, channels=list)
            self.scrapes = 0  # to register them read them once

    async def gauges(self) -> list[Any]:
        return self.scraped()

    def scraped(self) -> list[Any]:
        self.scrapes += 1
        return []

    async def statuses(self, text: bytes, *, piece_bytes: int = 1 << 20) -> list[int]:
        """Of all answers until the server closes the connection; the client never does."""
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(Client, "127.0.0.1", self.site.port)
        for start in range(0, len(text), piece_bytes):
            transport.write(text[start : start + piece_bytes])
            await asyncio.sleep(0)
        await asyncio.wait_for(client.closed.wait(), 20)
        return [int(it) for it in re.findall(rb"HTTP/1\.[01] (\d{3}) ", client.taken)]


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.taken = bytearray()
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.taken += data

    def connection_lost(self, _: Exception | None) -> None:
        self.closed.set()


@pytest.fixture(params=["node", "ordering node"])
async def served(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[Served]:
    """It waits a shorter time than ten seconds for the rest of a body that nobody reads. Whatever
    comes, nobody who is not let in writes an error or a traceback into its log.
    """
    defaults = {**(RequestHandler.__init__.__kwdefaults__ or {}), "lingering_time": 0.1}
    monkeypatch.setattr(RequestHandler.__init__, "__kwdefaults__", defaults)
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN + "\n")
    served = Served(tokens, request.param)
    await served.site.start()
    yield served
    await served.site.stop()
    told = caplog.get_records("call")
    loud = [it for it in told if it.levelno >= logging.ERROR or it.exc_info]
    assert not loud, loud[0]


def post(*headers: bytes, start: bytes = b"POST /healthz HTTP/1.1") -> bytes:
    return b"\r\n".join((start, b"Host: localhost", *headers, b"", b""))


LENGTH = b"Content-Length: %d" % len(LAST)
CHUNKED = b"Transfer-Encoding: chunked"

AMBIGUOUS = {
    # Two lengths.
    "CL.TE": post(b"Content-Length: 5", CHUNKED) + b"0\r\n\r\n" + LAST,
    "TE.CL": post(CHUNKED, b"Content-Length: 4") + BODY,
    "CL.CL": post(b"Content-Length: 0", LENGTH) + LAST,
    "CL.CL, the same": post(LENGTH, LENGTH) + LAST,
    "CL list": post(b"Content-Length: %d, %d" % (len(LAST), len(LAST))) + LAST,
    "TE.TE": post(CHUNKED, b"Transfer-Encoding: identity") + BODY,
    # Lengths that are no numbers to all.
    **{
        f"CL {value!r}": post(b"Content-Length: " + value) + LAST
        for value in (
            b"+0", b"-1", b"0x0", b"0_0", b"\xb2", b"", b"0 0", b"0;", b"1e1", b"\x000", b"9" * 30,
        )
    },
    # Encodings that some take for chunked.
    **{
        f"TE {value!r}": post(b"Transfer-Encoding: " + value) + BODY
        for value in (
            b"chunked, identity", b"xchunked", b"chunked\x0b", b"\x0bchunked", b"\x00chunked",
            b"'chunked'", b"chunked;q=1", b"chunked, chunked",
        )
    },
    # Names that some take for others.
    "blank before the colon": post(b"Transfer-Encoding : chunked", LENGTH) + LAST,
    "tab before the colon": post(b"Content-Length\t: 0") + LAST,
    "NUL in a name": post(b"Content-Length\x00: 0") + LAST,
    "a header without a colon": post(b"Content-Length 0") + LAST,
    "no name": post(b": 0") + LAST,
    "a name that is no token": post(b"Content(Length: 0") + LAST,
    # Ends of lines.
    "obs-fold": post(b"X: 1", b" " + LENGTH) + LAST,
    "obs-fold by tab": post(b"X: 1", b"\t" + CHUNKED) + BODY,
    "fold of the first header": b"GET /healthz HTTP/1.1\r\n X: 1\r\nHost: localhost\r\n\r\n" + LAST,
    "bare LF behind a header": post(b"X: 1\n" + LENGTH) + LAST,
    "bare LF behind the request line": b"GET /healthz HTTP/1.1\nHost: localhost\r\n\r\n" + LAST,
    "bare LF at the end of headers": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\n" + LAST,
    "bare LF everywhere": b"GET /healthz HTTP/1.1\nHost: localhost\n\n" + LAST,
    "bare CR in a header": post(b"X: 1\r" + LENGTH) + LAST,
    "NUL in a header": post(b"X: 1\x00") + LAST,
    # Chunks.
    **{
        f"chunk of {size!r}": post(CHUNKED) + size + b"\r\n" + LAST + b"\r\n0\r\n\r\n"
        for size in (
            b"0x%x" % len(LAST), b"+%x" % len(LAST), b"-1", b" %x" % len(LAST), b"", b"g",
            b"1" + b"0" * 16 + b"%x" % len(LAST), b"%x \x0b" % len(LAST),
        )
    },
    "chunk longer than it says": post(CHUNKED) + b"1\r\nxx\r\n0\r\n\r\n" + LAST,
    "bare LF behind a chunk's size": post(CHUNKED) + b"1\nx\r\n0\r\n\r\n" + LAST,
    "bare LF behind a chunk": post(CHUNKED) + b"1\r\nx\n0\r\n\r\n" + LAST,
    "bare LF in an extension": post(CHUNKED) + b"1;a\nx\r\n0\r\n\r\n" + LAST,
    "bare CR in an extension": post(CHUNKED) + b"1;a\rx\r\nx\r\n0\r\n\r\n" + LAST,
    "bare LF in the last extension": post(CHUNKED) + b"0;a\n\r\n" + LAST,
    "bare LF for the end of chunks": post(CHUNKED) + b"0\r\n\n" + LAST,
    "NUL in an extension": post(CHUNKED) + b"1;a=\x00\r\nx\r\n0\r\n\r\n" + LAST,
    "CRLF in a quoted extension": post(CHUNKED) + b'0;a="\r\n\r\n' + LAST,
    # Request lines.
    "no version": b"GET /healthz\r\n" + LAST,
    "another version": b"GET /healthz HTTP/1.10\r\nHost: localhost\r\n\r\n" + LAST,
    "a blank in the path": b"GET /healthz /x HTTP/1.1\r\nHost: localhost\r\n\r\n" + LAST,
}  # fmt: skip


def test_what_is_smuggled_is_a_request_of_its_own() -> None:
    """Else none of these tests would say anything."""
    assert all(LAST in text for text in AMBIGUOUS.values())


async def test_behind_a_request_that_ends_it_is_answered(served: Served) -> None:
    assert await served.statuses(LAST) == [200]
    assert await served.statuses(post(start=b"GET /healthz HTTP/1.1") + LAST) == [200, 200]
    assert await served.statuses(LAST.replace(KNOWN, b"")) == [401]
    assert served.scrapes == 2


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_what_can_be_read_in_two_ways_ends_the_connection(served: Served, name: str) -> None:
    assert await served.statuses(AMBIGUOUS[name]) == [400]
    assert served.scrapes == 0


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_and_so_it_does_byte_by_byte(served: Served, name: str) -> None:
    """Where a packet ends makes no difference. What was answered may be lost: the client still
    writes when the connection is closed; so may it be answered before its body turns out wrong.
    """
    given = await served.statuses(AMBIGUOUS[name], piece_bytes=1)
    assert set(given) <= {400, 405}
    assert served.scrapes == 0


@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
@pytest.mark.parametrize("method", [b"GET", b"POST", b"DELETE", b"HEAD", b"OPTIONS"])
@pytest.mark.parametrize("path", [b"/healthz", b"/metrics", b"/no-such-page"])
async def test_a_body_is_no_request(
    served: Served, piece_bytes: int, method: bytes, path: bytes
) -> None:
    """Nobody reads it. What follows it is the next request, and has to say anew who asks; behind a
    body in chunks nothing is read any more, and byte by byte the answer may be lost with that.
    """
    start = b"%b %b HTTP/1.1" % (method, path)
    for header, body, others in ((LENGTH, LAST, [401]), (CHUNKED, BODY, [])):
        served.scrapes = 0
        text = post(KNOWN.strip(), header, start=start) + body + LAST.replace(KNOWN, b"")
        given = await served.statuses(text, piece_bytes=piece_bytes)
        if given or header is LENGTH or piece_bytes > 1:
            first, *rest = given
            assert first in {200, 404, 405}
            assert rest == others
        assert served.scrapes <= (path == b"/metrics")


@pytest.mark.parametrize("trailer", [KNOWN, b"Host: localhost\r\n", LENGTH + b"\r\n"])
async def test_what_follows_the_chunks_is_no_header_of_the_next_request(
    served: Served, trailer: bytes
) -> None:
    """Extensions of chunks change nothing, either."""
    body = b'%x;a=b;c="d;0"\r\n%b\r\n0;e\r\n%b\r\n' % (len(LAST), LAST, trailer)
    text = post(CHUNKED, start=b"POST /metrics HTTP/1.1") + body + LAST.replace(KNOWN, b"")
    given = await served.statuses(text)
    assert given
    assert set(given) <= {400, 401, 405}
    assert served.scrapes == 0


@pytest.mark.parametrize(
    "path",
    [
        b"/healthz/../metrics", b"/healthz/%2e%2e/metrics", b"/healthz%2f..%2fmetrics",
        b"//metrics",
        b"/healthz;/metrics", b"/%6detrics", b"/metrics/", b"/metrics?/healthz",
        b"/metrics#/healthz",
        b"http://localhost/metrics", b"http:///healthz/../metrics", b"/healthz\\..\\metrics",
        b"/./metrics", b"/healthz%00/../metrics", b"*", b"metrics",
    ],
)  # fmt: skip
async def test_no_way_round_to_a_page_is_without_a_token(served: Served, path: bytes) -> None:
    stranger = LAST.replace(KNOWN, b"").replace(b"/metrics", path)
    (status,) = await served.statuses(stranger)
    assert status in {400, 401, 404}
    assert served.scrapes == 0
