"""Stock Kafka admin clients administer streams: each call of each client that there is."""

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import nats
import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from streamlog.metadata.stream.inert_configs import INERT_CONFIGS
from tools.nodes.dev import Dev

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def admin(dev: Dev) -> AdminClient:
    return AdminClient({"bootstrap.servers": dev.kafka})


def create(
    admin: AdminClient, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    topic = NewTopic(name, partitions, 1, config=configs or {})
    admin.create_topics([topic])[name].result(TIMEOUT_S)


def done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def code_of(refused: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(refused.value.args[0].code())


def publish(dev: Dev, subject: str, count: int) -> None:
    async def run() -> None:
        client = await nats.connect(dev.nats)
        for number in range(count):
            await client.request(subject, b"%06d" % number, timeout=TIMEOUT_S)
        await client.close()

    asyncio.run(run())


def streamlog_configs(admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = done(
        admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)])
    )
    return found


# confluent-kafka


def test_confluent_describes_configs_of_topics(admin: AdminClient) -> None:
    create(admin, "told", configs={"retention.ms": "3600000", "subject": "told.>"})
    configs = streamlog_configs(admin, "told")
    assert configs["retention.ms"].value == "3600000"
    assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert configs["subject"].value == "told.>"
    assert configs["compression.type"].is_default
    assert configs["segment.bytes"].value == str(256 * 2**20)
    with pytest.raises(KafkaException) as refused:
        streamlog_configs(admin, "nowhere")
    assert code_of(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_describes_configs_of_the_node(admin: AdminClient) -> None:
    configs = done(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert configs["broker.id"].value == "1"
    assert configs["message.max.bytes"].value == str(2**20)
    assert all(config.is_read_only for config in configs.values())
    entry = changed("log.dirs", AlterConfigOpType.SET, "/x")
    node = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        done(admin.incremental_alter_configs([node]))
    assert code_of(refused) == KafkaError.INVALID_REQUEST


def test_confluent_sets_every_topic_config_of_kafka(dev: Dev, admin: AdminClient) -> None:
    """With Kafka's own defaults, as its tools and Kafka Streams do."""
    given = {name: row.default for name, row in INERT_CONFIGS.items()} | {
        "compression.type": "producer",
        "flush.messages": "1",
        "segment.jitter.ms": "5",
        "min.insync.replicas": "2",
    }
    create(admin, "kafkas", configs=given)
    configs = streamlog_configs(admin, "kafkas")
    assert {name: configs[name].value for name in given} == given
    producer = Producer({"bootstrap.servers": dev.kafka, "message.timeout.ms": 2_000, "retries": 0})
    failed: list[KafkaError | None] = []
    producer.produce("kafkas", b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(10)
    assert [it and it.code() for it in failed] == [KafkaError.NOT_ENOUGH_REPLICAS]
    topic = ConfigResource(
        ResourceType.TOPIC,
        "kafkas",
        incremental_configs=[changed("min.insync.replicas", AlterConfigOpType.DELETE)],
    )
    done(admin.incremental_alter_configs([topic]))
    producer.produce("kafkas", b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(10)
    assert failed[1] is None
    with pytest.raises(KafkaException) as refused:
        create(admin, "wrong", configs={"segment.jitter.ms": "-1"})
    assert code_of(refused) == KafkaError.INVALID_CONFIG
    assert "Value must be at least 0" in str(refused.value)


def changed(key: str, operation: AlterConfigOpType, value: str | None = None) -> ConfigEntry:
    return ConfigEntry(key, value, incremental_operation=operation)


def test_confluent_alters_some_configs(dev: Dev, admin: AdminClient) -> None:
    create(admin, "altered", configs={"segment.bytes": "65536"})

    def alter(*entries: ConfigEntry, **options: Any) -> None:
        topic = ConfigResource(ResourceType.TOPIC, "altered", incremental_configs=list(entries))
        done(admin.incremental_alter_configs([topic], **options))

    alter(
        changed("retention.ms", AlterConfigOpType.SET, "60000"),
        changed("subject", AlterConfigOpType.APPEND, "also.this"),
        changed("segment.bytes", AlterConfigOpType.DELETE),
    )
    publish(dev, "also.this", 1)
    configs = streamlog_configs(admin, "altered")
    assert configs["retention.ms"].value == "60000"
    assert configs["streamlog.duplicate_window_ms"].value == "60000"
    assert configs["subject"].value == "altered,also.this"
    assert configs["segment.bytes"].is_default
    alter(changed("subject", AlterConfigOpType.SUBTRACT, "altered"))
    assert streamlog_configs(admin, "altered")["subject"].value == "also.this"
    alter(changed("retention.ms", AlterConfigOpType.DELETE), validate_only=True)
    assert streamlog_configs(admin, "altered")["retention.ms"].value == "60000"
    for key, value in (("no.such", "1"), ("retention.ms", "soon"), ("cleanup.policy", "none")):
        with pytest.raises(KafkaException) as refused:
            alter(changed(key, AlterConfigOpType.SET, value))
        assert code_of(refused) == KafkaError.INVALID_CONFIG


def test_confluent_alters_all_configs(admin: AdminClient) -> None:
    create(admin, "anew", configs={"retention.ms": "60000", "subject": "anew.*"})
    topic = ConfigResource(ResourceType.TOPIC, "anew", {"retention.bytes": "1000000"})
    with pytest.warns(DeprecationWarning, match="incremental"):
        altered = admin.alter_configs([topic])
    done(altered)
    configs = streamlog_configs(admin, "anew")
    assert configs["retention.bytes"].value == "1000000"
    assert configs["retention.ms"].value == "-1"
    assert configs["subject"].value == "anew.*"


def test_confluent_adds_partitions(dev: Dev, admin: AdminClient) -> None:
    create(admin, "wider")
    done(admin.create_partitions([NewPartitions("wider", 3)], validate_only=True))
    assert len(admin.list_topics("wider", timeout=TIMEOUT_S).topics["wider"].partitions) == 1
    done(admin.create_partitions([NewPartitions("wider", 3)]))
    assert len(admin.list_topics("wider", timeout=TIMEOUT_S).topics["wider"].partitions) == 3
    publish(dev, "wider.2", 2)
    for name, count, code in (
        ("wider", 3, KafkaError.INVALID_PARTITIONS),
        ("wider", 2, KafkaError.INVALID_PARTITIONS),
        ("nowhere", 2, KafkaError.UNKNOWN_TOPIC_OR_PART),
    ):
        with pytest.raises(KafkaException) as refused:
            done(admin.create_partitions([NewPartitions(name, count)]))
        assert code_of(refused) == code


def test_confluent_names_the_nodes_of_a_new_topic(admin: AdminClient) -> None:
    def placed(*nodes: list[int]) -> None:
        topic = NewTopic("placed", len(nodes), replica_assignment=list(nodes))
        admin.create_topics([topic])["placed"].result(TIMEOUT_S)

    with pytest.raises(KafkaException) as refused:
        placed([1], [2])
    assert code_of(refused) == KafkaError.INVALID_REPLICA_ASSIGNMENT
    placed([1], [1])
    partitions = admin.list_topics("placed", timeout=TIMEOUT_S).topics["placed"].partitions
    assert [it.replicas for it in partitions.values()] == [[1], [1]]
    for nodes, is_fine in (([[2]], False), ([[1]], True)):
        wider = NewPartitions("placed", 3, replica_assignment=nodes)
        if is_fine:
            done(admin.create_partitions([wider]))
            continue
        with pytest.raises(KafkaException) as refused:
            done(admin.create_partitions([wider]))
        assert code_of(refused) == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_confluent_deletes_records(dev: Dev, admin: AdminClient) -> None:
    create(admin, "shorter")
    publish(dev, "shorter", 20)
    for offset, low in ((7, 7), (3, 7), (-1, 20)):
        asked = ConfluentPartition("shorter", 0, offset)
        assert done(admin.delete_records([asked])).low_watermark == low
    earliest = done(admin.list_offsets({ConfluentPartition("shorter", 0): OffsetSpec.earliest()}))  # type: ignore[no-untyped-call]
    assert earliest.offset == 20
    for offset in (21, -5):
        with pytest.raises(KafkaException) as refused:
            done(admin.delete_records([ConfluentPartition("shorter", 0, offset)]))
        assert code_of(refused) in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._INVALID_ARG)


def test_confluent_describes_cluster_and_topics(admin: AdminClient) -> None:
    create(admin, "seen-twice", 2)
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [node.id for node in cluster.nodes] == [1]
    assert cluster.controller.id == 1
    topic = done(admin.describe_topics(TopicCollection(["seen-twice"])))
    assert [partition.leader.id for partition in topic.partitions] == [1, 1]


def test_confluent_elects_leaders(admin: AdminClient) -> None:
    create(admin, "elected")
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        asked = [ConfluentPartition("elected", 0), ConfluentPartition("elected", 9)]
        found = admin.elect_leaders(kind, asked).result(TIMEOUT_S)
        codes = {tp.partition: error.code() for tp, error in found.items()}
        assert codes == {
            0: KafkaError.ELECTION_NOT_NEEDED,
            9: KafkaError.UNKNOWN_TOPIC_OR_PART,
        }
    assert admin.elect_leaders(ElectionType.PREFERRED).result(TIMEOUT_S) == {}


# kafka-python


@pytest.fixture(scope="module")
def plain(dev: Dev) -> Iterator[Any]:
    from kafka.admin import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=dev.kafka)
    yield client
    client.close()


def test_kafka_python_alters_and_describes(admin: AdminClient, plain: Any) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    create(admin, "administered", configs={"retention.ms": "60000"})

    def configs(**options: Any) -> Any:
        asked = [ConfigResource(ConfigResourceType.TOPIC, "administered")]
        return plain.describe_configs(asked, **options)["topic"]["administered"]

    assert set(configs()) == {"retention.ms"}
    wanted = {"retention.ms": "70000", "max.message.bytes": "2000"}
    plain.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "administered", wanted)])
    told = configs(include_synonyms=True)
    assert told["retention.ms"]["value"] == "70000"
    assert told["retention.ms"]["config_type"] == "LONG"
    names = [it["name"] for it in told["max.message.bytes"]["synonyms"]]
    assert names == ["max.message.bytes", "message.max.bytes"]
    plain.reset_configs(
        [ConfigResource(ConfigResourceType.TOPIC, "administered", ["retention.ms"])]
    )
    assert configs(config_filter="all")["retention.ms"]["value"] == "-1"
    node = plain.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")], False, "all")
    assert node["broker"]["1"]["node.id"]["value"] == "1"


def test_kafka_python_about_partitions(dev: Dev, admin: AdminClient, plain: Any) -> None:
    from kafka import TopicPartition
    from kafka.errors import (
        InvalidReplicationAssignmentError,
        InvalidReplicationFactorError,
        NoReassignmentInProgressError,
        OffsetOutOfRangeError,
    )

    create(admin, "widened")
    plain.create_partitions({"widened": 2})
    tp = TopicPartition("widened", 0)
    publish(dev, "widened", 5)
    assert plain.delete_records({tp: 3})[tp]["low_watermark"] == 3
    with pytest.raises(OffsetOutOfRangeError):
        plain.delete_records({tp: 6})
    for replicas, error in (
        ([1], None),
        ([2], InvalidReplicationAssignmentError),
        ([1, 2], InvalidReplicationFactorError),
        (None, NoReassignmentInProgressError),
    ):
        assert plain.alter_partition_reassignments({tp: replicas}) == {tp: error}
    assert plain.list_partition_reassignments() == {}
    assert plain.list_partition_reassignments([tp]) == {}
    plain.elect_leaders(0, {"widened": [0, 1]})
    page = plain.describe_topic_partitions(["widened"], response_partition_limit=1)
    assert [it["partition_index"] for it in page["topics"][0]["partitions"]] == [0]
    assert page["next_cursor"] == {"topic_name": "widened", "partition_index": 1}
    rest = plain.describe_topic_partitions(["widened"], cursor=page["next_cursor"])
    assert [it["partition_index"] for it in rest["topics"][0]["partitions"]] == [1]
    assert rest["next_cursor"] is None


def test_kafka_python_about_the_node(dev: Dev, admin: AdminClient, plain: Any) -> None:
    create(admin, "weighed")
    publish(dev, "weighed", 10)
    assert [it["broker_id"] for it in plain.describe_cluster()["brokers"]] == [1]
    ((node,),) = [plain.describe_log_dirs({"weighed": [0]})]
    (folder,) = node["log_dirs"]
    log = dev.data_dir / "node-1" / "streams" / "weighed" / "0"
    size = sum(path.stat().st_size for path in log.glob("*.log"))
    (topic,) = folder["topics"]
    assert topic["partitions"][0]["partition_size"] == size > 0
    assert folder["log_dir"] == str(dev.data_dir / "node-1")
    assert folder["total_bytes"] == shutil.disk_usage(dev.data_dir).total


# aiokafka


async def test_aiokafka(dev: Dev, admin: AdminClient) -> None:
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.errors import InvalidPartitionsError, OffsetOutOfRangeError

    create(admin, "aio", configs={"retention.ms": "60000"})
    await asyncio.to_thread(publish, dev, "aio", 9)
    client = AIOKafkaAdminClient(bootstrap_servers=dev.kafka)
    await client.start()
    try:
        wanted = ConfigResource(ConfigResourceType.TOPIC, "aio", {"retention.bytes": "5000"})
        (altered,) = await client.alter_configs([wanted])
        assert [it[0] for it in altered.resources] == [0]
        asked = ConfigResource(ConfigResourceType.TOPIC, "aio", None)
        (told,) = await client.describe_configs([asked], include_synonyms=True)
        ((code, _, _, name, configs, *_),) = told.resources
        values = {config[0]: config[1] for config in configs}
        assert (code, name) == (0, "aio")
        assert (values["retention.bytes"], values["retention.ms"]) == ("5000", "-1")
        await client.create_partitions({"aio": NewPartitions(2)})
        with pytest.raises(InvalidPartitionsError):
            await client.create_partitions({"aio": NewPartitions(2)})
        tp = TopicPartition("aio", 0)
        assert await client.delete_records({tp: RecordsToDelete(4)}) == {tp: 4}
        assert await client.delete_records({tp: RecordsToDelete(-1)}) == {tp: 9}
        with pytest.raises(OffsetOutOfRangeError):
            await client.delete_records({tp: RecordsToDelete(10)})
    finally:
        await client.close()
