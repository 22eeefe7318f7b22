"""How to connect with nats-py: a node that never gives up, and a command that tries once."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client

from streamlog.config import NatsSection
from streamlog.errors import ConfigError, NodeUnreachable

PING_INTERVAL_S = 10
PINGS_OUTSTANDING_MAX = 2
"""A server that answers none of these is taken for dead: after 20 to 30 s."""


def connect_options(nats: NatsSection, *, name: str) -> dict[str, Any]:
    """Keyword arguments of nats-py's connect that never gives up. Raises ConfigError."""
    for server in nats.servers:
        scheme, found, _ = server.partition("://")
        if found and scheme not in ("nats", "tls"):
            raise ConfigError(
                "nats.servers", f"{server!r} is not supported", "use nats:// or tls://"
            )
    if nats.credentials is not None:
        _check_credentials("nats.credentials", nats.credentials)
    return {
        "servers": list(nats.servers),
        "name": name,
        "user": nats.user,
        "password": nats.password,
        "token": nats.token,
        "user_credentials": str(nats.credentials) if nats.credentials else None,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": nats.reconnect_wait_ms / 1000,
        "ping_interval": PING_INTERVAL_S,
        "max_outstanding_pings": PINGS_OUTSTANDING_MAX,
    }


async def connect_once(servers: Sequence[str], *, timeout_s: float, **login: Any) -> Client:
    """A connection that is there now, and no other when it breaks.

    Raises NodeUnreachable, and ConfigError for credentials that cannot be used.
    """
    if login.get("user_credentials"):
        _check_credentials("credentials", Path(login["user_credentials"]))
    client = Client()
    failures: list[Exception] = []

    async def failed(error: Exception) -> None:
        failures.append(error)

    options: dict[str, Any] = {
        "servers": list(servers),
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": timeout_s,
        "error_cb": failed,
        **login,
    }
    try:
        await client.connect(**options)
    except (nats.errors.Error, OSError, TimeoutError) as error:
        cause = failures[0] if failures else error
        raise NodeUnreachable(f"NATS at {', '.join(servers)}: {cause}") from None
    return client


def _check_credentials(key: str, path: Path) -> None:
    if find_spec("nkeys") is None:
        raise ConfigError(key, "needs the package nkeys", "install nats-py[nkeys]")
    if not path.is_file():
        raise ConfigError(key, f"{path} is not a file", "name the file that NATS gave you")
