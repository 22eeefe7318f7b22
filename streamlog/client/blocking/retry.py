import time
from collections.abc import Callable
from typing import Final, TypeVar

from streamlog.errors import FencedLeaderEpoch, RequestTimedOut, Unavailable

BACKOFF_MS: Final = 100

T = TypeVar("T")


def with_retries(ask: Callable[[], T], patience_ms: int, *, about: str = "") -> T:
    """What ``ask`` comes to, which is called again where that may help.

    Raises RequestTimedOut with the last reason after ``patience_ms``; it begins with ``about``.
    """
    deadline = time.monotonic() + patience_ms / 1000
    while True:
        try:
            return ask()
        except (Unavailable, FencedLeaderEpoch) as error:
            if time.monotonic() >= deadline:
                reason = f"{about}: {error}" if about else str(error)
                raise RequestTimedOut(f"{reason}, for {patience_ms} ms") from error
        time.sleep(BACKOFF_MS / 1000)
