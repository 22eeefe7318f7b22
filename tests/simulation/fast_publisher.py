"""Publishers of fast batches: several messages on the way, and acks of all up to a number."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.checkers import Violation
from tests.simulation.publisher import Publisher, frame

START, APPEND, COMMIT, COMMIT_EOB, PING = range(5)
SIZE_MAX: Final = 12
FLOW_MAX: Final = 3
TOGETHER_MAX: Final = 4
"""So many messages leave at once, and are lost at once."""
ASKED_AGAIN_MAX: Final = 2
REPEATS: Final = 0.05
REUSES: Final = 0.3


@dataclass
class _Batch:
    """One that was begun; its messages have the numbers ``base`` and following of the publisher's."""

    number: int
    batch_id: str
    base: int
    size: int
    flow: int
    ends_without_message: bool
    sent: int = 0
    acked: int = 0
    has_begun: bool = False
    is_over: bool = False
    asked_again: int = 0
    missing: set[int] = field(default_factory=set)
    """The node has said that it does not have them."""


class FastPublisher(Publisher):
    """Has an id in each message, and begins again after the last ack when a batch has ended before its end. Its
    messages are in its order, and none is missing between two of them.

    It does what a bad client might: it repeats its last message now and then, begins without waiting for the
    first ack, and gives the next batch the id of the one that has ended.
    """

    gap_mode = "fail"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._base = 0
        """All before is stored, or given up."""
        self._end = 0
        """Behind the last message that was ever sent."""
        self._batches: list[_Batch] = []
        self._alarm = 0
        if self.gap_mode == "fail":
            self._checkers.fast.in_order.add(self.name)

    @property
    def done(self) -> bool:
        return self._events.now_us >= self._until_us and (
            not self._until_us or (self._base >= self._end and not self._is_busy)
        )

    @property
    def _is_busy(self) -> bool:
        return bool(self._batches) and not self._batches[-1].is_over

    def end(self) -> None:
        super().end()
        if self._batches:
            self._batches[-1].is_over = True

    def start(self) -> None:
        self._begin_after(self._rng.randint(0, self._pause_us_max))

    def said(self, reply: str, payload: bytes) -> None:
        """The node has said so, whoever hears it."""
        batch, answer = self._batch_of(reply), json.loads(payload)
        match answer:
            case {"type": "gap", "last_seq": expected, "seq": came}:
                batch.missing.update(range(expected, came))
            case {"type": "err", "seq": number}:
                batch.missing.add(number)

    def judge(self, reply: str, payload: bytes) -> None:
        """What it has said is stored."""
        batch, answer = self._batch_of(reply), json.loads(payload)
        match answer:
            case {"type": "ack", "seq": last}:
                self._is_stored(batch, last)
            case {"batch": batch_id, "seq": sequence, "count": last}:
                if batch_id != batch.batch_id:
                    raise Violation(f"{self.name} has batch {batch.batch_id}, and hears {answer}")
                self._is_stored(batch, last)
                if sequence:
                    among = range(batch.base, batch.base + last)
                    self._checkers.fast.placed(self.name, among, sequence - 1)

    def answered(self, reply: str, payload: bytes) -> None:
        batch, answer = self._batch_of(reply), json.loads(payload)
        if batch.is_over:
            return
        match answer:
            case {"type": "ack", "seq": last}:
                batch.has_begun = True
                if last > batch.acked:
                    batch.acked, batch.asked_again = last, 0
                    self.acknowledged += 1
                self._go_on_soon(batch)
            case {"batch": _, "count": last}:
                self.acknowledged += last > 0
                self._ended(batch, last, 0)
            case {"error": _} if "type" not in answer:
                self._ended(batch, batch.acked, self._backoff_us)

    # What it sends

    def _begin_after(self, delay_us: int) -> None:
        self._events.after(delay_us, self._begin)

    _ended_in_order = False
    """The node that had the last batch has forgotten it."""

    def _begin(self) -> None:
        is_late = self._events.now_us >= self._until_us
        if self._is_busy or (is_late and (self._base >= self._end or not self._until_us)):
            return
        rng, last = self._rng, self._batches[-1] if self._batches else None
        batch_id = f"{self.name}{len(self._batches)}"
        if last is not None and last.has_begun and rng.random() < REUSES and self._ended_in_order:
            batch_id = last.batch_id
        size = self._end - self._base if is_late else rng.randint(1, SIZE_MAX)
        batch = _Batch(
            len(self._batches), batch_id, self._base, size, rng.randint(1, FLOW_MAX),
            rng.random() < 0.3,
        )  # fmt: skip
        self._ended_in_order = False
        self._batches.append(batch)
        self._go_on(batch)

    def _ended(self, batch: _Batch, stored: int, delay_us: int) -> None:
        batch.is_over = True
        self._ended_in_order = not delay_us
        self._base = batch.base + stored
        self._begin_after(delay_us + self._rng.randint(0, self._pause_us_max))

    def _go_on_soon(self, batch: _Batch) -> None:
        self._events.after(
            self._rng.randint(0, self._pause_us_max // 4), lambda: self._go_on(batch)
        )

    def _go_on(self, batch: _Batch) -> None:
        """A few messages more, as far as the acks let it."""
        if batch.is_over:
            return
        rng, operations = self._rng, list[tuple[int, int]]()
        waits_for_start = batch.sent and not batch.has_begun and rng.random() < 0.5
        room = 0 if waits_for_start else batch.acked + 2 * batch.flow - batch.sent
        for _ in range(min(room, rng.randint(1, TOGETHER_MAX))):
            if batch.sent == batch.size + batch.ends_without_message:
                break
            batch.sent += 1
            operations.append((batch.sent, self._operation(batch, batch.sent)))
        if operations and rng.random() < REPEATS:
            operations.append(operations[-1])
        if operations:
            self._send_all(batch, operations)
            if rng.random() < 0.5:
                self._go_on_soon(batch)
        self._await(batch)

    def _operation(self, batch: _Batch, number: int) -> int:
        if number > batch.size:
            return COMMIT_EOB
        if number == batch.size and not batch.ends_without_message:
            return COMMIT
        return START if number == 1 else APPEND

    def _send_all(self, batch: _Batch, operations: list[tuple[int, int]]) -> None:
        frames = b""
        for number, operation in operations:
            place = batch.base + number - 1
            reply = (
                f"{self.name}.{batch.number}.{batch.batch_id}.{batch.flow}.{self.gap_mode}"
                f".{number}.{operation}.$FI"
            )
            if operation not in (COMMIT_EOB, PING):
                self._sent_us[place] = self._events.now_us
                self._end = max(self._end, place + 1)
            frames += frame(reply, f"{self.name}:{place}")
        self._send(frames)

    def _await(self, batch: _Batch) -> None:
        """One alarm is due; a later one takes the place of an earlier."""
        self._alarm += 1
        alarm = self._alarm

        def asks_again() -> None:
            if self._alarm == alarm and not batch.is_over:
                self._ask_again(batch)

        self._events.after(self._timeout_us, asks_again)

    def _ask_again(self, batch: _Batch) -> None:
        """For the last ack, or by the last message once more; in the end it gives the batch up."""
        batch.asked_again += 1
        if batch.asked_again > ASKED_AGAIN_MAX or not batch.sent:
            self._ended(batch, batch.acked, self._backoff_us)
            return
        number = batch.sent
        operation = self._operation(batch, number)
        is_end = operation in (COMMIT, COMMIT_EOB)
        if not (is_end and self._rng.random() < 0.5):
            number, operation = min(number, batch.size), PING
        self._send_all(batch, [(number, operation)])
        self._await(batch)

    # What it hears

    def _batch_of(self, reply: str) -> _Batch:
        """``reply`` begins with ``<name>.<number of the batch>``."""
        return self._batches[int(reply.split(".")[1])]

    def _is_stored(self, batch: _Batch, last: int) -> None:
        if last > min(batch.sent, batch.size):
            raise Violation(f"{self.name} hears of {last} messages of {batch}")
        for number in range(1, last + 1):
            if number not in batch.missing:
                self._checkers.fast.stored(f"{self.name}:{batch.base + number - 1}")


class GapsOkPublisher(FastPublisher):
    """One whose batches go on over what is lost: an ack tells of what has come."""

    gap_mode = "ok"
