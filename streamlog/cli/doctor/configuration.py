"""Every mistake of a configuration: what a start refuses, what contradicts itself, what will be
regretted. ``streamlog config check`` and ``streamlog doctor`` print it.
"""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.errors import ConfigError
from streamlog.findings import OK, Finding

if TYPE_CHECKING:
    from streamlog.config import Settings

AREA: Final = "configuration"
ANY: Final = ("0.0.0.0", "::", "")


class ExaminedFile(NamedTuple):
    """A file, with the environment, and all that there is to say about it."""

    settings: "Settings | None"
    """None: a setting is wrong, and no node starts with it."""
    findings: list[Finding]


def examine_file(path: Path | None) -> ExaminedFile:
    """Reads the files that the settings name, too; opens no port, and writes nothing. Blocking."""
    from streamlog.app.start_checks import refusals
    from streamlog.config import read_settings

    try:
        read = read_settings(path)
    except ConfigError as error:
        return ExaminedFile(None, [_refused(error)])
    found = [_refused(error) for error in read.mistakes]
    if read.settings is not None:
        rest = [*map(_refused, refusals(read.settings)), *examine(read.settings)]
        found += [it for it in rest if read.doubtful.isdisjoint(re.findall(r"\w+", it.what))]
    if len(found) > 1:
        found = [it for it in found if it.severity != OK]
    return ExaminedFile(None if read.mistakes else read.settings, found)


def _refused(error: ConfigError) -> Finding:
    return Finding(AREA, "critical", f"{error.key}: {error.problem}", error.remedy)


def examine(settings: "Settings") -> list[Finding]:
    """Whatever can be said without a look at anything else."""
    found = [*_addresses(settings), *_quorum(settings), *_sizes(settings), *_promises(settings)]
    return found or [Finding(AREA, "ok", "nothing contradicts itself")]


def _addresses(it: "Settings") -> Iterator[Finding]:
    kafka, http = it.kafka, it.http
    if kafka.host in ANY and kafka.advertised_host is None:
        yield Finding(
            AREA,
            "critical",
            f"kafka.host is {kafka.host!r} and there is no kafka.advertised_host: clients and other"
            " nodes are told to connect to an address that is none",
            "set kafka.advertised_host to the name by which they reach this machine",
        )
    advertised = kafka.advertised_host or kafka.host
    others = [address for node_id, address in voters_of(it) if node_id != it.node.id]
    if _is_loopback(advertised) and any(not _is_loopback(host) for host, _ in others):
        yield Finding(
            AREA,
            "critical",
            f"this node advertises {advertised!r}, and other voters are on other machines",
            "set kafka.host and kafka.advertised_host to what they can reach",
        )
    if kafka.port and kafka.port == http.port and (kafka.host == http.host or kafka.host in ANY):
        yield Finding(
            AREA, "critical", f"kafka.port and http.port are both {http.port}", "choose another one"
        )
    if not _is_loopback(http.host) and http.show_payloads == "on":
        yield Finding(
            AREA,
            "warning",
            f"http.show_payloads is on, http.host is {http.host!r}: every client that reaches it reads every stream",
            'set http.show_payloads = "auto", or let only those reach the port who may read everything',
        )


def _quorum(it: "Settings") -> Iterator[Finding]:
    voters = voters_of(it)
    if not voters:
        return
    ids = [node_id for node_id, _ in voters]
    if it.cluster.id is None and set(ids) != {it.node.id}:
        yield Finding(
            AREA, "critical", "cluster.id is missing", "set it to the same text on every node"
        )
    if len(set(ids)) < len(ids):
        yield Finding(
            AREA, "critical", "cluster.voters names a node twice", "each id stands for one node"
        )
    if len(ids) % 2 == 0:
        yield Finding(
            AREA,
            "warning",
            f"there are {len(ids)} voters: they bear no more losses than {len(ids) - 1} would",
            "have three voters, or five; further nodes are observers",
        )
    if it.node.id not in ids:
        yield Finding(AREA, "note", "this node is no voter: it follows the metadata, no more")
        return
    host, port = dict(voters)[it.node.id]
    if port not in (it.kafka.port, it.kafka.advertised_port):
        yield Finding(
            AREA,
            "warning",
            f"cluster.voters has this node at {host}:{port}; it listens on port {it.kafka.port}",
            "see that one leads to the other, or correct one of them",
        )


def _sizes(it: "Settings") -> Iterator[Finding]:
    message = it.log.message_bytes_max
    for key, size in (
        ("ingest.in_flight_bytes_max", it.ingest.in_flight_bytes_max),
        ("log.uncompressed_bytes_max", it.log.uncompressed_bytes_max),
        ("log.segment_bytes", it.log.segment_bytes),
        ("kafka.request_bytes_max", it.kafka.request_bytes_max),
        ("kafka.fetch_bytes_max", it.kafka.fetch_bytes_max),
        ("replication.fetch_bytes_max", it.replication.fetch_bytes_max),
    ):
        if size < message:
            yield Finding(
                AREA,
                "warning",
                f"{key} ({size}) is less than log.message_bytes_max ({message})",
                f"raise {key}, or lower log.message_bytes_max",
            )
    if it.cluster.session_timeout_ms >= it.replication.replica_lag_time_max_ms:
        yield Finding(
            AREA,
            "warning",
            "cluster.session_timeout_ms is no less than replication.replica_lag_time_max_ms: a dead node is "
            "waited for in the in-sync sets",
            "let replica_lag_time_max_ms be some times session_timeout_ms",
        )


def _promises(it: "Settings") -> Iterator[Finding]:
    if it.log.sync != "commit":
        yield Finding(
            AREA,
            "note",
            f"log.sync is {it.log.sync}: a power cut may lose what was acknowledged",
            'docs/durability.md says what each loses; "commit" loses nothing',
        )
    nats = it.nats
    in_clear = [server for server in nats.servers if not server.startswith("tls://")]
    has_secret = bool(nats.password or nats.token or any("@" in server for server in nats.servers))
    has_tls = nats.tls_ca or nats.tls_cert or nats.tls_first
    far = [server for server in in_clear if not _is_loopback(_host(server))]
    if has_secret and far and not has_tls:
        yield Finding(
            AREA,
            "warning",
            "a password or token for NATS may go to another machine in the clear",
            "write tls:// in nats.servers, or log in by an NKey or credentials",
        )


def own_address(it: "Settings") -> str:
    """Where the node's socket API is reached, as far as the settings tell."""
    kafka = it.kafka
    host = kafka.advertised_host or ("127.0.0.1" if kafka.host in ANY else kafka.host)
    port = kafka.advertised_port or kafka.port
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def voters_of(it: "Settings") -> list[tuple[int, tuple[str, int]]]:
    """As far as they can be read; what is wrong with the others the node says when it starts."""
    found = []
    for text in it.cluster.voters:
        node_id, _, address = text.partition("@")
        host, _, port = address.rpartition(":")
        if node_id.isdecimal() and port.isdecimal():
            found.append((int(node_id), (host.strip("[]"), int(port))))
    return found


def _host(server: str) -> str:
    return server.rpartition("@")[2].rpartition("://")[2].rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
