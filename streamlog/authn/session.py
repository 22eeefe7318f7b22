from typing import Final, NamedTuple

from streamlog.authn.principal import ANONYMOUS, Principal


class Session(NamedTuple):
    """Who sends the requests of a connection, as far as that is known by now.

    An immutable value: a user who logs in, again or for the first time, has another one from the next
    request on.
    """

    principal: Principal = ANONYMOUS
    host: str = ""
    """The address that the connection comes from, without its port: ``127.0.0.1``, ``::1``."""
    client_id: str = ""
    """What the client calls itself; proved by nothing."""
    is_node: bool = False
    """Proved to be a node of this cluster. Always False where authentication is off."""
    ends_s: float | None = None
    """By the monotonic clock: nothing is told after that. None: with the connection."""

    @property
    def is_known(self) -> bool:
        """The principal is proved."""
        return self.principal != ANONYMOUS


ANONYMOUS_SESSION: Final = Session()
