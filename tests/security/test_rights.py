"""API by API: what is refused without the right, and that the right suffices."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from streamlog.metadata.commands import AwaitApplied, Command, DescribeCluster, Granted
from streamlog.metadata.image.feature_level import TRANSACTIONS_LEVEL
from streamlog.wire import api_messages, registry
from streamlog.wire.cursor import Cursor
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.header import encode_request_header, read_response_header
from streamlog.wire.registry import APIS
from tests.kafka_node import KafkaNode
from tests.restricted import Asker

TOPIC = ErrorCode.topic_authorization_failed
UNKNOWN = ErrorCode.unknown_topic_or_partition
GROUP = ErrorCode.group_authorization_failed
CLUSTER = ErrorCode.cluster_authorization_failed
TRANSACTION = ErrorCode.transactional_id_authorization_failed
SEEN = "describe_configs topic orders"
"""It may be known of."""


class Case(NamedTuple):
    """A request, the rule that it needs, and what it is answered without."""

    key: int
    request: dict[str, Any]
    right: str
    hidden: ErrorCode
    seen: ErrorCode | None = None
    """Where the stream may be known of; None: likewise."""
    version: int | None = None
    rest: tuple[str, ...] = ()
    """Rules that it needs, too."""


def topics(**partition: Any) -> list[dict[str, Any]]:
    return [
        {"name": "orders", "topic": "orders", "topic_id": UUID(int=1), "partitions": [partition]}
    ]


ACL = {
    "resource_type": 2, "resource_name": "x", "resource_pattern_type": 3, "principal": "User:x",
    "host": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip
FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": "User:x", "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
NEW = {
    "name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [],
}  # fmt: skip
QUOTA = {
    "entity": [{"entity_type": "client-id", "entity_name": "c"}],
    "ops": [{"key": "request_rate", "value": 5.0, "remove": False}],
}  # fmt: skip
CONFIG = {
    "resource_type": 2, "resource_name": "orders",
    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "100000"}],
}  # fmt: skip
DESCRIBED = {"resource_type": 2, "resource_name": "orders", "configuration_keys": None}
MEMBER = {"group_id": "g", "generation_id": 1, "member_id": "m"}
SHARING: dict[str, Any] = {"group_id": "g", "member_id": "m", "topics": []}

PRODUCER = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 0}
COMMITTED = {
    **PRODUCER,
    "group_id": "g",
    "generation_id": -1,
    "member_id": "",
    "topics": topics(partition_index=0, committed_offset=1, committed_metadata=""),
}
ADDED = {
    **{f"v3_and_below_{name}": value for name, value in PRODUCER.items()},
    "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
}

CASES = [
    Case(registry.LIST_OFFSETS,
         {"replica_id": -1, "isolation_level": 0,
          "topics": topics(partition_index=0, timestamp=-1)},
         "describe topic orders", UNKNOWN, TOPIC),
    Case(registry.DESCRIBE_PRODUCERS,
         {"topics": [{"name": "orders", "partition_indexes": [0]}]}, "read topic orders",
         UNKNOWN, TOPIC),
    Case(registry.OFFSET_FOR_LEADER_EPOCH,
         {"replica_id": -1,
          "topics": topics(partition=0, current_leader_epoch=-1, leader_epoch=0)},
         "describe topic orders", UNKNOWN, TOPIC),
    Case(registry.METADATA, {"topics": [{"name": "orders", "topic_id": None}]},
         "describe topic orders", TOPIC, ErrorCode.none),
    Case(registry.METADATA, {"topics": [{"name": "no-such", "topic_id": None}]},
         "describe topic no-such", TOPIC),
    Case(registry.DESCRIBE_TOPIC_PARTITIONS,
         {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None},
         "describe topic orders", TOPIC, ErrorCode.none),
    Case(registry.CREATE_TOPICS, {"topics": [NEW], "validate_only": False},
         "create topic new", TOPIC),
    Case(registry.CREATE_TOPICS, {"topics": [NEW], "validate_only": True},
         "create cluster kafka-cluster", TOPIC),
    Case(registry.DELETE_TOPICS, {"topics": [{"name": "orders", "topic_id": None}]},
         "delete topic orders", UNKNOWN, TOPIC),
    Case(registry.DELETE_RECORDS, {"topics": topics(partition_index=0, offset=1)},
         "delete topic orders", UNKNOWN, TOPIC),
    Case(registry.CREATE_PARTITIONS,
         {"topics": [{"name": "orders", "count": 2, "assignments": None}],
          "validate_only": False},
         "alter topic orders", UNKNOWN, TOPIC),
    Case(registry.INCREMENTAL_ALTER_CONFIGS, {"resources": [CONFIG], "validate_only": False},
         "alter_configs topic orders", UNKNOWN, TOPIC),
    Case(registry.ALTER_CONFIGS, {"resources": [CONFIG], "validate_only": False},
         "alter_configs topic orders", UNKNOWN, TOPIC),
    Case(registry.DESCRIBE_CONFIGS, {"resources": [DESCRIBED], "include_synonyms": False},
         "describe_configs topic orders", UNKNOWN),
    Case(registry.DESCRIBE_CONFIGS,
         {"resources": [{**DESCRIBED, "resource_type": 4, "resource_name": "7"}],
          "include_synonyms": False},
         "describe_configs cluster kafka-cluster", CLUSTER),
    Case(registry.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]},
         "describe group g", GROUP),
    Case(registry.HEARTBEAT, MEMBER, "read group g", GROUP),
    Case(registry.CONSUMER_GROUP_HEARTBEAT,
         {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1_000,
          "subscribed_topic_names": [], "topic_partitions": []},
         "read group g", GROUP),
    Case(registry.CONSUMER_GROUP_DESCRIBE,
         {"group_ids": ["g"], "include_authorized_operations": False}, "describe group g", GROUP),
    Case(registry.SHARE_GROUP_HEARTBEAT,
         {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": []},
         "read group g", GROUP),
    Case(registry.SHARE_GROUP_DESCRIBE,
         {"group_ids": ["g"], "include_authorized_operations": False}, "describe group g", GROUP),
    Case(registry.SHARE_FETCH,
         {**SHARING, "share_session_epoch": 0, "max_wait": 0, "min_bytes": 0, "max_bytes": 1,
          "max_records": 1, "batch_size": 1, "forgotten_topics_data": []},
         "read group g", GROUP),
    Case(registry.SHARE_ACKNOWLEDGE, {**SHARING, "share_session_epoch": 1},
         "read group g", GROUP),
    Case(registry.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"group_id": "g", "topics": None}]},
         "describe group g", GROUP),
    Case(registry.ALTER_SHARE_GROUP_OFFSETS,
         {"group_id": "g",
          "topics": [{"topic_name": "orders",
                      "partitions": [{"partition_index": 0, "start_offset": 1}]}]},
         "read group g", GROUP),
    Case(registry.DELETE_SHARE_GROUP_OFFSETS,
         {"group_id": "g", "topics": [{"topic_name": "orders"}]}, "delete group g", GROUP),
    Case(registry.SYNC_GROUP, {**MEMBER, "assignments": []}, "read group g", GROUP),
    Case(registry.LEAVE_GROUP, {"group_id": "g", "members": [{"member_id": "m"}]},
         "read group g", GROUP),
    Case(registry.JOIN_GROUP,
         {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 1, "member_id": "",
          "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]},
         "read group g", GROUP),
    Case(registry.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": None}]},
         "describe group g", GROUP),
    Case(registry.OFFSET_COMMIT,
         {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
          "topics": topics(partition_index=0, committed_offset=1, committed_metadata="")},
         "read group g", GROUP),
    Case(registry.DESCRIBE_GROUPS, {"groups": ["g"]}, "describe group g", GROUP),
    Case(registry.DELETE_GROUPS, {"groups_names": ["g"]}, "delete group g", GROUP),
    Case(registry.OFFSET_DELETE, {"group_id": "g", "topics": topics(partition_index=0)},
         "delete group g", GROUP),
    Case(registry.INIT_PRODUCER_ID,
         {"transactional_id": None, "transaction_timeout": 1},
         "write topic anything", CLUSTER),
    Case(registry.INIT_PRODUCER_ID,
         {"transactional_id": None, "transaction_timeout": 1},
         "idempotent_write cluster kafka-cluster", CLUSTER),
    Case(registry.INIT_PRODUCER_ID,
         {"transactional_id": "t", "transaction_timeout": 1},
         "write transactional_id t", TRANSACTION),
    Case(registry.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": ["t"]},
         "describe transactional_id t", TRANSACTION),
    Case(registry.ADD_PARTITIONS_TO_TXN, ADDED, "write transactional_id t", TRANSACTION,
         rest=("write topic orders",)),
    Case(registry.ADD_PARTITIONS_TO_TXN, ADDED, "write topic orders", UNKNOWN, TOPIC,
         rest=("write transactional_id t",)),
    Case(registry.ADD_OFFSETS_TO_TXN, {**PRODUCER, "group_id": "g"},
         "write transactional_id t", TRANSACTION, rest=("read group g",)),
    Case(registry.ADD_OFFSETS_TO_TXN, {**PRODUCER, "group_id": "g"},
         "read group g", GROUP, rest=("write transactional_id t",)),
    Case(registry.TXN_OFFSET_COMMIT, COMMITTED, "write transactional_id t", TRANSACTION,
         rest=("read group g",)),
    Case(registry.TXN_OFFSET_COMMIT, COMMITTED, "read group g", GROUP,
         rest=("write transactional_id t",)),
    Case(registry.END_TXN, {**PRODUCER, "committed": True},
         "write transactional_id t", TRANSACTION),
    Case(registry.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["t"]},
         "describe transactional_id t", TRANSACTION),
    Case(registry.DESCRIBE_ACLS, FILTER, "describe cluster kafka-cluster", CLUSTER),
    Case(registry.CREATE_ACLS, {"creations": [ACL]}, "alter cluster kafka-cluster", CLUSTER),
    Case(registry.DELETE_ACLS, {"filters": [FILTER]}, "alter cluster kafka-cluster", CLUSTER),
    Case(registry.DESCRIBE_LOG_DIRS, {"topics": None}, "describe cluster kafka-cluster", CLUSTER),
    Case(registry.ELECT_LEADERS,
         {"election_type": 0, "topic_partitions": None, "timeout": 1},
         "alter cluster kafka-cluster", CLUSTER),
    Case(registry.ALTER_PARTITION_REASSIGNMENTS, {"timeout": 1, "topics": []},
         "alter cluster kafka-cluster", CLUSTER),
    Case(registry.LIST_PARTITION_REASSIGNMENTS, {"timeout": 1, "topics": None},
         "describe cluster kafka-cluster", CLUSTER),
    Case(registry.DESCRIBE_QUORUM, {"topics": []}, "describe cluster kafka-cluster", CLUSTER),
    Case(registry.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False},
         "describe_configs cluster kafka-cluster", CLUSTER),
    Case(registry.ALTER_CLIENT_QUOTAS, {"entries": [QUOTA], "validate_only": False},
         "alter_configs cluster kafka-cluster", CLUSTER),
    Case(registry.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None},
         "describe cluster kafka-cluster", CLUSTER),
    Case(registry.ALTER_USER_SCRAM_CREDENTIALS,
         {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
         "alter cluster kafka-cluster", CLUSTER),
]  # fmt: skip


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    made = KafkaNode()

    async def take(command: Command, *, forwarded: bool) -> Granted:
        if isinstance(command, AwaitApplied):
            return Granted(command.offset, {})  # the image is always the newest here
        if isinstance(command, DescribeCluster):
            return Granted(0, {"high_watermark": 0, "voters": []})
        return await made.metadata.request(command)

    made.metadata.take = take  # type: ignore[method-assign]
    made.metadata.image = replace(made.metadata.image, level=TRANSACTIONS_LEVEL)
    made.listener.open()
    made.metadata.register(9092)
    (await made.add_stream("orders")).append([b"x"] * 10)
    yield made
    await made.listener.stop()
    made.close()


def codes_in(answer: Any) -> Iterator[int]:
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key in ("error_code", "partition_error_code"):
                yield int(value)
            else:
                yield from codes_in(value)
    elif isinstance(answer, list | tuple):
        for item in answer:
            yield from codes_in(item)


async def codes(node: KafkaNode, case: Case, *rules: str) -> set[ErrorCode]:
    """All errors of the answer."""
    return {ErrorCode(code) for code in codes_in(await answered(node, case, *rules)) if code}


async def answered(
    node: KafkaNode, case: Case, *rules: str, enforced: bool = True
) -> dict[str, Any]:
    asker, api = Asker(node.context, *rules, enforced=enforced), APIS[case.key]
    version = api.version_max if case.version is None else case.version
    body = api_messages.encode_request(api, version, case.request)
    frame = await asker.ask(encode_request_header(api, version, 7, "raw") + body)
    asker.close()
    cursor = Cursor((frame or b"")[4:])
    read_response_header(cursor, api, version)
    return api_messages.read_response(cursor, api, version)


def name_of(case: Case) -> str:
    return f"{APIS[case.key].name}: {case.right}"


REFUSALS = {TOPIC, GROUP, CLUSTER, UNKNOWN}


@pytest.mark.parametrize("case", CASES, ids=name_of)
async def test_without_the_right_it_is_refused(node: KafkaNode, case: Case) -> None:
    assert await codes(node, case, *case.rest) == {case.hidden}
    if case.seen is not None:
        expected = {case.seen} - {ErrorCode.none}
        assert await codes(node, case, SEEN, *case.rest) == expected


@pytest.mark.parametrize("case", CASES, ids=name_of)
async def test_the_right_suffices(node: KafkaNode, case: Case) -> None:
    """What else may be wrong with it is no matter of rights."""
    rules = ("read topic orders", "create topic orders.1", *case.rest)
    found = await codes(node, case, case.right, *rules)
    assert found.isdisjoint({TOPIC, GROUP, CLUSTER, TRANSACTION}), found


@pytest.mark.parametrize("case", CASES, ids=name_of)
async def test_nothing_is_asked_where_nobody_logs_in(node: KafkaNode, case: Case) -> None:
    asker = Asker(node.context, enforced=False)
    assert asker.context.access is None
    assert asker.context.metadata is node.metadata
    asker.close()


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (("create topic new",), False),
        (("create topic new", "create topic secret.feed"), True),
        (("create cluster kafka-cluster",), True),
    ],
)
async def test_a_stream_over_somebody_elses_subject(
    node: KafkaNode, rules: tuple[str, ...], allowed: bool
) -> None:
    config = {"name": "subject", "value": "secret.feed"}
    request = {"topics": [{**NEW, "configs": [config]}], "validate_only": False}
    case = Case(registry.CREATE_TOPICS, request, "", TOPIC)
    assert await codes(node, case, *rules) == (set() if allowed else {TOPIC})
    assert ("new" in node.metadata.image.streams) == allowed


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (("create topic new",), False),
        (("create topic new", "create topic new.1"), True),
        (("create topic new*",), True),
        (("create cluster kafka-cluster",), True),
    ],
)
async def test_partitions_bind_subjects_of_their_own(
    node: KafkaNode, rules: tuple[str, ...], allowed: bool
) -> None:
    """Partition 1 listens on ``new.1``, which may be the subject of another stream."""
    request = {"topics": [{**NEW, "num_partitions": 2}], "validate_only": False}
    case = Case(registry.CREATE_TOPICS, request, "", TOPIC)
    assert await codes(node, case, *rules) == (set() if allowed else {TOPIC})
    assert ("new" in node.metadata.image.streams) == allowed


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ((), TOPIC),
        (("create topic new",), TOPIC),  # it may not know of it
        (("describe topic new",), TOPIC),
        (("write topic new", "create topic new"), ErrorCode.none),
        (("describe topic new", "create cluster kafka-cluster"), ErrorCode.none),
    ],
)
async def test_metadata_creates_only_what_the_client_may_create(
    rules: tuple[str, ...], code: ErrorCode
) -> None:
    async with KafkaNode(auto_create_topics=True) as node:
        request = {"topics": [{"name": "new", "topic_id": None}], "allow_auto_topic_creation": True}
        case = Case(registry.METADATA, request, "", TOPIC)
        assert await codes(node, case, *rules) == {code} - {ErrorCode.none}
        assert ("new" in node.metadata.image.streams) == (code == ErrorCode.none)


@pytest.mark.parametrize("validate_only", [True, False])
async def test_more_partitions_bind_more_subjects(node: KafkaNode, validate_only: bool) -> None:
    request = {
        "topics": [{"name": "orders", "count": 9, "assignments": None}],
        "timeout_ms": 1_000,
        "validate_only": validate_only,
    }
    case = Case(registry.CREATE_PARTITIONS, request, "", TOPIC)
    assert await codes(node, case, "alter topic orders") == {TOPIC}
    assert await codes(node, case, "alter topic orders", "create topic orders.*") == set()


@pytest.mark.parametrize("key", ["subject", "streamlog.republish"])
async def test_nor_by_another_config(node: KafkaNode, key: str) -> None:
    value = "secret.feed" if key == "subject" else "orders -> secret.feed"
    change = {"name": key, "config_operation": 0, "value": value}
    request = {"resources": [{**CONFIG, "configs": [change]}], "validate_only": False}
    case = Case(registry.INCREMENTAL_ALTER_CONFIGS, request, "", TOPIC)
    alter = "alter_configs topic orders"
    assert await codes(node, case, alter) == {TOPIC}
    assert await codes(node, case, alter, "create topic secret.*") == set()


# Which operations the caller may do (KIP-430)

NOT_ASKED = -(2**31)
READ_BIT, WRITE_BIT, DELETE_BIT, ALTER_BIT, DESCRIBE_BIT = (1 << it for it in (3, 4, 6, 7, 8))
ALL_OF_TOPICS = sum(1 << it for it in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_OF_CLUSTERS = sum(1 << it for it in (5, 7, 8, 9, 10, 11, 12))


async def topic_bits(node: KafkaNode, *rules: str, **options: Any) -> list[int]:
    """As Metadata tells them, and DescribeTopicPartitions."""
    wanted = {"name": "orders", "topic_id": None}
    told = {"topics": [wanted], "include_topic_authorized_operations": True}
    page = {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None}
    found = []
    for key, request in ((registry.METADATA, told), (registry.DESCRIBE_TOPIC_PARTITIONS, page)):
        answer = await answered(node, Case(key, request, "", TOPIC), *rules, **options)
        found.append(answer["topics"][0]["topic_authorized_operations"])
    return found


async def cluster_bits(node: KafkaNode, *rules: str, **options: Any) -> list[int]:
    """As DescribeCluster tells them, and Metadata."""
    told = {"include_cluster_authorized_operations": True}
    cases = (
        Case(registry.DESCRIBE_CLUSTER, {**told, "include_fenced_brokers": False}, "", TOPIC),
        Case(registry.METADATA, {**told, "topics": []}, "", TOPIC, version=10),
    )
    found = [await answered(node, it, *rules, **options) for it in cases]
    return [it["cluster_authorized_operations"] for it in found]


async def test_the_caller_is_told_which_operations_the_rules_allow(node: KafkaNode) -> None:
    rules = ("read topic ord*", "describe topic orders", "delete topic other")
    assert await topic_bits(node, *rules) == [READ_BIT | DESCRIBE_BIT] * 2
    assert await cluster_bits(node, "alter cluster kafka-cluster") == [ALTER_BIT | DESCRIBE_BIT] * 2
    assert await topic_bits(node, enforced=False) == [ALL_OF_TOPICS] * 2
    assert await cluster_bits(node, enforced=False) == [ALL_OF_CLUSTERS] * 2


async def test_who_does_not_ask_is_not_told(node: KafkaNode) -> None:
    request = {"topics": [{"name": "orders", "topic_id": None}]}
    answer = await answered(node, Case(registry.METADATA, request, "", TOPIC), enforced=False)
    assert answer["topics"][0]["topic_authorized_operations"] == NOT_ASKED
