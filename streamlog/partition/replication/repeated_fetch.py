"""A follower that asks for the same again and again cannot use what it gets: it may be damaged."""

from typing import Final

from streamlog.model import NodeId

ASKED_MAX: Final = 5
"""So often the same may be asked for: a connection may break, a disk may be full."""
PAUSE_MS: Final = 60_000
"""Between one check and the next."""


class RepeatedFetchDetector:
    """A leader's, about one partition's log. Pure."""

    def __init__(self) -> None:
        self._asked: dict[NodeId, tuple[int, int]] = {}  # offset, and how often
        self._checked_ms: int | None = None

    def arise(self, node_id: NodeId, offset: int, now_ms: int) -> bool:
        """The follower is about to be given what is at ``offset``; whether it is to be checked."""
        known, count = self._asked.get(node_id, (offset, 0))
        count = count + 1 if known == offset else 1
        self._asked[node_id] = offset, count
        if count <= ASKED_MAX:
            return False
        if self._checked_ms is not None and now_ms - self._checked_ms < PAUSE_MS:
            return False
        self._checked_ms = now_ms
        return True
