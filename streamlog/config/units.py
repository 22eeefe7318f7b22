"""Durations and sizes as people write them: ``7d``, ``500ms``, ``10GiB``. Pure.

A duration is in milliseconds, a size in bytes. A number without a unit is one of these.
"""

import re
from collections.abc import Mapping
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
TIB: Final = 1024 * GIB
DAY_MS: Final = 86_400_000

HUGE: Final = 2**62
"""No duration and no size that is meant."""

_DURATIONS: Final = {"d": DAY_MS, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_SIZES: Final = {"TiB": TIB, "GiB": GIB, "MiB": MIB, "KiB": KIB, "": 1}
_DURATION: Final = re.compile(r"(\d{1,19})(ms|s|m|h|d|)", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,19})(?:([kmgt])(?:i?b)?|b)?", re.ASCII | re.IGNORECASE)


def duration_ms(text: str) -> int:
    """Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration; write 7d, 12h, 30m, 10s or 500ms")
    return int(found[1]) * _DURATIONS[found[2] or "ms"]


def size_bytes(text: str) -> int:
    """``64k``, ``64KB`` and ``64KiB`` are the same 65,536, as nats and docker read them.

    Raises ValueError.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size; write 10GiB, 512MiB, 64k or bytes")
    return int(found[1]) * _SIZES[f"{found[2].upper()}iB" if found[2] else ""]


def duration_text(value_ms: int) -> str:
    """In the largest unit of which it is a whole number."""
    return _text(value_ms, _DURATIONS)


def size_text(value_bytes: int) -> str:
    """In the largest unit of which it is a whole number; bytes have none."""
    return _text(value_bytes, _SIZES)


def unit_of(name: str) -> str:
    """Of a setting, which its name says: ``ms``, ``bytes`` or none."""
    words = name.split("_")
    return "ms" if "ms" in words else "bytes" if "bytes" in words else ""


def number_text(name: str, value: float) -> str:
    """The value of a setting of that name; a number without a unit is grouped by thousands."""
    unit, is_whole = unit_of(name), value == int(value) and value >= 0
    if unit and is_whole and value < HUGE:
        text = duration_text(int(value)) if unit == "ms" else size_text(int(value))
        return f"{int(text):_}" if text.isdecimal() else text
    return f"{int(value):_}" if value == int(value) else str(value)


def _text(value: int, units: Mapping[str, int]) -> str:
    if value == 0:
        return "0"
    return next(f"{value // unit}{name}" for name, unit in units.items() if value % unit == 0)
