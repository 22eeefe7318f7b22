"""The least that a server can do for a JetStream consumer: ``python -m benchmarks.prebuilt_server SIZE`` prints a port.

Messages of ``SIZE`` bytes, built beforehand, are sent as soon as they are asked for: by a push consumer without end,
else as many as a pull request names. So it shows what the client, and what the kernel copies for it, allow any server.
Of the API it knows CONSUMER.INFO alone, which nats-py asks for before it pulls.
"""

import itertools
import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from benchmarks.connection import BUFFER_BYTES

CHUNK_BYTES: Final = 512 * 1024
SERVER: Final = {"server_id": "prebuilt", "version": "2.15.0", "proto": 1, "headers": True}
INFO: Final = b"INFO %b\r\n" % json.dumps({**SERVER, "max_payload": 1 << 20}).encode()
_POSITION: Final = {"consumer_seq": 0, "stream_seq": 0}
CONSUMER: Final = {
    "stream_name": "stream",
    "name": "pull",
    "created": "2026-01-01T00:00:00Z",
    "config": {"durable_name": "pull", "ack_policy": "none", "deliver_policy": "all"},
    "delivered": _POSITION,
    "ack_floor": _POSITION,
}
_BATCH: Final = re.compile(rb'"batch": ?(\d+)')
_LINE: Final = re.compile(rb"(\S+) (\S+) +(?:(\S+) +)?(\d+)")
"""SUB or PUB: a subject, a queue group or a reply subject, and the subscription or the size."""


def main() -> None:
    payload = bytes(int(sys.argv[1]))
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):  # the client has what it wanted
                serve(connection, payload)


def serve(connection: socket.socket, payload: bytes) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(INFO)
    subscriptions, chunks = dict[bytes, bytes](), dict[bytes, memoryview]()
    for line, data in frames(connection):
        if line == b"PING":
            connection.sendall(b"PONG\r\n")
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        verb, subject, reply, last = found.groups()
        if verb == b"SUB":
            subscriptions[subject.removesuffix(b"*")] = last
            if subject.startswith(b"deliver."):
                for _ in itertools.count():
                    connection.sendall(chunk_of(chunks, last, payload))
        elif subject.startswith(b"$JS.API.CONSUMER.INFO"):
            number = subscriptions[reply[: reply.rindex(b".") + 1]]
            answer = json.dumps(CONSUMER).encode()
            connection.sendall(b"MSG %b %b %d\r\n%b\r\n" % (reply, number, len(answer), answer))
        elif batch := _BATCH.search(data):
            chunk = chunk_of(chunks, subscriptions[reply], payload)
            left = int(batch[1]) * len(message_of(subscriptions[reply], payload))
            while left:
                part = chunk[:left]
                connection.sendall(part)
                left -= len(part)


def message_of(subscription: bytes, payload: bytes) -> bytes:
    reply = b"$JS.ACK.stream.pull.1.1000000.1000000.1764000000000000000.1000000"
    return b"MSG stream.a %b %b %d\r\n%b\r\n" % (subscription, reply, len(payload), payload)


def chunk_of(chunks: dict[bytes, memoryview], subscription: bytes, payload: bytes) -> memoryview:
    """Many messages."""
    if subscription not in chunks:
        message = message_of(subscription, payload)
        chunks[subscription] = memoryview(message * (CHUNK_BYTES // len(message)))
    return chunks[subscription]


def frames(connection: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Each line that the client sends, and what it publishes with that."""
    held = b""
    while data := connection.recv(BUFFER_BYTES):
        held += data
        while (end := held.find(b"\r\n")) >= 0:
            line, after = held[:end], end + 2
            if line.startswith(b"PUB"):
                after += int(line.split()[-1]) + 2
                if len(held) < after:
                    break
            yield line, held[end + 2 : after]
            held = held[after:]


if __name__ == "__main__":
    main()
