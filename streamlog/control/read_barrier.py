"""How a node comes to know what has been decided by now, once for all who ask together."""

import asyncio

from streamlog.metadata.read_barrier import AskedController, catch_up


class ReadBarrier:
    """``catch_up``, and the image has all that the controller had decided before it was called."""

    def __init__(self, metadata: AskedController) -> None:
        self._metadata = metadata
        self._next: list[asyncio.Future[bool]] | None = None
        """Callers that wait for the round that has yet to begin; None: no caller is about to begin one.
        A question that is on its way may be older than the caller that comes now."""
        self._round = asyncio.Lock()

    async def catch_up(self) -> bool:
        """A client that learned of a decision from another node finds it here.

        False without a controller: nothing is decided, and what there is will do, but for saying that
        something is not there. The controller's own node waits for nothing, unless it has yet to apply what
        is committed.
        """
        if self._metadata.is_current:
            return True
        if self._next is not None:
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._next.append(done)
            return await done
        joined, is_newest = list[asyncio.Future[bool]](), False
        self._next = joined
        try:
            async with self._round:
                await asyncio.sleep(0)  # those that came together with this one join it
                self._next = None
                is_newest = await catch_up(self._metadata)
                return is_newest
        finally:
            if self._next is joined:
                self._next = None
            for done in joined:
                if not done.done():
                    done.set_result(is_newest)
