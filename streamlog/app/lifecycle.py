"""The life of a node as two lists: what starts in which order, what stops in which order."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from streamlog.errors import StreamlogError

logger = logging.getLogger(__name__)


class LifecycleStep(NamedTuple):
    """A part of the node, and what is to be called; awaited before the next step begins."""

    part: str
    call: Callable[[], Awaitable[None]]


class Lifecycle:
    """Knows which parts have begun to start; only those are stopped."""

    def __init__(
        self, start_order: Sequence[LifecycleStep], stop_order: Sequence[LifecycleStep]
    ) -> None:
        self.starting: str | None = "node"
        """The part that is about to start; None when all have."""
        self._start_order = start_order
        self._stop_order = stop_order
        self._begun: set[str] = set()

    async def start(self) -> None:
        """Raises what a part raises; what has begun then is for ``stop``."""
        for part, call in self._start_order:
            began = time.monotonic()
            self.starting = part
            self._begun.add(part)
            await call()
            seconds = round(time.monotonic() - began, 3)
            logger.debug("started", extra={"part": part, "seconds": seconds})
        self.starting = None

    async def stop(self, timeout_s: float) -> bool:
        """A stop that fails is logged, and the next one still called. False: not clean."""
        clean = True
        try:
            async with asyncio.timeout(timeout_s):
                for part, call in self._stop_order:
                    if part in self._begun:
                        self._begun.remove(part)
                        clean &= await _succeeds(part, call)
        except TimeoutError:
            logger.error("stop took too long", extra={"seconds": timeout_s})
            return False
        return clean


async def _succeeds(part: str, call: Callable[[], Awaitable[None]]) -> bool:
    try:
        await call()
    except TimeoutError:
        raise
    except StreamlogError as error:
        logger.error("stop failed", extra={"part": part, "error": str(error)})
        return False
    except Exception:
        logger.exception("stop failed", extra={"part": part})
        return False
    return True
