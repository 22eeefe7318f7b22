"""How often logins from an address have failed lately. Pure.

An attempt counts from when it is examined until it is known not to have failed. So of many attempts
that come at once no more are examined than may fail.
"""

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

WINDOW_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
"""Of the addresses beyond it the one with the oldest window is forgotten."""
IPV6_HOST_BITS: Final = 64
"""Whoever has one address of IPv6 has so many bits of them, which count as one."""


@dataclass(slots=True)
class Window:
    """Of one address, a minute from its first attempt on."""

    began_s: float
    failed: int = 0
    examined: int = 0
    """Attempts of which it is not known yet."""


class LoginFailures:
    """``begin`` each attempt, and ``end`` those that may be examined."""

    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max
        self._windows: dict[str, Window] = {}
        """In the order in which they began."""

    def __len__(self) -> int:
        return len(self._windows)

    def wait_s(self, address: str, now_s: float) -> float:
        """For so long no login from there is looked at; 0: none has to wait."""
        window = self._window(address, now_s)
        if window is None or window.failed < self._failures_max:
            return 0.0
        return window.began_s + WINDOW_S - now_s

    def begin(self, address: str, now_s: float) -> Window | None:
        """To be examined, and to be passed to ``end``. None: not now, since ``wait_s`` is above 0,
        or since with those that are being examined too many may fail.
        """
        window = self._window(address, now_s)
        if window is None:
            self._windows.pop(place_of(address), None)
            if len(self._windows) >= ADDRESSES_MAX:
                del self._windows[next(iter(self._windows))]
            window = self._windows[place_of(address)] = Window(now_s)
        if window.failed + window.examined >= self._failures_max:
            return None
        window.examined += 1
        return window

    def end(self, window: Window, *, failed: bool) -> None:
        """Of an attempt: the one of this window."""
        window.examined -= 1
        window.failed += failed

    def _window(self, address: str, now_s: float) -> Window | None:
        window = self._windows.get(place_of(address))
        return window if window is not None and now_s - window.began_s < WINDOW_S else None


def place_of(address: str) -> str:
    """What is counted together."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return f"{int(parsed) >> IPV6_HOST_BITS:x}::"
    return address
