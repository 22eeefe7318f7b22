"""Is NATS there? Told in one line when that changes, not at each attempt."""

import logging
from typing import Any
from urllib.parse import ParseResult

from streamlog.config import NatsSection
from streamlog.errors import ConfigError
from streamlog.metrics import NodeMetrics

logger = logging.getLogger(__name__)

PING_INTERVAL_S = 10
PINGS_OUTSTANDING_MAX = 2
"""A server that answers none of these is taken for dead: after 20 to 30 s."""


class Outage:
    """The callbacks of a client, as one state."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self.is_connected = False
        self._metrics = metrics
        self._told: str | None = None
        """What was last said about why NATS is not there; None while it is."""
        self._was_connected = False

    async def failed(self, error: Exception) -> None:
        """An attempt failed, or the server complains."""
        text = str(error) or type(error).__name__
        if self.is_connected:
            logger.warning("NATS complains", extra={"error": text})
        elif self._told != text:
            self._told = text
            logger.warning("waiting for NATS", extra={"error": text})

    async def disconnected(self) -> None:
        if self.is_connected:
            self.is_connected = False
            self._metrics.nats_connected.set(0)
            logger.warning("NATS connection lost")

    def connected(self, url: ParseResult | None, *, subscriptions: int) -> None:
        self.is_connected = True
        self._told = None
        self._metrics.nats_connected.set(1)
        if self._was_connected:
            self._metrics.nats_reconnects.inc()
        self._was_connected = True
        server = f"{url.hostname}:{url.port}" if url else ""
        logger.info("connected to NATS", extra={"server": server, "subscriptions": subscriptions})


def connect_options(nats: NatsSection, *, name: str) -> dict[str, Any]:
    """Keyword arguments of nats-py's connect that never gives up. Raises ConfigError."""
    for server in nats.servers:
        scheme, found, _ = server.partition("://")
        if found and scheme not in ("nats", "tls"):
            raise ConfigError(
                "nats.servers", f"{server!r} is not supported", "use nats:// or tls://"
            )
    return {
        "servers": list(nats.servers),
        "name": name,
        "user": nats.user,
        "password": nats.password,
        "token": nats.token,
        "user_credentials": str(nats.credentials) if nats.credentials else None,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": nats.reconnect_wait_ms / 1000,
        "ping_interval": PING_INTERVAL_S,
        "max_outstanding_pings": PINGS_OUTSTANDING_MAX,
    }
