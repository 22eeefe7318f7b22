"""kafka-python."""

import contextlib
from typing import Any

import kafka
from contract import NotOffered, answer_calls, end_of_input, input_lines, put, put_record, run
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    OffsetSpec,
)
from kafka.errors import CommitFailedError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 60.0
AT_ONCE = 100


def version() -> str:
    return str(kafka.__version__)


def consume(
    servers: str,
    *,
    topic: str,
    partition: int,
    offset: int = 0,
    time_ms: int | None = None,
    committed: bool = False,
) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=servers.split(","),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        check_crcs=True,
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    wanted = TopicPartition(topic, partition)
    consumer.assign([wanted])
    if time_ms is not None:
        offset = consumer.offsets_for_times({wanted: time_ms})[wanted].offset
    consumer.seek(wanted, offset)
    ended = end_of_input()
    while not ended.is_set():
        _put_polled(consumer, AT_ONCE)
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
    if protocol != "classic":
        raise NotOffered("only the classic protocol")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id=group,
        client_id=client_id,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    _know(consumer, topic)
    ended, left = end_of_input(), count
    while not ended.is_set() and left != 0:
        ends = _put_polled(consumer, min(AT_ONCE, left or AT_ONCE))
        if ends:
            _commit(consumer, {tp: it for tp, (it, _) in ends.items()})
        left = None if left is None else left - sum(number for _, number in ends.values())
    consumer.close(autocommit=False)


def _know(consumer: KafkaConsumer, topic: str) -> None:
    """Before it joins: else its first assignment may be empty, and the second is lost.

    kafka-python 3.0.12 joins again when it comes to know of partitions, but where that ``poll``
    ends before the join does, the next one takes it for done and never takes up what was assigned
    (Java's client had the same: KAFKA-9815).
    """
    if not consumer.partitions_for_topic(topic):
        raise LookupError(f"no metadata of {topic}")


def _commit(consumer: KafkaConsumer, ends: dict[TopicPartition, int]) -> None:
    """What another member has been given meanwhile is its own to commit."""
    with contextlib.suppress(CommitFailedError, RebalanceInProgressError):
        consumer.commit({tp: OffsetAndMetadata(end, "", -1) for tp, end in ends.items()})


def _put_polled(consumer: KafkaConsumer, count: int) -> dict[TopicPartition, tuple[int, int]]:
    """Where each partition's records end, and how many they were."""
    ends = {}
    for tp, records in consumer.poll(timeout_ms=100, max_records=count).items():
        for record in records:
            put_record(record.partition, record.offset, record.value)
        ends[tp] = records[-1].offset + 1, len(records)
    return ends


def produce(servers: str, topic: str, partition: int, codec: str, idempotent: bool) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers.split(","),
        acks="all",
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        linger_ms=20,
    )
    sent = []
    for line in input_lines():
        sent.append((line, producer.send(topic, line.encode(), partition=partition)))
        while sent and sent[0][1].is_done:
            _tell(*sent.pop(0))
    producer.flush(TIMEOUT_S)
    for line, future in sent:
        _tell(line, future)
    producer.close()


def _tell(line: str, future: Any) -> None:
    put(offset=future.get(TIMEOUT_S).offset, value=line)


def transact(servers: str, topic: str, partition: int, transactional_id: str) -> None:
    settings = {"transactional_id": transactional_id, "linger_ms": 20}
    producer = KafkaProducer(bootstrap_servers=servers.split(","), **settings)
    producer.init_transactions()

    def send(values: list[str]) -> None:
        sent = [producer.send(topic, value.encode(), partition=partition) for value in values]
        producer.flush(TIMEOUT_S)
        for future in sent:
            future.get(TIMEOUT_S)

    put()
    answer_calls(
        {
            "begin": producer.begin_transaction,
            "send": send,
            "commit": producer.commit_transaction,
            "abort": producer.abort_transaction,
        }
    )
    producer.close()


def admin(servers: str) -> None:
    calls = Calls(KafkaAdminClient(bootstrap_servers=servers.split(",")))
    names = [name for name in vars(Calls) if not name.startswith("_")]
    answer_calls({name: getattr(calls, name) for name in names})


class Calls:
    """A method for each operation."""

    def __init__(self, client: KafkaAdminClient) -> None:
        self._client = client

    def create(self, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": configs}
        self._client.create_topics({topic: wanted})

    def widen(self, topic: str, partitions: int) -> None:
        self._client.create_partitions({topic: partitions})

    def delete(self, topic: str) -> None:
        self._client.delete_topics([topic])

    def topics(self) -> dict[str, Any]:
        return {"topics": self._client.list_topics()}

    def describe(self, topic: str) -> dict[str, Any]:
        (found,) = self._client.describe_topics([topic])
        return {"partitions": len(found["partitions"])}

    def configs(self, topic: str) -> dict[str, Any]:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
        found = self._client.describe_configs(asked, config_filter="all")["topic"][topic]
        return {"configs": {name: entry["value"] for name, entry in found.items()}}

    def set(self, topic: str, configs: dict[str, str]) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        self._client.alter_configs([wanted])

    def ends(self, topic: str, partition: int) -> dict[str, Any]:
        wanted = TopicPartition(topic, partition)
        asked = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
        return {
            name: self._client.list_partition_offsets({wanted: spec})[wanted].offset
            for name, spec in asked.items()
        }

    def purge(self, topic: str, partition: int, offset: int) -> None:
        self._client.delete_records({TopicPartition(topic, partition): offset})

    def groups(self) -> dict[str, Any]:
        return {"groups": [it["group_id"] for it in self._client.list_groups()]}

    def members(self, group: str) -> dict[str, Any]:
        return {"members": len(self._client.describe_groups([group])[group]["members"])}

    def committed(self, group: str, topic: str) -> dict[str, Any]:
        found = self._client.list_group_offsets({group: None})[group]
        return {"offsets": {str(tp.partition): it.offset for tp, it in found.items()}}

    def reset(self, group: str, topic: str, partition: int, offset: int) -> None:
        wanted = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        for error in self._client.alter_group_offsets(group, wanted).values():
            if error.errno:
                raise error

    def forget(self, group: str) -> None:
        self._client.delete_groups([group])


if __name__ == "__main__":
    verbs = {"consume": consume, "group": group, "produce": produce}
    run(version, {**verbs, "transact": transact, "admin": admin})
