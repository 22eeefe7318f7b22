"""What NATS is like for this node, found out by one short connection that disturbs no client."""

import secrets
import time
from typing import Final, NamedTuple

import nats.errors

from streamlog.config import NatsSection
from streamlog.ingest.nats.errors import NatsError, understood
from streamlog.ingest.nats.options import NatsOptions
from streamlog.nats_tools.client import NatsClient

ROUNDS: Final = 5
ADMIN_GROUP: Final = "streamlog-admin"


class NatsProbe(NamedTuple):
    """What one server of ``nats.servers`` said."""

    address: str
    version: str = ""
    max_payload: int = 0
    has_jetstream: bool = False
    round_trip_s: float = 0.0
    forbidden: tuple[str, ...] = ()
    """What this login may not do, though streamlog needs it."""
    complaint: NatsError | None = None
    """Why it could not be visited."""


async def visit(section: NatsSection, server: str, timeout_s: float) -> NatsProbe:
    """Raises ConfigError for settings that cannot be used; nothing for a server that is away."""
    access = NatsOptions(section.model_copy(update={"servers": (server,)}))
    client, heard = NatsClient(access), list[Exception]()
    address = access.servers[0]

    async def failed(error: Exception) -> None:
        heard.append(error)

    try:
        await client.connect(**access.options_once("streamlog doctor", timeout_s), error_cb=failed)
    except (nats.errors.Error, OSError, TimeoutError) as error:
        client.abandon()
        return NatsProbe(address, complaint=understood(heard[0] if heard else error, access.login))
    try:
        took_s = min([await _round_trip(client, timeout_s) for _ in range(ROUNDS)])
        forbidden = await _forbidden(client, section.domain, heard, timeout_s)
        info = client._server_info
        return NatsProbe(
            address,
            str(info.get("version", "")),
            client.max_payload,
            bool(info.get("jetstream")),
            took_s,
            forbidden,
        )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        return NatsProbe(address, complaint=understood(error, access.login))
    finally:
        await client.close()


async def _round_trip(client: NatsClient, timeout_s: float) -> float:
    began = time.perf_counter()
    await client.flush(max(1, round(timeout_s)))
    return time.perf_counter() - began


async def _forbidden(
    client: NatsClient, domain: str, heard: list[Exception], timeout_s: float
) -> tuple[str, ...]:
    """Below the subjects that streamlog needs, where no other client listens or publishes.

    A complaint names its subject, and may be told a moment after the answer to a later PING.
    """
    own = f"DOCTOR.{secrets.token_hex(8)}"
    tried: dict[str, str] = {}
    requests, advisories = f"$JS.{domain}.API.{own}", f"$JS.EVENT.ADVISORY.{own}"
    await client.subscribe(requests, queue=ADMIN_GROUP)
    tried[f"subscription to {_quoted(requests)}"] = f"subscribe to {requests.replace(own, '>')}"
    await client.publish(advisories, b"")
    tried[f"publish to {_quoted(advisories)}"] = f"publish to {advisories.replace(own, '>')}"
    for _ in range(ROUNDS):
        await _round_trip(client, timeout_s)
    complaints = " ".join(str(error) for error in heard).lower()
    return tuple(said for what, said in tried.items() if what in complaints)


def _quoted(subject: str) -> str:
    return f'"{subject}"'.lower()
