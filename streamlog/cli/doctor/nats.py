"""NATS: is each server reached, what does it take, and what may this login do there."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from streamlog.condition import CRITICAL, NOTE, WARNING, Condition
from streamlog.errors import ConfigError
from streamlog.findings import Finding, wrong_setting
from streamlog.metadata.nodes.node_condition import NATS_GONE, NATS_SLOW

if TYPE_CHECKING:
    from streamlog.config import Settings
    from streamlog.nats_tools.probe import NatsProbe

AREA: Final = "nats"
SLOW_S: Final = 0.050

PAYLOAD_LIMITS_DIFFER: Final = Condition(
    "SL-0822",
    "max_payload and log.message_bytes_max differ",
    "set both to the same, so that publishers are not refused late",
    meaning="nats-server and streamlog take messages of another size at most.",
    severity=NOTE,
)
JETSTREAM_CONFLICT: Final = Condition(
    "SL-0823",
    "JetStream and streamlog answer the same requests",
    "set default_api_prefix = false, and have clients ask for the domain",
    meaning="nats-server has JetStream, and nats.default_api_prefix has streamlog answer in its "
    "place: clients get two answers.",
    severity=CRITICAL,
)
CONSUMERS_NOT_SERVED: Final = Condition(
    "SL-0827",
    "no JetStream consumers for clients of this nats-server",
    "have nats.servers name its leafnode port (nats-leaf://), which a `leafnodes` block opens; or have clients that "
    "read connect to nats_listen",
    meaning="A node that is only a client of nats-server cannot deliver what JetStream consumers read. Kafka clients "
    "and single messages are not concerned.",
    severity=NOTE,
)

LEAF_PORT: Final = 7422


async def examine(settings: "Settings", timeout_s: float) -> AsyncIterator[Finding]:
    from streamlog.nats_tools.probe import visit

    if not settings.nats.servers:
        yield Finding(AREA, "ok", "no nats-server: clients connect to nats_listen", "", {})
        return
    if settings.nats.is_leaf:
        for server in settings.nats.servers:
            yield await _leaf(server, timeout_s)
        return
    for server in settings.nats.servers:
        try:
            found = await visit(settings.nats, server, timeout_s)
        except ConfigError as error:
            yield wrong_setting(error, AREA)
            return
        for finding in _told(settings, found):
            yield finding
    said = "clients of these nats-servers publish and administer, and cannot read by JetStream consumers"
    yield Finding.of(CONSUMERS_NOT_SERVED, AREA, said)


async def _leaf(server: str, timeout_s: float) -> Finding:
    """Whether a leafnode port answers there."""
    parts = urlsplit(server)
    place = f"{parts.hostname}:{parts.port or LEAF_PORT}"
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or LEAF_PORT)
            line = await reader.readline()
            writer.close()
            info = json.loads(line.removeprefix(b"INFO "))
    except TimeoutError:
        remedy = "see whether it wants nats.tls_first, and the network"
        return Finding.of(NATS_GONE, AREA, f"{place} does not greet a leafnode in time", remedy)
    except (OSError, ValueError) as error:
        remedy = "name a server with a leafnodes block in nats.servers"
        return Finding.of(NATS_GONE, AREA, f"no leafnode port at {place}: {error}", remedy)
    if "leafnode_urls" not in info:
        remedy = "name the port of its leafnodes block, 7422 by default"
        return Finding.of(NATS_GONE, AREA, f"{place} is no leafnode port", remedy)
    seconds = loop.time() - began_s
    said = f"NATS at {place} (nats-server {info.get('version')}) takes leafnodes"
    return Finding(AREA, "ok", said, "", {"round_trip_seconds": seconds})


def _told(settings: "Settings", it: "NatsProbe") -> Iterator[Finding]:
    from streamlog.ingest.nats.error_counts import NATS_PERMISSION_MISSING

    where = f"NATS at {it.address}"
    if it.complaint is not None:
        yield Finding.of(NATS_GONE, AREA, f"{where}: {it.complaint.text}", it.complaint.remedy)
        return
    measured = {"round_trip_seconds": it.round_trip_s, "max_payload_bytes": float(it.max_payload)}
    said = f"{where} (nats-server {it.version}) answers in {it.round_trip_s * 1000:.1f} ms"
    if it.round_trip_s > SLOW_S:
        remedy = "each message crosses NATS twice, in and as an ack: have a server near"
        yield Finding.of(NATS_SLOW, AREA, said, remedy, severity=WARNING, measured=measured)
    else:
        yield Finding(AREA, "ok", said, "", measured)
    yield from _payload(settings.log.message_bytes_max, where, it.max_payload)
    for missing in it.forbidden:
        yield Finding.of(
            NATS_PERMISSION_MISSING,
            AREA,
            f"{where} does not permit to {missing}",
            "grant it to streamlog's user: docs/nats.md has all permissions",
        )
    if it.has_jetstream and settings.nats.default_api_prefix:
        said = (
            f"{where} has JetStream, and nats.default_api_prefix has streamlog answer in its place"
        )
        yield Finding.of(JETSTREAM_CONFLICT, AREA, said)


def _payload(message_bytes_max: int, where: str, max_payload: int) -> Iterator[Finding]:
    if max_payload < message_bytes_max:
        yield Finding.of(
            PAYLOAD_LIMITS_DIFFER,
            AREA,
            f"{where} takes messages of {max_payload} bytes at most, log.message_bytes_max allows "
            f"{message_bytes_max}",
            "raise max_payload of nats-server if publishers need it",
        )
    elif max_payload > message_bytes_max:
        yield Finding.of(
            PAYLOAD_LIMITS_DIFFER,
            AREA,
            f"{where} takes messages of {max_payload} bytes, of which streamlog refuses those over "
            f"{message_bytes_max} (log.message_bytes_max)",
        )
