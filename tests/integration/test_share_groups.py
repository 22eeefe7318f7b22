"""Share groups (KIP-932) as librdkafka's ShareConsumer speaks it: on one node, and on three."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer

from tests.integration.group_clients import create, produce
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

GROUPS = {
    "share_session_timeout_ms": 4_000,
    "share_heartbeat_interval_ms": 200,
    "share_record_lock_duration_ms": 2_000,
    "share_auto_offset_reset": "earliest",
    "offsets_partitions": 3,
}
PATIENCE_S = 60.0
Place = tuple[int, int]
"""Partition and offset."""


@pytest.fixture
def node(new_node: Callable[..., NodeProcess]) -> NodeProcess:
    made = new_node()
    made.add_settings(groups=GROUPS)
    made.start()
    return made


def place_of(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


class ShareMember:
    """A member that says of each record what has become of it."""

    def __init__(self, servers: str, topic: str) -> None:
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
                "socket.timeout.ms": 10_000,  # so long it may take to close one without its nodes
            }
        )
        self.consumer.subscribe([topic])
        self.accepted: set[Place] = set()
        """Those of which a node has said that they count as accepted."""

    def poll(self, timeout_s: float = 0.2) -> list[Message]:
        return [it for it in self.consumer.poll(timeout_s) if it.error() is None]

    def answer(self, *answers: tuple[Sequence[Message], AcknowledgeType]) -> bool:
        """Whether a node has taken all of it."""
        for messages, type_ in answers:
            for it in messages:
                self.consumer.acknowledge(it, type_)
        done = {it.partition: error for it, error in self.consumer.commit_sync(20.0).items()}
        for messages, type_ in answers:
            if type_ is AcknowledgeType.ACCEPT:
                taken = (it for it in messages if done.get(place_of(it)[0], it) is None)
                self.accepted.update(map(place_of, taken))
        return all(error is None for error in done.values())

    def close(self) -> None:
        self.consumer.close()


Members = Callable[[str, str], ShareMember]


@pytest.fixture
def members() -> Iterator[Members]:
    made: list[ShareMember] = []

    def make(servers: str, topic: str) -> ShareMember:
        made.append(ShareMember(servers, topic))
        return made[-1]

    yield make
    for it in made:
        it.close()


def read(*crew: ShareMember, count: int = 1) -> list[list[Message]]:
    """So many records, and which of them each member has."""
    found: list[list[Message]] = [[] for _ in crew]

    def met() -> bool:
        for mine, member in zip(found, crew, strict=True):
            if not mine:
                mine.extend(member.poll())
        return sum(map(len, found)) >= count

    wait_until(met, f"{count} records", PATIENCE_S)
    return found


def told(messages: Sequence[Message]) -> list[tuple[int, int]]:
    return [(place_of(it)[1], it.delivery_count() or 0) for it in messages]


ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def test_records_are_accepted_released_and_rejected(node: NodeProcess, members: Members) -> None:
    create(node.kafka, "t")
    produce(node.kafka, "t", [b"%d" % it for it in range(5)])
    member = members(node.kafka, "t")
    (first,) = read(member, count=5)
    assert told(first) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    assert member.answer((first[:2], ACCEPT), (first[2:4], RELEASE), (first[4:], REJECT))
    (again,) = read(member, count=2)
    assert told(again) == [(2, 2), (3, 2)]
    assert member.answer((again, ACCEPT))
    produce(node.kafka, "t", [b"more"])
    (last,) = read(member)
    assert [it.value() for it in last] == [b"more"]
    member.answer((last, ACCEPT))


def test_a_record_is_given_up_after_its_deliveries(node: NodeProcess, members: Members) -> None:
    create(node.kafka, "poison")
    produce(node.kafka, "poison", [b"poison"])
    crew = [members(node.kafka, "poison") for _ in range(2)]
    for count in range(1, 6):
        for member, mine in zip(crew, read(*crew), strict=True):
            if mine:
                assert told(mine) == [(0, count)]
                assert member.answer((mine, RELEASE))
    produce(node.kafka, "poison", [b"good"])
    found = read(*crew)
    assert [it.value() for mine in found for it in mine] == [b"good"]
    for member, mine in zip(crew, found, strict=True):
        if mine:
            member.answer((mine, ACCEPT))


def test_a_lock_that_is_over_lets_another_member_have_the_record(
    node: NodeProcess, members: Members
) -> None:
    create(node.kafka, "slow")
    produce(node.kafka, "slow", [b"x"])
    slow = members(node.kafka, "slow")
    (held,) = read(slow)
    quick = members(node.kafka, "slow")
    (again,) = read(quick)
    assert told(again) == [(0, 2)]
    assert not slow.answer((held, ACCEPT))
    assert quick.answer((again, ACCEPT))


def test_what_was_answered_holds_after_a_crash(node: NodeProcess, members: Members) -> None:
    create(node.kafka, "crash")
    produce(node.kafka, "crash", [b"%d" % it for it in range(4)])
    member = members(node.kafka, "crash")
    (found,) = read(member, count=4)
    assert member.answer((found[:2], ACCEPT), (found[2:], RELEASE))
    (held,) = read(member, count=2)
    node.kill()
    node.start()
    (again,) = read(members(node.kafka, "crash"), count=2)
    assert told(held) == [(2, 2), (3, 2)]
    assert told(again) == [(2, 3), (3, 3)]
    member.answer((held, ACCEPT))  # or it cannot be closed


def test_a_group_that_reads_what_is_committed(
    new_node: Callable[..., NodeProcess], members: Members
) -> None:
    node = new_node()
    node.add_settings(groups={**GROUPS, "share_isolation_level": "read_committed"})
    node.start()
    create(node.kafka, "t", 1)
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "p"})
    producer.init_transactions(30)

    def produced(*values: bytes) -> None:
        producer.begin_transaction()
        for it in values:
            producer.produce("t", it)
        assert producer.flush(30) == 0

    produced(*(b"aborted" for _ in range(100)))
    producer.abort_transaction(30)
    produced(b"committed")
    producer.commit_transaction(30)
    produced(b"open")
    produce(node.kafka, "t", [b"alone"])
    member = members(node.kafka, "t")
    values: list[bytes | None] = []

    def reads(count: int) -> Callable[[], bool]:
        def look() -> bool:
            found = member.poll()
            if found:
                assert member.answer((found, AcknowledgeType.ACCEPT))
            values.extend(it.value() for it in found)
            return len(values) >= count

        return look

    wait_until(reads(1), "what is committed", PATIENCE_S)
    assert not reads(2)()
    assert values == [b"committed"]
    producer.commit_transaction(30)
    wait_until(reads(3), "what was open, and what came after it", PATIENCE_S)
    assert values == [b"committed", b"open", b"alone"]


def test_three_nodes_of_which_one_after_the_other_is_killed(
    tmp_path: Path, members: Members
) -> None:
    """No record is lost, and none is delivered once it counts as accepted."""
    count, partitions = 600, 3
    with Cluster(tmp_path, settings={"groups": GROUPS}) as cluster:
        create(cluster.servers, "three", partitions, 3)
        for partition in range(partitions):
            values = [b"%d" % it for it in range(count // partitions)]
            produce(cluster.servers, "three", values, partition=partition)
        crew = [members(cluster.servers, "three") for _ in range(2)]
        accepted: set[Place] = set()
        counts: Counter[Place] = Counter()
        killed: list[int] = []

        def go_on() -> bool:
            for member in crew:
                found = member.poll()
                for it in found:
                    assert place_of(it) not in accepted, "delivered after it was accepted"
                    assert (it.delivery_count() or 0) > counts[place_of(it)], (
                        "a delivery is forgotten"
                    )
                    counts[place_of(it)] = it.delivery_count() or 0
                # Only once: a record is given up after its deliveries.
                later = [it for it in found[len(found) // 2 + 1 :] if it.delivery_count() == 1]
                now = [it for it in found if it not in later]
                if found:
                    member.answer((now, ACCEPT), (later, RELEASE))
                    accepted.update(member.accepted)
                    if len(killed) < 3 and len(accepted) > (len(killed) + 1) * count // 5:
                        if killed:
                            cluster.start(killed[-1])
                        killed.append(len(killed) + 1)
                        cluster.kill(killed[-1])
            return len(accepted) == count

        wait_until(go_on, "all records", PATIENCE_S)
        for member in crew:
            member.close()
        assert killed == [1, 2, 3]
        assert len(counts) == count


def test_the_command_line_shows_configures_resets_and_removes(
    tmp_path: Path, members: Members
) -> None:
    with Cluster(tmp_path, nodes=1, settings={"groups": GROUPS}) as cluster:
        create(cluster.servers, "tools")
        produce(cluster.servers, "tools", [b"%d" % it for it in range(4)])
        limit = "share.delivery.count.limit"
        assert "3" in cluster.command("group", "config", "g", f"{limit}=3")
        member = members(cluster.servers, "tools")
        (found,) = read(member, count=4)
        assert member.answer((found[:1], ACCEPT), (found[1:2], RELEASE), (found[2:], ACCEPT))
        (found,) = read(member, count=1)
        shown = json.loads(cluster.command("group", "info", "g", "--json"))
        (partition,) = shown["partitions"]
        assert (shown["group_type"], shown["protocol"]) == ("share", "simple")
        assert (partition["committed_offset"], partition["lag"]) == (1, 1)
        member.answer((found, ACCEPT))
        member.close()
        (row,) = json.loads(cluster.command("group", "ls", "--json"))
        assert (row["type"], row["state"], row["lag"]) == ("share", "Empty", 0)
        cluster.command("group", "reset-offsets", "g", "--to-earliest", "--yes")
        (found,) = read(members(cluster.servers, "tools"), count=4)
        assert told(found) == [(0, 1), (1, 1), (2, 1), (3, 1)]
        cluster.command("group", "config", "g", "--unset", limit)
        assert json.loads(cluster.command("group", "config", "g", "--json"))["configs"] == []
