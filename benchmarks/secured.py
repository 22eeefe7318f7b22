"""What security costs: TLS, certificates of both sides, passwords, encryption on the disk, beside none,
on a node each.

The same records, the same clients; only what is said on the connection, or stored, differs.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.case import Case, Measurement, Metric, Variant
from benchmarks.cases import COUNTS, MEGABYTES, RATE, measured
from benchmarks.consumer import QUEUE_BACKOFF
from benchmarks.lone_node import LoneNode
from benchmarks.processes import run_client
from benchmarks.side import STREAM, Sides

SIZE: Final = 1024
CONNECTS: Final = 300
USER: Final = "benchmark"
PASSWORD: Final = "nobody else has it"
TIMEOUT_S: Final = 30.0
CONNECT = Metric("connects", "connections/s")


class SecurityOption(NamedTuple):
    """What the node's file says, and what confluent-kafka is told."""

    node: str = ""
    client: Mapping[str, str] = {}
    stream: Mapping[str, str] = {}
    """Of the stream's configuration."""


class SecuredNode(LoneNode):
    """One with such security."""

    name = "streamlog"

    def __init__(self, directory: Path, secure: Callable[[Path], SecurityOption]) -> None:
        option = secure(directory.with_suffix(".keys"))
        super().__init__(directory, settings=option.node)
        self.client = json.dumps(option.client)
        self.start()
        self.pids: Sequence[int] = (self.node_pid,)
        self._create_stream(option)

    def _create_stream(self, option: SecurityOption) -> None:
        """As a client that may: over NATS nobody has shown a certificate."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.kafka, **option.client})
        topic = NewTopic(STREAM, 1, 1, config={"streamlog.sync": "os", **option.stream})
        admin.create_topics([topic])[STREAM].result(TIMEOUT_S)


def nothing(_: Path) -> SecurityOption:
    return SecurityOption()


def tls(directory: Path, *, mutual: bool = False) -> SecurityOption:
    """ECDSA P-256, as trustme makes them."""
    import trustme

    directory.mkdir(exist_ok=True)
    authority = trustme.CA()
    ca = directory / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    files = {}
    for name in ("node", "client"):
        issued = authority.issue_cert("localhost", "127.0.0.1", common_name=name)
        files[name] = directory / f"{name}.pem", directory / f"{name}-key.pem"
        issued.cert_chain_pems[0].write_to_path(files[name][0])
        issued.private_key_pem.write_to_path(files[name][1])
    cert, key = files["node"]
    node = f'[tls]\ncert = "{cert}"\nkey = "{key}"\nclient_ca = "{ca}"\n'
    client = {"security.protocol": "ssl", "ssl.ca.location": str(ca)}
    if mutual:
        node += (
            'client_auth = "required"\n[authorization]\nsuper_users = ["User:client"]\n'
            '[sasl]\nprincipal_mapping_rules = "RULE:^CN=([^,]+),.*$/$1/"\n'
        )
        cert, key = files["client"]
        client |= {"ssl.certificate.location": str(cert), "ssl.key.location": str(key)}
    return SecurityOption(node, client)


def password(directory: Path, *, sealed: bool = False) -> SecurityOption:
    """By SCRAM, which costs the client some milliseconds of hashing; ``sealed``: within TLS."""
    from streamlog.authn.scram import ITERATIONS, Scram, credential_of, salted_password
    from streamlog.metadata.image.credential import StoredCredential
    from streamlog.metadata.nodes.bootstrap_users import add_bootstrap_user

    option = tls(directory) if sealed else SecurityOption()
    directory.mkdir(exist_ok=True)
    scram, salt = Scram.SHA_512, b"salt of the benchmark"
    salted = salted_password(scram, PASSWORD, salt, ITERATIONS)
    stored = StoredCredential.of(credential_of(scram, salted, salt, ITERATIONS))
    add_bootstrap_user(directory / "users", USER, {"SCRAM-SHA-512": stored})
    users = f'bootstrap_file = "{directory / "users"}"\n'
    may = f'[authorization]\nsuper_users = ["User:{USER}"]\n'
    node = f'{option.node}{may}[sasl]\nmechanisms = ["{scram.value}"]\n{users}'
    protocol = "sasl_ssl" if sealed else "sasl_plaintext"
    known = {"sasl.mechanisms": scram.value, "sasl.username": USER, "sasl.password": PASSWORD}
    return SecurityOption(node, {**option.client, **known, "security.protocol": protocol})


def encrypted(directory: Path, *, sealed: bool = False) -> SecurityOption:
    """On the disk; ``sealed``: within TLS as well."""
    import base64
    import secrets

    option = tls(directory) if sealed else SecurityOption()
    directory.mkdir(exist_ok=True)
    key = directory / "key"
    key.write_bytes(base64.b64encode(secrets.token_bytes(32)))
    keys = f'[encryption]\nactive_key = "k"\n[encryption.keys]\nk = "file:{key}"\n'
    return option._replace(node=option.node + keys, stream={"streamlog.encrypted": "true"})


OPTIONS: Final[Mapping[str, Callable[[Path], SecurityOption]]] = {
    "in the clear": nothing,
    "TLS": tls,
    "TLS, certificates of both sides": functools.partial(tls, mutual=True),
    "SCRAM-SHA-512": password,
    "SCRAM-SHA-512 within TLS": functools.partial(password, sealed=True),
    "encrypted on the disk": encrypted,
    "encrypted on the disk, TLS": functools.partial(encrypted, sealed=True),
}
"""The first is the yardstick."""


def _run(
    secure: Callable[[Path], SecurityOption],
    measure: Callable[[Sides, SecuredNode, float], Measurement],
) -> Callable[[Sides, float], Measurement]:
    """A node of its own for each run: what another has left behind is not in the way."""

    def run(sides: Sides, scale: float) -> Measurement:
        node = sides.own("option", lambda directory: SecuredNode(directory, secure))
        try:
            return measure(sides, node, scale)
        finally:
            sides.drop("option")

    return run


def _produce(sides: Sides, node: SecuredNode, scale: float) -> Measurement:
    arguments = ["--target", node.kafka, "--topic", STREAM, "--settings", node.client]
    arguments += ["--count", str(int(COUNTS[SIZE] * scale)), "--size", str(SIZE)]
    return measured(sides, node, "kafka_producer", "kafka", *arguments)


def _consume(sides: Sides, node: SecuredNode, scale: float) -> Measurement:
    count = str(int(COUNTS[SIZE] * scale))
    target = ["--target", node.kafka, "--topic", STREAM, "--settings", node.client]
    run_client("kafka_producer", "kafka", *target, "--count", count, "--size", str(SIZE))
    settings = json.dumps({**QUEUE_BACKOFF, **json.loads(node.client)})
    source = ["--server", node.kafka, "--source", STREAM, "--settings", settings]
    arguments = [*source, "--count", count, "--size", str(SIZE)]
    return measured(sides, node, "consumer", "kafka-defaults", *arguments)


def _connect(sides: Sides, node: SecuredNode, scale: float) -> Measurement:
    arguments = ["--server", node.kafka, "--settings", node.client]
    arguments += ["--count", str(int(CONNECTS * scale))]
    return measured(sides, node, "connecting", *arguments)


def _case(
    name: str,
    title: str,
    metrics: tuple[Metric, ...],
    measure: Callable[[Sides, SecuredNode, float], Measurement],
) -> Case[Sides]:
    variants = tuple(Variant(label, _run(secure, measure)) for label, secure in OPTIONS.items())
    return Case(f"secured-{name}", title, metrics, variants)


CASES: Final = (
    _case("produce", "Locks: produce with Kafka, 1 KiB", (MEGABYTES, RATE), _produce),
    _case("consume", "Locks: consume from the start, 1 KiB", (MEGABYTES, RATE), _consume),
    _case("connect", "Locks: new connections, one after the other", (CONNECT,), _connect),
)
