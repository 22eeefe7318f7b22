"""The peers that a follower may ask: which of them to avoid, for how long, and whose turn it is."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from streamlog.ledger.core.backoff import FACTOR

ASKED_MAX: Final = 5
"""So many are asked for their height at a time, in turn; with more, hundreds of followers would
keep the consenters busy with questions."""

TIMES_MAX: Final = 64
"""Any bound on a wait is reached after so many."""


class PeerBounds(NamedTuple):
    """Of a wait that grows by 1.5 each time, in ms."""

    ms_min: int
    ms_max: int

    def after(self, times: int) -> int:
        """The wait after so many before it."""
        return int(min(self.ms_min * FACTOR ** min(times, TIMES_MAX), self.ms_max))


@dataclass(slots=True)
class _Peer:
    lapses: int = 0  # times in a row that it could not be reached
    lies: int = 0  # times in a row that it broke its word
    avoided_until_ms: int = 0


class PeerTable:
    """Avoidance has an end, since a peer may be mended; it is longer each time, up to a bound."""

    def __init__(self, own: str, *, lapse: PeerBounds, lie: PeerBounds) -> None:
        self._own = own
        self._lapse = lapse
        self._lie = lie
        self._peers: dict[str, _Peer] = {}
        self._turn = crc32(own.encode())  # so that not all followers begin with the same one

    @property
    def names(self) -> Collection[str]:
        """All of them, avoided or not."""
        return self._peers.keys()

    def replace(self, names: Iterable[str]) -> None:
        """These are the peers now; what is known of those who stay is kept."""
        wanted = sorted(set(names) - {self._own})
        self._peers = {name: self._peers.get(name, _Peer()) for name in wanted}

    def lapsed(self, name: str, now_ms: int) -> int:
        """It could not be reached; returns for how many ms it is avoided."""
        peer = self._peers.get(name, _Peer())
        avoided_ms = self._lapse.after(peer.lapses)
        peer.lapses += 1
        peer.avoided_until_ms = max(peer.avoided_until_ms, now_ms + avoided_ms)
        return avoided_ms

    def lied(self, name: str, now_ms: int) -> int:
        """It broke its word; returns for how many ms it is avoided."""
        peer = self._peers.get(name, _Peer())
        avoided_ms = self._lie.after(peer.lies)
        peer.lies += 1
        peer.avoided_until_ms = max(peer.avoided_until_ms, now_ms + avoided_ms)
        return avoided_ms

    def pardon(self, name: str) -> None:
        """It may be asked again at once."""
        peer = self._peers.get(name, _Peer())
        peer.lies = peer.avoided_until_ms = 0

    def answered(self, name: str) -> None:
        """It could be reached."""
        self._peers.get(name, _Peer()).lapses = 0

    def kept_word(self, name: str) -> None:
        """It gave what it promised."""
        self._peers.get(name, _Peer()).lies = 0

    def usable(self, now_ms: int) -> list[str]:
        """Who may be asked now, beginning with another one each time; at most ``ASKED_MAX``."""
        names = [n for n, peer in self._peers.items() if peer.avoided_until_ms <= now_ms]
        if not names:
            return []
        self._turn += 1
        first = self._turn % len(names)
        return (names[first:] + names[:first])[:ASKED_MAX]

    def usable_at_ms(self) -> int | None:
        """When the first of them may be asked; None where there are none at all."""
        return min((peer.avoided_until_ms for peer in self._peers.values()), default=None)
