"""The consumers: each reads a given number of records from the start and says how long it took.

``python -m benchmarks.consumer kafka|push|pull ...`` prints one line of JSON. The clock runs from
just before the first request until the last record is in the program's hands.
"""

import argparse
import asyncio
import json
import sys
import time

from benchmarks.connection import TAIL_BYTES, BenchmarkError, Connection

BATCH = 10_000
PULL_BATCH = 1_000
TIMEOUT_S = 60.0


def read_kafka(servers: str, stream: str, count: int) -> tuple[float, int]:
    """One confluent-kafka consumer, records taken from the library in lists."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "fetch.wait.max.ms": 100,
            "max.partition.fetch.bytes": 8 << 20,
            "queued.max.messages.kbytes": 128 << 10,
        }
    )
    consumer.list_topics(stream, timeout=TIMEOUT_S)
    start = time.perf_counter()
    consumer.assign([TopicPartition(stream, 0, OFFSET_BEGINNING)])
    seen = seen_bytes = 0
    while seen < count:
        records = consumer.consume(BATCH, timeout=0.1)
        seen += len(records)
        for record in records:
            seen_bytes += len(record)
            if record.error():
                raise BenchmarkError(str(record.error()))
        if time.perf_counter() - start > TIMEOUT_S:
            raise BenchmarkError(f"{seen} of {count} records within {TIMEOUT_S} s")
    elapsed = time.perf_counter() - start
    if records[-1].offset() != count - 1:
        raise BenchmarkError(f"record {count} has offset {records[-1].offset()}")
    consumer.close()
    return elapsed, seen_bytes


def read_push(nats: str, deliver_subject: str, count: int, size: int) -> tuple[float, int]:
    """A JetStream push consumer's messages on a raw socket: line ends are counted."""
    with Connection(nats) as connection:
        start = time.perf_counter()
        connection.send(f"SUB {deliver_subject} 1\r\n".encode())
        lines, buffer = 0, connection.buffer
        while lines < 2 * count:
            read = connection.read()
            lines += buffer.count(b"\n", TAIL_BYTES, TAIL_BYTES + read)
            connection.answer_pings(read)
            connection.keep_tail(read)
        return time.perf_counter() - start, count * size


async def read_pull(nats: str, stream: str, count: int) -> tuple[float, int]:
    """nats-py's pull consumer, without acks, in batches."""
    import nats as nats_py
    from nats.js.api import AckPolicy, ConsumerConfig

    client = await nats_py.connect(f"nats://{nats}")
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await client.jetstream().pull_subscribe(
        "", durable="pull", stream=stream, config=config
    )
    start = time.perf_counter()
    seen = seen_bytes = 0
    while seen < count:
        messages = await subscription.fetch(min(PULL_BATCH, count - seen), timeout=TIMEOUT_S)
        seen += len(messages)
        seen_bytes += sum(len(message.data) for message in messages)
    elapsed = time.perf_counter() - start
    await client.close()
    return elapsed, seen_bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["kafka", "push", "pull"])
    parser.add_argument("--server", required=True, help="host:port")
    parser.add_argument("--source", required=True, help="stream, or the push consumer's subject")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    options = parser.parse_args()
    count, size = options.count, options.size
    try:
        match options.mode:
            case "kafka":
                elapsed, seen_bytes = read_kafka(options.server, options.source, count)
            case "push":
                elapsed, seen_bytes = read_push(options.server, options.source, count, size)
            case _:
                elapsed, seen_bytes = asyncio.run(read_pull(options.server, options.source, count))
        if seen_bytes != count * size:
            raise BenchmarkError(f"{seen_bytes} bytes for {count} records of {size}")
    except (BenchmarkError, OSError) as error:
        print(json.dumps({"failed": str(error) or type(error).__name__}))
        return 1
    result = {"rate": count / elapsed, "mb_per_s": seen_bytes / elapsed / 1e6, "messages": count}
    print(json.dumps(result | {"elapsed_s": elapsed, "client_cpu_s": time.process_time()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
