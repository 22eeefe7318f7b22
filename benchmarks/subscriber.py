"""One publisher and one subscriber of core NATS: the rate at which messages come through.

``python -m benchmarks.subscriber HOST:PORT COUNT`` prints one line of JSON. Each end is a process, with prebuilt
lines over one raw socket; what is received is counted in bytes.
"""

import json
import multiprocessing
import socket
import sys
import time
from multiprocessing.synchronize import Event
from typing import Final

SIZE: Final = 100
CHUNK: Final = 200
READ_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 60.0
CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


def dialled(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def synchronize(sock: socket.socket, said: bytes) -> None:
    """Say it, and return when the server has carried it out."""
    sock.sendall(said + b"PING\r\n")
    heard = b""
    while b"PONG\r\n" not in heard:
        heard += sock.recv(READ_BYTES)


def publish(address: str, count: int, ready: Event) -> None:
    with dialled(address) as sock:
        synchronize(sock, CONNECT)
        chunk = (b"PUB core.a %d\r\n%b\r\n" % (SIZE, b"x" * SIZE)) * CHUNK
        ready.wait()
        for _ in range(count // CHUNK):
            sock.sendall(chunk)
        synchronize(sock, b"")


def main() -> int:
    address, count = sys.argv[1], int(sys.argv[2]) // CHUNK * CHUNK
    ready = multiprocessing.Event()
    publisher = multiprocessing.Process(target=publish, args=(address, count, ready))
    publisher.start()
    with dialled(address) as sock:
        synchronize(sock, CONNECT + b"SUB core.a 1\r\n")
        wanted = count * len(b"MSG core.a 1 %d\r\n%b\r\n" % (SIZE, b"x" * SIZE))
        buffer = memoryview(bytearray(READ_BYTES))
        ready.set()
        began = time.perf_counter()
        received = 0
        while received < wanted:
            size = sock.recv_into(buffer)
            if not size:
                raise SystemExit(f"closed after {received} of {wanted} bytes")
            received += size
        elapsed = time.perf_counter() - began
    publisher.join()
    print(json.dumps({"rate": count / elapsed, "elapsed_s": elapsed, "messages": count}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
