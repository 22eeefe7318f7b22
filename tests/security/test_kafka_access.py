"""The socket API with each stock client: unknown, wrongly known, known and not allowed."""

import time
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.guarded_node import ADMIN, GuardedNode, kafka_python, librdkafka
from tools.nodes.server_process import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
PATIENCE_S = 20.0


def consumer(node: GuardedNode, user: str | None, **more: object) -> Consumer:
    settings = {"group.id": "reader-1", "auto.offset.reset": "earliest", **more}
    return Consumer(librdkafka(node, user, **settings))


def first_outcome(reader: Consumer, topic: str) -> Any:
    """The first record, or the first error."""
    reader.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = reader.poll(0.2)
        if message is not None:
            error = message.error()
            if error is None or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                return error or message.value()  # of groups other tests are
    raise AssertionError("neither a record nor an error")


def is_refused(reader: Consumer, topic: str) -> bool:
    """To whoever asks for it by name, be it for its leaders or for its offsets; whether there is such a topic is not
    told.
    """
    told = reader.list_topics(topic, timeout=10).topics[topic].error
    assert told is not None
    with pytest.raises(KafkaException) as caught:
        reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=1)
    codes = {told.code(), caught.value.args[0].code()}
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    return told.code() == refused and codes <= {refused, KafkaError._UNKNOWN_PARTITION}


@pytest.mark.parametrize("user", [None, "reader:wrong", "stranger"])
def test_who_is_not_known_sees_nothing(guarded: GuardedNode, user: str | None) -> None:
    """confluent-kafka."""
    before = guarded.log_text().count("request failed")
    with pytest.raises(KafkaException):
        AdminClient(librdkafka(guarded, user)).list_topics(timeout=1.5)
    assert guarded.log_text().count("request failed") == before
    wait_until(
        lambda: any(it["event"] == "login refused" for it in guarded.audited()), "not audited"
    )
    assert "reader-secret" not in guarded.log_text()


def test_who_may_read_reads_that_and_nothing_else(guarded: GuardedNode) -> None:
    reader = consumer(guarded, "reader")
    try:
        assert set(reader.list_topics(timeout=10).topics) == {"orders"}
        assert first_outcome(reader, "orders") == b"orders 0"
        assert is_refused(reader, "secret")
    finally:
        reader.close()
    wait_until(lambda: refusals(guarded, "reader", "secret") != [], "not audited")


def refusals(node: GuardedNode, user: str, resource: str) -> list[dict[str, Any]]:
    return [
        it
        for it in node.audited()
        if it["event"] == "refused"
        and it["principal"] == f"User:{user}"
        and it["resource"] == resource
    ]


def test_who_may_do_nothing_is_told_of_nothing(guarded: GuardedNode) -> None:
    reader = consumer(guarded, "nobody", **{"group.id": "reader-2"})
    try:
        assert reader.list_topics(timeout=10).topics == {}
        for topic in ("orders", "no-such-topic"):
            assert is_refused(reader, topic)
    finally:
        reader.close()


def test_a_group_that_one_may_not_use(guarded: GuardedNode) -> None:
    member = consumer(guarded, "reader", **{"group.id": "others"})
    try:
        member.subscribe(["orders"])
        deadline = time.monotonic() + PATIENCE_S
        error = None
        while error is None and time.monotonic() < deadline:
            message = member.poll(0.2)
            error = None if message is None else message.error()
        assert error is not None
        assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        member.close()


def test_a_group_that_one_may_use(guarded: GuardedNode) -> None:
    member = consumer(guarded, "reader", **{"group.id": "reader-3", "enable.auto.commit": False})
    try:
        member.subscribe(["orders"])
        deadline = time.monotonic() + PATIENCE_S
        values: list[bytes | None] = []
        while len(values) < 10 and time.monotonic() < deadline:
            message = member.poll(0.2)
            if message is not None:
                assert message.error() is None
                values.append(message.value())
        assert len(values) == 10
        member.commit(asynchronous=False)
        assert member.committed([TopicPartition("orders", 0)], timeout=10)[0].offset == 10
    finally:
        member.close()


@pytest.mark.parametrize(
    ("user", "topic", "code"),
    [
        ("reader", "orders", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("nobody", "orders", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("reader", "secret", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("reader", "no-such", KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_write_writes_nothing(
    guarded: GuardedNode, user: str, topic: str, code: int
) -> None:
    told: list[Any] = []
    producer = Producer(librdkafka(guarded, user))
    started = time.monotonic()
    producer.produce(topic, b"forged", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert time.monotonic() - started < 10, "it waits for a topic that it may not know of"
    assert [error.code() for error in told] == [code]
    if topic == "no-such":
        return
    owner = consumer(guarded, ADMIN)
    try:
        assert owner.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)
    finally:
        owner.close()


def failures(futures: dict[Any, Any]) -> set[int]:
    codes = set()
    for future in futures.values():
        with pytest.raises(KafkaException) as caught:
            future.result(PATIENCE_S)
        codes.add(caught.value.args[0].code())
    return codes


def test_who_may_only_read_administers_nothing(guarded: GuardedNode) -> None:
    admin = AdminClient(librdkafka(guarded, "reader"))
    forbidden, unknown = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART
    cluster = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert failures(admin.create_topics([NewTopic("mine", 1), NewTopic("secret", 1)])) == {
        forbidden
    }
    assert failures(admin.delete_topics(["orders"])) == {forbidden}
    assert failures(admin.delete_topics(["secret"])) == {unknown}
    assert failures(admin.create_partitions([NewPartitions("orders", 3)])) == {forbidden}
    assert failures(admin.create_partitions([NewPartitions("secret", 3)])) == {unknown}
    config = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    assert failures(admin.describe_configs([config])) == {forbidden}
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    config = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])
    assert failures(admin.incremental_alter_configs([config])) == {forbidden}
    assert failures(admin.delete_records([TopicPartition("orders", 0, 5)])) == {forbidden}
    assert failures(admin.create_acls([binding("reader")])) == {cluster}
    assert admin.describe_acls(ANY).result(PATIENCE_S) == []  # librdkafka tells no error of it
    acts = {it["act"] for it in guarded.audited() if it.get("principal") == "User:reader"
            and it["event"] == "attempt" and it["outcome"] != "none"}  # fmt: skip
    assert {"streams.create", "streams.delete", "streams.alter", "streams.trim_partitions"} <= acts
    refused = {it["operation"] for it in guarded.audited() if it["event"] == "refused"}
    assert "alter" in refused, "of the cluster: rules"
    assert admin.list_consumer_groups().result(PATIENCE_S).valid is not None


def binding(user: str, name: str = "made-") -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, ResourcePatternType.PREFIXED, f"User:{user}", "*",
        AclOperation.WRITE, AclPermissionType.ALLOW,
    )  # fmt: skip


ANY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,  # type: ignore[arg-type]
    AclPermissionType.ANY,
)  # fmt: skip


def test_rules_by_confluent_kafka(guarded: GuardedNode) -> None:
    admin = AdminClient(librdkafka(guarded, ADMIN))
    ours = binding("confluent")
    for future in admin.create_acls([ours]).values():
        future.result(PATIENCE_S)
    mine = AclBindingFilter(
        ResourceType.TOPIC, "made-7", ResourcePatternType.MATCH, "User:confluent", None,  # type: ignore[arg-type]
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    assert admin.describe_acls(mine).result(PATIENCE_S) == [ours]
    (gone,) = [future.result(PATIENCE_S) for future in admin.delete_acls([mine]).values()]
    assert gone == [ours]
    assert admin.describe_acls(mine).result(PATIENCE_S) == []


def test_rules_by_kafka_python(guarded: GuardedNode) -> None:
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        KafkaAdminClient,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from kafka.admin import ACLResourcePatternType as Pattern
    from kafka.admin import ResourceType as Kind

    client = KafkaAdminClient(**kafka_python(guarded, ADMIN))
    try:
        ours = ACL(
            principal="User:kp", host="*", operation=ACLOperation.READ,
            permission_type=ACLPermissionType.DENY,
            resource_pattern=ResourcePattern(Kind.GROUP, "kp", Pattern.LITERAL),
        )  # fmt: skip
        made = client.create_acls([ours])
        assert made["succeeded"] == [ours]
        wanted = ACLFilter(
            principal="User:kp", host=None, operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(Kind.ANY, None, Pattern.ANY),
        )  # fmt: skip
        found, error = client.describe_acls(wanted)
        assert found == [ours]
        assert error.errno == 0
        ((_, deleted, error),) = client.delete_acls([wanted])
        assert deleted == [ours]
        assert error.errno == 0
    finally:
        client.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_aiokafka(guarded: GuardedNode, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError as AioKafkaError
    from aiokafka.structs import TopicPartition as AioTopicPartition

    reader = AIOKafkaConsumer(**kafka_python(guarded, "reader", mechanism))
    await reader.start()
    try:
        assert await reader.topics() == {"orders"}
        place = AioTopicPartition("orders", 0)
        reader.assign([place])
        await reader.seek_to_beginning(place)
        assert (await reader.getone()).value == b"orders 0"
    finally:
        await reader.stop()
    stranger = AIOKafkaConsumer(**kafka_python(guarded, "reader:wrong", mechanism))
    try:
        with pytest.raises(AioKafkaError):
            await stranger.start()
    finally:
        await stranger.stop()


def test_what_is_taken_back_is_gone_at_once(guarded: GuardedNode) -> None:
    """Also for a consumer in the midst of its reading."""
    rule = ("-p", "User:nobody", "-o", "read", "-t", "orders")
    group = ("-p", "User:nobody", "-o", "read", "-g", "nobody")
    guarded.admin("acl", "add", *group)
    guarded.admin("acl", "add", *rule)
    reader = consumer(guarded, "nobody", **{"group.id": "nobody", "enable.auto.commit": False})
    try:
        assert first_outcome(reader, "orders") == b"orders 0"
        guarded.admin("acl", "rm", "--yes", *rule)
        reader.seek(TopicPartition("orders", 0, 0))  # what it has fetched by now is forgotten
        outcomes = [message for _ in range(10) if (message := reader.poll(0.1)) is not None]
        assert all(message.error() is not None for message in outcomes)
        assert is_refused(reader, "orders")
    finally:
        reader.close()


def test_rules_by_the_command_line(guarded: GuardedNode) -> None:
    said = guarded.admin("acl", "add", "-p", "User:cli", "-o", "write", "-o", "describe-configs",
                         "-t", "cli-*", "--host", "10.0.0.1", "--deny")  # fmt: skip
    assert "added: deny User:cli from 10.0.0.1 to write topic cli-*" in said
    listed = guarded.admin("acl", "ls", "-t", "cli-1", "--json")
    assert listed.count("describe_configs") == 1
    assert "cli-*" in guarded.admin("acl", "ls", "-p", "User:cli")
    refused = guarded.cli("acl", "ls", "--bootstrap-server", guarded.kafka, user="nobody")
    assert refused.code == 1
    assert "may not describe the cluster" in refused.err
    assert "not for a group" in guarded.cli(
        "acl", "add", "-p", "User:cli", "-o", "write", "-g", "g", "--bootstrap-server", guarded.kafka,
        user=ADMIN,
    ).err  # fmt: skip
    gone = guarded.admin("acl", "rm", "--yes", "-p", "User:cli")
    assert gone.count("removed: ") == 2
    assert guarded.admin("acl", "ls", "-p", "User:cli", "--json").strip() == "[]"


FILE_RULES = """
[[allow]]
principals = ["User:filed"]
operations = ["read"]
topics = ["filed-*"]
"""


def test_rules_of_the_file_are_shown_and_stay(guarded: GuardedNode) -> None:
    guarded.rules_file.write_text(FILE_RULES)
    try:
        guarded.admin("acl", "add", "-p", "User:filed", "-o", "write", "-t", "filed-*")
        wait_until(
            lambda: guarded.admin("acl", "ls", "-p", "User:filed", "--json").count("filed-") == 2,
            "the file's rule is not shown",
        )
        table = guarded.admin("acl", "ls", "-p", "User:filed")
        assert [line.split()[-1] for line in table.splitlines()[1:]] == [
            "cluster",
            "rules_file",
        ]
        admin = AdminClient(librdkafka(guarded, ADMIN))
        ours = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, "User:filed", None,  # type: ignore[arg-type]
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        seen = admin.describe_acls(ours).result(PATIENCE_S)
        assert {it.operation for it in seen} == {AclOperation.READ, AclOperation.WRITE}
        done = guarded.cli("acl", "rm", "--yes", "-p", "User:filed", "--bootstrap-server", guarded.kafka,
                           user=ADMIN)  # fmt: skip
        assert done.code == 1
        assert "removed: allow User:filed from * to write topic filed-*" in done.out
        assert f"stands in {guarded.rules_file} (authorization.rules_file) of node 1" in done.err
        assert len(admin.describe_acls(ours).result(PATIENCE_S)) == 1
    finally:
        guarded.rules_file.write_text("")
    wait_until(
        lambda: "filed" not in guarded.admin("acl", "ls", "-p", "User:filed", "--json"),
        "the file's rule is still shown",
    )
