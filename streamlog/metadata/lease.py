"""Until when this node may act as the leader that its image says it is."""

import time
from collections.abc import Callable
from typing import Final

LeaseListener = Callable[[bool], None]

_FOR_EVER: Final = float("inf")


class Lease:
    """Lent by the controller with each heartbeat, counted from when that was sent.

    The controller fences a node only after a longer silence, so that nobody leads in its place
    while it holds the lease. A node that alone is the quorum needs nobody's leave.
    """

    def __init__(self, length_ms: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._length_s = length_ms / 1000
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
        """Told of each change soon after it; whoever acknowledges asks ``held`` itself.

        Told that it is held, once more, where it had run out and came back before that was noticed.
        """
        self._listeners.append(listener)

    def extend(self, sent_at: float) -> None:
        """The controller has answered a heartbeat that was sent then."""
        if not self.held:  # nobody may have been told, but who asked meanwhile was refused
            self._told = False
        until = sent_at + self._length_s
        self._until = until if self._until == _FOR_EVER else max(self._until, until)
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
