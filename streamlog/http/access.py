"""Who may read what over HTTP.

Health and readiness are for every client: a load balancer has no password. All else is open, too,
unless ``http.token_file`` or ``http.basic_auth`` says otherwise; then it takes a token as a bearer
or a user's password, and of a user DESCRIBE on the cluster, too. A user is shown the streams that it may know of
(``sees_by``); the metrics name every stream, and so are for who may know them all. A token that names no user is
shown every name. What a stream holds is for who may read it: handlers that show it ask ``may_read`` first.

The JSON API takes the same tokens and passwords, without that DESCRIBE: each operation judges by itself. Whose
token has no user in the file asks as ANONYMOUS there.
"""

import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from streamlog.acl.rules import Operation
from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz.permissions import Permissions
from streamlog.authz.service import AuthorizationService
from streamlog.config.token_file import Examine, Tokens, unwatched
from streamlog.errors import AuthenticationFailed, ClusterForbidden, StreamlogError
from streamlog.http.api.errors import is_for_api, refused
from streamlog.http.hosts import PUBLIC

ACCESS: Final = "streamlog.authn"
"""Where a request has the ``Permissions`` of who asks; None: everything is allowed."""
SESSION: Final = "streamlog.session"
"""Where it has the ``Session`` of who asks."""
_SIGHT: Final = "streamlog.sight"
"""Where it has the ``Permissions`` by which who asks is shown names of streams; None: every name."""
_STAY: Final = "streamlog.stay"
"""Where a request has how to check its client again; None: clients do not log in."""
METRICS: Final = "/metrics"
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="streamlog", charset="UTF-8", Bearer'}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LogIn = Callable[[str, str, str], Awaitable[Session]]
"""Of user, password and host. Raises AuthenticationFailed."""


class HttpAccess:
    """``middleware`` is aiohttp's."""

    def __init__(
        self,
        authorization: AuthorizationService,
        *,
        token_file: Path | None = None,
        examine: Examine = unwatched,
        log_in: LogIn | None = None,
    ) -> None:
        """``examine``: how tokens are looked at, see ``Tokens``; ``log_in``, which does so itself:
        None where users' passwords are not asked for.
        """
        self._authorization = authorization
        self._tokens = (
            None
            if token_file is None
            else Tokens(token_file, key="http.token_file", examine=examine)
        )
        self._log_in = log_in

        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._judge(request, handler)

        self.middleware: Final = middleware

    def check(self) -> None:
        """Raises ConfigError for a file that cannot be used."""
        if self._tokens is not None:
            self._tokens.check()

    @property
    def is_closed(self) -> bool:
        return self._tokens is not None or self._log_in is not None

    async def _judge(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        session, is_user = Session(host=request.remote or ""), False
        if request.path not in PUBLIC and self.is_closed:
            try:
                session, is_user = await self._session(request, session)
            except AuthenticationFailed as error:
                self._authorization.audit.not_authenticated(session, str(error), by="HTTP")
                return refused(request, 401, type(error).__name__, str(error), _CHALLENGE)
            except ClusterForbidden as error:
                return refused(request, 403, type(error).__name__, str(error))
            request[_STAY] = lambda: self._is_still_let_in(request)
        request[SESSION] = session
        request[ACCESS] = access = self._authorization.access_of(session)
        request[_SIGHT] = access if is_user else None
        return await handler(request)

    async def _session(self, request: web.Request, session: Session) -> tuple[Session, bool]:
        """Also whether it is a user's. Raises AuthenticationFailed and ClusterForbidden."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        match scheme.lower():
            case "bearer" if self._tokens is not None:
                user = await self._tokens.demand(given, session.host)
                if not user:
                    return session, False
                session = session._replace(principal=Principal.user(user))
            case "basic" if self._log_in is not None:
                user, password = _user_and_password(given.strip())
                session = await self._log_in(user, password, session.host)
            case _:
                raise AuthenticationFailed("say who you are")
        access = self._authorization.access_of(session)
        if access is not None and not is_for_api(request):
            access.check_cluster(Operation.DESCRIBE)
            if request.path.startswith(METRICS) and not access.sees_all:
                raise ClusterForbidden(
                    "the metrics name every stream: DESCRIBE on all topics is needed"
                )
        return session, True

    async def _is_still_let_in(self, request: web.Request) -> bool:
        try:
            await self._session(request, Session(host=request.remote or ""))
        except (AuthenticationFailed, ClusterForbidden):
            return False
        return True


async def may_stay(request: web.Request) -> bool:
    """Whether who asked a while ago would be let in now, with what they showed then."""
    is_still_let_in: Callable[[], Awaitable[bool]] | None = request.get(_STAY)
    return is_still_let_in is None or await is_still_let_in()


def sees_by(request: web.Request) -> Permissions | None:
    """By which who asks is shown names of streams; None: it is shown every one."""
    permissions: Permissions | None = request[_SIGHT]
    return permissions


def may_read(request: web.Request, stream: str) -> bool:
    """Whether the stream's records may be shown to who asks."""
    access: Permissions | None = request.get(ACCESS)
    if access is None:
        return True
    try:
        access.check_topic(Operation.READ, stream)
    except StreamlogError:
        return False
    return True


def _user_and_password(given: str) -> tuple[str, str]:
    try:
        user, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError:  # neither base64, nor UTF-8, nor even ASCII
        colon = user = password = ""
    if not (colon and user and password):
        raise AuthenticationFailed("the Authorization header is malformed")
    return user, password
