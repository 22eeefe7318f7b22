"""What must hold whatever happens. Each checker is an object that is told, and raises Violation."""

from collections.abc import Sequence
from typing import NamedTuple

from streamlog.record.offset_set import OffsetSet


class Violation(AssertionError):
    """A promise is broken."""


class Stored(NamedTuple):
    """A record as it is read back."""

    offset: int
    message_id: str


class AcknowledgedNeverLost:
    """What a publisher was told is stored at an offset is there, for good."""

    def __init__(self) -> None:
        self._acknowledged: dict[str, int] = {}

    def acknowledged(self, message_id: str, offset: int) -> None:
        known = self._acknowledged.setdefault(message_id, offset)
        if known != offset:
            raise Violation(f"{message_id} is acknowledged at {known} and at {offset}")

    def settled_end(self) -> int:
        """All below is acknowledged to its publishers."""
        offsets = set(self._acknowledged.values())
        return next(offset for offset in range(len(offsets) + 1) if offset not in offsets)

    def look(self, log_start: int, records: Sequence[Stored]) -> None:
        at = {record.message_id: record.offset for record in records}
        for message_id, offset in self._acknowledged.items():
            if offset >= log_start and at.get(message_id) != offset:
                found = at.get(message_id)
                raise Violation(f"{message_id}, acknowledged at {offset}, is at {found}")


class NoDuplicate:
    """No message is there twice, but for those without an id, ``x:``."""

    def look(self, _log_start: int, records: Sequence[Stored]) -> None:
        seen: dict[str, int] = {}
        for offset, message_id in records:
            if message_id in seen and not message_id.startswith("x:"):
                raise Violation(f"{message_id} is at {seen[message_id]} and at {offset}")
            seen[message_id] = offset


class PublisherOrder:
    """Of a publisher that waits for each answer, the messages are in its order."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def expect(self, name: str) -> None:
        self._names.add(name)

    def look(self, _log_start: int, records: Sequence[Stored]) -> None:
        last: dict[str, list[int]] = {}
        for offset, message_id in records:
            name, _, numbers = message_id.partition(":")
            if name in self._names:
                number = [int(part) for part in numbers.split(".")]
                if number <= last.get(name, [-1]):
                    raise Violation(f"{message_id} at {offset} comes after number {last[name]}")
                last[name] = number


class MonotonicHighWatermark:
    """It never falls while the node lives; what was below it is there, and the same, ever after."""

    def __init__(self) -> None:
        self.high_watermark = 0
        self._committed: dict[int, str] = {}

    def restarted(self) -> None:
        self.high_watermark = 0

    def moved(self, high_watermark: int) -> None:
        if high_watermark < self.high_watermark:
            raise Violation(f"high watermark falls from {self.high_watermark} to {high_watermark}")
        self.high_watermark = high_watermark

    def look(self, log_start: int, records: Sequence[Stored]) -> None:
        there = dict(records)
        for offset, message_id in self._committed.items():
            if offset >= log_start and there.get(offset) != message_id:
                raise Violation(
                    f"offset {offset}, committed as {message_id}, is {there.get(offset)}"
                )
        self._committed.update(
            (offset, message_id) for offset, message_id in records if offset < self.high_watermark
        )


class DenseOffsets:
    """No offset is missing but those of erasures, and none comes twice."""

    def __init__(self) -> None:
        self.erasures: set[int] = set()

    def look(self, log_start: int, records: Sequence[Stored]) -> None:
        offsets = sorted([*(record.offset for record in records), *self.erasures])
        if offsets != list(range(log_start, log_start + len(offsets))):
            raise Violation(f"offsets from {log_start} are {offsets}")


class BatchesStored:
    """All messages of a batch are there, next to each other, or none."""

    def __init__(self) -> None:
        self._stored: set[tuple[str, ...]] = set()

    def stored(self, message_ids: Sequence[str]) -> None:
        """The publisher was told that it is there."""
        self._stored.add(tuple(message_ids))

    def look(self, log_start: int, records: Sequence[Stored]) -> None:
        at = {record.message_id: record.offset for record in records}
        whole = {message_id.partition(".")[0] for message_id in at if "." in message_id}
        for name in whole:
            offsets = [at.get(f"{name}.{part}", -1) for part in range(3)]
            if offsets != list(range(offsets[-1] - 2, offsets[-1] + 1)) and log_start == 0:
                raise Violation(f"the batch {name} is at {offsets}")
        for message_ids in self._stored if log_start == 0 else ():
            if any(message_id not in at for message_id in message_ids):
                raise Violation(f"the batch {message_ids[0]} was acknowledged, and is not there")


class FastBatchesStored:
    """What the acks of fast batches tell of is there; and where a gap ends a batch, no message is missing between
    two of its publisher.
    """

    def __init__(self) -> None:
        self.in_order: set[str] = set()
        """Publishers that want no gap."""
        self._stored: set[str] = set()
        self._placed: dict[int, tuple[str, range]] = {}

    def stored(self, message_id: str) -> None:
        """The publisher was told so."""
        self._stored.add(message_id)

    def placed(self, name: str, among: range, offset: int) -> None:
        """The last one that a batch has stored is there: one of those of the publisher."""
        self._placed[offset] = name, among

    def look(self, log_start: int, records: Sequence[Stored]) -> None:
        if log_start:
            return
        at = {record.message_id: record.offset for record in records}
        there = dict(records)
        for message_id in self._stored:
            if message_id not in at:
                raise Violation(f"{message_id} of a fast batch was acknowledged, and is not there")
        for offset, (name, among) in self._placed.items():
            found = there.get(offset, "")
            if found not in {f"{name}:{number}" for number in among}:
                raise Violation(f"a batch of {name} with {among} is told of {offset}: {found}")
        for name in self.in_order:
            numbers = [int(it.split(":")[1]) for it in at if it.startswith(f"{name}:")]
            if numbers != list(range(len(numbers))):
                raise Violation(f"the messages of {name}, who wants no gap, are {numbers}")


class RollupsErase:
    """An acknowledged rollup has erased all that was before it; and nothing else erases."""

    def __init__(self) -> None:
        self._acknowledged = 0

    def acknowledged(self, offset: int) -> None:
        self._acknowledged = max(self._acknowledged, offset)

    def look_at_erasures(
        self, records: Sequence[Stored], erasures: Sequence[tuple[int, OffsetSet]]
    ) -> None:
        rolled = [record.offset for record in records if record.message_id.startswith("r:")]
        all_erased = OffsetSet()
        for place, erased in erasures:
            upper = max((offset for offset in rolled if offset < place), default=0)
            if erased.count(upper, 2**62):
                raise Violation(f"the erasure at {place} erases more than what is below {upper}")
            all_erased.update(erased)
        for record in records:
            if record.offset < self._acknowledged and record.offset not in all_erased:
                raise Violation(
                    f"{record.message_id} at {record.offset} is not erased, which the rollup at"
                    f" {self._acknowledged} has go"
                )


class Checkers:
    """All of them."""

    def __init__(self) -> None:
        self.kept = AcknowledgedNeverLost()
        self.order = PublisherOrder()
        self.watermark = MonotonicHighWatermark()
        self.dense = DenseOffsets()
        self.batches = BatchesStored()
        self.fast = FastBatchesStored()
        self.rollups = RollupsErase()
        self._all = (
            self.kept, NoDuplicate(), self.order, self.watermark, self.dense, self.batches, self.fast,
        )  # fmt: skip

    def acknowledged(self, message_id: str, offset: int) -> None:
        self.kept.acknowledged(message_id, offset)

    def refused(self, message_id: str) -> None:
        """Since it expected another one to be the last."""
        raise NotImplementedError("no publisher of one partition expects any")

    def look(
        self,
        log_start: int,
        records: Sequence[Stored],
        erasures: Sequence[tuple[int, OffsetSet]] = (),
    ) -> None:
        """``records``: the whole log from ``log_start`` on; ``erasures``: those in it."""
        self.dense.erasures = {place for place, _ in erasures}
        self.rollups.look_at_erasures(records, erasures)
        for checker in self._all:
            checker.look(log_start, records)
