"""``python -m benchmarks.arrow_query KIND``: read a whole stream in one thread, and count.

By ``streamlog.arrow`` rows come as Arrow batches with all columns but headers; the loop over
confluent-kafka looks at key, value, offset and timestamp of each message. A short read before the
clock starts loads what is needed.
"""

import argparse
import json
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

import streamlog.arrow
from benchmarks.consumer import QUEUE_BACKOFF

BATCH: Final = 10_000
TIMEOUT_S: Final = 30.0
WARM_UP: Final = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--server", required=True)
    parser.add_argument("--path", required=True, help="a node's data folder")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--count", type=int, required=True, help="at least")
    parser.add_argument("--size", type=int, required=True, help="of a value")
    options = parser.parse_args()
    read = KINDS[options.kind]
    read(options, WARM_UP)
    started, cpu_started = time.perf_counter(), time.process_time()
    count = read(options, options.count)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    result: dict[str, Any] = {"messages": count, "rate": count / seconds, "per_core": count / cpu_s}
    result["mb_per_s"] = count * options.size / seconds / 1e6
    if count < options.count:
        result = {"failed": f"{count} records, where {options.count} were published"}
    print(json.dumps(result))


def _arrow(options: argparse.Namespace, count: int, **where: Any) -> int:
    reader = streamlog.arrow.read(options.stream, end=count, **where)
    return sum(batch.num_rows for batch in reader)


def _servers(options: argparse.Namespace, count: int) -> int:
    return _arrow(options, count, servers=options.server)


def _path(options: argparse.Namespace, count: int) -> int:
    return _arrow(options, count, path=options.path)


def _kafka(options: argparse.Namespace, count: int) -> int:
    settings: dict[str, Any] = {
        "bootstrap.servers": options.server,
        "group.id": f"arrow-{uuid.uuid4()}",
        "enable.auto.commit": False,
        **QUEUE_BACKOFF,
    }
    seen = 0
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(options.stream, 0, 0)])
        while seen < count:
            messages = consumer.consume(BATCH, timeout=TIMEOUT_S)
            if not messages:
                break
            for message in messages:
                message.key(), message.value(), message.offset(), message.timestamp()
            seen += len(messages)
    return seen


KINDS: Final[dict[str, Callable[[argparse.Namespace, int], int]]] = {
    "kafka": _kafka,
    "servers": _servers,
    "path": _path,
}


if __name__ == "__main__":
    main()
