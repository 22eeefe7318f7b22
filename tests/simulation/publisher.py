"""A publisher as one should be: an id in each message, and again until there is an answer."""

import json
import random
from collections.abc import Callable

from tests.simulation.checkers import Checkers
from tests.simulation.events import Events

TIMEOUT_US = 8_000
BACKOFF_US = 3_000


class Publisher:
    """Has ``window`` messages on their way until ``until_us``; with 1, its order is the log's."""

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
    ) -> None:
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
        if "error" in answer:
            if number in self._waiting:
                self._retry_after(self._backoff_us, number)
            return
        self._checkers.acknowledged(f"{self.name}:{number}", answer["seq"] - 1)
        if number in self._waiting:
            del self._waiting[number]
            self.acknowledged += 1
            self._next_soon()

    def _try(self, number: int) -> None:
        message_id = f"{self.name}:{number}"
        self._sent_us[number] = self._events.now_us
        self._send(_frame(f"{self.name}.{number}", message_id))
        self._retry_after(self._timeout_us, number)

    def _retry_after(self, delay_us: int, number: int) -> None:
        """One retry is due for each message; a later word takes the place of an earlier."""
        self._waiting[number] += 1
        attempt = self._waiting[number]

        def again() -> None:
            if self._waiting.get(number) == attempt:
                self._try(number)

        self._events.after(delay_us, again)


def _frame(reply: str, message_id: str) -> bytes:
    head = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n\r\n".encode()
    body = message_id.encode() + b"." * (len(message_id) * 37 % 300)
    sizes = f"{len(head)} {len(head) + len(body)}"
    return f"HMSG s 1 {reply} {sizes}\r\n".encode() + head + body + b"\r\n"
