"""Room for what waits for a commit, as much as a test says."""

import asyncio


class Room:
    """Of what waits for a commit: some, or none."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.free.set()

    @property
    def has_room(self) -> bool:
        return self.free.is_set()

    async def wait(self) -> None:
        await self.free.wait()
