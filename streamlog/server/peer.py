import time
from typing import Final

from streamlog.access.session import Session
from streamlog.errors import AuthenticationFailed, LoginRequired
from streamlog.server.context import Context
from streamlog.server.login import Login, Proved
from streamlog.server.poll import Poll
from streamlog.server.sight import seen_by
from streamlog.wire import registry
from streamlog.wire.control import Message
from streamlog.wire.registry import Api

BEFORE_LOGIN: Final = frozenset(
    {registry.API_VERSIONS, registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE}
)


class Peer:
    """Who is at the other end of a connection, and what a handler may use for their requests."""

    def __init__(self, context: Context, host: str, *, encrypted: bool = False) -> None:
        self._node = context
        self.context = seen_by(Session(host=host), context)
        """With the session as it is now: another one once the peer has logged in."""
        self.is_guarded = context.authenticator is not None
        self.is_let_in = not self.is_guarded
        self._login = (
            Login(context.authenticator, host, encrypted=encrypted)
            if context.authenticator is not None
            else None
        )
        self._has_logged_in = False
        self._ends_s: float | None = None  # monotonic

    @property
    def host(self) -> str:
        """As Kafka writes it."""
        return "/" + self.context.session.host

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
        if self._ends_s is not None and time.monotonic() >= self._ends_s:
            raise LoginRequired(f"{api.name} after the session's end: log in again in time")

    def show(self, subject: str) -> None:
        """A certificate of this subject, which is believed. Raises AuthenticationFailed.

        A login later on takes its place.
        """
        authenticator = self.context.authenticator
        if authenticator is not None:
            principal, is_node = authenticator.certified(subject)
            self._become(Proved(principal, is_node, 0))

    def handshake(self, mechanism: str, version: int) -> Message:
        """Raises AuthenticationFailed where nobody can log in."""
        if self._login is None:
            raise AuthenticationFailed("nobody is asked to log in here")
        answer = self._login.handshake(mechanism, version)
        if self._login.failed:
            self._tell("no such handshake")
        return answer

    async def authenticate(self, message: bytes, poll: Poll) -> Message:
        """One step of the exchange. Raises AuthenticationFailed where nobody can log in."""
        if self._login is None:
            raise AuthenticationFailed("nobody is asked to log in here")
        present = self.context.session.principal if self._has_logged_in else None
        answer, proved = await self._login.authenticate(message, poll, present)
        if self._login.failed:
            self._tell(str(answer.get("error_message")))
        if proved is not None:
            self._has_logged_in = True
            self._become(proved)
        return answer

    def _tell(self, reason: str) -> None:
        """In the audit log."""
        self.context.audit.not_authenticated(self.context.session, reason, by="Kafka")

    def _with(self, session: Session) -> None:
        self.context = seen_by(session, self._node)

    def _become(self, proved: Proved) -> None:
        principal, is_node, lifetime_ms = proved
        session = self.context.session._replace(principal=principal, is_node=is_node)
        self._with(session)
        self.is_let_in = True
        self._ends_s = time.monotonic() + lifetime_ms / 1000 if lifetime_ms else None
