"""What NATS complains about while we are connected: counted each time, told once."""

import logging
from typing import Final

from streamlog.condition import CRITICAL, Condition
from streamlog.ingest.nats.errors import NatsError, NatsErrorKind
from streamlog.metrics import NodeMetrics

logger = logging.getLogger(__name__)

NATS_PERMISSION_MISSING: Final = Condition(
    "SL-0404",
    "NATS does not permit what streamlog needs",
    "grant it: docs/nats.md has all permissions",
    meaning="The account of streamlog may not publish or subscribe to a subject that a stream "
    "needs.",
    severity=CRITICAL,
)
NATS_CUT_OFF: Final = Condition(
    "SL-0405",
    "NATS has cut this node off",
    "give this node more processor time, or raise max_pending",
    meaning="nats-server closed the connection because this node did not read fast enough. What "
    "was on its way is lost.",
)

FORBIDDEN_MAX: Final = 100
"""So much of what is not permitted is told of; the metrics go on counting."""


class NatsErrorCounts:
    """Of one of the node's connections, which has this name."""

    def __init__(self, metrics: NodeMetrics, connection: str) -> None:
        self._metrics = metrics
        self._connection = connection
        self._forbidden: set[str] = set()
        """What was told of."""

    def hear(self, complaint: NatsError) -> bool:
        """False: it is about the connection as such, and for others to tell."""
        if complaint.kind is NatsErrorKind.SLOW_CONSUMER:
            self._metrics.nats_slow_consumer_disconnects.labels(self._connection).inc()
            logger.warning(NATS_CUT_OFF, extra=self._extra(complaint))
        elif complaint.kind in (NatsErrorKind.PUBLISH, NatsErrorKind.SUBSCRIBE):
            self._metrics.nats_permission_violations.labels(complaint.kind.value).inc()
            self._tell_forbidden(complaint)
        else:
            return False
        return True

    def _tell_forbidden(self, complaint: NatsError) -> None:
        if complaint.text in self._forbidden or len(self._forbidden) >= FORBIDDEN_MAX:
            return
        self._forbidden.add(complaint.text)
        logger.error(NATS_PERMISSION_MISSING, extra=self._extra(complaint))

    def _extra(self, complaint: NatsError) -> dict[str, str]:
        return {
            "connection": self._connection,
            "error": complaint.text,
            "remedy": complaint.remedy,
        }
