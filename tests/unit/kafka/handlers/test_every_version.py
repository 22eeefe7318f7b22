"""Every API but Fetch, asked over a socket, in every version offered."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.wire.cursor import Cursor
from streamlog.wire.framing import frame
from streamlog.wire.registry import (
    API_VERSIONS,
    APIS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
)
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_tells_what_is_offered(node: KafkaNode, version: int) -> None:
    async with RawClient(node.port) as client:
        answer = await client.ask(API_VERSIONS, version, {"client_software_name": "x"})
    assert answer["error_code"] == 0
    told = {it["api_key"]: (it["min_version"], it["max_version"]) for it in answer["api_keys"]}
    assert told == {api.key: (api.version_min, api.version_max) for api in APIS.values()}


async def test_a_newer_api_versions_is_answered_as_version_0_with_the_list(
    node: KafkaNode,
) -> None:
    async with RawClient(node.port) as client:
        client.write(frame(b"\x00\x12\x00\x63\x00\x00\x00\x09", b"what a later version may send"))
        cursor = Cursor(await client.frame())
        assert (cursor.i32(), cursor.i16()) == (9, 35)
        keys = []
        for _ in range(cursor.array_length(flexible=False)):
            keys.append(cursor.i16())
            cursor.take(4)
        assert sorted(keys) == sorted(APIS)
        assert cursor.remaining == 0
        assert (await client.ask(API_VERSIONS, 3, {}))["error_code"] == 0


@pytest.mark.parametrize("version", range(14))
async def test_metadata_of_all_topics(node: KafkaNode, version: int) -> None:
    await node.add_stream("flights", 2)
    await node.add_stream("ships")
    node.metadata.change("ships", 0, leader=NO_LEADER, replicas=(int(NODE), 9))
    everything: list[Any] | None = [] if version == 0 else None
    async with RawClient(node.port) as client:
        answer = await client.ask(METADATA, version, {"topics": everything})
    (broker,) = answer["brokers"]
    assert (broker["node_id"], broker["host"], broker["port"]) == (NODE, "127.0.0.1", node.port)
    flights, ships = sorted(answer["topics"], key=lambda it: str(it["name"]))
    assert (flights["name"], flights["error_code"]) == ("flights", 0)
    assert [it["partition_index"] for it in flights["partitions"]] == [0, 1]
    assert {it["leader_id"] for it in flights["partitions"]} == {NODE}
    assert flights["partitions"][0]["isr_nodes"] == [NODE]
    assert ships["partitions"][0]["error_code"] == 5
    assert ships["partitions"][0]["replica_nodes"] == [NODE, 9]
    if version >= 1:
        assert (answer["controller_id"], broker["rack"]) == (NODE, "r1")
    if version >= 2:
        assert answer["cluster_id"] == CLUSTER_ID
    if version >= 5:
        assert ships["partitions"][0]["offline_replicas"] == [9]
    if version >= 7:
        assert flights["partitions"][0]["leader_epoch"] == 0
    if version >= 10:
        assert flights["topic_id"] == node.metadata.image.stream("flights").stream_id


@pytest.mark.parametrize("version", range(14))
async def test_metadata_of_some_topics_creates_none(node: KafkaNode, version: int) -> None:
    await node.add_stream("flights")
    asked = [{"name": "flights"}, {"name": "nowhere"}, {"name": "not a name!"}]
    request = {"topics": asked, "allow_auto_topic_creation": True}
    async with RawClient(node.port) as client:
        answer = await client.ask(METADATA, version, request)
    told = [(it["name"], it["error_code"], len(it["partitions"])) for it in answer["topics"]]
    assert told == [("flights", 0, 1), ("nowhere", 3, 0), ("not a name!", 17, 0)]
    assert set(node.metadata.image.streams) == {"flights"}


@pytest.mark.parametrize("version", [0, 3, 4, 13])
async def test_metadata_creates_topics_where_the_node_is_set_so(version: int) -> None:
    async with (
        KafkaNode(auto_create_topics=True, default_partitions=3) as node,
        RawClient(node.port) as client,
    ):
        names = ["one", "two.dots", "__consumer_offsets", "a b", "one"]
        request = {"topics": [{"name": name} for name in names]}
        if version >= 4:
            answer = await client.ask(
                METADATA, version, {**request, "allow_auto_topic_creation": False}
            )
            assert {it["error_code"] for it in answer["topics"]} == {3, 17}
            assert not node.metadata.image.streams
            request["allow_auto_topic_creation"] = True  # type: ignore[assignment]
        answer = await client.ask(METADATA, version, request)
        told = {it["name"]: (it["error_code"], len(it["partitions"])) for it in answer["topics"]}
        assert told == {
            "one": (0, 3),
            "two.dots": (0, 3),
            "__consumer_offsets": (3, 0),
            "a b": (17, 0),
        }
        assert set(node.metadata.image.streams) == {"one", "two.dots"}


async def test_one_request_creates_a_limited_number_of_topics() -> None:
    async with KafkaNode(auto_create_topics=True) as node, RawClient(node.port) as client:
        request = {
            "topics": [{"name": f"t{n}"} for n in range(25)],
            "allow_auto_topic_creation": True,
        }
        for made in (20, 25):
            answer = await client.ask(METADATA, 12, request)
            assert sum(it["error_code"] == 0 for it in answer["topics"]) == made
            assert {it["error_code"] for it in answer["topics"]} <= {0, 3}
            assert len(node.metadata.image.streams) == made


async def test_a_topic_that_cannot_be_had_is_not_created() -> None:
    async with (
        KafkaNode(auto_create_topics=True, default_replicas=3) as node,
        RawClient(node.port) as client,
    ):
        request = {"topics": [{"name": "one"}], "allow_auto_topic_creation": True}
        answer = await client.ask(METADATA, 12, request)
        assert [it["error_code"] for it in answer["topics"]] == [38]


@pytest.mark.parametrize("version", range(1, 14))
async def test_metadata_of_no_topics(node: KafkaNode, version: int) -> None:
    await node.add_stream("flights")
    async with RawClient(node.port) as client:
        answer = await client.ask(METADATA, version, {"topics": []})
    assert answer["topics"] == []
    assert len(answer["brokers"]) == 1


async def test_what_metadata_is_asked_for_twice_is_told_once(node: KafkaNode) -> None:
    await node.add_stream("flights")
    known = node.metadata.image.stream("flights").stream_id
    asked = [{"name": "flights"}, {"name": "nowhere"}] * 3 + [
        {"name": "flights", "topic_id": known}
    ]
    async with RawClient(node.port) as client:
        for version in (0, 9, 12):
            answer = await client.ask(METADATA, version, {"topics": asked})
            assert [it["name"] for it in answer["topics"]] == ["flights", "nowhere"]


@pytest.mark.parametrize("version", [10, 11])
async def test_an_unknown_id_has_an_empty_name_where_it_must_have_one(
    node: KafkaNode, version: int
) -> None:
    unknown = uuid4()
    request = {"topics": [{"name": None, "topic_id": unknown}]}
    async with RawClient(node.port) as client:
        (found,) = (await client.ask(METADATA, version, request))["topics"]
    assert (found["name"], found["topic_id"], found["error_code"]) == ("", unknown, 100)


async def test_metadata_by_id(node: KafkaNode) -> None:
    await node.add_stream("flights")
    known, unknown = node.metadata.image.stream("flights").stream_id, uuid4()
    asked = [{"name": None, "topic_id": known}, {"name": None, "topic_id": unknown}]
    async with RawClient(node.port) as client:
        answer = await client.ask(METADATA, 12, {"topics": asked})
    told = [(it["name"], it["topic_id"], it["error_code"]) for it in answer["topics"]]
    assert told == [("flights", known, 0), (None, unknown, 100)]


KNOWN_FROM = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
UNSUPPORTED_VERSION = 35


def offsets_of(timestamp: int, *, partition: int = 0, epoch: int = -1) -> dict[str, object]:
    asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    return {"replica_id": -1, "topics": [{"name": "flights", "partitions": [asked]}]}


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (-2, (3, -1)),
        (-1, (30, -1)),
        (-3, (10, 2_000)),
        (-4, (3, -1)),
        (-5, (-1, -1)),
        (-6, (-1, -1)),
        (-7, None),
        (0, (0, 1_000)),
        (1_000, (0, 1_000)),
        (1_001, (10, 2_000)),
        (2_001, (-1, -1)),
        (2**62, (-1, -1)),
    ],
)
async def test_list_offsets(
    node: KafkaNode, version: int, asked: int, told: tuple[int, int] | None
) -> None:
    partition = await node.add_stream("flights")
    for timestamp_ms in (1_000, 2_000, 1_500):
        partition.append([b"x"] * 10, timestamp_ms=timestamp_ms)
    partition.log_start_offset = 3
    partition.append([b"not committed"], commit=False)
    async with RawClient(node.port) as client:
        answer = await client.ask(LIST_OFFSETS, version, offsets_of(asked))
    ((topic,),) = [answer["topics"]]
    (found,) = topic["partitions"]
    known = asked >= 0 or version >= KNOWN_FROM.get(asked, 99)
    code = 0 if known else UNSUPPORTED_VERSION
    assert (topic["name"], found["partition_index"], found["error_code"]) == ("flights", 0, code)
    assert (found["offset"], found["timestamp"]) == (told if known else (-1, -1))


async def test_list_offsets_of_an_empty_partition(node: KafkaNode) -> None:
    await node.add_stream("flights")
    async with RawClient(node.port) as client:
        for timestamp, offset in ((-1, 0), (-2, 0), (-3, -1), (5, -1)):
            answer = await client.ask(LIST_OFFSETS, 7, offsets_of(timestamp))
            assert answer["topics"][0]["partitions"][0]["offset"] == offset


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (4, 74), (5, 0), (6, 75)])
async def test_list_offsets_and_epoch_ends_check_the_leader_epoch(
    node: KafkaNode, epoch: int, code: int
) -> None:
    partition = await node.add_stream("flights")
    partition.leader_epoch = 5
    async with RawClient(node.port) as client:
        answer = await client.ask(LIST_OFFSETS, 7, offsets_of(-1, epoch=epoch))
        found = answer["topics"][0]["partitions"][0]
        assert (found["error_code"], found["leader_epoch"]) == (code, 5 if code == 0 else -1)
        answer = await client.ask(OFFSET_FOR_LEADER_EPOCH, 4, epoch_end_of(5, current=epoch))
        assert answer["topics"][0]["partitions"][0]["error_code"] == code


async def test_list_offsets_of_what_is_not_here(node: KafkaNode) -> None:
    await node.add_stream("flights", 2)
    node.partition(TopicPartition("flights", 0)).is_leader = False
    del node.local[TopicPartition("flights", 1)]
    async with RawClient(node.port) as client:
        for partition, code in ((0, 6), (1, 6), (2, 3), (-1, 3)):
            answer = await client.ask(LIST_OFFSETS, 7, offsets_of(-1, partition=partition))
            assert answer["topics"][0]["partitions"][0]["error_code"] == code


def epoch_end_of(epoch: int, *, current: int = -1, partition: int = 0) -> dict[str, object]:
    asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    return {"topics": [{"topic": "flights", "partitions": [asked]}]}


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_offset_for_leader_epoch(node: KafkaNode, version: int) -> None:
    partition = await node.add_stream("flights")
    partition.append([b"x"] * 40)
    partition.epoch_ends = {3: (2, 25)}
    async with RawClient(node.port) as client:
        for epoch, told in ((3, (2, 25)), (5, (5, 40))):
            answer = await client.ask(OFFSET_FOR_LEADER_EPOCH, version, epoch_end_of(epoch))
            found = answer["topics"][0]["partitions"][0]
            assert found["error_code"] == 0
            assert (found["leader_epoch"], found["end_offset"]) == told
        request = epoch_end_of(1, partition=7)
        answer = await client.ask(OFFSET_FOR_LEADER_EPOCH, version, request)
        found = answer["topics"][0]["partitions"][0]
        assert (found["error_code"], found["partition"], found["end_offset"]) == (3, 7, -1)


def topic(name: str, **more: object) -> dict[str, object]:
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]  # type: ignore[attr-defined]
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs, **more}


def assigned(name: str, *nodes: list[int], first: int = 0) -> dict[str, object]:
    assignments = [{"partition_index": n, "broker_ids": it} for n, it in enumerate(nodes, first)]
    return topic(name, num_partitions=-1, replication_factor=-1, assignments=assignments)


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created_where_the_caller_wants_them(
    node: KafkaNode, version: int
) -> None:
    for other in (8, 9):
        node.metadata.register(1, NodeId(other))
    request = {"topics": [assigned("flights", [9, 7], [8, 9])]}
    async with RawClient(node.port) as client:
        answer = await client.ask(CREATE_TOPICS, version, {**request, "validate_only": True})
        assert answer["topics"][0]["error_code"] == 0
        assert len(node.metadata.image.streams) == 0
        answer = await client.ask(CREATE_TOPICS, version, request)
    assert answer["topics"][0]["error_code"] == 0
    flights = node.metadata.image.stream("flights")
    assert (flights.config.partitions, flights.config.replicas) == (2, 2)
    assert [it.replicas for it in flights.partitions] == [(9, 7), (8, 9)]
    assert [it.leader for it in flights.partitions] == [9, 8]


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created(node: KafkaNode, version: int) -> None:
    configs = {"subject": "flights.>, ships.*", "retention.ms": "600000", "segment.bytes": "65536"}
    request = {"topics": [topic("flights", configs=configs), topic("plain", num_partitions=3)]}
    async with RawClient(node.port) as client:
        answer = await client.ask(CREATE_TOPICS, version, request)
    assert [(it["name"], it["error_code"]) for it in answer["topics"]] == [
        ("flights", 0), ("plain", 0),
    ]  # fmt: skip
    flights, plain = (node.metadata.image.stream(name) for name in ("flights", "plain"))
    assert flights.config.subjects == ("flights.>", "ships.*")
    assert (flights.config.retention_ms, flights.config.segment_bytes) == (600_000, 65_536)
    assert plain.config.subjects == ("plain",)
    assert len(plain.partitions) == 3
    if version >= 5:
        told = answer["topics"][0]
        assert (told["num_partitions"], told["replication_factor"]) == (1, 1)
        by_name = {it["name"]: it for it in told["configs"]}
        assert by_name["retention.ms"]["value"] == "600000"
        assert by_name["retention.ms"]["config_source"] == 1
        assert by_name["cleanup.policy"]["config_source"] == 5
    if version >= 7:
        assert answer["topics"][0]["topic_id"] == flights.stream_id


async def test_minus_one_stands_for_the_defaults(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        request = {"topics": [topic("flights", num_partitions=-1, replication_factor=-1)]}
        answer = await client.ask(CREATE_TOPICS, 7, request)
    assert answer["topics"][0]["error_code"] == 0
    assert answer["topics"][0]["num_partitions"] == 1


async def test_minus_one_stands_for_what_the_node_is_set_to() -> None:
    async with (
        KafkaNode(default_partitions=4, default_replicas=3) as node,
        RawClient(node.port) as client,
    ):
        request = {"topics": [topic("flights", num_partitions=-1, replication_factor=-1)]}
        answer = await client.ask(CREATE_TOPICS, 7, request)
        assert answer["topics"][0]["error_code"] == 38
        assert "3 replicas, 1 live nodes" in answer["topics"][0]["error_message"]
        for other in (8, 9):
            node.metadata.register(1, NodeId(other))
        answer = await client.ask(CREATE_TOPICS, 7, request)
        told = answer["topics"][0]
        assert (told["error_code"], told["num_partitions"], told["replication_factor"]) == (0, 4, 3)
        config = node.metadata.image.stream("flights").config
        assert (config.partitions, config.replicas, config.min_isr) == (4, 3, 2)


async def test_names_that_no_topic_can_have_are_told_apart_from_unknown_ones(
    node: KafkaNode,
) -> None:
    codes = {"a b": 17, "..": 17, "": 17, "x" * 250: 17, "no.such": 3, "__transaction_state": 3}
    async with RawClient(node.port) as client:
        for version in (1, 13):
            request = {"topics": [{"name": name, "topic_id": None} for name in codes]}
            answer = await client.ask(METADATA, version, request)
            assert {it["name"]: it["error_code"] for it in answer["topics"]} == codes


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (topic("a b"), 17, "'a b'"),
        (topic(".."), 17, "'..'"),
        (topic(""), 17, "1 to 249"),
        (topic("x" * 250), 17, "1 to 249"),
        (topic("__consumer_offsets"), 17, "reserved"),
        (topic("taken"), 36, "exists"),
        (topic("new", num_partitions=0), 37, "0 partitions"),
        (topic("new", num_partitions=10_001), 37, "10001 partitions"),
        (topic("new", replication_factor=0), 38, "0 replicas"),
        (topic("new", replication_factor=3), 38, "3 replicas, 1 live nodes"),
        (topic("new", assignments=[{"partition_index": 0, "broker_ids": [7]}]), 42, "at -1"),
        (assigned("new", [7, 7]), 39, "[7, 7] are not 2 different nodes"),
        (assigned("new", []), 39, "[] are not 1 different nodes"),
        (assigned("new", [7], [7, 9]), 39, "[7, 9] are not 1 different nodes"),
        (assigned("new", [9]), 39, "only [7] are live nodes"),
        (assigned("new", [-1]), 39, "only [7] are live nodes"),
        (assigned("new", [7], first=1), 39, "partitions 0 to 0, once"),
        (assigned("new", [7], [7], first=-1), 39, "partitions 0 to 1, once"),
        (topic("new", configs={"no.such.config": "1"}), 40, "no.such.config"),
        (topic("new", configs={"retention.ms": "soon"}), 40, "retention.ms"),
        (topic("new", configs={"cleanup.policy": "tidy"}), 40, "cleanup_policy"),
        (topic("new", configs={"subject": "a..b"}), 40, "a..b"),
        (topic("new", configs={"subject": ""}), 40, ""),
        (topic("new", configs={"subject": "$JS.API.>"}), 40, "jetstream api"),
    ],
)
async def test_topics_that_cannot_be(
    node: KafkaNode, asked: dict[str, object], code: int, message: str
) -> None:
    await node.add_stream("taken")
    before = node.metadata.image
    async with RawClient(node.port) as client:
        for validate_only in (True, False):
            request = {"topics": [asked], "validate_only": validate_only}
            (told,) = (await client.ask(CREATE_TOPICS, 7, request))["topics"]
            assert (told["name"], told["error_code"]) == (asked["name"], code)
            assert message in told["error_message"]
    assert node.metadata.image is before


async def test_only_validating_creates_nothing(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        request = {"topics": [topic("flights")], "validate_only": True}
        answer = await client.ask(CREATE_TOPICS, 7, request)
    assert answer["topics"][0]["error_code"] == 0
    assert len(node.metadata.image.streams) == 0


async def test_a_name_twice_in_one_request_is_refused_and_the_rest_is_done(
    node: KafkaNode,
) -> None:
    async with RawClient(node.port) as client:
        request = {"topics": [topic("twin"), topic("other"), topic("twin")]}
        answer = await client.ask(CREATE_TOPICS, 7, request)
    assert [it["error_code"] for it in answer["topics"]] == [42, 0, 42]
    assert set(node.metadata.image.streams) == {"other"}


@pytest.mark.parametrize("version", range(1, 7))
async def test_topics_are_deleted(node: KafkaNode, version: int) -> None:
    await node.add_stream("flights", 2)
    stream_id = node.metadata.image.stream("flights").stream_id
    names = ["flights", "nowhere"]
    request = {
        "topic_names": names,
        "topics": [{"name": name, "topic_id": None} for name in names],
        "timeout": 1_000,
    }
    async with RawClient(node.port) as client:
        answer = await client.ask(DELETE_TOPICS, version, request)
    assert [(it["name"], it["error_code"]) for it in answer["responses"]] == [
        ("flights", 0), ("nowhere", 3),
    ]  # fmt: skip
    assert len(node.metadata.image.streams) == 0
    assert node.local == {}
    if version >= 5:
        assert "nowhere" in answer["responses"][1]["error_message"]
    if version >= 6:
        assert answer["responses"][0]["topic_id"] == stream_id


async def test_topics_are_deleted_by_id(node: KafkaNode) -> None:
    await node.add_stream("flights")
    known, unknown = node.metadata.image.stream("flights").stream_id, uuid4()
    request = {"topics": [{"name": None, "topic_id": it} for it in (unknown, known)], "timeout": 1}
    async with RawClient(node.port) as client:
        answer = await client.ask(DELETE_TOPICS, 6, request)
    told = [(it["name"], it["topic_id"], it["error_code"]) for it in answer["responses"]]
    assert told == [(None, unknown, 100), ("flights", known, 0)]
    assert len(node.metadata.image.streams) == 0


@pytest.mark.parametrize("version", range(5))
async def test_a_group_has_a_coordinator(node: KafkaNode, version: int) -> None:
    asked = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    async with RawClient(node.port) as client:
        answer = await client.ask(FIND_COORDINATOR, version, asked)
    found = answer["coordinators"] if version >= 4 else [answer]
    assert [it.get("key") for it in found] == (["a", "b"] if version >= 4 else [None])
    for it in found:
        assert (it["error_code"], it["node_id"]) == (0, NODE)
        assert (it["host"], it["port"]) == ("127.0.0.1", node.port)


# In a cluster


async def test_fenced_nodes_are_not_shown_and_their_replicas_are_offline(node: KafkaNode) -> None:
    await node.add_stream("flights")
    node.metadata.register(1, NodeId(8))
    node.metadata.register(2, NodeId(9))
    node.metadata.change("flights", 0, replicas=(NODE, NodeId(8), NodeId(9)))
    node.metadata.fence(NodeId(9))
    node.metadata.controller_id = NodeId(8)
    async with RawClient(node.port) as client:
        answer = await client.ask(METADATA, 12, {"topics": None})
    assert [it["node_id"] for it in answer["brokers"]] == [NODE, 8]
    assert answer["controller_id"] == 8
    assert answer["topics"][0]["partitions"][0]["offline_replicas"] == [9]


async def test_a_node_shows_itself_while_it_is_fenced(node: KafkaNode) -> None:
    for number in (8, 9):
        node.metadata.register(number - 7, NodeId(number))
    node.metadata.fence(NODE)
    async with RawClient(node.port) as client:
        answer = await client.ask(METADATA, 12, {"topics": []})
    assert [it["node_id"] for it in answer["brokers"]] == [NODE, 8, 9]


async def test_all_nodes_are_shown_while_most_are_fenced(node: KafkaNode) -> None:
    """Told of no nodes at all, librdkafka forgets the ones that it was configured with, too."""
    for number in (8, 9):
        node.metadata.register(number - 7, NodeId(number))
    for number in (NODE, NodeId(8)):
        node.metadata.fence(number)
    async with RawClient(node.port) as client:
        answer = await client.ask(METADATA, 12, {"topics": []})
    assert [it["node_id"] for it in answer["brokers"]] == [NODE, 8, 9]


async def test_a_node_shows_itself_before_it_is_registered(node: KafkaNode) -> None:
    node.metadata.image = MetadataImage("c")
    async with RawClient(node.port) as client:
        (shown,) = (await client.ask(METADATA, 12, {"topics": []}))["brokers"]
    assert (shown["node_id"], shown["host"], shown["port"]) == (NODE, *node.listener.address)


async def test_without_a_known_controller_any_node_will_do(node: KafkaNode) -> None:
    node.metadata.controller_id = None
    async with RawClient(node.port) as client:
        assert (await client.ask(METADATA, 12, {"topics": []}))["controller_id"] == NODE


@pytest.mark.parametrize("version", range(1, 12))
async def test_a_new_leader_does_not_guess_what_is_committed(node: KafkaNode, version: int) -> None:
    partition = await node.add_stream("flights")
    partition.append([b"x"])
    partition.high_watermark_known = False

    async def asked(timestamp: int) -> tuple[int, int]:
        topic = {"name": "flights", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
        async with RawClient(node.port) as client:
            answer = await client.ask(LIST_OFFSETS, version, {"topics": [topic]})
        (found,) = answer["topics"][0]["partitions"]
        return found["error_code"], found["offset"]

    later = 78 if version >= 5 else 5
    assert (await asked(-1))[0] == later
    assert await asked(-2) == (0, 0)
    assert await asked(1_000) == (0, 0)
    assert (await asked(1_001))[0] == later
    partition.high_watermark_known = True
    assert await asked(-1) == (0, 1)


async def test_no_coordinator_before_the_node_has_registered(node: KafkaNode) -> None:
    node.metadata.image = MetadataImage(CLUSTER_ID)
    async with RawClient(node.port) as client:
        answer = await client.ask(FIND_COORDINATOR, 2, {"key": "g"})
    assert answer["error_code"] == 15


async def test_a_topic_that_was_created_anew_is_not_deleted_by_the_id_of_the_former(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else is quicker than the request on its way to the controller."""
    await node.add_stream("flights")
    known = node.metadata.image.stream("flights").stream_id
    delete = node.metadata.delete_stream

    async def late(name: str, stream_id: UUID | None = None) -> None:
        await delete(name)
        await node.add_stream(name)
        await delete(name, stream_id)

    monkeypatch.setattr(node.metadata, "delete_stream", late)
    request = {"topics": [{"name": None, "topic_id": known}], "timeout": 1}
    async with RawClient(node.port) as client:
        answer = await client.ask(DELETE_TOPICS, 6, request)
    assert [it["error_code"] for it in answer["responses"]] == [100]
    assert node.metadata.image.stream("flights").stream_id != known
