"""How far this node's clock is from the controller's, told by the answers to heartbeats. Pure."""

from collections import deque
from typing import Final

KEPT: Final = 16
"""Answers; the quickest of them tells best, as in NTP (RFC 5905, 10)."""


class ClockSkew:
    """``seconds`` is off by half of the quickest round trip at most."""

    def __init__(self) -> None:
        self._heard: deque[tuple[int, int]] = deque(maxlen=KEPT)
        """How long the answer took, and how far our clock was ahead; milliseconds."""

    def heard(self, *, sent_ms: int, told_ms: int, now_ms: int) -> None:
        """Asked at ``sent_ms`` and answered at ``now_ms`` of our clock; theirs was ``told_ms``."""
        took_ms = now_ms - sent_ms
        if took_ms >= 0:  # else our clock was set meanwhile
            self._heard.append((took_ms, (sent_ms + now_ms) // 2 - told_ms))

    def forget(self) -> None:
        """Somebody else answers."""
        self._heard.clear()

    @property
    def seconds(self) -> float | None:
        """Ahead of the other clock; None before anything was heard."""
        return min(self._heard)[1] / 1000 if self._heard else None
