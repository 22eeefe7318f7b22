"""How long to wait before asking again: longer while nothing comes, shorter when something does."""

from typing import Final

from streamlog.errors import ConfigError

FACTOR: Final = 1.5
"""As Hyperledger Fabric's follower chains have it."""


class Backoff:
    """A wait between two bounds. It shrinks as it grows, step by step, and so settles near the time
    that really passes from one success to the next, instead of starting from the least each time.
    """

    def __init__(self, ms_min: int, ms_max: int) -> None:
        if not 0 < ms_min <= ms_max:
            problem = f"{ms_min} ms to {ms_max} ms is no range"
            raise ConfigError("poll", problem, "the least is above 0, the longest not below it")
        self._min = ms_min
        self._max = ms_max
        self._ms = float(ms_min)

    @property
    def ms(self) -> int:
        """The wait as it is now."""
        return int(self._ms)

    def grow(self) -> None:
        """Nothing came."""
        self._ms = min(self._ms * FACTOR, self._max)

    def shrink(self) -> None:
        """Something came."""
        self._ms = max(self._ms / FACTOR, self._min)
