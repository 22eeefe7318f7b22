"""How long nothing is acknowledged after a blow: a publisher that goes on whatever comes back."""

import re
import select
import time
from collections.abc import Callable
from typing import Final

from benchmarks.connection import BenchmarkError, Connection

PERIOD_S: Final = 0.002
WARM_UP_S: Final = 0.3
TIMEOUT_S: Final = 60.0

_ACK = re.compile(rb"MSG _INBOX\.g\.(\d+) \d+ \d+\r\n(\{[^\r]*\})\r\n")


class Prober:
    """Publishes a message each 2 ms, with a reply subject of its own, and looks for acks."""

    def __init__(self, nats: str, subject: str) -> None:
        self._connection = Connection(nats)
        self._connection.subscribe("_INBOX.g.*", 1)
        self._subject = subject.encode()
        self._sent = 0
        self._due = time.perf_counter()
        self._unread = b""

    def close(self) -> None:
        self._connection.socket.close()

    def gap_s(self, strike: Callable[[], None]) -> float:
        """From the blow to the ack of a message that was published after it."""
        self._run(time.perf_counter() + WARM_UP_S)
        if not self._run(time.perf_counter() + TIMEOUT_S, since=self._sent):
            raise BenchmarkError("nothing is acknowledged before the blow")
        strike()
        struck = time.perf_counter()
        acked = self._run(struck + TIMEOUT_S, since=self._sent)
        if not acked:
            raise BenchmarkError(f"nothing is acknowledged {TIMEOUT_S:.0f} s after the blow")
        return acked - struck

    def _run(self, until: float, since: int | None = None) -> float | None:
        """Publish until then, or until the ack of a message from ``since`` on; when it came."""
        while (now := time.perf_counter()) < until:
            if now >= self._due:
                self._publish()
                self._due = max(self._due + PERIOD_S, now)  # what could not be sent is not made up
            wait = max(0.0, self._due - time.perf_counter())
            if select.select([self._connection.socket], [], [], wait)[0]:
                acked = self._read()
                if since is not None and acked >= since:
                    return time.perf_counter()
        return None

    def _publish(self) -> None:
        head = b"PUB %s _INBOX.g.%d 5\r\nprobe\r\n" % (self._subject, self._sent)
        self._connection.send(head)
        self._sent += 1

    def _read(self) -> int:
        """The highest number acknowledged by what has arrived; -1 without one."""
        size = self._connection.read()
        self._connection.answer_pings(size)
        data = self._unread + bytes(self._connection.buffer[16 : 16 + size])
        self._connection.keep_tail(size)
        cut = data.rfind(b"}\r\n") + 3 if b"}\r\n" in data else 0
        self._unread = data[cut:][-1024:]
        numbers = [int(n) for n, ack in _ACK.findall(data, 0, cut) if b'"error"' not in ack]
        return max(numbers, default=-1)
