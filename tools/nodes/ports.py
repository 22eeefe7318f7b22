"""Ports for servers of tests and benchmarks, each handed out once among all processes.

A server that is killed and started again needs the same port, so the port is chosen before the
server listens, and nothing in the kernel holds it meanwhile. A port chosen by chance would meet
another one about once in a run of the whole suite. So a process claims a block of ports, by a UDP
socket on the first of them, which the kernel gives to one process at a time and takes back when
the process ends. The process hands out the ports of its blocks in turn, and begins again only
when other processes have claimed all other blocks.
"""

import os
import socket
import threading
from collections.abc import Iterator
from typing import Final

PORTS: Final = range(22_000, 32_000)
"""Above the ports that ``streamlog dev`` chooses from. Below those that the system gives to
outgoing connections: such a connection would take the port of a killed server, or connect to
itself, before the server comes back."""

BLOCK: Final = 100
LOOPBACK: Final = "127.0.0.1"


class Ports:
    """The ports of one process."""

    def __init__(self, ports: range = PORTS, block: int = BLOCK) -> None:
        self._ports = ports
        self._block = block
        self._claims: dict[int, int] = {}  # the first port of a block, and its socket
        self._lock = threading.Lock()
        self._turn = self._in_turn()

    def take(self, host: str = LOOPBACK) -> int:
        """A port on which nobody listens, and which no other caller gets before its turn is due.

        Raises OSError when other processes have claimed all ports, or all of ours are in use.
        """
        with self._lock:
            for _ in self._ports:
                port = next(self._turn, None)
                if port is None:
                    break
                if _is_free(host, port):
                    return port
        raise OSError(f"no port from {self._ports[0]} to {self._ports[-1]} is free")

    def close(self) -> None:
        """Give the blocks back. The servers on their ports must have ended."""
        for descriptor in self._claims.values():
            os.close(descriptor)
        self._claims.clear()

    def _in_turn(self) -> Iterator[int]:
        for first in self._ports[:: self._block]:
            if self._claim(first):
                yield from self._block_of(first)
        while self._claims:
            for first in list(self._claims):
                yield from self._block_of(first)

    def _block_of(self, first: int) -> range:
        return range(first, min(first + self._block, self._ports.stop))

    def _claim(self, first: int) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind((LOOPBACK, first))
            except OSError:
                return False
            self._claims[first] = claim.detach()  # open until the process ends
            return True


_ports = Ports()


def free_port(host: str = LOOPBACK) -> int:
    """A port for a server of this process or of its children; see :class:`Ports`."""
    return _ports.take(host)


def free_ports(count: int) -> int:
    """The first of so many ports in a row, each as ``free_port`` hands them out."""
    first, last = 0, -1
    while last - first + 1 < count:
        port = free_port()
        if port != last + 1:
            first = port
        last = port
    return first


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
