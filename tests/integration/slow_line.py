"""A line to a server on this machine that holds back what is sent, in both directions."""

import contextlib
import queue
import socket
import threading
import time
from typing import Final

READ_BYTES: Final = 65_536


class SlowLine:
    """``port`` is to be connected to in place of the server's; ``delay_s`` may change."""

    def __init__(self, server_port: int) -> None:
        self.delay_s = 0.0
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            here, _ = self._listener.accept()
            try:
                there = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                here.close()
                continue
            for pair in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        late: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        threading.Thread(target=_send_late, args=(target, late), daemon=True).start()
        data = b"-"
        while data:
            try:
                data = source.recv(READ_BYTES)
            except OSError:
                data = b""
            late.put((time.monotonic() + self.delay_s, data))


def _send_late(target: socket.socket, late: "queue.SimpleQueue[tuple[float, bytes]]") -> None:
    """Until there is nothing more; each end is closed by what sends to it, however that ends."""
    with target, contextlib.suppress(OSError):
        while True:
            due, data = late.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                target.shutdown(socket.SHUT_RDWR)  # what still reads from it ends, too
                return
            target.sendall(data)
