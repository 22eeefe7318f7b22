"""Consumer groups as stock clients see them, on one node."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.integration.group_clients import (
    PATIENCE_S,
    Member,
    create,
    describe,
    member_process,
    poll_until,
    produce,
    read_as_aiokafka,
    read_as_confluent,
    read_as_kafka_python,
    shared,
)
from tools.nodes.dev import Dev
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

PARTITIONS = 6
STICKY = {"partition.assignment.strategy": "cooperative-sticky"}

READERS: dict[str, Callable[[str, str, str, int], list[bytes]]] = {
    "confluent-kafka": read_as_confluent,
    "kafka-python": read_as_kafka_python,
    "aiokafka": lambda *asked: asyncio.run(read_as_aiokafka(*asked)),
}


@contextlib.contextmanager
def members(dev: Dev, name: str, count: int, **settings: object) -> Iterator[Callable[..., Member]]:
    """A topic, and members of a group of its name; more are made by calling what this gives."""
    create(dev.kafka, name, PARTITIONS)
    made: list[Member] = []

    def more(**own: object) -> Member:
        made.append(Member(dev.kafka, name, name, **{**settings, **own}))
        return made[-1]

    more.all = made  # type: ignore[attr-defined]
    try:
        for _ in range(count):
            more()
        yield more
    finally:
        for member in made:
            member.close()


@pytest.mark.parametrize("client", READERS)
def test_a_consumer_goes_on_where_it_had_committed(dev: Dev, client: str) -> None:
    topic, read = f"resume-{client}", READERS[client]
    create(dev.kafka, topic)
    values = [b"%d" % number for number in range(40)]
    produce(dev.kafka, topic, values[:20])
    assert read(dev.kafka, topic, topic, 20) == values[:20]
    produce(dev.kafka, topic, values[20:])
    assert read(dev.kafka, topic, topic, 20) == values[20:]


def test_one_client_goes_on_where_another_had_committed(dev: Dev) -> None:
    create(dev.kafka, "relay")
    for number, (client, read) in enumerate(READERS.items()):
        values = [b"%d-%d" % (number, each) for each in range(10)]
        produce(dev.kafka, "relay", values)
        assert read(dev.kafka, "relay", "relay", 10) == values, client


def test_three_members_share_and_share_again(dev: Dev) -> None:
    with members(dev, "share", 1) as more:
        mine: list[Member] = more.all  # type: ignore[attr-defined]
        poll_until(mine, lambda: shared(mine, PARTITIONS), "the first has all")
        more(), more()
        poll_until(mine, lambda: shared(mine, PARTITIONS), "three share")
        assert [len(it.owned) for it in mine] == [2, 2, 2]
        described = describe(dev.kafka, "share")
        assert described.state == ConsumerGroupState.STABLE
        assert len(described.members) == 3
        mine.pop().close()
        poll_until(mine, lambda: shared(mine, PARTITIONS), "two share")


def test_three_members_of_aiokafka_share(dev: Dev) -> None:
    from aiokafka import AIOKafkaConsumer

    create(dev.kafka, "share-aio", PARTITIONS)

    async def share() -> None:
        made = [
            AIOKafkaConsumer("share-aio", bootstrap_servers=dev.kafka, group_id="share-aio")
            for _ in range(3)
        ]
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(it.start() for it in made))
                while sorted(len(it.assignment()) for it in made) != [2, 2, 2]:
                    await asyncio.gather(*(it.getmany(timeout_ms=100) for it in made))
            parts = {part for it in made for part in it.assignment()}
            assert len(parts) == PARTITIONS
        finally:
            for it in made:
                await it.stop()

    asyncio.run(share())


def test_a_static_member_restarts_and_nobody_notices(dev: Dev) -> None:
    with members(dev, "static", 0) as more:
        mine: list[Member] = more.all  # type: ignore[attr-defined]
        more(**{"group.instance.id": "one"})
        more(**{"group.instance.id": "two"})
        poll_until(mine, lambda: shared(mine, PARTITIONS), "two share")
        stays, goes = mine
        given, owned = len(stays.given), goes.owned
        mine.remove(goes)
        goes.close()
        again = more(**{"group.instance.id": "two"})
        poll_until(mine, lambda: bool(again.owned), "it is back")
        for _ in range(20):
            stays.poll()
        assert again.owned == owned
        assert (len(stays.given), stays.taken) == (given, stays.taken[: given - 1])


def test_a_cooperative_member_keeps_what_it_keeps(dev: Dev) -> None:
    with members(dev, "sticky", 1, **STICKY) as more:
        mine: list[Member] = more.all  # type: ignore[attr-defined]
        poll_until(mine, lambda: shared(mine, PARTITIONS), "the first has all")
        (first,) = mine
        more()
        poll_until(mine, lambda: shared(mine, PARTITIONS), "two share")
        taken = {number for taken in first.taken for number in taken}
        assert len(taken) == PARTITIONS // 2
        assert first.owned == set(range(PARTITIONS)) - taken


def test_what_a_killed_member_had_goes_to_the_others(dev: Dev) -> None:
    with members(dev, "killed", 1) as more:
        mine: list[Member] = more.all  # type: ignore[attr-defined]
        poll_until(mine, lambda: shared(mine, PARTITIONS), "the first has all")
        with member_process(dev.kafka, "killed", "killed") as other:
            poll_until(mine, lambda: len(mine[0].owned) == PARTITIONS // 2, "two share")
            other.kill()
        poll_until(mine, lambda: shared(mine, PARTITIONS), "one has all")


def test_who_assigns_partitions_itself_commits_too(dev: Dev) -> None:
    create(dev.kafka, "simple", 2)
    consumer = Consumer({"bootstrap.servers": dev.kafka, "group.id": "simple"})
    places = [TopicPartition("simple", 0, 5, metadata="note"), TopicPartition("simple", 1, 6)]
    consumer.commit(offsets=places, asynchronous=False)
    asked = [TopicPartition("simple", number) for number in range(2)]
    found = consumer.committed(asked, timeout=30)
    assert [(it.offset, it.metadata or "") for it in found] == [(5, "note"), (6, "")]
    consumer.close()


def test_a_commit_survives_the_node(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node()
    node.start()
    create(node.kafka, "kept")
    produce(node.kafka, "kept", [b"%d" % number for number in range(10)])
    assert len(read_as_confluent(node.kafka, "kept", "kept", 10)) == 10
    node.kill()
    node.start()
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "kept"})
    (found,) = consumer.committed([TopicPartition("kept", 0)], timeout=30)
    assert found.offset == 10
    consumer.close()


def test_tools_list_describe_alter_and_delete(dev: Dev) -> None:
    create(dev.kafka, "tools", 2)
    produce(dev.kafka, "tools", [b"1"])
    read_as_confluent(dev.kafka, "tools", "tools", 1)
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(30)
    assert "tools" in {it.group_id for it in listed.valid}
    assert describe(dev.kafka, "tools").state == ConsumerGroupState.EMPTY
    wanted = ConsumerGroupTopicPartitions("tools", [TopicPartition("tools", 0, 0)])
    admin.alter_consumer_group_offsets([wanted])["tools"].result(30)
    asked = [ConsumerGroupTopicPartitions("tools")]
    found = admin.list_consumer_group_offsets(asked)["tools"].result(30)
    assert [(it.partition, it.offset) for it in found.topic_partitions] == [(0, 0)]
    admin.delete_consumer_groups(["tools"])["tools"].result(30)
    assert describe(dev.kafka, "tools").state == ConsumerGroupState.DEAD
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups(["tools"])["tools"].result(30)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_a_deleted_stream_takes_its_offsets_along(dev: Dev) -> None:
    create(dev.kafka, "shortlived")
    produce(dev.kafka, "shortlived", [b"1"])
    read_as_confluent(dev.kafka, "shortlived", "shortlived", 1)
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    admin.delete_topics(["shortlived"])["shortlived"].result(30)
    create(dev.kafka, "shortlived")
    asked = [ConsumerGroupTopicPartitions("shortlived")]

    def forgotten() -> bool:
        found = admin.list_consumer_group_offsets(asked)["shortlived"].result(30)
        return not found.topic_partitions

    wait_until(forgotten, "its offsets are gone", PATIENCE_S)


def test_nobody_touches_the_stream_of_offsets(dev: Dev) -> None:
    create(dev.kafka, "guarded")
    produce(dev.kafka, "guarded", [b"1"])
    read_as_confluent(dev.kafka, "guarded", "guarded", 1)
    name = "__consumer_offsets"
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": dev.kafka})
    producer.produce(name, b"x", partition=0, on_delivery=lambda error, _: told.append(error))
    producer.flush(PATIENCE_S)
    assert told[0] is not None
    assert told[0].code() == KafkaError.TOPIC_EXCEPTION
    for asked in (
        lambda: admin.delete_topics([name])[name],
        lambda: admin.create_partitions([NewPartitions(name, 99)])[name],
        lambda: admin.delete_records([TopicPartition(name, 0, 0)]),
    ):
        found = asked()
        (future,) = found.values() if isinstance(found, dict) else [found]
        with pytest.raises(KafkaException):
            future.result(30)
