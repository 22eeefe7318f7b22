"""How many logins of one address are examined, over all listeners at which users log in.

A login counts from when it is examined until it is known not to have failed.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from streamlog.errors import AuthenticationFailed
from streamlog.rate_limit import WindowLimit

WINDOW_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
"""For an address beyond it the oldest window of another one is forgotten."""
IPV6_HOST_BITS: Final = 64
"""A host with one address of IPv6 may use all addresses with so many bits of its own; they count as
one.
"""
TOO_MANY: Final = "too many logins from this address have failed lately"


@dataclass(slots=True)
class LoginAttempt:
    """One that is being examined."""

    failed: bool = False


class LoginRateLimit:
    """After so many failures of a minute none is examined. As long as others that are being
    examined may yet be such failures, an attempt waits for them: many right passwords at once are
    all let in.
    """

    def __init__(self, failures_max: int) -> None:
        self._failures = WindowLimit[str](failures_max, window_s=WINDOW_S, keys_max=ADDRESSES_MAX)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By address; who has waited longest first. There is an attempt that is being examined
        wherever a login waits, and a login that is done wakes the next one.
        """

    @asynccontextmanager
    async def examine(self, host: str) -> AsyncIterator[LoginAttempt]:
        """Whatever is raised within makes it ``failed``, too. Raises AuthenticationFailed."""
        place = place_of(host)
        try:
            while (window := self._failures.begin(place, time.monotonic())) is None:
                wait_s = self._failures.wait_s(place, time.monotonic())
                if wait_s > 0:
                    raise AuthenticationFailed(f"{TOO_MANY}: wait for {max(1, round(wait_s))} s")
                await self._turn(host)
            attempt = LoginAttempt()
            try:
                yield attempt
            except BaseException:
                attempt.failed = True
                raise
            finally:
                self._failures.end(window, failed=attempt.failed)
        finally:
            self._wake_next(host)

    @asynccontextmanager
    async def examine_slowly(self, host: str, delay_ms: int) -> AsyncIterator[LoginAttempt]:
        """As ``examine``; that it failed is told later by ``delay_ms``."""
        try:
            async with self.examine(host) as attempt:
                yield attempt
        except AuthenticationFailed:
            await asyncio.sleep(delay_ms / 1000)
            raise

    async def _turn(self, host: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        place = place_of(host)
        waiting = self._waiting.setdefault(place, deque())
        waiting.append(turn)
        try:
            await turn
        finally:
            with suppress(ValueError):  # it was not woken
                waiting.remove(turn)
            if not waiting and self._waiting.get(place) is waiting:
                del self._waiting[place]

    def _wake_next(self, host: str) -> None:
        waiting = self._waiting.get(place_of(host))
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break


def place_of(address: str) -> str:
    """What is counted together."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return f"{int(parsed) >> IPV6_HOST_BITS:x}::"
    return address
