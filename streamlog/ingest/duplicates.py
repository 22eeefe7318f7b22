"""Message ids of the last while, and where their first messages are. Pure.

Ids are kept in slots of an eighth of the window each, so that forgetting is dropping a whole slot:
an id is known for at least the window, and at most an eighth longer.
"""

from collections import deque

SLOTS_PER_WINDOW = 8


class DuplicateWindow:
    """Ids with their offsets. Offsets must come in ascending order, as a log gives them."""

    def __init__(self, window_ms: int, *, ids_max: int) -> None:
        self.window_ms = window_ms
        """May change at any time; what was already forgotten stays so."""
        self._ids_max = ids_max
        self._slots: deque[tuple[int, dict[bytes, int]]] = deque()
        """(end_ms, ids), oldest first. Within a slot and from slot to slot offsets ascend."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def is_full(self) -> bool:
        return self._count >= self._ids_max

    def find(self, message_id: bytes) -> int | None:
        """The offset of the first message with this id, if it is known."""
        for _, ids in reversed(self._slots):
            offset = ids.get(message_id)
            if offset is not None:
                return offset
        return None

    def add(self, message_id: bytes, offset: int, now_ms: int) -> None:
        """Remember an id that ``find`` does not know. A clock that goes back keeps ids longer."""
        if not self._slots or now_ms >= self._slots[-1][0]:
            self._slots.append((now_ms + max(1, self.window_ms // SLOTS_PER_WINDOW), {}))
        self._slots[-1][1][message_id] = offset
        self._count += 1

    def expire(self, now_ms: int) -> None:
        """Forget slots whose youngest id is older than the window."""
        while self._slots and self._slots[0][0] + self.window_ms <= now_ms:
            self._count -= len(self._slots.popleft()[1])

    def forget(self, from_offset: int) -> None:
        """Take back every id at or above ``from_offset``: those messages were not stored."""
        while self._slots:
            ids = self._slots[-1][1]
            while ids:
                message_id, offset = ids.popitem()
                if offset < from_offset:
                    ids[message_id] = offset
                    return
                self._count -= 1
            self._slots.pop()

    def last(self) -> tuple[bytes, int] | None:
        """The youngest id and its offset."""
        for _, ids in reversed(self._slots):
            if ids:
                message_id = next(reversed(ids))
                return message_id, ids[message_id]
        return None
