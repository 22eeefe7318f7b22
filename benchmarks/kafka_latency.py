"""How long a record takes, at a fixed rate, by confluent-kafka: ``python -m benchmarks.kafka_latency MODE ...``.

``acked``    from when the record was due until its producer knows that it is stored
``through``  until a consumer of the same process has it

Each counts from when its record was due, whatever came before. Prints one line of JSON.
"""

import argparse
import json
import struct
import sys
import threading
import time
from typing import Final

from benchmarks.connection import BenchmarkError

MODES: Final = ("acked", "through")
TIMEOUT_S: Final = 30.0
WARM_UP_SHARE: Final = 10
"""The first one in so many is not counted."""
_DUE: Final = struct.Struct("=d")


def _paced(servers: str, topic: str, count: int, rate: int, size: int) -> list[float]:
    """Send on schedule; how long each took until it was acknowledged, in their order."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 0}
    )
    took: list[float] = []
    rest = bytes(size - _DUE.size)
    ended = threading.Event()

    def hear() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    # A thread of its own, as an application has it: it sleeps until an acknowledgement is there. ``poll`` counts in
    # whole milliseconds, so a sender that polled until the next record is due would spin, and take a core from the
    # servers.
    hearing = threading.Thread(target=hear)
    hearing.start()
    producer.list_topics(topic, timeout=TIMEOUT_S)
    start = time.perf_counter() + 0.5
    for number in range(count):
        due = start + number / rate
        if (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)

        def told(error: object, _: object, due: float = due) -> None:
            if error is not None:
                raise BenchmarkError(str(error))
            took.append(time.perf_counter() - due)

        producer.produce(topic, _DUE.pack(due) + rest, partition=0, on_delivery=told)
    ended.set()
    hearing.join()
    if producer.flush(TIMEOUT_S):
        raise BenchmarkError(f"not all is acknowledged within {TIMEOUT_S:.0f} s")
    return took


def _through(servers: str, topic: str, count: int, rate: int, size: int) -> list[float]:
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "latency",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    consumer.poll(1.0)  # it is at the end, and waits
    took: list[float] = []

    def read() -> None:
        deadline = time.monotonic() + TIMEOUT_S + count / rate
        while len(took) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            now = time.perf_counter()
            if message is not None and message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                took.append(now - _DUE.unpack_from(value)[0])

    reader = threading.Thread(target=read)
    reader.start()
    _paced(servers, topic, count, rate, size)
    reader.join()
    consumer.close()
    return took


def measured(
    mode: str, servers: str, topic: str, *, count: int, rate: int, size: int
) -> dict[str, float]:
    """Raises BenchmarkError if a record is missing."""
    run = _paced if mode == "acked" else _through
    took = run(servers, topic, count, rate, size)
    if len(took) != count:
        raise BenchmarkError(f"{len(took)} of {count} records")
    took = sorted(took[count // WARM_UP_SHARE :])
    return {
        "p50_ms": 1e3 * took[len(took) // 2],
        "p99_ms": 1e3 * took[len(took) * 99 // 100],
        "max_ms": 1e3 * took[-1],
        "messages": count,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--servers", required=True, help="host:port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--rate", type=int, default=1_000, help="records a second")
    parser.add_argument("--size", type=int, default=100)
    it = parser.parse_args()
    try:
        result = measured(it.mode, it.servers, it.topic, count=it.count, rate=it.rate, size=it.size)
    except BenchmarkError as error:
        print(json.dumps({"failed": str(error)}))
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
