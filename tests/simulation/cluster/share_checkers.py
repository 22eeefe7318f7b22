"""What share groups promise, whatever happens, as their members see it.

``ShareLog`` hears of each delivery when a member has it, and of each acknowledgement before it is sent and when it is
confirmed. Delivery counts grow: none is told twice of one record.
"""

from collections.abc import Iterable
from typing import NamedTuple

from streamlog.model import TopicPartition
from tests.simulation.checkers import Violation


class Delivered(NamedTuple):
    """To a member."""

    member: str
    count: int  # type: ignore[assignment]  # not the method of tuples


class _Shared:
    """One record."""

    def __init__(self) -> None:
        self.deliveries: list[Delivered] = []
        """As members have heard of them."""
        self.done: Delivered | None = None
        """The delivery of which an acceptance or a rejection is confirmed."""
        self.doubtful: set[Delivered] = set()
        """Deliveries of which an acceptance or a rejection was sent."""


class ShareLog:
    """One partition, as a share group reads it."""

    def __init__(self, tp: TopicPartition, count_max: int) -> None:
        self.tp = tp
        self._count_max = count_max
        self._records: dict[int, _Shared] = {}

    def delivered(self, offset: int, delivered: Delivered) -> None:
        """A member has heard that the record is its own."""
        shared = self._records.setdefault(offset, _Shared())
        if not 0 < delivered.count <= self._count_max:
            raise Violation(f"{self.tp}: {offset} is delivered for the {delivered.count}. time")
        for known in shared.deliveries:
            if known.count == delivered.count:
                raise Violation(
                    f"{self.tp}: {offset} is delivered to {delivered.member} and to {known.member}, both for the"
                    f" {known.count}. time"
                )
        if shared.done is not None and delivered.count > shared.done.count:
            raise Violation(
                f"{self.tp}: {offset} is delivered again to {delivered.member}, and {shared.done.member} is done"
                " with it"
            )
        shared.deliveries.append(delivered)

    def is_latest(self, offset: int, delivered: Delivered) -> bool:
        """Nobody has heard that the record is another's by now."""
        shared = self._records[offset]
        return all(it.count <= delivered.count for it in shared.deliveries)

    def asked(self, offset: int, delivered: Delivered) -> None:
        """An acceptance or a rejection is about to be sent."""
        self._records[offset].doubtful.add(delivered)

    def confirmed(
        self, offset: int, delivered: Delivered, offsets: Iterable[int], *, was_latest: bool
    ) -> None:
        """It counts, or says nothing new. ``was_latest``: when it was sent; ``offsets``: of all records."""
        shared = self._records[offset]
        others = shared.doubtful - {delivered} or self._is_given_up(shared)
        is_passed_over = bool(others) and self.may_pass_over(offset, offsets)
        if is_passed_over and shared.done is not None:
            return
        if shared.done is not None and shared.done != delivered:
            raise Violation(
                f"{self.tp}: {offset} is acknowledged by {shared.done} and by {delivered}"
            )
        if not (was_latest or is_passed_over):
            raise Violation(
                f"{self.tp}: {offset} is acknowledged by {delivered}, and was another's by then"
            )
        shared.done = delivered

    def may_pass_over(self, offset: int, offsets: Iterable[int]) -> bool:
        """All before it is done with, as far as is known: what is said of it again is passed over. ``offsets``: of all
        records.
        """
        return all(self._may_be_done(self._records.get(it)) for it in offsets if it < offset)

    def confirmed_again(self, offset: int) -> None:
        """An acknowledgement counts that was confirmed before."""
        raise Violation(f"{self.tp}: {offset} is acknowledged again, and that counts")

    def _may_be_done(self, shared: _Shared | None) -> bool:
        return shared is None or len(shared.deliveries) > 1 or self._is_done(shared)

    def undone(self, offsets: Iterable[int]) -> list[int]:
        """What is to be delivered, still."""
        return [it for it in offsets if not self._is_done(self._records.get(it))]

    def _is_done(self, shared: _Shared | None) -> bool:
        if shared is None:
            return False
        return bool(shared.doubtful) or self._is_given_up(shared)

    def _is_given_up(self, shared: _Shared) -> bool:
        return any(it.count == self._count_max for it in shared.deliveries)
