"""Offsets of a group that producers have committed in transactions which are yet to end (KIP-447). Pure.

Each counts from when its transaction is committed, unless what was committed of the same partition stands later in
the log. So ``order`` is as that of the log.
"""

from collections.abc import Iterator
from typing import NamedTuple

from streamlog.groups.records import CommittedOffset
from streamlog.groups.requests import PartitionId


class PendingOffset(NamedTuple):
    """One that does not count yet."""

    value: CommittedOffset
    order: int


class TransactionalOffsets:
    """Those of one group, by producer and partition."""

    def __init__(self) -> None:
        self._pending: dict[int, dict[PartitionId, PendingOffset]] = {}

    def add(self, producer_id: int, place: PartitionId, pending: PendingOffset) -> bool:
        """Whether the producer had none of that partition."""
        known = self._pending.setdefault(producer_id, {})
        is_new = place not in known
        known[place] = pending
        return is_new

    def supersede(self, place: PartitionId, order: int) -> int:
        """Something later counts there: how many of it can count no more."""
        found = [
            producer_id
            for producer_id, known in self._pending.items()
            if place in known and known[place].order < order
        ]
        for producer_id in found:
            del self._pending[producer_id][place]
            if not self._pending[producer_id]:
                del self._pending[producer_id]
        return len(found)

    def take(self, producer_id: int) -> dict[PartitionId, PendingOffset]:
        """What the producer's transaction has, which ends."""
        return self._pending.pop(producer_id, {})

    @property
    def producers(self) -> Iterator[int]:
        return iter(self._pending)

    @property
    def newest(self) -> int:
        """The highest order."""
        return max(
            (it.order for known in self._pending.values() for it in known.values()), default=0
        )

    @property
    def places(self) -> set[PartitionId]:
        return {place for known in self._pending.values() for place in known}

    def __contains__(self, place: PartitionId) -> bool:
        return any(place in known for known in self._pending.values())

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))
