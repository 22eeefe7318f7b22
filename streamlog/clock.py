"""The clocks of a node. A pure core is told the time; shells ask here.

``wall_ms`` is the time of day: of records, of files and for people. It may be set back.

``clock_s`` and ``clock_ms`` are for leases, sessions and the quorum: they go on while the machine is
suspended. Linux stops CLOCK_MONOTONIC then. A leader that was suspended for a minute would go on
for as long as its lease had left, although others have long led in its place. What only waits, or
measures how long something took, uses ``time.monotonic``.
"""

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""macOS has no CLOCK_BOOTTIME, and its CLOCK_MONOTONIC goes on."""


def wall_ms() -> int:
    """Since 1970, in UTC."""
    return time.time_ns() // 1_000_000


def clock_s() -> float:
    return time.clock_gettime(_CLOCK)


def clock_ms() -> int:
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def monotonic_ms() -> int:
    """Stops while the machine is suspended. The lag of replicas is counted by it: a leader that
    wakes must not take all of its followers for late before they could fetch.
    """
    return time.monotonic_ns() // 1_000_000
