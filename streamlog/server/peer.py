from dataclasses import replace

from streamlog.access.session import Session
from streamlog.server.context import Context


class Peer:
    """Who is at the other end of a connection, and what a handler may use for their requests."""

    def __init__(self, context: Context, host: str) -> None:
        self.context = replace(context, session=Session(host=host))
        """With the session as it is now: another one once the peer has logged in."""

    @property
    def host(self) -> str:
        """As Kafka writes it."""
        return "/" + self.context.session.host

    def call(self, client_id: str) -> Context:
        """The peer calls itself so from now on."""
        return self._with(self.context.session._replace(client_id=client_id))

    def _with(self, session: Session) -> Context:
        self.context = replace(self.context, session=session)
        return self.context
