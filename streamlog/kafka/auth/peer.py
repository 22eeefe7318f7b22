"""The other end of a connection, and what a handler may use for its requests: partitions and metadata
without what it may not know of.
"""

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final

from streamlog.authn.session import Session
from streamlog.authz.visibility import AuthorizedMetadata, AuthorizedPartitions
from streamlog.condition import Condition
from streamlog.errors import AuthenticationFailed, LoginRequired
from streamlog.kafka.auth.login import Proved, ServerLogin
from streamlog.kafka.auth.login_rate_limit import place_of
from streamlog.kafka.context import Context
from streamlog.kafka.net.channel import RequestWait
from streamlog.wire import registry
from streamlog.wire.api_messages import Message
from streamlog.wire.registry import Api

logger = logging.getLogger(__name__)

LET_IN_PERMISSIVE: Final = Condition(
    "SL-0606",
    "let in although security is to be demanded",
    "give that client TLS and a login before security.permissive is removed",
    meaning="A client came in without a login, which security.permissive allows.",
)

BEFORE_LOGIN: Final = frozenset(
    {registry.API_VERSIONS, registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE}
)


class Peer:
    """Who is at the other end of a connection, and what a handler may use for their requests."""

    def __init__(self, context: Context, host: str) -> None:
        self._node = context
        self._at_end: dict[Hashable, Callable[[], None]] = {}
        self.context = seen_by(Session(host=host), context)
        """With the session as it is now: another one once the peer has logged in."""
        self.is_guarded = context.authenticator is not None or context.security_optional
        self.is_let_in = not context.authentication_on
        self.is_encrypted = False
        """Known once the channel is open."""
        self._login = (
            None if context.authenticator is None else ServerLogin(context.authenticator, host)
        )
        self._has_shown = self._has_proved = self._has_logged_in = False
        self._is_tolerated: bool | None = None if context.security_optional else False
        """None: it is not known yet."""

    @property
    def host(self) -> str:
        """As Kafka writes it."""
        return "/" + self.context.session.host

    @property
    def answerable(self) -> str:
        """Who has to answer for what this connection takes: the principal, or before a login the
        address, with all others of its IPv6 network."""
        session = self.context.session
        return str(session.principal) if session.is_known else place_of(session.host)

    @property
    def is_refused(self) -> bool:
        """A login has failed: nothing more is to be said."""
        return self._login is not None and self._login.failed

    def call(self, client_id: str) -> Context:
        """The peer calls itself so from now on."""
        self._with(self.context.session._replace(client_id=client_id))
        return self.context

    def admit(self, api: Api) -> None:
        """Raises LoginRequired where the peer has to say first who they are."""
        if api.key in BEFORE_LOGIN:
            return
        if not self.is_let_in:
            self._tell(f"{api.name} before a login")
            raise LoginRequired(f"{api.name} before a login")
        if self._is_tolerated is None:
            self._tolerate(api)
        ends_s = self.context.session.ends_s
        if ends_s is not None and time.monotonic() >= ends_s:
            raise LoginRequired(f"{api.name} after the session's end: log in again in time")

    def show(self, subject: str) -> None:
        """A certificate of this subject, which is believed. Raises AuthenticationFailed.

        A login later on takes its place.
        """
        self._has_shown = True
        authenticator = self.context.authenticator
        if authenticator is not None:
            principal, is_node = authenticator.certified(subject)
            self._become(Proved(principal, is_node, 0))

    def handshake(self, mechanism: str, version: int) -> Message:
        """Raises AuthenticationFailed where no user can log in."""
        if self._login is None:
            raise AuthenticationFailed("this listener asks for no login")
        answer = self._login.handshake(mechanism, version, encrypted=self.is_encrypted)
        if self._login.failed:
            self._tell("no such handshake")
        return answer

    async def authenticate(self, message: bytes, poll: RequestWait) -> Message:
        """One step of the exchange. Raises AuthenticationFailed where no user can log in."""
        if self._login is None:
            raise AuthenticationFailed("this listener asks for no login")
        present = self.context.session.principal if self._has_logged_in else None
        answer, proved = await self._login.authenticate(message, poll, present)
        if self._login.failed:
            self._tell(str(answer.get("error_message")))
        if proved is not None:
            self._has_logged_in = True
            self._become(proved)
        return answer

    def leave(self) -> None:
        """The connection is over."""
        if self._is_tolerated:
            self.context.metrics.unauthenticated_connections.dec()
        self._is_tolerated = False
        for call in tuple(self._at_end.values()):
            call()
        self._at_end.clear()

    def at_end(self, key: Hashable, call: Callable[[], None]) -> None:
        """``call`` is called when the connection is over; instead of one that was given with this key."""
        self._at_end[key] = call

    def _tolerate(self, api: Api) -> None:
        """Whom none would let in that demands what is optional here: they are told of."""
        context = self.context
        in_the_clear = context.tls() is not None and not self.is_encrypted
        anonymous = context.authenticator is not None and not self._has_proved
        wants_certificate = context.node_settings.tls.client_auth == "required"
        no_certificate = wants_certificate and not self._has_shown
        self._is_tolerated = in_the_clear or anonymous or no_certificate
        if self._is_tolerated:
            context.metrics.unauthenticated_connections.inc()
            extra = {
                "peer": context.session.host,
                "client_id": context.session.client_id,
                "api": api.name,
                "in_the_clear": in_the_clear,
                "without_proof": anonymous,
                "without_certificate": no_certificate,
            }
            logger.warning(LET_IN_PERMISSIVE, extra=extra)

    def _tell(self, reason: str) -> None:
        """In the audit log."""
        self.context.audit.not_authenticated(self.context.session, reason, by="Kafka")

    def _with(self, session: Session) -> None:
        self.context = seen_by(session, self._node)

    def _become(self, proved: Proved) -> None:
        principal, is_node, lifetime_ms = proved
        self._has_proved = True
        ends_s = time.monotonic() + lifetime_ms / 1000 if lifetime_ms else None
        self._with(
            self.context.session._replace(principal=principal, is_node=is_node, ends_s=ends_s)
        )
        self.is_let_in = True


def seen_by(session: Session, context: Context) -> Context:
    """``context``, the node's own, for the owner of this session."""
    access = None if context.authorization is None else context.authorization.access_of(session)
    if access is None:
        return replace(context, session=session, access=None)
    return replace(
        context,
        session=session,
        access=access,
        partitions=AuthorizedPartitions(context.partitions, access),
        metadata=AuthorizedMetadata(context.metadata, access),
    )
