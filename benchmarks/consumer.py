"""The consumers: each reads a given number of records from the start and says how long it took.

``python -m benchmarks.consumer MODE ...`` prints one line of JSON.
The clock runs from just before the first request until the last record is in the program's hands.
With ``--together`` it prints a line when it could begin, and begins when it reads one.
"""

import argparse
import asyncio
import json
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from benchmarks.connection import BUFFER_BYTES, TAIL_BYTES, BenchmarkError, Connection

MODES: Final = (
    *("kafka", "kafka-defaults", "push", "push-acked", "pull", "pull-raw", "ordered", "drop"),
    *("batches", "again"),
)
BATCH = 1_000
TIMEOUT_S = 60.0
ACK_REPLY: Final = re.compile(rb"MSG \S+ 1 (\$JS\.ACK\.\S+) \d+\r\n")


class Reading(NamedTuple):
    """What was read: at least as many records as were asked for, the last batch whole."""

    elapsed_s: float
    records: int
    size_bytes: int


QUEUE_BACKOFF: Final = {"fetch.queue.backoff.ms": 10}
"""By default librdkafka asks for nothing for a whole second once its queue is full, which the
program empties in a tenth of that: whoever is served faster than the program reads then waits.
"""


Ready = Callable[[], None]
"""Called when all is set up; the clock starts when it returns."""


def at_once() -> None:
    pass


def together() -> None:
    """Begin when the others do, whom our parent knows."""
    print("ready", flush=True)
    sys.stdin.readline()


def read_kafka(
    servers: str,
    stream: str,
    count: int,
    settings: Mapping[str, str | int],
    ready: Ready = at_once,
) -> Reading:
    """One confluent-kafka consumer, records taken in lists."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.list_topics(stream, timeout=TIMEOUT_S)
    ready()
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
    if records[-1].offset() != seen - 1:
        raise BenchmarkError(f"record {seen} has offset {records[-1].offset()}")
    consumer.close()
    return Reading(elapsed, seen, seen_bytes)


def read_push(
    nats: str, deliver_subject: str, count: int, size: int, ready: Ready = at_once
) -> Reading:
    """A JetStream push consumer's messages on a raw socket: line ends are counted."""
    with Connection(nats) as connection:
        ready()
        start = time.perf_counter()
        connection.send(f"SUB {deliver_subject} 1\r\n".encode())
        lines, buffer = 0, connection.buffer
        while lines < 2 * count:
            read = connection.read()
            lines += buffer.count(b"\n", TAIL_BYTES, TAIL_BYTES + read)
            connection.answer_pings(read)
            connection.keep_tail(read)
        return Reading(time.perf_counter() - start, lines // 2, lines // 2 * size)


def read_push_acked(
    nats: str, deliver_subject: str, count: int, size: int, ready: Ready = at_once
) -> Reading:
    """The same, and each message is acknowledged at its reply subject."""
    with Connection(nats) as connection:
        ready()
        start = time.perf_counter()
        connection.send(f"SUB {deliver_subject} 1\r\n".encode())
        seen, rest = 0, b""
        while seen < count:
            said = rest + connection.receive()
            acks, end = [], 0
            for found in ACK_REPLY.finditer(said):
                acks.append(b"PUB %b 0\r\n\r\n" % found[1])
                end = found.end()
            seen, rest = seen + len(acks), said[end:]
            pong = b"PONG\r\n" if b"PING\r\n" in said[end:] else b""
            connection.send(pong + b"".join(acks))
        return Reading(time.perf_counter() - start, seen, seen * size)


def read_pull_raw(
    nats: str, stream: str, count: int, size: int, *, name: str, batch: int, ready: Ready
) -> Reading:
    """A pull consumer that exists, on a raw socket, with one request more than is being answered."""
    request = json.dumps({"batch": batch, "expires": int(TIMEOUT_S * 1e9)}).encode()
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    ask = b"PUB %b inbox %d\r\n%b\r\n" % (subject.encode(), len(request), request)
    with Connection(nats) as connection:
        ready()
        start = time.perf_counter()
        connection.send(b"SUB inbox 1\r\n" + ask)
        lines, asked, buffer = 0, batch, connection.buffer
        while lines < 2 * count:
            while asked <= lines // 2 + batch:
                asked += batch
                connection.send(ask)
            read = connection.read()
            lines += buffer.count(b"\n", TAIL_BYTES, TAIL_BYTES + read)
            connection.answer_pings(read)
            connection.keep_tail(read)
        return Reading(time.perf_counter() - start, lines // 2, lines // 2 * size)


def read_dropped(server: str, count: int, size: int) -> Reading:
    """All that a plain socket sends, looked at by nobody; it is said to be ``count`` records."""
    host, _, port = server.rpartition(":")
    buffer = bytearray(BUFFER_BYTES)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        start = time.perf_counter()
        seen_bytes = 0
        while read := connection.recv_into(buffer):
            seen_bytes += read
        elapsed = time.perf_counter() - start
    if seen_bytes < count * size:
        raise BenchmarkError(f"{seen_bytes} bytes cannot be {count} records")
    return Reading(elapsed, count, count * size)


async def read_batches(servers: str, stream: str, count: int, size: int) -> Reading:
    """Our own client: whole batches with their checksums, no records."""
    from streamlog.client.cluster import Cluster
    from streamlog.client.reader import PartitionReader
    from streamlog.model import TopicPartition

    seen = 0
    async with Cluster.at(servers) as cluster:
        start = time.perf_counter()
        async with PartitionReader(cluster, TopicPartition(stream, 0)) as reader:
            async for header, _ in reader.batches():
                seen += header.record_count
        elapsed = time.perf_counter() - start
    if seen < count:
        raise BenchmarkError(f"{seen} of {count} records")
    return Reading(elapsed, seen, seen * size)


def read_again(servers: str, stream: str) -> Reading:
    """From the start, and at the end from the start again, until SIGTERM; says when it reads."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    partition = TopicPartition(stream, 0, OFFSET_BEGINNING)
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "again", "enable.auto.commit": False}
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(stream, 0), timeout=TIMEOUT_S)
    consumer.assign([partition])
    seen = seen_bytes = 0
    start = time.perf_counter()
    while not ended.is_set():
        records = consumer.consume(BATCH, timeout=0.1)
        if records and not seen:
            print("reading", flush=True)
        seen += len(records)
        seen_bytes += sum(map(len, records))
        if records and (records[-1].offset() or 0) >= end - 1:
            consumer.assign([partition])
    elapsed = time.perf_counter() - start
    consumer.close()
    return Reading(elapsed, seen, seen_bytes)


async def read_ordered(nats: str, stream: str, count: int, ready: Ready = at_once) -> Reading:
    """nats-py's ordered consumer."""
    import nats as nats_py

    client = await nats_py.connect(f"nats://{nats}")
    ready()
    start = time.perf_counter()
    subscription = await client.jetstream().subscribe("", stream=stream, ordered_consumer=True)
    seen = seen_bytes = 0
    while seen < count:
        message = await subscription.next_msg(timeout=TIMEOUT_S)
        seen += 1
        seen_bytes += len(message.data)
    elapsed = time.perf_counter() - start
    await client.close()
    return Reading(elapsed, seen, seen_bytes)


async def read_pull(
    nats: str, stream: str, count: int, *, name: str, batch: int, ready: Ready
) -> Reading:
    """nats-py's pull consumer, without acks, in batches."""
    import nats as nats_py
    from nats.js.api import AckPolicy, ConsumerConfig

    client = await nats_py.connect(f"nats://{nats}")
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await client.jetstream().pull_subscribe(
        "", durable=name, stream=stream, config=config
    )
    ready()
    start = time.perf_counter()
    seen = seen_bytes = 0
    while seen < count:
        messages = await subscription.fetch(min(batch, count - seen), timeout=TIMEOUT_S)
        seen += len(messages)
        seen_bytes += sum(len(message.data) for message in messages)
    elapsed = time.perf_counter() - start
    await client.close()
    return Reading(elapsed, seen, seen_bytes)


def _read(options: argparse.Namespace) -> Reading:
    server, source = options.server, options.source
    count, size = options.count, options.size
    ready = together if options.together else at_once
    match options.mode:
        case "kafka" | "kafka-defaults" as mode:
            settings = json.loads(options.settings)
            settings |= QUEUE_BACKOFF if mode == "kafka" else {}
            return read_kafka(server, source, count, settings, ready)
        case "push":
            return read_push(server, source, count, size, ready)
        case "push-acked":
            return read_push_acked(server, source, count, size, ready)
        case "pull-raw":
            pulling = {"name": options.name, "batch": options.batch, "ready": ready}
            return read_pull_raw(server, source, count, size, **pulling)
        case "ordered":
            return asyncio.run(read_ordered(server, source, count, ready))
        case "drop":
            return read_dropped(server, count, size)
        case "batches":
            return asyncio.run(read_batches(server, source, count, size))
        case "again":
            return read_again(server, source)
        case _:
            pulling = {"name": options.name, "batch": options.batch, "ready": ready}
            return asyncio.run(read_pull(server, source, count, **pulling))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--server", required=True, help="host:port")
    parser.add_argument("--source", required=True, help="stream, or the push consumer's subject")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--name", default="pull", help="of the pull consumer, which is made")
    parser.add_argument("--batch", type=int, default=BATCH, help="of the pull consumer")
    parser.add_argument("--settings", default="{}", help="of confluent-kafka, as JSON")
    parser.add_argument("--together", action="store_true", help="wait for a line before the start")
    options = parser.parse_args()
    try:
        reading = _read(options)
        if reading.size_bytes != reading.records * options.size:
            raise BenchmarkError(f"{reading} is not made of records of {options.size} bytes")
    except (BenchmarkError, OSError) as error:
        print(json.dumps({"failed": str(error) or type(error).__name__}))
        return 1
    result = {
        "rate": reading.records / reading.elapsed_s,
        "mb_per_s": reading.size_bytes / reading.elapsed_s / 1e6,
        "messages": reading.records,
        "elapsed_s": reading.elapsed_s,
        "client_cpu_s": time.process_time(),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
