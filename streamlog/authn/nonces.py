"""Numbers that count once: each signer's nonces, for as long as they could be repeated. Pure."""

from collections import Counter, OrderedDict
from typing import Final

NONCES_MAX: Final = 100_000
"""Of all signers together, while each keeps to its share."""
SHARE_MIN: Final = 100
"""However many signers there are."""


class Nonces:
    """``spend`` each of them. Times are of the wall, in ms since 1970.

    A signer may have ``NONCES_MAX`` divided by the number of those who have any now, itself among
    them. So no signer takes the places of another one. What is remembered is never forgotten
    before its time; with ``n`` signers it is ``NONCES_MAX`` times ``1 + ln(n)`` at most.
    """

    def __init__(self) -> None:
        self._until_ms: OrderedDict[tuple[str, str], int] = OrderedDict()
        """By signer and nonce, when it is too old anyway; in the order they came."""
        self._counts: Counter[str] = Counter()
        """Of each signer who has any."""

    def __len__(self) -> int:
        return len(self._until_ms)

    def clear(self) -> None:
        self._until_ms.clear()
        self._counts.clear()

    def has(self, signer: str, nonce: str) -> bool:
        return (signer, nonce) in self._until_ms

    def spend(self, signer: str, nonce: str, *, until_ms: int, now_ms: int) -> str:
        """Why it does not count; empty: it does, this once."""
        self._forget(now_ms)
        if self.has(signer, nonce):
            return "the nonce has been used"
        count = self._counts.get(signer, 0)
        signers = len(self._counts) + (not count)
        if count >= max(SHARE_MIN, NONCES_MAX // signers):
            return "too many signed requests at once; ask again later"
        self._until_ms[signer, nonce] = until_ms
        self._counts[signer] = count + 1
        return ""

    def _forget(self, now_ms: int) -> None:
        """Those whose time has come."""
        while self._until_ms and next(iter(self._until_ms.values())) < now_ms:
            (signer, _), _ = self._until_ms.popitem(last=False)
            self._counts[signer] -= 1
            if not self._counts[signer]:
                del self._counts[signer]
