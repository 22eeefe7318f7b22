"""The duplicate window in plain Python, which the compiled one is held to."""

from collections import deque

from streamlog.errors import BrokenInvariant

SLOTS_PER_WINDOW = 8

Slot = tuple[int, dict[bytes, int]]
"""When it ends, and its ids with their offsets."""


class DuplicateWindow:
    """Ids with their offsets. Offsets must come in ascending order, as a log gives them."""

    def __init__(self, window_ms: int, *, ids_max: int) -> None:
        self.window_ms = window_ms
        """May change at any time; what was already forgotten stays so."""
        self.ids_max = ids_max
        self._slots: deque[Slot] = deque()
        """Oldest first. Within a slot and from slot to slot offsets ascend."""
        self._count = 0
        self.complete_since_ms = 0
        """Every id as young as that is known: none of them was forgotten, or left unread."""
        self.youngest: tuple[bytes, int] | None = None
        """The youngest id and its offset, also once the window has forgotten it."""

    def __len__(self) -> int:
        return self._count

    def is_full(self) -> bool:
        return self._count >= self.ids_max

    def find(self, message_id: bytes) -> int | None:
        """The offset of the first message with this id, if it is known."""
        for _, ids in reversed(self._slots):
            offset = ids.get(message_id)
            if offset is not None:
                return offset
        return None

    def add(self, message_id: bytes, offset: int, now_ms: int) -> None:
        """Remember an id, which is found here from now on where it was known before. A clock that
        goes back keeps ids longer.
        """
        if not self._slots or now_ms >= self._slots[-1][0]:
            self._slots.append((now_ms + max(1, self.window_ms // SLOTS_PER_WINDOW), {}))
        ids = self._slots[-1][1]
        if ids.pop(message_id, None) is None:
            self._count += 1
        ids[message_id] = offset  # at their end
        self.youngest = message_id, offset

    def expire(self, now_ms: int) -> None:
        """Forget slots whose youngest id is older than the window."""
        while self._slots and self._slots[0][0] + self.window_ms <= now_ms:
            end_ms, ids = self._slots.popleft()
            self._count -= len(ids)
            self.complete_since_ms = max(self.complete_since_ms, end_ms)

    def forget(self, from_offset: int) -> None:
        """Take back every id at or above ``from_offset``: those messages were not stored."""
        self._forget(from_offset)
        if self.youngest is not None and self.youngest[1] >= from_offset:
            self.youngest = self.last()

    def _forget(self, from_offset: int) -> None:
        while self._slots:
            ids = self._slots[-1][1]
            while ids:
                message_id, offset = ids.popitem()
                if offset < from_offset:
                    ids[message_id] = offset
                    return
                self._count -= 1
            self._slots.pop()

    def slots(self) -> list[Slot]:
        """The youngest last; only that one is copied, since ids are added to no other."""
        slots = list(self._slots)
        if slots:
            end_ms, ids = slots[-1]
            slots[-1] = end_ms, ids.copy()
        return slots

    def restore(self, slots: list[Slot], youngest: tuple[bytes, int] | None) -> None:
        """What ``slots`` and ``youngest`` have given; nothing was known before."""
        if self._slots:
            raise BrokenInvariant("message ids are restored into an empty window")
        self._slots.extend(slots)
        self._count = sum(len(ids) for _, ids in slots)
        self.youngest = youngest

    def last(self) -> tuple[bytes, int] | None:
        """The youngest id and its offset."""
        for _, ids in reversed(self._slots):
            if ids:
                message_id = next(reversed(ids))
                return message_id, ids[message_id]
        return None
