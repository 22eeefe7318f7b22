"""Where nodes are reached, as users write it; and why one cannot be."""

import os

from streamlog.errors import ConfigError


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """What Kafka calls bootstrap servers: ``host:port,host:port``. Raises ConfigError."""
    return [_address(part.strip()) for part in text.split(",")]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError("servers", f"{text!r} is no address", "write host:port")
    return host.strip("[]"), int(port)


def reason(error: OSError) -> str:
    """In the system's words; the event loops have some of their own. Resolvers count below zero."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
