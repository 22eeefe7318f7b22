"""confluent-kafka, which is librdkafka."""

import sys
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from contract import (
    NotOffered,
    answer_calls,
    end_of_input,
    input_lines,
    put,
    put_answer,
    put_record,
    run,
)

try:
    from confluent_kafka import AcknowledgeType, ShareConsumer
except ImportError:  # before 2.16
    ShareConsumer = None

TIMEOUT_S = 60.0
AT_ONCE = 100


def version() -> str:
    return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"


def consume(
    servers: str,
    *,
    topic: str,
    partition: int,
    offset: int = 0,
    time_ms: int | None = None,
    committed: bool = False,
) -> None:
    settings = {
        "bootstrap.servers": servers,
        "group.id": "none",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
    }
    consumer = Consumer(settings)
    start = TopicPartition(topic, partition, offset)
    if time_ms is not None:
        start.offset = time_ms
        (start,) = consumer.offsets_for_times([start], timeout=TIMEOUT_S)
    consumer.assign([start])
    ended = end_of_input()
    while not ended.is_set():
        for message in consumer.consume(AT_ONCE, timeout=0.1):
            _put(message)
    consumer.close()


def group(
    servers: str,
    *,
    topic: str,
    group: str,
    client_id: str,
    count: int | None = None,
    protocol: str = "classic",
) -> None:
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "client.id": client_id,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    ended, left = end_of_input(), count
    while not ended.is_set() and left != 0:
        polled = consumer.consume(min(AT_ONCE, left or AT_ONCE), timeout=0.1)
        messages = [message for message in polled if not _is_passing(message.error())]
        for message in messages:
            _put(message)
        if messages:
            ends = {it.partition(): it.offset() + 1 for it in messages}
            _commit(consumer, [TopicPartition(topic, p, end) for p, end in ends.items()])
        left = None if left is None else left - len(messages)
    consumer.close()


def _is_passing(error: KafkaError | None) -> bool:
    """Such as that the coordinator has moved: librdkafka tells, and goes on by itself."""
    if error is None or error.fatal():
        return False
    print(error, file=sys.stderr)
    return True


def _commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """What another member has been given meanwhile is its own to commit."""
    moved = {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION}
    moved |= {KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH}
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as refused:
        if refused.args[0].code() not in moved | {KafkaError.UNKNOWN_MEMBER_ID}:
            raise


def share(servers: str, topic: str, group: str, client_id: str, release: int = 0) -> None:
    if ShareConsumer is None:
        raise NotOffered("no share groups before librdkafka 2.16")
    settings = {"group.id": group, "client.id": client_id}
    explicit = {"share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({"bootstrap.servers": servers, **settings, **explicit})
    consumer.subscribe([topic])
    ended = end_of_input()
    while not ended.is_set():
        messages = [message for message in consumer.poll(0.1) if not _is_passing(message.error())]
        answers = []
        for message in messages:
            is_accepted, release = release <= 0, release - 1
            type_ = AcknowledgeType.ACCEPT if is_accepted else AcknowledgeType.RELEASE
            consumer.acknowledge(message, type_)
            answers.append((message, is_accepted))
        if not answers:
            continue
        errors = {it.partition: error for it, error in consumer.commit_sync(TIMEOUT_S).items()}
        for message, is_accepted in answers:
            if (error := errors[message.partition()]) is not None:
                raise error
            put_answer(
                message.partition(),
                message.offset(),
                message.value(),
                message.delivery_count(),
                is_accepted,
            )
    consumer.close()


def _put(message: Message) -> None:
    if message.error() is not None:
        raise KafkaException(message.error())
    put_record(message.partition(), message.offset(), message.value())


def produce(servers: str, topic: str, partition: int, codec: str, idempotent: bool) -> None:
    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            put(error=str(error))
        else:
            put(offset=message.offset(), value=message.value().decode())

    settings = {"compression.type": codec, "enable.idempotence": idempotent, "acks": "all"}
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, **settings})
    for line in input_lines():
        producer.produce(topic, line.encode(), partition=partition, on_delivery=told)
        producer.poll(0)
    producer.flush(TIMEOUT_S)


def transact(servers: str, topic: str, partition: int, transactional_id: str) -> None:
    settings = {"transactional.id": transactional_id, "linger.ms": 20}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(TIMEOUT_S)

    def send(values: list[str]) -> None:
        failed: list[KafkaError] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            producer.produce(topic, value.encode(), partition=partition, on_delivery=told)
        if left := producer.flush(TIMEOUT_S):
            raise TimeoutError(f"{left} of {len(values)} records are not acknowledged")
        for error in failed:
            raise KafkaException(error)

    put()
    answer_calls(
        {
            "begin": producer.begin_transaction,
            "send": send,
            "commit": lambda: _until_done(producer.commit_transaction),
            "abort": lambda: _until_done(producer.abort_transaction),
        }
    )


def _until_done(end: Callable[[float], None]) -> None:
    """What may be tried again is left to the program."""
    while True:
        try:
            return end(TIMEOUT_S)
        except KafkaException as refused:
            if not refused.args[0].retriable():
                raise


def admin(servers: str) -> None:
    calls = Calls(AdminClient({"bootstrap.servers": servers}))
    names = [name for name in vars(Calls) if not name.startswith("_")]
    answer_calls({name: getattr(calls, name) for name in names})


def _done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


class Calls:
    """A method for each operation."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def create(self, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        _done(self._client.create_topics([NewTopic(topic, partitions, replicas, config=configs)]))

    def widen(self, topic: str, partitions: int) -> None:
        _done(self._client.create_partitions([NewPartitions(topic, partitions)]))

    def delete(self, topic: str) -> None:
        _done(self._client.delete_topics([topic]))

    def topics(self) -> dict[str, Any]:
        return {"topics": list(self._client.list_topics(timeout=TIMEOUT_S).topics)}

    def describe(self, topic: str) -> dict[str, Any]:
        metadata = self._client.list_topics(topic, timeout=TIMEOUT_S)
        return {"partitions": len(metadata.topics[topic].partitions)}

    def configs(self, topic: str) -> dict[str, Any]:
        found = _done(self._client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {"configs": {name: entry.value for name, entry in found.items()}}

    def set(self, topic: str, configs: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _done(self._client.incremental_alter_configs([resource]))

    def ends(self, topic: str, partition: int) -> dict[str, Any]:
        wanted = TopicPartition(topic, partition)
        asked = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest()}
        return {
            name: _done(self._client.list_offsets({wanted: spec})).offset
            for name, spec in asked.items()
        }

    def purge(self, topic: str, partition: int, offset: int) -> None:
        _done(self._client.delete_records([TopicPartition(topic, partition, offset)]))

    def groups(self) -> dict[str, Any]:
        found = self._client.list_consumer_groups().result(TIMEOUT_S)
        return {"groups": [it.group_id for it in found.valid]}

    def members(self, group: str) -> dict[str, Any]:
        return {"members": len(_done(self._client.describe_consumer_groups([group])).members)}

    def committed(self, group: str, topic: str) -> dict[str, Any]:
        asked = ConsumerGroupTopicPartitions(group)
        found = _done(self._client.list_consumer_group_offsets([asked])).topic_partitions
        return {"offsets": {str(it.partition): it.offset for it in found if it.topic == topic}}

    def reset(self, group: str, topic: str, partition: int, offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        _done(self._client.alter_consumer_group_offsets([wanted]))

    def forget(self, group: str) -> None:
        _done(self._client.delete_consumer_groups([group]))


if __name__ == "__main__":
    verbs = {"consume": consume, "group": group, "share": share}
    run(version, {**verbs, "produce": produce, "transact": transact, "admin": admin})
