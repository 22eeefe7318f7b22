"""Ports for the development cluster."""

import random
import socket
from typing import Final

from streamlog.errors import ConfigError

CHOICES: Final = range(12_000, 22_000)
"""Below the ports that systems give to outgoing connections, which come and go."""

PORT_MAX: Final = 65_535


def settle_port(option: str, host: str, port: int, taken: set[int]) -> int:
    """``port`` if it is free, some free one for 0. Raises ConfigError that names ``option``."""
    if port > PORT_MAX:
        raise ConfigError(option, f"there is no port {port}", "choose a lower one")
    if port:
        if port in taken or not _is_free(host, port):
            remedy = "stop what uses it or choose another (0: a free one)"
            raise ConfigError(option, f"port {port} is in use", remedy)
        taken.add(port)
        return port
    for choice in random.sample(CHOICES, 1_000):
        if choice not in taken and _is_free(host, choice):
            taken.add(choice)
            return choice
    raise ConfigError(option, "no free port was found", "name one")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
