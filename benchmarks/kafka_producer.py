"""What a producer sends, and the same bytes written to a file by nobody but the kernel.

``python -m benchmarks.kafka_producer kafka|write ...`` prints one line of JSON.

``kafka``  one confluent-kafka producer: acks=all, otherwise its defaults, but a queue that is not
           its limit; the clock runs from the first record until the last is acknowledged
``write``  ``write()`` of as many bytes as the broker's batches are, into one file, not synced
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.connection import BenchmarkError
from benchmarks.publisher import payload

TIMEOUT_S: Final = 120.0
QUEUE_KIB: Final = 512 * 1024
QUEUE_RECORDS: Final = 2_000_000
BATCH_BYTES: Final = 1_000_000
"""librdkafka's ``batch.size``: what it sends at once, and so what a broker writes at once."""
DISTINCT: Final = 1_000
"""Values used in turn."""
WARM_UP_SHARE: Final = 50


def produce(
    servers: str, topic: str, count: int, size: int, more: Mapping[str, str]
) -> dict[str, float]:
    """Raises BenchmarkError if one record is not stored."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": servers,
        "acks": "all",
        "queue.buffering.max.kbytes": QUEUE_KIB,
        "queue.buffering.max.messages": QUEUE_RECORDS,
        **more,
    }
    producer = Producer(settings)
    values = [payload(size, seed) for seed in range(DISTINCT)]
    warm_up = max(DISTINCT, count // WARM_UP_SHARE)
    _send(producer, topic, values, warm_up)
    cpu, start = time.process_time(), time.perf_counter()
    _send(producer, topic, values, count)
    elapsed, used = time.perf_counter() - start, time.process_time() - cpu
    kept = _stored(servers, topic, more)
    if kept != warm_up + count:
        raise BenchmarkError(f"{warm_up + count} sent, {kept} stored")
    return _result(count, size, elapsed) | {"messages": warm_up + count, "client_cpu_s": used}


def _send(producer: object, topic: str, values: list[bytes], count: int) -> None:
    """Return when all are acknowledged."""
    put, poll = producer.produce, producer.poll  # type: ignore[attr-defined]
    for number in range(count):
        while True:
            try:
                put(topic, values[number % DISTINCT], partition=0)
                break
            except BufferError:
                poll(0.01)
    left = producer.flush(TIMEOUT_S)  # type: ignore[attr-defined]
    if left:
        raise BenchmarkError(f"{left} records are not acknowledged within {TIMEOUT_S:.0f} s")


def _stored(servers: str, topic: str, more: Mapping[str, str]) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "count", **more})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    finally:
        consumer.close()
    return int(high) - int(low)


def write(path: Path, count: int, size: int) -> dict[str, float]:
    """The same values into a file that is not there yet."""
    records = max(1, BATCH_BYTES // size)
    block = b"".join(payload(size, seed) for seed in range(min(records, DISTINCT)))
    block = (block * (records * size // len(block) + 1))[: records * size]
    cpu = time.process_time()
    with path.open("xb", buffering=0) as file:
        start, written = time.perf_counter(), 0
        while written < count * size:
            written += os.write(file.fileno(), block)
        elapsed = time.perf_counter() - start
    used = time.process_time() - cpu
    path.unlink()
    done = written // size
    return _result(done, size, elapsed) | {"messages": done, "server_us": 1e6 * used / done}


def _result(count: int, size: int, elapsed: float) -> dict[str, float]:
    rate = count / elapsed
    return {"rate": rate, "mb_per_s": rate * size / 1e6, "elapsed_s": elapsed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["kafka", "write"])
    parser.add_argument("--target", required=True, help="host:port of a broker, or a new file")
    parser.add_argument("--topic", default="")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--settings", default="{}", help="of confluent-kafka, as JSON")
    options = parser.parse_args()
    try:
        if options.mode == "kafka":
            more = json.loads(options.settings)
            result = produce(options.target, options.topic, options.count, options.size, more)
        else:
            result = write(Path(options.target), options.count, options.size)
    except (BenchmarkError, OSError) as error:
        print(json.dumps({"failed": str(error) or type(error).__name__}))
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
