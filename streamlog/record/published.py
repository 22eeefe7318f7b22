"""What the headers of a message that came over NATS ask for. Pure.

Only those of batches that are marked so (``batch.PUBLISHED``) ask for anything: in a record that a
Kafka producer wrote, a copy of a stream for one, the same headers are data.

A header asks by its exact name; of a repeated one the first counts. Blanks before the value do not
belong to it. A header with a line end in it, which only an envelope can bring, asks for nothing.
``ingest.admission.publish_headers`` reads the same out of NATS's own form of them: what a message asks for
while it is published is what it asks for when it is read back from the log.
"""

import re
from collections.abc import Iterable
from typing import Final

ASKING: Final = "Nats-"
ACK: Final = "Streamlog-Ack"
_BLANKS: Final = b" \t"

TTL_HEADER: Final = "Nats-TTL"
FOR_EVER: Final = -1
NO_LIFETIME: Final = 0
"""It stays as others do."""

_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_NS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9,
    "h": 3_600 * 10**9,
}  # fmt: skip
_NS_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 100
SECONDS_MAX: Final = 10**11
"""Longer than three thousand years is not longer."""
SECOND_NS: Final = 10**9


def asked(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """Of one record, by name."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if (name.startswith(ASKING) or name == ACK) and name not in found:
            text = value or b""
            if b"\r" not in text and b"\n" not in text:
                found[name] = text.lstrip(_BLANKS)
    return found


def lifetime_s(text: bytes) -> int | None:
    """How long a message stays by its ``Nats-TTL``, as JetStream reads it (ADR-43).

    In whole seconds, rounded down; FOR_EVER; NO_LIFETIME for "" and "00"; None: it is wrong.
    """
    if not text:
        return NO_LIFETIME
    if text.lower() == b"never":
        return FOR_EVER
    duration_ns = go_duration_ns(text.decode(errors="replace"))
    if duration_ns is not None:
        return duration_ns // SECOND_NS if duration_ns >= SECOND_NS else None
    return min(int(text), SECONDS_MAX) if text.isdigit() and len(text) <= _DIGITS_MAX else None


def go_duration_ns(text: str) -> int | None:
    """Nanoseconds of what Go writes as ``1h30m`` or ``1.5s``; None: it is none, or too long."""
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        found = _PART.match(rest, at)
        if found is None or not (found[1] or found[2]):
            return None
        unit = _NS[found[3]]
        fraction = found[2] or ""
        total += int(found[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        if total > _NS_MAX or len(rest) > 100:
            return None
        at = found.end()
    if not rest:
        return None
    return -total if sign == "-" else total
