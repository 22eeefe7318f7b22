"""aiokafka."""

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import CommitFailedError, RebalanceInProgressError, for_code
from contract import NotOffered, end_of_input, put, put_record, run

AT_ONCE = 100


def version() -> str:
    return str(aiokafka.__version__)


def plain(verb: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    return lambda *arguments, **named: asyncio.run(verb(*arguments, **named))


async def consume(
    servers: str,
    *,
    topic: str,
    partition: int,
    offset: int = 0,
    time_ms: int | None = None,
    committed: bool = False,
) -> None:
    settings = {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": "read_committed" if committed else "read_uncommitted",
    }
    async with AIOKafkaConsumer(bootstrap_servers=servers, **settings) as consumer:
        wanted = TopicPartition(topic, partition)
        consumer.assign([wanted])
        if time_ms is not None:
            offset = (await consumer.offsets_for_times({wanted: time_ms}))[wanted].offset
        consumer.seek(wanted, offset)
        ended = end_of_input()
        while not ended.is_set():
            await _put_polled(consumer, AT_ONCE)


async def group(
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
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        client_id=client_id,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    async with consumer:
        ended, left = end_of_input(), count
        while not ended.is_set() and left != 0:
            ends = await _put_polled(consumer, min(AT_ONCE, left or AT_ONCE))
            if ends:
                await _commit(consumer, {tp: end for tp, (end, _) in ends.items()})
            left = None if left is None else left - sum(number for _, number in ends.values())


async def _commit(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> None:
    """What another member has been given meanwhile is its own to commit."""
    with contextlib.suppress(CommitFailedError, RebalanceInProgressError):
        await consumer.commit({tp: end for tp, end in ends.items() if tp in consumer.assignment()})


async def _put_polled(
    consumer: AIOKafkaConsumer, count: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Where each partition's records end, and how many they were."""
    ends = {}
    polled = await consumer.getmany(timeout_ms=100, max_records=count)
    for tp, records in polled.items():
        for record in records:
            put_record(record.partition, record.offset, record.value)
        ends[tp] = records[-1].offset + 1, len(records)
    return ends


async def produce(servers: str, topic: str, partition: int, codec: str, idempotent: bool) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        acks="all",
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        linger_ms=20,
    )
    async with producer, asyncio.TaskGroup() as tasks:
        async for line in _lines():
            future = await producer.send(topic, line.encode(), partition=partition)
            tasks.create_task(_tell(line, future))


async def _tell(line: str, future: asyncio.Future[Any]) -> None:
    put(offset=(await future).offset, value=line)


async def _lines() -> AsyncIterator[str]:
    """Of standard input, which may be a pipe of somebody who waits."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line.rstrip("\n"))
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


async def transact(servers: str, topic: str, partition: int, transactional_id: str) -> None:
    settings = {"transactional_id": transactional_id, "linger_ms": 20}
    async with AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
        put()
        await _answer(Transaction(producer, topic, partition))


class Transaction:
    """A method for each step."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partition: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self.begin = producer.begin_transaction
        self.commit = producer.commit_transaction
        self.abort = producer.abort_transaction

    async def send(self, values: list[str]) -> None:
        sent = [
            await self._producer.send(self._topic, value.encode(), partition=self._partition)
            for value in values
        ]
        await asyncio.gather(*sent)


async def admin(servers: str) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=servers)
    await client.start()
    await _answer(Calls(client))
    await client.close()


async def _answer(calls: object) -> None:
    async for line in _lines():
        arguments = json.loads(line)
        call = getattr(calls, arguments.pop("op"), None)
        if call is None:
            put(not_offered="no such call")
            continue
        try:
            put(**(await call(**arguments) or {}))
        except Exception as error:
            put(error=f"{type(error).__name__}: {error}")


class Calls:
    """A method for each operation. It can only replace all configs of a topic, not set some."""

    def __init__(self, client: AIOKafkaAdminClient) -> None:
        self._client = client

    async def create(
        self, topic: str, partitions: int, replicas: int, configs: dict[str, str]
    ) -> None:
        wanted = NewTopic(topic, partitions, replicas, topic_configs=configs)
        _check((await self._client.create_topics([wanted])).topic_errors)

    async def widen(self, topic: str, partitions: int) -> None:
        await self._client.create_partitions({topic: NewPartitions(partitions)})

    async def delete(self, topic: str) -> None:
        _check((await self._client.delete_topics([topic])).topic_error_codes)

    async def topics(self) -> dict[str, Any]:
        return {"topics": await self._client.list_topics()}

    async def describe(self, topic: str) -> dict[str, Any]:
        (found,) = await self._client.describe_topics([topic])
        return {"partitions": len(found["partitions"])}

    async def configs(self, topic: str) -> dict[str, Any]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = await self._client.describe_configs([asked])
        ((_, _, _, _, entries, *_),) = answer.resources
        return {"configs": {entry[0]: entry[1] for entry in entries}}

    async def purge(self, topic: str, partition: int, offset: int) -> None:
        wanted = {TopicPartition(topic, partition): RecordsToDelete(offset)}
        await self._client.delete_records(wanted)

    async def groups(self) -> dict[str, Any]:
        return {"groups": [it[0] for it in await self._client.list_consumer_groups()]}

    async def members(self, group: str) -> dict[str, Any]:
        (answer,) = await self._client.describe_consumer_groups([group])
        ((_, _, _, _, _, members, *_),) = answer.groups
        return {"members": len(members)}

    async def committed(self, group: str, topic: str) -> dict[str, Any]:
        found = await self._client.list_consumer_group_offsets(group)
        return {"offsets": {str(tp.partition): it.offset for tp, it in found.items()}}


def _check(codes: list[Any]) -> None:
    for name, code, *_ in codes:
        if code:
            raise for_code(code)(name)


if __name__ == "__main__":
    verbs = {"consume": consume, "group": group, "produce": produce}
    verbs |= {"transact": transact, "admin": admin}
    run(version, {name: plain(verb) for name, verb in verbs.items()})
