"""Until when this node may act as the leader that its image says it is."""

from collections.abc import Callable
from typing import Final

from streamlog.clock import clock_s

LeaseListener = Callable[[bool], None]

_FOR_EVER: Final = float("inf")


class Lease:
    """Lent by the controller with each heartbeat, counted from when that was sent.

    A controller fences a node only after ``session_timeout_ms`` of silence, and a new controller only so
    long after it has begun, so that no other node leads in its place while it holds the lease. For
    that the one that lends must still have been the controller then: a controller that is cut off
    from the quorum, or stood still, answers heartbeats until it notices. So it tells for how long
    its quorum has not confirmed it. The lease ends before ``session_timeout_ms`` after the last
    confirmation, with half of what a session is longer than the lease to spare.

    A node that alone is the quorum needs no other node's leave.
    """

    def __init__(
        self, length_ms: int, session_timeout_ms: int, *, clock: Callable[[], float] = clock_s
    ) -> None:
        self._length_s = length_ms / 1000
        self._unconfirmed_max_s = (session_timeout_ms - length_ms) / 2000
        self._clock = clock
        self._until = 0.0
        self._told = False  # what the listeners heard last
        self._listeners: list[LeaseListener] = []

    @property
    def held(self) -> bool:
        return self._clock() < self._until

    @property
    def left_s(self) -> float:
        """Below 0 once it has run out."""
        return self._until - self._clock()

    def add_listener(self, listener: LeaseListener) -> None:
        """Told of each change soon after it; what acknowledges asks ``held`` itself.

        Told that it is held, once more, where it had run out and came back before that was noticed.
        """
        self._listeners.append(listener)

    def extend(self, sent_at: float, unconfirmed_ms: int = 0) -> None:
        """The controller has answered a heartbeat that was sent then.

        ``unconfirmed_ms``: for how long another one may have been elected, unknown to it.
        """
        excess_s = max(0.0, unconfirmed_ms / 1000 - self._unconfirmed_max_s)
        until = sent_at - excess_s + self._length_s
        if not self.held and until > self._clock():  # who asked meanwhile was refused
            self._told = False
        self._until = until if self._until == _FOR_EVER else max(self._until, until)
        self.tell()

    def count_from(self, at: float) -> None:
        """It ends at the latest as one does that was lent then."""
        if self._until != _FOR_EVER:
            self._until = min(self._until, at + self._length_s)
            self.tell()

    def hold_for_ever(self) -> None:
        self._until = _FOR_EVER
        self.tell()

    def end(self) -> None:
        """The controller has another node of this id."""
        self._until = 0.0
        self.tell()

    def tell(self) -> None:
        """To be called now and then: nothing else notices that time has run out."""
        held = self.held
        if held != self._told:
            self._told = held
            for listener in self._listeners:
                listener(held)
