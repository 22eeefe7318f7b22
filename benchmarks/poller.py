"""Consumers that wait for records that never come: each on a connection of its own.

``python -m benchmarks.poller kafka|pull|push ...`` prints ``waiting`` when all of them wait, and
when its standard input ends, one line of JSON.

``kafka``  each has a Fetch under way, and sends the next as soon as that is answered empty
``pull``   each has a pull consumer of JetStream and a request for its next message, likewise
``push``   each listens to a push consumer of JetStream: nothing has to be asked for again
"""

import argparse
import json
import resource
import selectors
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

from benchmarks.connection import TIMEOUT_S, BenchmarkError, Connection
from streamlog.wire import framing
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_request
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import APIS

FETCH: Final = 1
FETCH_VERSION: Final = 11
FETCH_BYTES_MAX: Final = 50 << 20
PARTITION_BYTES_MAX: Final = 1 << 20
READ_BYTES: Final = 1 << 16
SPARE_FILES: Final = 100

Ask = Callable[[], None]


class Poller:
    """One consumer: ``ask`` sends a request, ``answered`` says whether its answer has come."""

    def __init__(self, socket_: socket.socket, ask: Ask, end: bytes | None) -> None:
        self.socket = socket_
        self.ask = ask
        self._end = end
        self._unread = b""

    def answered(self) -> bool:
        """Raises BenchmarkError if the connection is closed, or a record came."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise BenchmarkError("the server closed a connection")
        if self._end is None:
            return self._frame_ended(data)
        self._unread = (self._unread + data)[-READ_BYTES:]
        if b"PING\r\n" in data:
            self.socket.sendall(b"PONG\r\n")
        if self._end in self._unread:
            self._unread = b""
            return True
        return False

    def _frame_ended(self, data: bytes) -> bool:
        self._unread += data
        length = int.from_bytes(self._unread[:4], "big")
        if len(self._unread) < 4 + length:
            return False
        self._unread = b""
        return True


def kafka(server: str, stream: str, wait_ms: int) -> Poller:
    """Waits at the start of an empty stream, as a consumer does that has read everything."""
    host, _, port = server.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    partition = FetchPartition(0, 0, PARTITION_BYTES_MAX)
    request = FetchRequest([FetchTopic(stream, [partition])], wait_ms, 1, FETCH_BYTES_MAX)
    header = encode_request_header(APIS[FETCH], FETCH_VERSION, 1, "poller")
    frame = framing.frame(header, encode_request(request, FETCH_VERSION))
    return Poller(connection, lambda: connection.sendall(frame), None)


def pull(server: str, stream: str, number: int, wait_ms: int) -> Poller:
    connection, name = Connection(server), f"idle-{number}"
    _create(connection, stream, name, {})
    inbox = f"_INBOX.idle.{number}"
    connection.subscribe(inbox, 1)
    body = json.dumps({"batch": 1, "expires": wait_ms * 1_000_000}).encode()
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    request = b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), inbox.encode(), len(body), body)
    return Poller(connection.socket, lambda: connection.send(request), b"NATS/1.0 408")


def push(server: str, stream: str, number: int) -> Poller:
    connection, name = Connection(server), f"idle-{number}"
    subject = f"idle.deliver.{number}"
    connection.subscribe(subject, 1)
    _create(connection, stream, name, {"deliver_subject": subject})
    return Poller(connection.socket, lambda: None, b"MSG ")


def _create(connection: Connection, stream: str, name: str, more: dict[str, str]) -> None:
    config = {"durable_name": name, "ack_policy": "none", "mem_storage": True, **more}
    body = json.dumps({"stream_name": stream, "config": config}).encode()
    answer = connection.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
    if "error" in answer:
        raise BenchmarkError(str(answer["error"]))


def wait(pollers: list[Poller]) -> int:
    """Ask again and again until standard input ends; how often was answered."""
    answers = 0
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ, None)
        for poller in pollers:
            selector.register(poller.socket, selectors.EVENT_READ, poller)
            poller.ask()
        print("waiting", flush=True)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    return answers
                if key.data.answered():
                    answers += 1
                    key.data.ask()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["kafka", "pull", "push"])
    parser.add_argument("--server", required=True, help="host:port")
    parser.add_argument("--source", required=True, help="an empty stream")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--wait-ms", type=int, required=True)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, options.count + SPARE_FILES), most))
    makers: dict[str, Callable[[int], Poller]] = {
        "kafka": lambda _: kafka(options.server, options.source, options.wait_ms),
        "pull": lambda i: pull(options.server, options.source, i, options.wait_ms),
        "push": lambda i: push(options.server, options.source, i),
    }
    try:
        pollers = [makers[options.mode](number) for number in range(options.count)]
        start = time.perf_counter()
        answers = wait(pollers)
    except (BenchmarkError, OSError) as error:
        print(json.dumps({"failed": str(error) or type(error).__name__}))
        return 1
    print(json.dumps({"messages": answers, "elapsed_s": time.perf_counter() - start}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
