"""A lease that is held until a test says otherwise."""

from streamlog.metadata.nodes.lease import Lease


class FakeLease(Lease):
    """Held from the start, by a clock that stands still."""

    def __init__(self) -> None:
        super().__init__(1_000, 1_000, clock=lambda: 0.0)
        self.extend(0.0)

    def turn(self, held: bool) -> None:
        """The controller answers a heartbeat, or has another node of this id."""
        if held:
            self.extend(0.0)
        else:
            self.end()

    def lapse(self) -> None:
        """Its time is over, and no listener has been called yet."""
        self._until = 0.0
