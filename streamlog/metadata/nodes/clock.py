"""The clock of leases, sessions and the quorum: it goes on while the machine is suspended.

Linux stops CLOCK_MONOTONIC then. A leader that was suspended for a minute would go on for as long
as its lease had left, although others have long led in its place.
"""

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""macOS has no CLOCK_BOOTTIME, and its CLOCK_MONOTONIC goes on."""


def clock_s() -> float:
    return time.clock_gettime(_CLOCK)


def clock_ms() -> int:
    return time.clock_gettime_ns(_CLOCK) // 1_000_000
