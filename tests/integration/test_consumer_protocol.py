"""``group.protocol=consumer`` (KIP-848) as librdkafka speaks it: on one node, and on three."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewPartitions

from streamlog.coordination.keys import partition_of
from tests.integration.group_clients import Member, create, describe, poll_until, produce, shared
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess

CONSUMER = {"group.protocol": "consumer"}
STICKY = {"partition.assignment.strategy": "cooperative-sticky"}
GROUPS = {
    "initial_rebalance_delay_ms": 0,
    "consumer_session_timeout_ms": 4_000,
    "consumer_heartbeat_interval_ms": 200,
    "offsets_partitions": 3,
}
PARTITIONS = 6


@pytest.fixture
def node(new_node: Callable[..., NodeProcess]) -> NodeProcess:
    made = new_node()
    made.add_settings(groups=GROUPS)
    made.start()
    return made


@pytest.fixture
def members() -> Iterator[Callable[..., Member]]:
    """Makes members, which are closed in the end."""
    made: list[Member] = []

    def make(servers: str, name: str, topic: str | None = None, **settings: object) -> Member:
        made.append(Member(servers, name, topic or name, **{**CONSUMER, **settings}))
        return made[-1]

    yield make
    for member in made:
        member.close()


def type_of(servers: str, group: str) -> ConsumerGroupType | None:
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_consumer_groups().result(30)
    return next((it.type for it in listed.valid if it.group_id == group), None)


def read_all(members: Sequence[Member], count: int) -> None:
    poll_until(members, lambda: sum(len(it.read) for it in members) >= count, f"{count} records")


def have_read(members: Sequence[Member], end: int) -> bool:
    """All partitions that they own, up to that offset."""
    for member in members:
        owned = [TopicPartition(member.topic, it) for it in member.owned]
        if any(it.offset != end for it in member.consumer.position(owned)):
            return False
    return True


def commits(member: Member) -> bool:
    """Whether that is done. A member that has not yet heard of its new epoch, since the coordinator was killed before
    it answered, is refused with STALE_MEMBER_EPOCH, and asks again.
    """
    try:
        done = member.consumer.commit(asynchronous=False)
    except KafkaException as refused:
        if refused.args[0].code() == KafkaError.STALE_MEMBER_EPOCH:
            return False
        raise
    return all(it.error is None for it in done or ())


def test_members_share_read_commit_and_go_on(
    node: NodeProcess, members: Callable[..., Member]
) -> None:
    create(node.kafka, "t", PARTITIONS)
    for partition in range(PARTITIONS):
        produce(node.kafka, "t", [b"%d" % it for it in range(10)], partition=partition)
    first = members(node.kafka, "t")
    poll_until([first], lambda: len(first.owned) == PARTITIONS, "all partitions")
    second = members(node.kafka, "t")
    poll_until([first, second], lambda: shared([first, second], PARTITIONS), "both share")
    assert sorted((len(first.owned), len(second.owned))) == [3, 3]
    assert not first.lost
    # What was read before the other one came, and not committed, is read again.
    poll_until([first, second], lambda: have_read([first, second], 10), "all records")
    for member in (first, second):
        member.consumer.commit(asynchronous=False)
    described = describe(node.kafka, "t")
    assert (described.state, described.type) == (
        ConsumerGroupState.STABLE,
        ConsumerGroupType.CONSUMER,
    )
    assert {len(it.assignment.topic_partitions) for it in described.members} == {3}
    second.close()
    poll_until([first], lambda: len(first.owned) == PARTITIONS, "what the second had")
    node.kill()
    node.start()
    produce(node.kafka, "t", [b"more"])
    poll_until([first], lambda: any(it.value() == b"more" for it in first.read), "it goes on")
    poll_until([first], lambda: commits(first), "it commits")
    found = first.consumer.committed([TopicPartition("t", it) for it in range(PARTITIONS)], 30)
    assert [it.offset for it in found] == [11, 10, 10, 10, 10, 10]


def test_partitions_and_topics_that_come_later(
    node: NodeProcess, members: Callable[..., Member]
) -> None:
    create(node.kafka, "grows", 1)
    one, two = members(node.kafka, "grows"), members(node.kafka, "grows")
    poll_until([one, two], lambda: len(one.owned | two.owned) == 1, "the first partition")
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_partitions([NewPartitions("grows", 4)])["grows"].result(30)
    poll_until([one, two], lambda: shared([one, two], 4), "the new partitions")
    produce(node.kafka, "grows", [b"x"], partition=3)
    read_all([one, two], 1)


def test_a_topic_that_is_made_again_is_another_one(
    node: NodeProcess, members: Callable[..., Member]
) -> None:
    create(node.kafka, "again", 2)
    produce(node.kafka, "again", [b"old"])
    member = members(node.kafka, "again")
    read_all([member], 1)
    member.consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.delete_topics(["again"])["again"].result(30)
    poll_until([member], lambda: not member.owned, "nothing is left of it")
    create(node.kafka, "again", 3)
    produce(node.kafka, "again", [b"new"])
    poll_until([member], lambda: len(member.owned) == 3, "the new topic")
    read_all([member], 2)
    assert [it.value() for it in member.read] == [b"old", b"new"]


def test_an_expression_stands_for_topics_that_come_later(
    node: NodeProcess, members: Callable[..., Member]
) -> None:
    create(node.kafka, "orders-a")
    create(node.kafka, "other")
    produce(node.kafka, "orders-a", [b"a"])
    produce(node.kafka, "other", [b"not this"])
    member = members(node.kafka, "by-name", "^orders-.*")
    read_all([member], 1)
    create(node.kafka, "orders-b")
    produce(node.kafka, "orders-b", [b"b"])
    read_all([member], 2)
    assert {it.topic() for it in member.read} == {"orders-a", "orders-b"}


def test_an_expression_stands_for_internal_topics_too(
    node: NodeProcess, members: Callable[..., Member]
) -> None:
    """As in Kafka 4.2, whose coordinator knows of no ``exclude.internal.topics``."""
    create(node.kafka, "orders")
    produce(node.kafka, "orders", [b"mine"])
    member = members(node.kafka, "all", "^(orders|__consumer.*)")
    names = {"orders", "__consumer_offsets"}
    poll_until([member], lambda: {it.topic() for it in member.read} == names, "records of both")


def test_a_static_member_comes_back_to_what_it_had(
    node: NodeProcess, members: Callable[..., Member]
) -> None:
    create(node.kafka, "static", PARTITIONS)
    one = members(node.kafka, "static", **{"group.instance.id": "one"})
    two = Member(node.kafka, "static", "static", **CONSUMER, **{"group.instance.id": "two"})
    poll_until([one, two], lambda: shared([one, two], PARTITIONS), "both share")
    had, given = two.owned, len(one.given)
    two.close()
    again = members(node.kafka, "static", **{"group.instance.id": "two"})
    poll_until([one, again], lambda: again.owned == had, "what it had")
    assert len(one.given) == given


def test_a_second_one_of_an_instance_is_refused_while_the_first_is_there(
    node: NodeProcess, members: Callable[..., Member]
) -> None:
    """To librdkafka that is a fatal error; another one may have the place once the first has left."""
    create(node.kafka, "unreleased")
    static = {**CONSUMER, "group.instance.id": "one"}
    first = Member(node.kafka, "unreleased", "unreleased", **static)
    poll_until([first], lambda: bool(first.owned), "its partition")
    second = members(node.kafka, "unreleased", **static)
    produce(node.kafka, "unreleased", [b"%d" % it for it in range(50)])
    poll_until([first, second], lambda: len(first.read) == 50, "all records")
    assert first.owned
    assert not second.given
    first.close()
    third = members(node.kafka, "unreleased", **static)
    poll_until([third], lambda: bool(third.owned), "what the first had")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_classic_group_is_upgraded_and_downgraded_while_it_runs(
    node: NodeProcess, members: Callable[..., Member], strategy: str
) -> None:
    create(node.kafka, "both", PARTITIONS)
    old = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
    first = members(node.kafka, "both", **old)
    poll_until([first], lambda: len(first.owned) == PARTITIONS, "all partitions")
    assert type_of(node.kafka, "both") == ConsumerGroupType.CLASSIC
    produce(node.kafka, "both", [b"1"])
    read_all([first], 1)
    first.consumer.commit(asynchronous=False)
    new = members(node.kafka, "both")
    poll_until([first, new], lambda: shared([first, new], PARTITIONS), "both share")
    assert type_of(node.kafka, "both") == ConsumerGroupType.CONSUMER
    third = members(node.kafka, "both", **old)
    everyone = [first, new, third]
    poll_until(everyone, lambda: shared(everyone, PARTITIONS), "all three share")
    for partition in range(PARTITIONS):
        produce(node.kafka, "both", [b"2"], partition=partition)
    read_all(everyone, 1 + PARTITIONS)
    new.close()
    poll_until([first, third], lambda: shared([first, third], PARTITIONS), "the classic ones share")
    assert type_of(node.kafka, "both") == ConsumerGroupType.CLASSIC


def test_an_empty_group_is_of_the_protocol_of_who_joins_it(
    node: NodeProcess, members: Callable[..., Member]
) -> None:
    create(node.kafka, "empty")
    produce(node.kafka, "empty", [b"1", b"2", b"3"])
    for protocol, type_, count in (
        ("classic", ConsumerGroupType.CLASSIC, 1),
        ("consumer", ConsumerGroupType.CONSUMER, 2),
        ("classic", ConsumerGroupType.CLASSIC, 3),
    ):
        member = Member(node.kafka, "empty", "empty", **{"group.protocol": protocol})
        poll_until([member], lambda it=member: bool(it.read), "a record")  # type: ignore[misc]
        assert member.read[0].value() == b"%d" % count
        assert type_of(node.kafka, "empty") == type_
        member.consumer.commit(message=member.read[0], asynchronous=False)
        member.close()


def test_tools_describe_and_delete(node: NodeProcess) -> None:
    create(node.kafka, "tools")
    produce(node.kafka, "tools", [b"1"])
    member = Member(node.kafka, "tools", "tools", **CONSUMER)
    read_all([member], 1)
    member.consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups(["tools"])["tools"].result(30)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.close()
    found: ConsumerGroupDescription = describe(node.kafka, "tools")
    assert (found.state, found.type) == (ConsumerGroupState.EMPTY, ConsumerGroupType.CONSUMER)
    admin.delete_consumer_groups(["tools"])["tools"].result(30)
    assert type_of(node.kafka, "tools") is None


def test_a_group_survives_its_coordinator_and_a_member(
    tmp_path: Path, members: Callable[..., Member]
) -> None:
    with Cluster(tmp_path, settings={"groups": GROUPS}) as cluster:
        servers = ",".join(it.kafka for it in cluster.nodes.values())
        create(servers, "three", PARTITIONS, 3)
        everyone = [members(servers, "three") for _ in range(3)]
        poll_until(everyone, lambda: shared(everyone, PARTITIONS), "all share")
        for partition in range(PARTITIONS):
            produce(servers, "three", [b"1"], partition=partition)
        read_all(everyone, PARTITIONS)
        for member in everyone:
            member.consumer.commit(asynchronous=False)
        coordinator = cluster.leader(("__consumer_offsets", partition_of("three", 3)))
        cluster.nodes[coordinator].kill()
        had = [it.owned for it in everyone]
        for partition in range(PARTITIONS):
            produce(servers, "three", [b"2"], partition=partition)
        read_all(everyone, PARTITIONS * 2)
        values = [it.value() for member in everyone for it in member.read]
        assert values.count(b"1") == PARTITIONS
        assert [it.owned for it in everyone] == had
        gone = everyone.pop()
        gone.close()
        poll_until(everyone, lambda: shared(everyone, PARTITIONS), "the others have all")
