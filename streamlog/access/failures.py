"""How often logins from an address have failed lately. Pure."""

from typing import Final

WINDOW_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
"""Of the addresses beyond it the one with the oldest window is forgotten."""


class Failures:
    """In windows of a minute, each from an address's first failure on."""

    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max
        self._windows: dict[str, tuple[float, int]] = {}
        """When it began and how many there were: in the order in which they began."""

    def __len__(self) -> int:
        return len(self._windows)

    def wait_s(self, address: str, now_s: float) -> float:
        """So long no login from there is looked at; 0: none has to wait."""
        began_s, count = self._windows.get(address, (now_s, 0))
        return max(0.0, began_s + WINDOW_S - now_s) if count >= self._failures_max else 0.0

    def add(self, address: str, now_s: float) -> None:
        began_s, count = self._windows.get(address, (now_s, 0))
        if count and now_s - began_s < WINDOW_S:
            self._windows[address] = began_s, count + 1
            return
        self._windows.pop(address, None)
        if len(self._windows) >= ADDRESSES_MAX:
            del self._windows[next(iter(self._windows))]
        self._windows[address] = now_s, 1
