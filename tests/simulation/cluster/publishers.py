"""Those who publish over NATS, and what they are told."""

import json
import random
from collections.abc import Callable

from streamlog.metadata.stream import StreamConfig
from streamlog.metadata.subjects import partition_subject
from streamlog.model import TopicPartition
from tests.simulation.checkers import AcknowledgedNeverLost, PublisherOrder, Violation
from tests.simulation.cluster.links import Links
from tests.simulation.cluster.nats import SimNats
from tests.simulation.cluster.observer import Observer
from tests.simulation.events import Events
from tests.simulation.publisher import Publisher

TIMEOUT_US = 700_000
BACKOFF_US = 60_000
PAUSE_US_MAX = 120_000
PUBLISH_US_MIN = 1_000_000
"""However late the stream is created."""
NO_RESPONDERS = json.dumps({"error": {"code": 503, "description": "no responders"}}).encode()


class _Told:
    """What a publisher is told goes to the checkers."""

    def __init__(self, acknowledged: Callable[[str, int], None]) -> None:
        self.acknowledged = acknowledged
        self.order = PublisherOrder()


class Publishers:
    """Two for each partition: one waits for each answer, one has several on the way."""

    nats: SimNats

    def __init__(
        self,
        events: Events,
        links: Links,
        rng: random.Random,
        observer: Observer,
        *,
        until_us: int,
    ) -> None:
        self._events = events
        self._links = links
        self._rng = rng
        self._observer = observer
        self._until_us = until_us
        self._by_name: dict[str, Publisher] = {}
        self._places: dict[str, TopicPartition] = {}
        self._subjects: dict[str, str] = {}
        self._kept = AcknowledgedNeverLost()

    @property
    def done(self) -> bool:
        return all(publisher.done for publisher in self._by_name.values())

    def publish_to(self, config: StreamConfig) -> None:
        until_us = max(self._until_us, self._events.now_us + PUBLISH_US_MIN)
        for number in range(config.partitions):
            for window in (1, 4):
                name = f"{config.name}{number}{'xo'[window == 1]}"
                self._places[name] = TopicPartition(config.name, number)
                self._subjects[name] = partition_subject(config.subjects[0], number)
                self._by_name[name] = publisher = Publisher(
                    name,
                    window=window,
                    pause_us_max=PAUSE_US_MAX,
                    until_us=until_us,
                    rng=self._rng,
                    events=self._events,
                    send=self._send,
                    checkers=_Told(self._acknowledged),
                    timeout_us=TIMEOUT_US,
                    backoff_us=BACKOFF_US,
                )
                publisher.start()

    def answer(self, data: bytes) -> None:
        """Publications of a node: answers to publishers."""
        while data:
            line, _, data = data.partition(b"\r\n")
            _, reply, size = line.decode().split(" ")
            payload, data = data[: int(size)], data[int(size) + 2 :]
            self._tell(reply, payload)

    def check(self) -> None:
        """At the end: order, and that something was acknowledged at all."""
        for name, publisher in self._by_name.items():
            if not publisher.acknowledged:
                raise Violation(f"nothing of {name} was ever acknowledged")
        for replica, log in self._observer.partitions.logs.items():
            if replica not in self._observer.partitions.forgiven:
                log.check_order({name for name in self._by_name if name.endswith("o")})

    def state(self) -> str:
        return ", ".join(
            f"{name}: {'done' if it.done else 'waits'} after {it.acknowledged}"
            for name, it in self._by_name.items()
        )

    def _acknowledged(self, message_id: str, offset: int) -> None:
        tp = self._places[message_id.partition(":")[0]]
        self._observer.acknowledged(tp, message_id, offset)
        self._kept.acknowledged(message_id, offset)

    def _tell(self, reply: str, payload: bytes) -> None:
        publisher = self._by_name[reply.partition(".")[0]]
        delay_us = self._rng.randint(50, 1_000)
        self._events.after(delay_us, lambda: publisher.answered(reply, payload))

    def _send(self, frame: bytes) -> None:
        """``HMSG s 1 <reply> <sizes>``, as the publisher writes it."""
        line, _, rest = frame.partition(b"\r\n")
        _, _, _, reply, head_size, _ = line.decode().split(" ")
        head, body = rest[: int(head_size)], rest[int(head_size) : -2]
        subject = self._subjects[reply.partition(".")[0]]

        def arrive() -> None:
            if not self.nats.publish(subject, reply, head, body):
                self._tell(reply, NO_RESPONDERS)

        self._events.after(self._rng.randint(50, 1_000), arrive)
