"""The least that a server can do for a JetStream consumer: ``python -m benchmarks.prebuilt_server SIZE`` prints a port.

Messages of ``SIZE`` bytes, built beforehand, are sent as soon as they are asked for: by a push consumer without end,
else as many as a pull request names. So it shows what the client, and what the kernel copies for it, allow any server.
"""

import itertools
import re
import socket
import sys
from contextlib import suppress
from typing import Final

from benchmarks.connection import BUFFER_BYTES

CHUNK_BYTES: Final = 512 * 1024
_BATCH: Final = re.compile(rb'"batch": ?(\d+)')


def main() -> None:
    payload = bytes(int(sys.argv[1]))
    message = b"MSG stream.a 1 $JS.ACK.stream.pull.1.1000000.1000000.1764000000000000000.1000000 %d\r\n%b\r\n"
    message %= (len(payload), payload)
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):  # the client has what it wanted
                serve(connection, message)


def serve(connection: socket.socket, message: bytes) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(b"INFO {}\r\n")
    chunk = memoryview(message * (CHUNK_BYTES // len(message)))
    rest = b""
    while data := connection.recv(BUFFER_BYTES):
        lines = (rest + data).split(b"\r\n")
        rest = lines.pop()
        for line in lines:
            if line == b"PING":
                connection.sendall(b"PONG\r\n")
            elif line.startswith(b"SUB deliver."):
                for _ in itertools.count():
                    connection.sendall(chunk)
            elif batch := _BATCH.search(line):
                left = int(batch[1]) * len(message)
                while left:
                    part = chunk[:left]
                    connection.sendall(part)
                    left -= len(part)


if __name__ == "__main__":
    main()
