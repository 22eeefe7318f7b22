"""The pending records of one partition, compiled: a table by ascending offset, for what comes once a message.

What is pending, until when, and what follows from it, :class:`~streamlog.delivery.delivery.Delivery` decides.
A record has a *ticket*, by which its entry among the deadlines is known; records that were delivered together
share one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

SOURCES: int

DUE: Final = 0
"""The ticket of a record that waits for no deadline."""

class PendingRecord(NamedTuple):
    offset: int
    sequence: int
    count: int  # type: ignore[assignment]  # not the method of tuples
    deadline_ms: int
    ticket: int

class Removed(NamedTuple):
    """What was removed."""

    count: int  # type: ignore[assignment]  # not the method of tuples
    redelivered: int
    """How many of them were delivered more than once."""
    due: list[int]
    """The sequences of those whose ticket was DUE."""

class PendingRecords:
    """Not thread-safe. Searches take O(log n); what is removed makes room when it is half of the table."""

    def __len__(self) -> int: ...
    def append_run(
        self, offsets: Sequence[int], sequence: int, deadline_ms: int, ticket: int
    ) -> None:
        """Records that were delivered once, with rising sequences from ``sequence`` on. Raises ValueError unless
        their offsets rise, above all that the table has had since it was empty.
        """

    def append(self, record: PendingRecord) -> None:
        """One record, as ``append_run``."""

    def find(self, offset: int) -> PendingRecord | None: ...
    def first(self) -> PendingRecord | None: ...
    def last_before(self, offset: int) -> PendingRecord | None:
        """The last one below ``offset``."""

    def update(self, offset: int, *, count: int, deadline_ms: int, ticket: int) -> None:
        """Raises KeyError for a record that is not here."""

    def remove(self, low: int, high: int) -> Removed:
        """All from offset ``low`` up to ``high``."""

    def with_ticket(
        self, ticket: int, low: int, high: int, *, limit: int = -1
    ) -> list[PendingRecord]:
        """Those from offset ``low`` up to ``high`` that have this ticket, the first ``limit`` of them."""

    def columns(self, now_ms: int, step_ms: int) -> bytes:
        """The four columns of ``DeliveryState.encode``."""
