"""Durations as Go writes and reads them, which is how nats-server shows them to people: ``1m0s``, ``1.5h``. Pure."""

import re
from typing import Final

MS: Final = 1_000_000
"""In nanoseconds."""
TEXT_LENGTH_MAX: Final = 100
_UNITS_NS: Final = {
    "ns": 1, "us": 1_000, "\u00b5s": 1_000, "\u03bcs": 1_000, "ms": MS,
    "s": 1_000 * MS, "m": 60_000 * MS, "h": 3_600_000 * MS,
}  # fmt: skip
"""Unicode has two letters for a millionth."""
_PART: Final = r"(\d+(?:\.\d*)?|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)"
_WHOLE: Final = re.compile(rf"([+-]?)((?:{_PART})+)", re.ASCII)
_PARTS: Final = re.compile(_PART, re.ASCII)
_LARGEST_NS: Final = 2**63 - 1


def ms_of(duration_ns: int) -> int:
    """A part of a millisecond counts as one, so that no duration becomes none."""
    return -(-duration_ns // MS)


def go_text(duration_ms: int) -> str:
    """Go's text of a duration that is not negative."""
    if duration_ms < 1_000:
        return f"{duration_ms}ms" if duration_ms else "0s"
    minutes, rest_ms = divmod(duration_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds, ms = divmod(rest_ms, 1_000)
    text = f"{seconds}.{ms:03}".rstrip("0") + "s" if ms else f"{seconds}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def read_go_text(text: str) -> int | None:
    """In nanoseconds; None where Go refuses it."""
    if text.lstrip("+-") == "0" and len(text) <= 2:
        return 0
    found = _WHOLE.fullmatch(text) if len(text) <= TEXT_LENGTH_MAX else None
    if found is None:
        return None
    duration_ns = 0
    for number, unit in _PARTS.findall(found[2]):
        whole, _, digits = number.partition(".")
        unit_ns = _UNITS_NS[unit]
        duration_ns += int(whole or "0") * unit_ns
        duration_ns += int(digits or "0") * unit_ns // 10 ** len(digits)
    if duration_ns > _LARGEST_NS:
        return None
    return -duration_ns if found[1] == "-" else duration_ns
