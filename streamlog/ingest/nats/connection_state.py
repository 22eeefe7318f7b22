"""Is NATS there? Told in one line when that changes, not at each attempt."""

import logging
from typing import Final
from urllib.parse import ParseResult

from streamlog.condition import Condition
from streamlog.ingest.nats.error_counts import NatsErrorCounts
from streamlog.ingest.nats.errors import NatsError, understood
from streamlog.metadata.nodes.node_condition import NATS_GONE
from streamlog.metrics import NodeMetrics

logger = logging.getLogger(__name__)

NATS_COMPLAINS: Final = Condition(
    "SL-0406",
    "NATS complains",
    "see what nats-server's log says of it",
    meaning="nats-server sent an error on a connection that stays open.",
)

REASONS_MAX: Final = 10
"""Told of one outage."""


class ConnectionState:
    """The callbacks of a link, as one state. ``login``: as whom it comes, without a secret."""

    def __init__(self, metrics: NodeMetrics, *, login: object = "") -> None:
        self.is_connected = False
        self.complaint: NatsError | None = None
        """Why NATS is not there, as far as it is known."""
        self._metrics = metrics
        self._login = login
        self._told: set[str] = set()
        """What was said about why NATS is not there, so that an attempt does not say it again."""
        self._complaints = NatsErrorCounts(metrics, "ingest")
        self._was_connected = False

    def failed(self, error: Exception) -> None:
        """An attempt failed, or the server complains."""
        complaint = understood(error, self._login)
        extra = {"error": complaint.text, "remedy": complaint.remedy}
        if self._complaints.hear(complaint):
            return
        if self.is_connected:
            logger.warning(NATS_COMPLAINS, extra=extra)
        else:
            self._metrics.nats_connection_failures.labels(complaint.kind.value).inc()
            self.complaint = complaint
            if complaint.text not in self._told and len(self._told) < REASONS_MAX:
                self._told.add(complaint.text)
                logger.warning(NATS_GONE.logged_as("waiting for NATS"), extra=extra)

    def disconnected(self, error: Exception | None) -> None:
        """``error``: what the connection has ended for, where that is known."""
        if self.is_connected:
            self.closed()
            extra = {} if error is None else {"error": understood(error).text}
            logger.warning(NATS_GONE.logged_as("NATS connection lost"), extra=extra)

    def closed(self) -> None:
        """We want no connection any more."""
        self.is_connected = False
        self._metrics.nats_connected.set(0)

    def connected(self, url: ParseResult | None, *, subscriptions: int) -> None:
        self.is_connected = True
        self.complaint = None
        self._told.clear()
        self._metrics.nats_connected.set(1)
        if self._was_connected:
            self._metrics.nats_reconnects.inc()
        self._was_connected = True
        server = f"{url.hostname}:{url.port}" if url else ""
        logger.info("connected to NATS", extra={"server": server, "subscriptions": subscriptions})
