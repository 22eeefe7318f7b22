"""The routes of the API: for each operation one."""

import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from aiohttp import web

from streamlog.authn.session import Session
from streamlog.condition import FAULT
from streamlog.config import HttpSection
from streamlog.control.control import OPERATIONS, Control
from streamlog.control.operation import Caller, OperationSpec
from streamlog.control.service import ControlService
from streamlog.errors import NoController, Overloaded, StreamlogError
from streamlog.http.access import ACCESS, SESSION
from streamlog.http.api.errors import (
    BASE,
    BodyTimedOut,
    BodyTooLarge,
    PayloadsHidden,
    WritesDisabled,
    refusal,
)
from streamlog.http.api.openapi import document
from streamlog.http.api.requests import arguments_of, check_site

logger = logging.getLogger(__name__)

READS: Final = "GET"


class HttpApi:
    """Asks the operations for whom ``HttpAccess`` let in."""

    def __init__(
        self,
        service: ControlService,
        *,
        settings: HttpSection,
        is_ready: Callable[[], bool],
        why_no_payloads: str = "",
    ) -> None:
        """``why_no_payloads``: why this port shows no messages; empty where it does."""
        self._service = service
        self._is_ready = is_ready
        self._why_no_payloads = why_no_payloads
        self._writes = settings.api_writes
        self._requests_max = settings.api_requests_max
        self._timeout_s = settings.request_timeout_ms / 1000
        self._running = 0
        self._document = b""

    def routes(self) -> list[web.RouteDef]:
        found = [web.get(f"{BASE}/openapi.json", self._openapi)]
        for spec in OPERATIONS.values():
            method, _, path = spec.http.partition(" ")
            options = {"allow_head": False} if method == READS else {}
            found.append(web.route(method, f"{BASE}{path}", partial(self._answer, spec), **options))
        return found

    async def _openapi(self, _: web.Request) -> web.Response:
        if not self._document:
            self._document = json.dumps(document()).encode()
        return web.Response(body=self._document, content_type="application/json")

    async def _answer(self, spec: OperationSpec, request: web.Request) -> web.Response:
        has_begun = False
        try:
            with self._admitted():
                call = await self._prepared(spec, request)
                has_begun = True
                result = await call
        except StreamlogError as error:
            if not has_begun:
                self._service.metrics.api_refused[type(error).__name__].inc()
            response = refusal(error)
            if isinstance(error, BodyTimedOut | BodyTooLarge):
                response.force_close()  # what is left of the body is not waited for
            return response
        except web.HTTPException:
            raise
        except Exception:
            failed = FAULT.logged_as("operation over HTTP failed")
            logger.exception(failed, extra={"operation": spec.name})
            return refusal(StreamlogError("an error of the node's own; its log has more"))
        if result is None:
            return web.Response(status=204)
        return web.json_response(result)

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        """Raises Overloaded."""
        if self._running >= self._requests_max:
            raise Overloaded(f"http.api_requests_max: {self._running} requests are being answered")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def _prepared(self, spec: OperationSpec, request: web.Request) -> Awaitable[Any]:
        """The operation, which begins when it is awaited."""
        session: Session = request[SESSION]
        check_site(request)
        self._check_port(spec, session)
        arguments = spec.read(await arguments_of(spec, request, timeout_s=self._timeout_s))
        if not self._is_ready():
            raise NoController("this node is about to start, or to stop")
        caller = Caller(session, request[ACCESS], by="HTTP")
        return Control(self._service, caller).run(spec, arguments)

    def _check_port(self, spec: OperationSpec, session: Session) -> None:
        """What this port is open for, all rights aside. Raises WritesDisabled, PayloadsHidden."""
        if spec.is_act and not (self._writes or session.is_known):
            raise WritesDisabled(
                "without a login nothing is changed over HTTP: log in, or set http.api_writes"
            )
        if self._why_no_payloads and spec.shows_payloads:
            raise PayloadsHidden(self._why_no_payloads)
