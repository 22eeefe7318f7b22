"""A server that acknowledges every message and does nothing else.

The publisher against it shows what the publisher itself can do, so that a rate measured against a
real server is the server's. It takes one connection, answers the handshake, and from then on counts
line ends: two are one message.
"""

import socket

from benchmarks.connection import BUFFER_BYTES

_ACK = b'MSG _INBOX.b.000000 1 34\r\n{"stream":"bench","seq":123456789}\r\n'
_INFO = (
    b'INFO {"server_id":"mirror","version":"0","proto":1,"headers":true,"max_payload":1048576}\r\n'
)


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(_INFO)
    seen = b""
    while b"SUB " not in seen or not seen.endswith(b"PING\r\n"):
        seen += connection.recv(4096)
        if seen.endswith(b"PING\r\n"):
            connection.sendall(b"PONG\r\n")
    acknowledge(connection)


def acknowledge(connection: socket.socket) -> None:
    """Two line ends in, one ack out, until the other side goes."""
    buffer = bytearray(BUFFER_BYTES)
    acks = _ACK * 20_000
    lines = 0
    while size := connection.recv_into(buffer):
        lines += buffer.count(b"\n", 0, size)
        messages, lines = divmod(lines, 2)
        while messages:
            ready = min(messages, 20_000)
            connection.sendall(memoryview(acks)[: ready * len(_ACK)])
            messages -= ready


if __name__ == "__main__":
    main()
