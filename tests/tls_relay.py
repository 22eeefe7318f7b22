"""TLS in front of a node that has none, as a proxy does it."""

import contextlib
import socket
import ssl
import threading
from types import TracebackType
from typing import Self

import trustme

JOIN_TIMEOUT_S = 10.0


class TlsRelay:
    """Passes requests and answers on, one after the other on each connection."""

    def __init__(self, address: str, authority: trustme.CA) -> None:
        host, port = address.split(":")
        self._behind = host, int(port)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(self._context)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._begin(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT_S)

    def _begin(self, work: object, *arguments: object) -> None:
        assert callable(work)
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._begin(self._relay, self._listening.accept()[0])

    def _relay(self, plain: socket.socket) -> None:
        with (
            plain,
            contextlib.suppress(OSError),
            self._context.wrap_socket(plain, server_side=True) as secured,
            socket.create_connection(self._behind) as behind,
        ):
            requests, answers = secured.makefile("rb"), behind.makefile("rb")
            while head := requests.read(4):
                behind.sendall(head + requests.read(int.from_bytes(head, "big")))
                head = answers.read(4)
                secured.sendall(head + answers.read(int.from_bytes(head, "big")))
