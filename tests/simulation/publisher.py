"""A publisher as one should be: an id in each message, and again until there is an answer."""

import json
import random
from collections.abc import Callable
from typing import Any

from streamlog.ingest.admission.refusal import REPEATED_IN_BATCH
from streamlog.record.codec import RecordRun
from tests.simulation.checkers import Checkers, Violation
from tests.simulation.events import Events

TIMEOUT_US = 8_000
CONFLICT = 10071
EXPECTING_PAUSE_US_MAX = 2_000
"""So that a message is on its way at most moments."""
BACKOFF_US = 3_000


class Publisher:
    """Has ``window`` messages on their way until ``until_us``; with 1, its order is the log's."""

    retries = True
    """Until there is an answer."""

    def __init__(
        self,
        name: str,
        *,
        window: int,
        pause_us_max: int,
        until_us: int,
        rng: random.Random,
        events: Events,
        send: Callable[[bytes], None],
        checkers: Checkers,
        timeout_us: int = TIMEOUT_US,
        backoff_us: int = BACKOFF_US,
        lines: str = "",
    ) -> None:
        """``lines``: headers that each message has besides its id."""
        self._lines = lines
        self.name = name
        self.acknowledged = 0
        self._window = window
        self._pause_us_max = pause_us_max
        self._until_us = until_us
        self._rng = rng
        self._events = events
        self._send = send
        self._checkers = checkers
        self._timeout_us = timeout_us
        self._backoff_us = backoff_us
        self._next = 0
        self._waiting: dict[int, int] = {}
        """By number: how often it has been sent."""
        self._sent_us: dict[int, int] = {}
        if window == 1:
            checkers.order.expect(name)

    @property
    def waits_for_each(self) -> bool:
        """Its messages are in the log in its order."""
        return self._window == 1

    def sent_us(self, number: int) -> int:
        """When it was sent last."""
        return self._sent_us[number]

    def end(self) -> None:
        """It gives up what waits, and sends nothing more."""
        self._until_us = 0
        self._waiting.clear()

    @property
    def done(self) -> bool:
        return self._events.now_us >= self._until_us and not self._waiting

    def start(self) -> None:
        for _ in range(self._window):
            self._next_soon()

    def _next_soon(self) -> None:
        self._events.after(self._rng.randint(0, self._pause_us_max), self._send_next)

    def _send_next(self) -> None:
        if self._events.now_us < self._until_us:
            number = self._next
            self._next += 1
            self._waiting[number] = 0
            self._try(number)

    def answered(self, reply: str, payload: bytes) -> None:
        """``reply`` is ``<name>.<number>``."""
        number = int(reply.partition(".")[2])
        answer = json.loads(payload)
        if "error" in answer and not self.is_stored(number, answer["error"]):
            if number in self._waiting:
                self._retry_after(self._backoff_us, number)
            return
        self.stored(number, answer)
        if number in self._waiting:
            del self._waiting[number]
            self.acknowledged += 1
            self._next_soon()

    def is_stored(self, number: int, error: dict[str, object]) -> bool:
        """The error says that it is there already."""
        return False

    def stored(self, number: int, answer: dict[str, int]) -> None:
        self._checkers.acknowledged(f"{self.name}:{number}", answer["seq"] - 1)

    @property
    def next_id(self) -> str:
        """That of a message that nobody has published yet."""
        return f"{self.name}:{self._next}"

    def _try(self, number: int) -> None:
        message_id = f"{self.name}:{number}"
        self._sent_us[number] = self._events.now_us
        self._send(frame(f"{self.name}.{number}", message_id, self._lines))
        self._retry_after(self._timeout_us, number)

    def _retry_after(self, delay_us: int, number: int) -> None:
        """One retry is due for each message; a later word takes the place of an earlier."""
        self._waiting[number] += 1
        attempt = self._waiting[number]

        def again() -> None:
            if self._waiting.get(number) == attempt:
                self._try(number)

        self._events.after(delay_us, again)


class ExpectingPublisher(Publisher):
    """Each of its messages expects the one before it to be the last, as far as it was told. It sends none twice: one
    that is refused, because another is the last, must never be in the log.
    """

    retries = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{**settings, "pause_us_max": EXPECTING_PAUSE_US_MAX})
        self._last = -1
        """The sequence that it knows; -1: none."""
        self.conflicts = 0

    def answered(self, reply: str, payload: bytes) -> None:
        number, answer = int(reply.partition(".")[2]), json.loads(payload)
        error = answer.get("error", {})
        if "error" not in answer:
            self._last = answer["seq"]
        elif number in self._waiting and error.get("err_code") == CONFLICT:
            self.conflicts += 1
            self._last = int(error["description"].rpartition(" ")[2])
            self._checkers.refused(f"{self.name}:{number}")
            self._give_up(number)
            return
        super().answered(reply, payload)

    def _give_up(self, number: int) -> None:
        del self._waiting[number]
        self._next_soon()

    def _try(self, number: int) -> None:
        if self._waiting[number]:
            self._last = -1  # it may be there
            self._give_up(number)
            return
        if self._last >= 0:
            self._lines = f"Nats-Expected-Last-Sequence: {self._last}\r\n"
        else:
            self._lines = ""
        super()._try(number)


class RollingPublisher(Publisher):
    """Each of its messages has all those before it go."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings, lines="Nats-Rollup: all\r\n")

    def stored(self, number: int, answer: dict[str, int]) -> None:
        super().stored(number, answer)
        self._checkers.rollups.acknowledged(answer["seq"] - 1)


class BatchPublisher(Publisher):
    """Publishes batches of three, each message with an id; behind each a few plain messages, which
    nobody answers: where there is no room for them, the batch's read is refused in part.
    """

    SIZE = 3
    MORE = 4

    def is_stored(self, number: int, error: dict[str, object]) -> bool:
        return error["err_code"] == REPEATED_IN_BATCH.err_code

    def stored(self, number: int, answer: dict[str, int]) -> None:
        ids = [f"{self.name}:{number}.{part}" for part in range(self.SIZE)]
        if "error" in answer:
            self._checkers.batches.stored(ids)
            return
        if answer.get("count") != self.SIZE:
            raise Violation(f"batch {number} of {self.name} is answered with {answer}")
        self._checkers.batches.stored(ids)
        for part, message_id in enumerate(ids):
            self._checkers.acknowledged(message_id, answer["seq"] - self.SIZE + part)

    def _try(self, number: int) -> None:
        self._sent_us[number] = self._events.now_us
        attempt, frames = self._waiting[number], b""
        for part in range(self.SIZE):
            lines = f"Nats-Batch-Id: {number}-{attempt}\r\nNats-Batch-Sequence: {part + 1}\r\n"
            last = part == self.SIZE - 1
            lines += "Nats-Batch-Commit: 1\r\n" if last else ""
            reply = f"{self.name}.{number}" if last else ""
            frames += frame(reply, f"{self.name}:{number}.{part}", lines)
        for part in range(self.MORE):
            body = f"x:{self.name}-{number}-{attempt}-{part}".encode()
            frames += b"MSG s 1 %d\r\n%b\r\n" % (len(body), body)
        self._send(frames)
        self._retry_after(self._timeout_us, number)


def copied(message_id: str, value: str) -> bytes:
    """A Kafka producer's batch: the copy of a record that came over NATS, elsewhere."""
    asked = (("Nats-Rollup", "all"), ("Nats-Msg-Id", message_id), ("Nats-TTL", "1"))
    run = RecordRun()
    run.append(
        None,
        value.encode(),
        [(b"subject", b"s"), *((name.encode(), text.encode()) for name, text in asked)],
    )
    return run.seal(base_offset=0, leader_epoch=-1, timestamp_ms=5, max_timestamp_ms=5)


def frame(reply: str, message_id: str, lines: str = "", subject: str = "s") -> bytes:
    head = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n{lines}\r\n".encode()
    body = message_id.encode() + b"." * (len(message_id) * 37 % 300)
    sizes = f"{len(head)} {len(head) + len(body)}"
    target = f"{reply} " if reply else ""
    return f"HMSG {subject} 1 {target}{sizes}\r\n".encode() + head + body + b"\r\n"
