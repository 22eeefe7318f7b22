"""A stock Kafka consumer that reads on, whatever happens to the nodes, and keeps what it saw."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from tests.history import Lane
from tools.nodes.replica_log import Stored

POLL_S: Final = 0.1
READ_MAX: Final = 1_000
TOLD_MAX: Final = 300
"""Lines of its own log that are kept, for it once saw nothing any more and nobody knew why."""


class WatchingConsumer:
    """``with WatchingConsumer(servers, lanes) as consumer``: reads all lanes from their start.

    An offset that it is told to be out of range, or one that comes again with another content, is
    kept in ``problems``: what a consumer has seen must never be taken back.
    """

    def __init__(self, servers: str, lanes: Iterable[Lane]) -> None:
        self._servers = servers
        self._lanes = list(lanes)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watching consumer")
        self.seen: Mapping[Lane, dict[int, Stored]] = {lane: {} for lane in self._lanes}
        self.problems: list[str] = []
        self._log = _Tail()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for(self, lane: Lane, end: int, timeout_s: float = 30.0) -> None:
        """Wait until it has read up to ``end``; TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while end and end - 1 not in self.seen[lane]:
            if time.monotonic() > deadline:
                got = max(self.seen[lane], default=-1) + 1
                raise TimeoutError(f"the consumer of {lane} is at {got}, not at {end}{self._log}")
            if not self._thread.is_alive():
                raise RuntimeError("the consumer ended")
            time.sleep(0.02)

    def _run(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "watching",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "socket.timeout.ms": 5_000,
                "allow.auto.create.topics": False,
                "debug": "broker,topic,metadata",
            },
            logger=_logger(self._log),
        )
        try:
            consumer.assign(
                [
                    TopicPartition(lane.stream, lane.partition, OFFSET_BEGINNING)
                    for lane in self.seen
                ]
            )
            fatal = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
            while not self._stopping.is_set():
                for message in consumer.consume(READ_MAX, timeout=POLL_S):
                    if (error := message.error()) is None:
                        self._take(message)
                    elif error.code() in fatal or error.fatal():
                        self.problems.append(f"{message.topic()} {message.partition()}: {error}")
        finally:
            consumer.close()

    def _take(self, message: object) -> None:
        lane = Lane(message.topic(), message.partition())  # type: ignore[attr-defined]
        headers = dict(message.headers() or [])  # type: ignore[attr-defined]
        identity, subject = (
            (headers.get(name) or b"").decode() for name in ("Nats-Msg-Id", "subject")
        )
        offset = message.offset()  # type: ignore[attr-defined]
        record = Stored(offset, identity, subject, message.value() or b"")  # type: ignore[attr-defined]
        known = self.seen[lane].setdefault(offset, record)
        if known != record:
            self.problems.append(
                f"{lane}: {offset} was {known.identity} and is {record.identity} now"
            )


class _Tail(logging.Handler):
    """The last lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=TOLD_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.created:.3f} {record.getMessage()}")

    def __str__(self) -> str:
        return "".join(f"\n{line}" for line in tuple(self._lines))


def _logger(handler: logging.Handler) -> logging.Logger:
    """Of this consumer alone."""
    logger = logging.Logger("librdkafka")
    logger.addHandler(handler)
    return logger
