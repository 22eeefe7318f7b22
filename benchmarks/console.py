"""``python -m benchmarks.console``: what viewers of the console cost a node of very many streams.

A node with 10,000 streams gets a steady rate of messages, each to a stream by chance. Its processor
time is taken over the same number of seconds without a viewer, and right after that with 32; what
viewers cost is the difference. That is done for 32 viewers of one page of streams, for 32 of a page
each, and others. A viewer is an HTTP connection that reads the console's events, as a browser does.
"""

import argparse
import json
import random
import selectors
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.asking import Question, ask_all
from benchmarks.connection import VOID, BenchmarkError, Connection
from benchmarks.lone_node import LoneNode
from benchmarks.processes import cpu_seconds

STREAMS: Final = 10_000
VIEWERS: Final = 32
RATE: Final = 500.0
SECONDS: Final = 10.0
ROUNDS: Final = 3
SETTLE_S: Final = 4.0
TICK_S: Final = 0.02
NAME: Final = "shown"
CREATIONS_AT_ONCE: Final = 32
PAGES: Final = {
    "all of one page": "show=streams",
    "each of a page of its own": "show=streams&page={number}",
    "each with a filter of its own": "show=streams&filter={number}",
    "the largest rates first": "show=streams&sort=rate&order=desc",
    "all of one page of partitions": "show=partitions",
}


class Viewers:
    """HTTP connections that read the console's events; what they read is counted and dropped."""

    def __init__(self, port: int, query: str, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self.events = self.size_bytes = 0
        for number in range(count):
            asked = query.format(number=number, name=NAME)
            it = socket.create_connection(("127.0.0.1", port), timeout=10)
            it.sendall(f"GET /api/live?{asked} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = it.recv(1 << 16)
            if not head.startswith(b"HTTP/1.1 200"):
                raise BenchmarkError(head.decode(errors="replace"))
            it.setblocking(False)
            self._selector.register(it, selectors.EVENT_READ, it)
            self._sockets.append(it)

    def read(self) -> None:
        """Whatever has come."""
        for key, _ in self._selector.select(0):
            data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
            if not data:
                raise BenchmarkError("a viewer was let go")
            self.events += data.count(b"event: ")
            self.size_bytes += len(data)

    def close(self) -> None:
        self._selector.close()
        for it in self._sockets:
            it.close()


class Load:
    """Messages at a steady rate, each to a stream by chance, without acks."""

    def __init__(self, nats: str, streams: int, rate: float) -> None:
        self._connection = Connection(nats)
        self._streams, self._rate = streams, rate
        self._chance = random.Random(1)
        self._began = time.monotonic()
        self._sent = 0
        self._beats = 0

    def send(self) -> None:
        due = int((time.monotonic() - self._began) * self._rate)
        if due > self._sent:
            chosen = (self._chance.randrange(self._streams) for _ in range(due - self._sent))
            name = NAME.encode()
            lines = (b"PUB %s.%d 100\r\n%s\r\n" % (name, it, bytes(100)) for it in chosen)
            self._connection.send(b"".join(lines))
            self._sent = due
        if self._beats % 500 == 0:
            self._connection.flush()  # answers the server's pings
        self._beats += 1


def measure(
    node: LoneNode, load: Load, query: str | None, viewers: int, seconds: float
) -> dict[str, float]:
    watching = None if query is None else Viewers(node.http_port, query, viewers)

    def run(for_s: float) -> None:
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            load.send()
            if watching is not None:
                watching.read()
            time.sleep(TICK_S)

    try:
        run(SETTLE_S)
        if watching is not None:
            watching.events = watching.size_bytes = 0
        before, began = cpu_seconds([node.node_pid]), time.monotonic()
        run(seconds)
        used, took = cpu_seconds([node.node_pid]) - before, time.monotonic() - began
    finally:
        if watching is not None:
            watching.close()
    found = {"core_percent": 100 * used / took}
    if watching is not None:
        found["events_s"] = watching.events / took / viewers
        found["kib_s"] = watching.size_bytes / took / viewers / 1024
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--viewers", type=int, default=VIEWERS)
    parser.add_argument("--rate", type=float, default=RATE, help="messages a second")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="streamlog-console-", dir=options.dir))
    settings = f'[log]\nsync = "os"\n[http]\nstatus_clients_max = {8 * options.viewers}\n'
    node = LoneNode(directory / "node", settings=settings)
    try:
        node.start()
        ask_all(node.nats, (_creation(it) for it in range(options.streams)), CREATIONS_AT_ONCE)
        load = Load(node.nats, options.streams, options.rate)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in PAGES}
        for _ in range(options.rounds):
            for name, query in PAGES.items():
                alone = measure(node, load, None, 0, options.seconds)
                one = measure(node, load, query, options.viewers, options.seconds)
                one["without_percent"] = alone["core_percent"]
                one["viewers_percent"] = one["core_percent"] - alone["core_percent"]
                found[name].append(one)
                told = {key: round(it, 2) for key, it in one.items()}
                print(json.dumps({"viewers": name, **told}), flush=True)
        for name, rounds in found.items():
            middle = {key: round(median(it[key] for it in rounds), 2) for key in rounds[0]}
            print(json.dumps({"median": name, **middle}), flush=True)
    except VOID as error:
        print(f"void: {error}", file=sys.stderr)
        return 1
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def _creation(number: int) -> Question:
    name = f"{NAME}{number:05}"
    config = {"name": name, "subjects": [f"{NAME}.{number}"], "storage": "file", "num_replicas": 1}
    return Question(f"STREAM.CREATE.{name}", json.dumps(config).encode())


if __name__ == "__main__":
    sys.exit(main())
