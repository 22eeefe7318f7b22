"""Who asks over NATS, and what they may do.

A request signed by a known key is carried out once, whichever node it comes to. Each node remembers
what it has seen, which says nothing of what others have. So each asks the controller, too, before
anything is done or told.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from streamlog.authn.principal import ANONYMOUS, Principal
from streamlog.authn.session import ANONYMOUS_SESSION, Session
from streamlog.authz.permissions import Permissions
from streamlog.authz.service import AuthorizationService
from streamlog.authz.signature import KEY, NONCE, TIME, RequestVerifier
from streamlog.authz.visibility import Metadata
from streamlog.clock import wall_ms
from streamlog.config import AuthorizationSection
from streamlog.errors import AuthenticationFailed, InvalidRequest
from streamlog.jetstream.connection import Request
from streamlog.metadata.commands import SpendNonce

REQUEST_INFO: Final = "Nats-Request-Info"
"""Set by nats-server where a request comes through a service import that is shared."""
NATS_KIND: Final = "Nats"
"""Of principals whom nats-server reports. They are no users of this cluster: an account of NATS may
be called as one of them is."""
NAME_CHARS_MAX: Final = 250


class RequestIdentity(NamedTuple):
    """Who has sent one request; ``access`` None: it may do everything."""

    session: Session
    access: Permissions | None
    counts_once: bool = False
    """It is signed by a key that some rule or setting names."""


NOT_ASKED: Final = RequestIdentity(ANONYMOUS_SESSION, None)
"""Where no client has to say who it is."""


class RequestIdentities:
    """Looks at the headers of requests."""

    def __init__(
        self,
        authorization: AuthorizationService,
        settings: AuthorizationSection,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.window_ms = settings.signature_window_ms
        """How old, or how far ahead, a signed request may be."""
        self._authorization = authorization
        self._names = settings.nkeys
        self._request_info = settings.nats_request_info
        self._verifier = RequestVerifier(
            settings.signature_window_ms, now_ms, checks_reply=settings.check_reply_subject
        )

    def of_client(self, request: Request) -> RequestIdentity:
        """Raises AuthenticationFailed for a wrong signature; without any the client is not known."""
        if not self._authorization.enforced:
            return NOT_ASKED
        if request.session is not None:
            access = self._authorization.access_of(request.session)
            return RequestIdentity(request.session, access)
        headers = request.headers
        try:
            session = Session(self._principal(request, headers))
        except AuthenticationFailed as error:
            self._authorization.audit.not_authenticated(Session(), str(error), by="NATS")
            raise
        counts_once = KEY in headers and self._is_known(headers[KEY])
        return RequestIdentity(session, self._authorization.access_of(session), counts_once)

    def _principal(self, request: Request, headers: Mapping[str, str]) -> Principal:
        if KEY in headers:
            key = self._verifier.user(
                request.subject, request.data, headers, self._is_known, reply=request.reply
            )
            return Principal.user(self._names.get(key, key))
        if self._request_info and REQUEST_INFO in headers:
            return Principal(NATS_KIND, _reported(headers[REQUEST_INFO]))
        return ANONYMOUS

    def _is_known(self, key: str) -> bool:
        return key in self._names or self._authorization.names(str(Principal.user(key)))


def _reported(text: str) -> str:
    """``<account>/<user>``, as far as NATS tells. Raises AuthenticationFailed."""
    try:
        info = json.loads(text)
        parts = [_without_slash(info["acc"]), info.get("user", "")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise AuthenticationFailed(f"{REQUEST_INFO} does not tell an account") from None
    name = "/".join(part for part in parts if isinstance(part, str) and part)
    if not name or len(name) > NAME_CHARS_MAX:
        raise AuthenticationFailed(f"{REQUEST_INFO} does not tell an account")
    return name


def _without_slash(account: str) -> str:
    """So that account ``a/b`` is not user ``b`` of account ``a``."""
    return account.replace("%", "%25").replace("/", "%2F")


logger = logging.getLogger(__name__)


class ReplayGuard:
    """Of requests whose signatures were found right."""

    def __init__(self, metadata: Metadata, window_ms: int) -> None:
        self._metadata = metadata
        self._window_ms = window_ms

    async def check(self, request: Request) -> None:
        """Raises AuthenticationFailed, and what asking the controller does."""
        headers = request.headers
        if KEY not in headers:
            return
        command = SpendNonce(
            signer=headers[KEY],
            nonce=headers[NONCE],
            signed_ms=int(headers[TIME]),
            window_ms=self._window_ms,
        )
        try:
            granted = await self._metadata.request(command)
        except InvalidRequest as error:  # a controller of before it knew that
            logger.debug("signed request not told to the controller", extra={"error": str(error)})
            return
        if refusal := str(granted.result["refusal"]):
            raise AuthenticationFailed(refusal)
