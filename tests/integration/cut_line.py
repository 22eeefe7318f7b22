"""A line to a server on this machine that can be cut: with a reset, or in silence until it is mended."""

import contextlib
import socket
import struct
import threading
from typing import Final

READ_BYTES: Final = 65_536
RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


class CutLine:
    """``port`` is to be connected to in place of the server's, which need not run yet."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._flows = threading.Event()
        self._flows.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def hold(self) -> None:
        """Nothing arrives any more, on any connection, and neither side is told."""
        self._flows.clear()

    def flow(self) -> None:
        """What was held back arrives, and all that follows."""
        self._flows.set()

    def reset(self) -> None:
        """All connections end; what was held back is lost."""
        with self._lock:
            sockets, self._open = self._open, set()
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
                sock.shutdown(socket.SHUT_RD)
            sock.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._flows.set()
        self.reset()

    def _run(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                here.close()
                continue
            for sock in (here, there):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {here, there}
            for pair in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                self._flows.wait()
                target.sendall(data)
        self._flows.wait()  # the end comes no earlier than the bytes before it
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()
