"""Kafka's own command-line tools manage a node behind TLS, as who they log in as."""

import json
from collections.abc import Iterator, Mapping

import pytest
from cryptography.hazmat.primitives import serialization

from tests.guarded_node import ADMIN, ORDERS, SealedNode, sealed_node
from tests.peers.kafka_commands import (
    Done,
    KafkaCommands,
    by_certificate,
    by_password,
    kafka_jars,
)
from tests.peers.sources import NoSourcesError

pytestmark = [
    pytest.mark.peers,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]
Who = Mapping[str, str]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SealedNode]:
    try:
        kafka_jars()
    except NoSourcesError as error:
        pytest.skip(f"Kafka's command-line tools cannot be had: {error}")
    with sealed_node(tmp_path_factory.mktemp("sealed")) as node:
        yield node


@pytest.fixture(scope="module")
def kafka(sealed: SealedNode) -> KafkaCommands:
    return KafkaCommands(sealed.kafka, sealed.directory)


def known(sealed: SealedNode, user: str, mechanism: str = "SCRAM-SHA-512") -> Who:
    return by_password(mechanism, user, f"{user}-secret", sealed.ca)


def certified(sealed: SealedNode, user: str) -> Who:
    """Java wants its key in PKCS 8."""
    own = sealed.certificates[user]
    both = sealed.directory / f"{user}-both.pem"
    key = serialization.load_pem_private_key(own.key.read_bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    both.write_bytes(own.cert.read_bytes() + key)
    return by_certificate(sealed.ca, both)


def ok(done: Done) -> str:
    assert done.code == 0, done
    return done.out


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_topics_are_listed_by_who_logs_in(
    sealed: SealedNode, kafka: KafkaCommands, mechanism: str
) -> None:
    listed = ok(kafka.run(known(sealed, "alice", mechanism), "kafka-topics", "--list"))
    assert listed.split() == [ORDERS]
    wrong = by_password(mechanism, "alice", "guessed", sealed.ca)
    refused = kafka.run(wrong, "kafka-topics", "--list")
    assert refused.code != 0
    assert ORDERS not in refused.out
    assert "wrong user or password" in refused.out + refused.err


def test_topics_come_and_go(sealed: SealedNode, kafka: KafkaCommands) -> None:
    admin = known(sealed, ADMIN)
    ok(kafka.run(admin, "kafka-topics", "--create", "--topic", "made", "--partitions", "3",
                 "--replication-factor", "1", "--config", "retention.ms=3600000"))  # fmt: skip
    told = ok(kafka.run(admin, "kafka-topics", "--describe", "--topic", "made"))
    assert "PartitionCount: 3" in told
    assert "retention.ms=3600000" in told
    refused = kafka.run(known(sealed, "alice"), "kafka-topics", "--delete", "--topic", "made")
    assert refused.code != 0, "alice does not even know of it"
    ok(kafka.run(admin, "kafka-topics", "--delete", "--topic", "made"))
    assert "made" not in ok(kafka.run(admin, "kafka-topics", "--list")).split()


def test_records_go_in_and_out(sealed: SealedNode, kafka: KafkaCommands) -> None:
    alice = known(sealed, "alice")
    ok(kafka.run(alice, "kafka-console-producer", "--topic", ORDERS, put="one\ntwo\n"))
    read = ("--topic", ORDERS, "--from-beginning", "--max-messages", "2", "--group", "alice-1",
            "--timeout-ms", "15000")  # fmt: skip
    assert ok(kafka.run(alice, "kafka-console-consumer", *read)).split() == ["one", "two"]
    before = sealed.high_watermark(ORDERS)
    haste = {**known(sealed, "mallory"), "max.block.ms": "3000", "delivery.timeout.ms": "4000",
             "linger.ms": "0"}  # fmt: skip
    kafka.run(haste, "kafka-console-producer", "--topic", ORDERS, put="forged\n")  # tells nothing
    assert sealed.high_watermark(ORDERS) == before
    nothing = ("--topic", ORDERS, "--from-beginning", "--timeout-ms", "4000")
    assert "one" not in kafka.run(known(sealed, "mallory"), "kafka-console-consumer", *nothing).out


def test_rules_come_are_shown_and_go(sealed: SealedNode, kafka: KafkaCommands) -> None:
    admin = known(sealed, ADMIN)
    about = ("--allow-principal", "User:bob", "--allow-host", "10.0.0.7", "--operation", "Read",
             "--topic", "bobs-", "--resource-pattern-type", "prefixed")  # fmt: skip
    ok(kafka.run(admin, "kafka-acls", "--add", *about))
    told = ok(kafka.run(admin, "kafka-acls", "--list", "--principal", "User:bob"))
    assert "patternType=PREFIXED" in told
    assert "host=10.0.0.7, operation=READ, permissionType=ALLOW" in told
    refused = kafka.run(known(sealed, "alice"), "kafka-acls", "--list")
    assert "ClusterAuthorizationException" in refused.out + refused.err
    assert "bob" not in refused.out
    ok(kafka.run(admin, "kafka-acls", "--remove", "--force", *about))
    told = ok(kafka.run(admin, "kafka-acls", "--list", "--principal", "User:bob"))
    assert "operation=READ" not in told


def test_a_consumers_and_a_producers_rights_at_a_stroke(
    sealed: SealedNode, kafka: KafkaCommands
) -> None:
    """``--producer`` wants a transactional id only where one is named."""
    admin = known(sealed, ADMIN)
    ok(kafka.run(admin, "kafka-acls", "--add", "--allow-principal", "User:carol", "--consumer",
                 "--producer", "--topic", "carols", "--group", "carols"))  # fmt: skip
    rules = json.loads(sealed.admin("acl", "ls", "-p", "User:carol", "--json"))
    assert {(it["resource_type"], it["operation"]) for it in rules} == {
        ("topic", "read"), ("topic", "describe"), ("topic", "write"), ("topic", "create"),
        ("group", "read"),
    }  # fmt: skip


def test_users_come_change_and_go(sealed: SealedNode, kafka: KafkaCommands) -> None:
    admin = known(sealed, ADMIN)
    dora = ("--entity-type", "users", "--entity-name", "dora")
    scram = "SCRAM-SHA-256=[iterations=8192,password=dora-secret],SCRAM-SHA-512=[password=other]"
    ok(kafka.run(admin, "kafka-configs", "--alter", *dora, "--add-config", scram))
    told = ok(kafka.run(admin, "kafka-configs", "--describe", *dora))
    assert "SCRAM-SHA-256=iterations=8192" in told
    assert "SCRAM-SHA-512=iterations=4096" in told
    assert "secret" not in told
    assert kafka.run(known(sealed, "dora", "SCRAM-SHA-256"), "kafka-topics", "--list").code == 0
    ok(kafka.run(admin, "kafka-configs", "--alter", *dora, "--delete-config", "SCRAM-SHA-256"))
    told = ok(kafka.run(admin, "kafka-configs", "--describe", *dora))
    assert "SCRAM-SHA-256" not in told
    assert "SCRAM-SHA-512" in told
    assert kafka.run(known(sealed, "dora", "SCRAM-SHA-256"), "kafka-topics", "--list").code != 0
    refused = kafka.run(known(sealed, "alice"), "kafka-configs", "--describe", *dora)
    assert "SCRAM" not in refused.out
    assert "ClusterAuthorizationException" in refused.out + refused.err


def test_a_certificate_is_a_name(sealed: SealedNode, kafka: KafkaCommands) -> None:
    listed = ok(kafka.run(certified(sealed, "alice"), "kafka-topics", "--list"))
    assert listed.split() == [ORDERS]
    nobody = kafka.run(by_certificate(sealed.ca, None), "kafka-topics", "--list")
    assert nobody.code != 0
    assert ORDERS not in nobody.out


def test_what_nodes_and_topics_are_set_to(sealed: SealedNode, kafka: KafkaCommands) -> None:
    admin = known(sealed, ADMIN)
    orders = ("--entity-type", "topics", "--entity-name", ORDERS)
    ok(
        kafka.run(
            admin, "kafka-configs", "--alter", *orders, "--add-config", "retention.ms=7200000"
        )
    )
    assert "retention.ms=7200000" in ok(kafka.run(admin, "kafka-configs", "--describe", *orders))
    node = ("--entity-type", "brokers", "--entity-name", "1", "--all")
    assert "log.segment.bytes" in ok(kafka.run(admin, "kafka-configs", "--describe", *node))
