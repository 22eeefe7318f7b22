"""Counters: messages that add to the value of their subject, as JetStream has them (ADR-49). Pure.

A message with ``Nats-Incr`` and no payload is stored with the sum as its payload, ``{"val":"5"}``. So
the newest message of a subject has the counter's value, and the log is all that there is of it;
``counter_totals`` reads it there.

A message that a source brings has the value of another counter. What is added is the difference to the value that
this counter brought before. That is in the header ``Nats-Counter-Sources`` of the newest message, which each message
takes over: ``{"<origin>":{"<subject there>":"<value>"}}``. So a value that is missed, or read again after a restart,
makes no sum wrong.
"""

import json
import re
from typing import Final, NamedTuple

from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import PublishRefusal

HEADER: Final = b"Nats-Incr"
SOURCES_HEADER: Final = b"Nats-Counter-Sources"
DIGITS_MAX: Final = 4_000
"""Of one increment; JetStream has no limit but that of a header. Reading and writing a number takes the
square of its digits."""
TOTAL_DIGITS_MAX: Final = 4_200
"""No sum of increments comes to more, and Python reads no number of more than 4,300."""

DISABLED: Final = PublishRefusal(400, 10168, "message counters is disabled", "counter")
MISSING: Final = PublishRefusal(400, 10169, "message counter increment is missing", "counter")
PAYLOAD: Final = PublishRefusal(400, 10170, "message counter has payload", "counter")
INVALID: Final = PublishRefusal(400, 10171, "message counter increment is invalid", "counter")
BROKEN: Final = PublishRefusal(400, 10172, "message counter is broken", "counter")

_INTEGER: Final = re.compile(rb"[+-]?[0-9]+")
_TOTAL: Final = re.compile(rf"[+-]?[0-9]{{1,{TOTAL_DIGITS_MAX}}}")
_NOT_TOGETHER: Final = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
)


def objection(headers: Headers, *, allowed: bool, has_payload: bool) -> PublishRefusal | None:
    """To an increment; a message without one has to do with ``missing``."""
    text = headers.get(HEADER)
    if not text:
        return None
    if not _INTEGER.fullmatch(text):
        return INVALID
    if not allowed:
        return DISABLED
    if has_payload:
        return PAYLOAD
    if len(text) > DIGITS_MAX or any(headers.get(name) for name in _NOT_TOGETHER):
        return INVALID
    return None


def missing(headers: Headers, *, allowed: bool) -> PublishRefusal | None:
    """Each message of a stream of counters is an increment."""
    return MISSING if allowed and not headers.get(HEADER) else None


def increment_of(headers: Headers) -> int:
    """Of a message that was admitted."""
    return int(headers[HEADER])


def body_of(total: int) -> bytes:
    """What is stored."""
    return b'{"val":"%d"}' % total


def total_of(body: bytes) -> int | None:
    """What a stored message says the counter is; None: it is none."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    text = said.get("val") if isinstance(said, dict) else None
    return int(text) if isinstance(text, str) and _TOTAL.fullmatch(text) else None


class CounterState(NamedTuple):
    """Of a counter, as its newest message has it."""

    total: int = 0
    sources: bytes = b""
    """The value of ``SOURCES_HEADER``; empty: nothing was sourced."""


class SourcedCount(NamedTuple):
    """What a sourced message makes of a counter."""

    state: CounterState
    increment: int


def sourced(state: CounterState, origin: str, subject: str, value: int) -> SourcedCount | None:
    """``subject``: that of the origin, whose counter has come to ``value``. None: what was sourced cannot be read."""
    known = _sources_of(state.sources)
    if known is None:
        return None
    values = known.setdefault(origin, {})
    text = values.get(subject, "0")
    if not _TOTAL.fullmatch(text):
        return None
    values[subject] = str(value)
    increment = value - int(text)
    told = json.dumps(known, separators=(",", ":"), sort_keys=True).encode()
    return SourcedCount(CounterState(state.total + increment, told), increment)


def _sources_of(header: bytes) -> dict[str, dict[str, str]] | None:
    if not header:
        return {}
    try:
        said = json.loads(header)
    except (ValueError, RecursionError):
        return None
    is_whole = isinstance(said, dict) and all(
        isinstance(values, dict) and all(isinstance(it, str) for it in values.values())
        for values in said.values()
    )
    return said if is_whole else None
