import re
from typing import Final

from streamlog.errors import ConfigError

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def parse_duration_ms(option: str, text: str) -> int:
    """As Spark writes times, ``15m`` or ``500ms``; without a unit, milliseconds."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    unit = "ms" if found is None or not found[2] else found[2]
    if found is None or unit not in _UNITS_MS:
        raise ConfigError(option, f"{text!r} is no time", "set one such as 15m, 30s or 500ms")
    return int(found[1]) * _UNITS_MS[unit]
