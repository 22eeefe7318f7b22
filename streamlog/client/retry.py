"""Which failures are tried again, and until when. Pure; a shell has the clock and sleeps."""

from typing import Final

from streamlog.errors import FencedLeaderEpoch, RequestTimedOut, StreamlogError, Unavailable

BACKOFF_MS: Final = 100


class Retries:
    """A leader or a coordinator that moves or restarts is back in a moment.

    ``patience_ms``: for how long, from ``now_s`` on. ``about``: the errors begin with it.
    """

    def __init__(self, patience_ms: int, now_s: float, *, about: str = "") -> None:
        self._patience_ms = patience_ms
        self._deadline_s = now_s + patience_ms / 1000
        self._about = about

    def delay_s(self, error: StreamlogError, now_s: float) -> float:
        """Until the next try. Raises ``error`` where another try does not help, and
        RequestTimedOut with it as the reason when the patience has ended.
        """
        if not isinstance(error, Unavailable | FencedLeaderEpoch):
            raise error
        if now_s >= self._deadline_s:
            reason = f"{self._about}: {error}" if self._about else str(error)
            raise RequestTimedOut(f"{reason}, for {self._patience_ms} ms") from error
        return BACKOFF_MS / 1000
