"""Transactions of one producer of confluent-kafka, one after the other: ``python -m benchmarks.kafka_transactions``.

Each is begun, has its records produced and is committed; it takes until the commit has returned. The first ones are not
counted. Prints one line of JSON.
"""

import argparse
import json
import sys
import time
import uuid
from typing import Final

from benchmarks.connection import BenchmarkError

TIMEOUT_S: Final = 30.0
WARM_UP_SHARE: Final = 10
"""The first one in so many is not counted."""


def measured(servers: str, topic: str, *, count: int, records: int, size: int) -> dict[str, float]:
    """Raises BenchmarkError if one is not committed."""
    from confluent_kafka import KafkaException, Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": uuid.uuid4().hex,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    value = bytes(size)
    took: list[float] = []
    try:
        producer.init_transactions(TIMEOUT_S)
        for _ in range(count):
            begun = time.perf_counter()
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(topic, value, partition=0)
            producer.commit_transaction(TIMEOUT_S)
            took.append(time.perf_counter() - begun)
    except KafkaException as error:
        raise BenchmarkError(str(error)) from None
    took = took[count // WARM_UP_SHARE :]
    return {
        "transactions": len(took) / sum(took),
        "p50_ms": 1e3 * sorted(took)[len(took) // 2],
        "messages": count * records,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True, help="host:port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--records", type=int, default=1, help="of each transaction")
    parser.add_argument("--size", type=int, default=100)
    it = parser.parse_args()
    try:
        result = measured(it.servers, it.topic, count=it.count, records=it.records, size=it.size)
    except BenchmarkError as error:
        print(json.dumps({"failed": str(error)}))
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
