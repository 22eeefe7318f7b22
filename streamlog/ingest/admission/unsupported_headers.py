"""Headers of JetStream that ask for what is not done here, each refused as a JetStream stream does
that has it switched off. Pure; each check returns why the message is refused, or None.

To drop such a header in silence would promise what is not kept.
"""

import re

from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import PublishRefusal

_INTEGER = re.compile(rb"[+-]?[0-9]+(_[0-9]+)*")


def _unsupported(code: int, err_code: int, description: str) -> PublishRefusal:
    return PublishRefusal(code, err_code, description, "unsupported")


_COUNTERS = _unsupported(400, 10168, "message counters is disabled")
_INCREMENT = _unsupported(400, 10171, "message counter increment is invalid")
_SCHEDULES = _unsupported(400, 10188, "message schedules is disabled")
_SCHEDULER = _unsupported(400, 10212, "message schedules invalid scheduler")
_SOURCES = _unsupported(400, 10227, "message stream source header is not allowed")
_NOT_IN_BATCHES = _unsupported(
    400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"
)


def counters(headers: Headers) -> PublishRefusal | None:
    increment = headers.get(b"Nats-Incr")
    if not increment:
        return None
    return _COUNTERS if _INTEGER.fullmatch(increment) else _INCREMENT


def schedules(headers: Headers) -> PublishRefusal | None:
    """Asked for by ``Nats-Schedule`` or by the end of one; the others go with them."""
    if headers.get(b"Nats-Schedule"):
        return _SCHEDULES
    following = headers.get(b"Nats-Schedule-Next")
    if following:
        is_purge = following == b"purge" and headers.get(b"Nats-Scheduler")
        return _SCHEDULES if is_purge else _SCHEDULER
    return _SCHEDULER if headers.get(b"Nats-Scheduler") else None


def sources(headers: Headers) -> PublishRefusal | None:
    return _SOURCES if headers.get(b"Nats-Stream-Source") else None


def not_in_batches(headers: Headers) -> PublishRefusal | None:
    """What JetStream does not take in a batch."""
    return _NOT_IN_BATCHES if headers.get(b"Nats-Expected-Last-Msg-Id") else None
