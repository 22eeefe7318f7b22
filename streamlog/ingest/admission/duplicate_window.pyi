"""Deduplication (dedup) by ``Nats-Msg-Id``: recent ids with the offsets of their first messages. Pure.

Ids are kept in slots of an eighth of the window each, so that forgetting is dropping a whole slot:
an id is known for at least the window, and at most an eighth longer.

Compiled: ``duplicate_window.pyx`` says how, and what an id takes of memory.
"""

from collections.abc import Iterable
from typing import Final, final

SOURCES: int

SLOTS_PER_WINDOW: Final = 8

@final
class WindowSlot:
    """The ids of a part of the window. Two that have the same are equal."""

    @property
    def end_ms(self) -> int:
        """No id is added from then on."""

    def __len__(self) -> int: ...
    def ids(self) -> dict[bytes, int]:
        """Each with its offset, in the order of offsets."""

    def columns(self) -> bytes:
        """Big-endian: the offsets, of 8 bytes each, the sizes, of 4, and the ids."""

    @staticmethod
    def of_columns(end_ms: int, count: int, data: bytes | memoryview) -> tuple[WindowSlot, int]:
        """Out of the beginning of ``data``, which has ``columns`` of so many ids; and their size.

        Raises ValueError where the data is shorter, or no slot's.
        """

@final
class DuplicateWindow:
    """Ids with their offsets. Offsets must come in ascending order, as a log gives them."""

    window_ms: int
    """May change at any time; what was already forgotten stays so."""
    ids_max: int
    complete_since_ms: int
    """Every id as young as that is known: none of them was forgotten, or left unread."""

    def __init__(self, window_ms: int, *, ids_max: int) -> None: ...
    def __len__(self) -> int: ...
    def is_full(self) -> bool: ...
    @property
    def size_bytes(self) -> int:
        """Of memory."""

    @property
    def youngest(self) -> tuple[bytes, int] | None:
        """The youngest id and its offset, also once the window has forgotten it."""

    def find(self, message_id: bytes) -> int | None:
        """The offset of the first message with this id, if it is known."""

    def add(self, message_id: bytes, offset: int, now_ms: int) -> None:
        """Remember an id, which is found here from now on where it was known before. A clock that
        goes back keeps ids longer.
        """

    def expire(self, now_ms: int) -> None:
        """Forget slots whose youngest id is older than the window."""

    def forget(self, from_offset: int) -> None:
        """Take back every id at or above ``from_offset``: those messages were not stored."""

    def slots(self) -> list[WindowSlot]:
        """The youngest last. They do not change any more, and may be read in other threads."""

    def last(self) -> tuple[bytes, int] | None:
        """The youngest id that the window has, and its offset."""

    def restore(self, slots: Iterable[WindowSlot], youngest: tuple[bytes, int] | None) -> None:
        """What ``slots`` and ``youngest`` of a window gave; nothing was known before. Takes its time
        for many ids, in any thread.
        """

    def adopt(self, other: DuplicateWindow) -> None:
        """All ids of ``other``, which is empty afterwards; nothing was known before. At once."""
