"""Every mistake of a configuration: what a start refuses, what contradicts itself, what will be
regretted. ``streamlog config check`` and ``streamlog doctor`` print it.
"""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.condition import CRITICAL, NOTE, OK, Condition
from streamlog.errors import ConfigError
from streamlog.findings import Finding, wrong_setting

if TYPE_CHECKING:
    from streamlog.config import Settings

AREA: Final = "configuration"
ANY: Final = ("0.0.0.0", "::", "")

NO_ADVERTISED_HOST: Final = Condition(
    "SL-0802",
    "kafka.advertised_host is missing",
    "set kafka.advertised_host to the name by which they reach this machine",
    meaning="The node listens on all addresses and does not know by which one it is reached, so it "
    "tells clients and other nodes an address that is none.",
    severity=CRITICAL,
)
ADVERTISES_LOOPBACK: Final = Condition(
    "SL-0803",
    "a loopback address is advertised",
    "set kafka.host and kafka.advertised_host to what they can reach",
    meaning="Other voters are on other machines, and this node tells them an address of its own.",
    severity=CRITICAL,
)
ONE_PORT_TWICE: Final = Condition(
    "SL-0804",
    "kafka.port and http.port are the same",
    "choose another one",
    meaning="Two listeners cannot have one port.",
    severity=CRITICAL,
)
PAYLOADS_SHOWN: Final = Condition(
    "SL-0805",
    "the console shows records to every client",
    'set http.show_payloads = "auto", or let only those reach the port who may read everything',
    meaning="http.show_payloads is on, and other machines reach the page.",
)
CLUSTER_ID_MISSING: Final = Condition(
    "SL-0806",
    "cluster.id is missing",
    "set it to the same text on every node",
    meaning="A cluster of several nodes needs a name that they compare.",
    severity=CRITICAL,
)
VOTER_NAMED_TWICE: Final = Condition(
    "SL-0807",
    "cluster.voters names a node twice",
    "each id stands for one node",
    meaning="Two addresses have the same node id.",
    severity=CRITICAL,
)
EVEN_VOTERS: Final = Condition(
    "SL-0808",
    "the number of voters is even",
    "have three voters, or five; further nodes are observers",
    meaning="A majority of an even number bears no more losses than one voter less would.",
)
NOT_A_VOTER: Final = Condition(
    "SL-0809",
    "this node is no voter",
    "nothing, if it is meant so; else name it in cluster.voters",
    meaning="The node follows the metadata and does not vote.",
    severity=NOTE,
)
VOTER_ADDRESS_DIFFERS: Final = Condition(
    "SL-0810",
    "cluster.voters has this node at another port",
    "see that one leads to the other, or correct one of them",
    meaning="Other voters connect to the address in cluster.voters.",
)
LIMIT_BELOW_MESSAGE: Final = Condition(
    "SL-0811",
    "a limit is less than log.message_bytes_max",
    "raise that limit, or lower log.message_bytes_max",
    meaning="The largest message that the log allows does not fit through another limit.",
)
SESSION_TIMEOUT_LONG: Final = Condition(
    "SL-0812",
    "cluster.session_timeout_ms is too long",
    "let replica_lag_time_max_ms be some times session_timeout_ms",
    meaning="The in-sync sets wait for a dead node until its session ends.",
)
SYNC_NOT_COMMIT: Final = Condition(
    "SL-0813",
    "log.sync is not commit",
    'docs/durability.md says what each loses; "commit" loses nothing',
    meaning="A power cut may lose what was acknowledged.",
    severity=NOTE,
)
SECRET_IN_CLEAR: Final = Condition(
    "SL-0814",
    "a secret for NATS may go over the network in the clear",
    "write tls:// in nats.servers, or log in by an NKey or credentials",
    meaning="A password or token is sent to a nats-server on another machine without TLS.",
)


VOTERS_SHARE_MACHINE: Final = Condition(
    "SL-0826",
    "several voters are on one machine",
    "let one node of each machine vote: the others follow the metadata as observers",
    meaning="`node.processes` runs several nodes on this machine, and cluster.voters names more than "
    "one of them. If the machine is lost, so are their votes.",
)


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
        return ExaminedFile(None, [wrong_setting(error, AREA)])
    found = [wrong_setting(error, AREA) for error in read.mistakes]
    if read.settings is not None:
        rest = [
            *(wrong_setting(error, AREA) for error in refusals(read.settings)),
            *examine(read.settings),
        ]
        found += [it for it in rest if read.doubtful.isdisjoint(re.findall(r"\w+", it.what))]
    if len(found) > 1:
        found = [it for it in found if it.severity != OK]
    return ExaminedFile(None if read.mistakes else read.settings, found)


def nodes_that_can_be(settings: "Settings") -> "list[Settings]":
    """Of the settings' machine; none where they contradict each other."""
    from streamlog.config import nodes_of

    try:
        return [it.settings for it in nodes_of(settings)]
    except ConfigError:
        return []


def examine(settings: "Settings") -> list[Finding]:
    """Whatever can be said without a look at anything else."""
    found = [*_addresses(settings), *_quorum(settings), *_sizes(settings), *_promises(settings)]
    return found or [Finding(AREA, "ok", "nothing contradicts itself")]


def _addresses(it: "Settings") -> Iterator[Finding]:
    kafka, http = it.kafka, it.http
    if kafka.host in ANY and kafka.advertised_host is None:
        yield Finding.of(
            NO_ADVERTISED_HOST,
            AREA,
            f"kafka.host is {kafka.host!r} and there is no kafka.advertised_host: clients and other"
            " nodes are told to connect to an address that is none",
        )
    advertised = kafka.advertised_host or kafka.host
    others = [address for node_id, address in voters_of(it) if node_id != it.node.id]
    if _is_loopback(advertised) and any(not _is_loopback(host) for host, _ in others):
        said = f"this node advertises {advertised!r}, and other voters are on other machines"
        yield Finding.of(ADVERTISES_LOOPBACK, AREA, said)
    if kafka.port and kafka.port == http.port and (kafka.host == http.host or kafka.host in ANY):
        yield Finding.of(ONE_PORT_TWICE, AREA, f"kafka.port and http.port are both {http.port}")
    if not _is_loopback(http.host) and http.show_payloads == "on":
        yield Finding.of(
            PAYLOADS_SHOWN,
            AREA,
            f"http.show_payloads is on, http.host is {http.host!r}: every client that reaches it reads every stream",
        )


def _quorum(it: "Settings") -> Iterator[Finding]:
    voters = voters_of(it)
    if not voters:
        return
    ids = [node_id for node_id, _ in voters]
    if it.cluster.id is None and set(ids) != {it.node.id}:
        yield Finding.of(CLUSTER_ID_MISSING, AREA, CLUSTER_ID_MISSING.title)
    if len(set(ids)) < len(ids):
        yield Finding.of(VOTER_NAMED_TWICE, AREA, VOTER_NAMED_TWICE.title)
    if len(ids) % 2 == 0:
        said = f"there are {len(ids)} voters: they bear no more losses than {len(ids) - 1} would"
        yield Finding.of(EVEN_VOTERS, AREA, said)
    own = [node_id for node_id in ids if 0 <= node_id - it.node.id < it.node.processes]
    if 1 < len(own) < len(ids):
        said = f"{len(own)} of {len(ids)} voters are nodes of this machine, and are lost with it"
        yield Finding.of(VOTERS_SHARE_MACHINE, AREA, said)
    if it.node.id not in ids:
        yield Finding.of(
            NOT_A_VOTER, AREA, "this node is no voter: it follows the metadata, no more"
        )
        return
    host, port = dict(voters)[it.node.id]
    if port not in (it.kafka.port, it.kafka.advertised_port):
        said = f"cluster.voters has this node at {host}:{port}; it listens on port {it.kafka.port}"
        yield Finding.of(VOTER_ADDRESS_DIFFERS, AREA, said)


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
            yield Finding.of(
                LIMIT_BELOW_MESSAGE,
                AREA,
                f"{key} ({size}) is less than log.message_bytes_max ({message})",
                f"raise {key}, or lower log.message_bytes_max",
            )
    if it.cluster.session_timeout_ms >= it.replication.replica_lag_time_max_ms:
        yield Finding.of(
            SESSION_TIMEOUT_LONG,
            AREA,
            "cluster.session_timeout_ms is no less than replication.replica_lag_time_max_ms: a dead node is "
            "waited for in the in-sync sets",
        )


def _promises(it: "Settings") -> Iterator[Finding]:
    if it.log.sync != "commit":
        said = f"log.sync is {it.log.sync}: a power cut may lose what was acknowledged"
        yield Finding.of(SYNC_NOT_COMMIT, AREA, said)
    nats = it.nats
    in_clear = [server for server in nats.servers if not server.startswith("tls://")]
    has_secret = bool(nats.password or nats.token or any("@" in server for server in nats.servers))
    has_tls = nats.tls_ca or nats.tls_cert or nats.tls_first
    far = [server for server in in_clear if not _is_loopback(_host(server))]
    if has_secret and far and not has_tls:
        said = "a password or token for NATS may go to another machine in the clear"
        yield Finding.of(SECRET_IN_CLEAR, AREA, said)


def own_addresses(it: "Settings") -> str:
    """Where the nodes of this machine are reached, by commas."""
    return ",".join(own_address(each) for each in nodes_that_can_be(it) or [it])


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
