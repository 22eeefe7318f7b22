"""Signed requests that have been carried out, as the controller remembers them. Pure.

Any node answers a signed request, so each of them asks the controller, which there is one of. What
it remembers ends with its office: whatever was signed before that is to be signed anew.
"""

from collections import OrderedDict
from typing import Final

NONCES_MAX: Final = 100_000
"""Remembered at once; beyond it signed requests are refused until some have had their time."""


class Spent:
    """Times are of the wall, in ms since 1970, for they are told by others, too."""

    def __init__(self) -> None:
        self._since_ms = 0
        self._until_ms: OrderedDict[str, int] = OrderedDict()
        """By nonce, when it is too old anyway; in the order they came."""

    def begin(self, now_ms: int) -> None:
        """An office begins: what others have remembered is not known."""
        self._since_ms = now_ms
        self._until_ms.clear()

    def spend(self, nonce: str, *, signed_ms: int, window_ms: int, now_ms: int) -> str:
        """Why it does not count; empty: it does, this once. ``window_ms``: either way of now."""
        while self._until_ms and next(iter(self._until_ms.values())) < now_ms:
            self._until_ms.popitem(last=False)
        if signed_ms < self._since_ms:
            return "it was signed before the present controller took office: sign it anew"
        if nonce in self._until_ms:
            return "the nonce has been used"
        if len(self._until_ms) >= NONCES_MAX:
            return "too many signed requests at once; ask again later"
        self._until_ms[nonce] = now_ms + 2 * window_ms
        return ""
