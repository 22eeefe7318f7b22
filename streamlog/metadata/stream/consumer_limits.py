"""What a stream's JetStream consumers are limited to, each of them. Pure.

Written ``inactive_threshold=10s,max_ack_pending=100``; either may be left out. A consumer that asks for nothing
gets the limit, and one that asks for more is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Self

from streamlog.config.units import duration_ms, duration_text

INT64_MAX: Final = 2**63 - 1
_MS_MAX: Final = INT64_MAX // 1_000_000


class ConsumerLimits(NamedTuple):
    """For each consumer."""

    inactive_threshold_ms: int = 0
    """0: no limit."""
    max_ack_pending: int = 0
    """0: no limit; -1: no limit, and consumers that ask for nothing have none."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        found: dict[str, int] = {}
        for part in filter(None, text.replace(" ", "").split(",")):
            name, _, value = part.partition("=")
            if name not in _READERS or name in found:
                raise ValueError(f"{part[:60]!r}: inactive_threshold=10s,max_ack_pending=100")
            found[name] = _READERS[name](value)
        limits = cls(found.get("inactive_threshold", 0), found.get("max_ack_pending", 0))
        if limits.inactive_threshold_ms > _MS_MAX or not -1 <= limits.max_ack_pending <= INT64_MAX:
            raise ValueError(f"{text[:60]!r}: out of range")
        return limits

    def __str__(self) -> str:
        """What ``parse`` reads; empty: there are none."""
        parts = []
        if self.inactive_threshold_ms:
            parts.append(f"inactive_threshold={duration_text(self.inactive_threshold_ms)}")
        if self.max_ack_pending:
            parts.append(f"max_ack_pending={self.max_ack_pending}")
        return ",".join(parts)


_READERS: Final[Mapping[str, Callable[[str], int]]] = {
    "inactive_threshold": duration_ms,
    "max_ack_pending": int,
}


def canonical(value: Any) -> Any:
    """Equal limits are equal texts; what is no text is refused as it came. Raises ValueError."""
    return str(ConsumerLimits.parse(value)) if isinstance(value, str) else value
