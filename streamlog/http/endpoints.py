"""The HTTP server: metrics, health, and the pages that it is given; by TLS with a certificate.

Each answer has headers that keep a browser from being used against its user.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from streamlog.clock import wall_ms
from streamlog.config import HttpSection
from streamlog.findings import condition_of_part
from streamlog.http.access import HttpAccess
from streamlog.http.api.errors import OtherSite, errors_as_json, refused
from streamlog.http.hosts import refuse_other_names
from streamlog.http.metrics_endpoint import MetricsEndpoint
from streamlog.http.server import HttpServer

Condition = Callable[[], str | None]
"""None where all is well, else the reason why not, in words."""


class Readiness:
    """Named conditions, evaluated at each request; nothing is remembered."""

    def __init__(self, conditions: Mapping[str, Condition]) -> None:
        self._conditions = conditions

    def reasons(self) -> dict[str, str]:
        """Why the node is not ready; empty when it is."""
        answers = {name: condition() for name, condition in self._conditions.items()}
        return {name: reason for name, reason in answers.items() if reason is not None}


class HttpEndpoints:
    """Serves what others know."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        registry: CollectorRegistry,
        gauges: Callable[[], Awaitable[Sequence[Collector]]],
        readiness: Readiness,
        loop_lag_s: Callable[[], float],
        pages: Callable[[], Sequence[web.RouteDef]] = tuple,
        limits: HttpSection | None = None,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        access: HttpAccess | None = None,
    ) -> None:
        """``access``: None: everything is open to every client."""
        self._metrics = MetricsEndpoint(registry, gauges)
        self._readiness = readiness
        self._loop_lag_s = loop_lag_s
        self._pages = pages
        self._access = access
        self._server = HttpServer(host, port, keys="http.", limits=limits, tls=tls)

    @property
    def port(self) -> int:
        """The port that was asked for; once started, the one that was got."""
        return self._server.port

    async def start(self) -> None:
        """Listen. Raises ConfigError when the address cannot be had."""
        middlewares: list[Middleware] = [errors_as_json, refuse_other_sites, refuse_other_names]
        if self._access is not None:
            self._access.check()
            middlewares.append(self._access.middleware)
        app = web.Application(middlewares=middlewares)
        app.on_response_prepare.append(add_headers)
        app.add_routes(
            [
                *self._pages(),
                *self._metrics.routes(),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        await self._server.start(app)

    async def stop(self) -> None:
        """Close the socket and what is open on it."""
        await self._server.stop()

    async def _healthz(self, request: web.Request) -> web.Response:
        lag_s = round(self._loop_lag_s(), 6)
        now_ms = wall_ms()
        answer = {"alive": True, "event_loop_lag_seconds": lag_s, "time_ms": now_ms}
        return web.json_response(answer)

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = self._readiness.reasons()
        codes = {part: condition_of_part(part).code for part in reasons}
        answer = {"ready": not reasons, "reasons": reasons, "codes": codes}
        return web.json_response(answer, status=503 if reasons else 200)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content Security Policy Level 3: our own files, nothing inline, no frame, no HTML from text."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "streamlog",
}


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """A signal of aiohttp's, ``on_response_prepare``; errors are answers, too."""
    for name, value in HEADERS.items():
        response.headers[name] = value


@web.middleware
async def refuse_other_sites(request: web.Request, handler: Handler) -> web.StreamResponse:
    """No page of another site reads the API through a user's browser: browsers say so themselves
    (Fetch Metadata).
    """
    if request.path.startswith("/api/"):
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin"):
            text = "pages of other sites are not answered"
            return refused(request, 403, OtherSite.__name__, text)
    return await handler(request)
