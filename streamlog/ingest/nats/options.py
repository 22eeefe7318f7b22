"""The way to NATS: which servers, who we are there, and how nobody listens in."""

from typing import Any, Final
from urllib.parse import urlsplit

from streamlog.config import NatsSection
from streamlog.errors import ConfigError
from streamlog.ingest.nats.login import login_of
from streamlog.ingest.nats.tls import tls_of

PING_INTERVAL_S: Final = 10
PINGS_OUTSTANDING_MAX: Final = 2
"""A server that answers none of these is taken for dead: after 20 to 30 s."""


class NatsOptions:
    """Of the settings. Raises ConfigError for what contradicts itself or cannot be read.

    A login that stands in an address is taken out of it: it counts for every server, also for those
    that NATS tells of later, and is never shown.
    """

    def __init__(self, nats: NatsSection) -> None:
        places = [_Place(server) for server in nats.servers]
        logins = {place.userinfo for place in places}
        if len(logins) > 1:
            problem = "have different logins, or some have none"
            raise ConfigError("nats.servers", problem, "set nats.user and nats.password instead")
        self.servers: Final = tuple(place.address for place in places)
        self.login: Final = login_of(nats, logins.pop())
        self.tls: Final = tls_of(nats, {place.scheme for place in places})
        self.reconnect_wait_s: Final = nats.reconnect_backoff_ms / 1000
        self.refused_wait_max_s: Final = (
            max(nats.reconnect_backoff_max_ms, nats.reconnect_backoff_ms) / 1000
        )
        self._inbox_prefix = f"_INBOX.{nats.domain}"
        self.login.check()
        self.tls.check()

    def pause_s(self, refusals: int) -> float:
        """After so many in a row by a server; 0: it could not be reached."""
        doubled = self.reconnect_wait_s * (1 << min(max(refusals - 1, 0), 16))
        return min(doubled, self.refused_wait_max_s)

    def options(self, name: str) -> dict[str, Any]:
        """Keyword arguments of nats-py's connect, for a client that never gives up."""
        return self._common(name) | {
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": self.reconnect_wait_s,
            "ping_interval": PING_INTERVAL_S,
            "max_outstanding_pings": PINGS_OUTSTANDING_MAX,
            "inbox_prefix": self._inbox_prefix,
        }

    def options_once(self, name: str, timeout_s: float) -> dict[str, Any]:
        """Likewise, for one that connects now or never."""
        return self._common(name) | {
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": timeout_s,
        }

    def _common(self, name: str) -> dict[str, Any]:
        return {
            "servers": list(self.servers),
            "name": name,
            "tls_handshake_first": self.tls.first,
            "tls_hostname": self.tls.server_name,
        }


class _Place:
    """One of ``nats.servers``, taken apart. What is wrong with it is said without its login."""

    def __init__(self, server: str) -> None:
        before, at, rest = server.rpartition("@")
        scheme, found, userinfo = before.rpartition("://") if at else ("", "", "")
        if not found:
            scheme, found, rest = rest.rpartition("://")
        self.userinfo = userinfo if at else None
        self.scheme = scheme or "nats"
        self.address = f"{scheme}{found}{rest}"
        if self.scheme not in ("nats", "tls"):
            problem = f"{self.address!r} is not supported"
            raise ConfigError("nats.servers", problem, "use nats:// or tls://")
        try:
            parts = urlsplit(f"{self.scheme}://{rest}")
            usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            usable = False
        if not usable:
            problem = f"{self.address!r} is no address"
            raise ConfigError("nats.servers", problem, "write nats://host:port")
