"""Is NATS there? Told in one line when that changes, not at each attempt."""

import logging
from urllib.parse import ParseResult

from streamlog.metrics import NodeMetrics

logger = logging.getLogger(__name__)

REASONS_MAX = 10
"""Told of one outage."""


class Outage:
    """The callbacks of a client, as one state."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self.is_connected = False
        self._metrics = metrics
        self._told: set[str] = set()
        """What was said about why NATS is not there, lest an attempt say it again."""
        self._was_connected = False

    async def failed(self, error: Exception) -> None:
        """An attempt failed, or the server complains."""
        text = str(error) or type(error).__name__
        if self.is_connected:
            logger.warning("NATS complains", extra={"error": text})
        elif text not in self._told and len(self._told) < REASONS_MAX:
            self._told.add(text)
            logger.warning("waiting for NATS", extra={"error": text})

    async def disconnected(self) -> None:
        if self.is_connected:
            self.closed()
            logger.warning("NATS connection lost")

    def closed(self) -> None:
        """We want no connection any more."""
        self.is_connected = False
        self._metrics.nats_connected.set(0)

    def connected(self, url: ParseResult | None, *, subscriptions: int) -> None:
        self.is_connected = True
        self._told.clear()
        self._metrics.nats_connected.set(1)
        if self._was_connected:
            self._metrics.nats_reconnects.inc()
        self._was_connected = True
        server = f"{url.hostname}:{url.port}" if url else ""
        logger.info("connected to NATS", extra={"server": server, "subscriptions": subscriptions})
