"""What NATS complains about while we are connected: counted each time, told once."""

import logging
from typing import Final

from streamlog.ingest.complaint import Complaint, Kind
from streamlog.metrics import NodeMetrics

logger = logging.getLogger(__name__)

FORBIDDEN_MAX: Final = 100
"""So much of what is not permitted is told of; the metrics go on counting."""


class Complaints:
    """Of one of the node's connections, which has this name."""

    def __init__(self, metrics: NodeMetrics, connection: str) -> None:
        self._metrics = metrics
        self._connection = connection
        self._forbidden: set[str] = set()
        """What was told of."""

    def hear(self, complaint: Complaint) -> bool:
        """False: it is about the connection as such, and for others to tell."""
        if complaint.kind is Kind.SLOW_CONSUMER:
            self._metrics.nats_slow_consumer_cuts.labels(self._connection).inc()
            logger.warning("NATS has cut this node off", extra=self._extra(complaint))
        elif complaint.kind in (Kind.PUBLISH, Kind.SUBSCRIBE):
            self._metrics.nats_permission_violations.labels(complaint.kind.value).inc()
            self._tell_forbidden(complaint)
        else:
            return False
        return True

    def _tell_forbidden(self, complaint: Complaint) -> None:
        if complaint.text in self._forbidden or len(self._forbidden) >= FORBIDDEN_MAX:
            return
        self._forbidden.add(complaint.text)
        logger.error("NATS does not permit what streamlog needs", extra=self._extra(complaint))

    def _extra(self, complaint: Complaint) -> dict[str, str]:
        return {
            "connection": self._connection,
            "error": complaint.text,
            "remedy": complaint.remedy,
        }
