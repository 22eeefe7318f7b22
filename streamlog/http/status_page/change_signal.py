import asyncio


class ChangeSignal:
    """Wakes all who wait, each time; nobody waits for them.

    ``next`` is the event of the next time: whoever takes it before a look misses nothing.
    """

    def __init__(self) -> None:
        self.next = asyncio.Event()
        self.closed = False

    def ring(self) -> None:
        rung, self.next = self.next, asyncio.Event()
        rung.set()

    def close(self) -> None:
        """For good: whoever waits goes home."""
        self.closed = True
        self.ring()
