"""Numbers that count once: each signer's nonces, for as long as they could be repeated. Pure."""

from collections import Counter, OrderedDict
from typing import Final

NONCES_MAX: Final = 100_000
"""Of all signers together, while each keeps to its share."""
SHARE_MIN: Final = 100
"""However many signers there are."""
SENDERS_MAX: Final = 1_000
"""Processes of nodes that count their requests; a node has another one after each start."""
REORDERED_MAX: Final = 1 << 16
"""By so many a request may be overtaken by others of its sender. More than wait at a node."""
NUMBER_DIGITS_MAX: Final = 18
_WINDOW_MASK: Final = (1 << REORDERED_MAX) - 1


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


class CountedRequests:
    """Requests of senders that number them: each number counts once, at any rate.

    As the sliding window of IPsec (RFC 4303): of each sender the highest number is remembered, and
    which of those shortly below have come. What is older than the window is refused. A client that is
    asked knows by the signature that the sender is a node.
    """

    def __init__(self) -> None:
        self._senders: OrderedDict[str, _Window] = OrderedDict()
        """The one that was heard of last comes last."""

    def __len__(self) -> int:
        return len(self._senders)

    def spend(self, sender: str, number: str, *, until_ms: int, now_ms: int) -> str:
        """Why it does not count; empty: it does, this once."""
        if not (sender and number.isascii() and number.isdigit()) or (
            len(number) > NUMBER_DIGITS_MAX
        ):
            return "the nonce of a node's request is a sender, a dot and a number"
        self._forget(now_ms)
        window = self._senders.get(sender)
        if window is None:
            if len(self._senders) >= SENDERS_MAX:
                return "too many nodes were started in too short a time; ask again later"
            window = self._senders[sender] = _Window()
        refusal = window.spend(int(number))
        if not refusal:
            window.until_ms = max(window.until_ms, until_ms)
            self._senders.move_to_end(sender)
        return refusal

    def _forget(self, now_ms: int) -> None:
        """Senders of whom all requests are too old anyway."""
        while self._senders and next(iter(self._senders.values())).until_ms < now_ms:
            self._senders.popitem(last=False)


class _Window:
    __slots__ = ("_highest", "_seen", "until_ms")

    def __init__(self) -> None:
        self.until_ms = 0
        self._highest = -1
        self._seen = 0
        """Bit ``n``: the number ``n`` below the highest one has come."""

    def spend(self, number: int) -> str:
        ahead = number - self._highest
        if ahead > 0:
            kept = self._seen << ahead if ahead < REORDERED_MAX else 0
            self._seen = (kept | 1) & _WINDOW_MASK
            self._highest = number
            return ""
        if -ahead >= REORDERED_MAX:
            return "too many requests of the same node were quicker; ask again"
        if self._seen >> -ahead & 1:
            return "the nonce has been used"
        self._seen |= 1 << -ahead
        return ""
