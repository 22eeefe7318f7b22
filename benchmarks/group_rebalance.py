"""How soon a group reads partitions that are added to its topic, by the classic and by the consumer protocol.

    python -m benchmarks.group_rebalance

Ten consumers of librdkafka, in this process, read a topic of 100 partitions at one node, and 900 are added. The time is
from the answer to CreatePartitions until each of the 1,000 is one member's, by the members' own word. Both
groups have the clients' and the node's own settings, but for the time after which classic clients look at the topic
again (``--refresh-ms``; their default is 300,000): they alone find out about new partitions themselves.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tools.nodes.dev import Dev

MEMBERS = 10
BEFORE, AFTER = 100, 1_000
TIMEOUT_S = 400.0
REST_S = 10.0
"""After the members have come together: what their joins began is over."""


class Reader(threading.Thread):
    """A consumer that only says what it is assigned."""

    def __init__(self, servers: str, protocol: str, refresh_ms: int) -> None:
        super().__init__(daemon=True)
        self.owned: set[int] = set()
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": protocol,
                "group.protocol": protocol,
                "topic.metadata.refresh.interval.ms": refresh_ms,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([protocol])

    def run(self) -> None:
        while not self._stopping.is_set():
            self._consumer.poll(0.05)
            self.owned = {it.partition for it in self._consumer.assignment()}
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def shared(readers: list[Reader], partitions: int) -> bool:
    owned = [it.owned for it in readers]
    return all(owned) and sum(map(len, owned)) == partitions == len(set().union(*owned))


def wait(readers: list[Reader], partitions: int) -> float:
    """Seconds until each partition has one reader. Raises TimeoutError."""
    started = time.monotonic()
    while not shared(readers, partitions):
        if time.monotonic() - started > TIMEOUT_S:
            raise TimeoutError(f"{partitions} partitions are not shared")
        time.sleep(0.01)
    return time.monotonic() - started


def measure(servers: str, protocol: str, refresh_ms: int) -> float:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(protocol, BEFORE, 1)])[protocol].result(60)
    readers = [Reader(servers, protocol, refresh_ms) for _ in range(MEMBERS)]
    for reader in readers:
        reader.start()
    try:
        wait(readers, BEFORE)
        time.sleep(REST_S)
        admin.create_partitions([NewPartitions(protocol, AFTER)])[protocol].result(60)
        return wait(readers, AFTER)
    finally:
        for reader in readers:
            reader.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refresh-ms", type=int, default=300_000)
    refresh_ms: int = parser.parse_args().refresh_ms
    with tempfile.TemporaryDirectory() as folder:
        dev = Dev(Path(folder))
        dev.start()
        try:
            for protocol in ("consumer", "classic"):
                seconds = measure(dev.kafka, protocol, refresh_ms)
                print(f"{protocol}: {seconds:.1f} s", flush=True)
        finally:
            dev.stop()


if __name__ == "__main__":
    main()
