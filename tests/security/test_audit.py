"""What is administered is in the audit log, whatever else is asked for at the same time."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamlog.app.logs import JsonLines
from streamlog.authz.audit import Audit
from streamlog.metadata.commands import DrainNode, Granted, encode_command
from streamlog.model import NodeId
from streamlog.wire import api_messages
from streamlog.wire.header import encode_request_header
from streamlog.wire.operation_request import encode_operation
from streamlog.wire.registry import (
    APIS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    ENVELOPE,
    INCREMENTAL_ALTER_CONFIGS,
    OFFSET_DELETE,
)
from tests.kafka_node import KafkaNode
from tests.restricted import Asker


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as made:
        yield made


def request(key: int, version: int, body: dict[str, Any]) -> bytes:
    header = encode_request_header(APIS[key], version, 7, "raw")
    return header + api_messages.encode_request(APIS[key], version, body)


def creation(*names: str, validate_only: bool = False) -> bytes:
    topics = [{"name": it, "num_partitions": 1, "replication_factor": 1} for it in names]
    body = {"topics": topics, "timeout": 1_000, "validate_only": validate_only}
    return request(CREATE_TOPICS, 5, body)


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(JsonLines().format(it)) for it in caplog.records]
    return [it for it in lines if it["event"] == event]


async def test_acts_are_told_after_however_many_refusals(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    audit = Audit(lines_per_s=5, now_s=lambda: 0.0)
    nobody = Asker(node.context, audit=audit)
    admin = Asker(node.context, "create topic made-*", audit=audit)
    for number in range(100):
        await nobody.ask(creation(f"t{number}"))
        await nobody.ask(creation())
        await admin.ask(creation(f"made-{number % 50}", validate_only=True))
    for number in range(20):
        await admin.ask(creation(f"made-{number}", "elsewhere"))
    assert [it["resources"] for it in told(caplog, "act")] == [
        [f"made-{number}"] for number in range(20)
    ]
    assert len(told(caplog, "attempt")) <= 6, "no time has passed"
    for asker in (nobody, admin):
        asker.close()


async def test_a_command_that_is_refused_is_no_success(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    nobody = Asker(node.context, audit=Audit())
    body = {
        "request_data": encode_command(DrainNode(node_id=NodeId(1))),
        "request_principal": None,
        "client_host_address": b"\x7f\x00\x00\x01",
    }
    await nobody.ask(request(ENVELOPE, 0, body))
    assert told(caplog, "act") == []
    (line,) = told(caplog, "attempt")
    assert line["outcome"] == "cluster_authorization_failed 1"
    nobody.close()


async def test_what_is_altered_is_named_however_much_is(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody hides a setting behind others that come before it in the alphabet."""
    caplog.set_level(logging.INFO, "streamlog.audit")
    await node.add_stream("made-0")
    admin = Asker(node.context, "alter_configs topic made-*", audit=Audit())
    harmless = {
        "cleanup.policy": "delete", "compression.type": "none", "delete.retention.ms": "1",
        "max.compaction.lag.ms": "9", "max.message.bytes": "9000", "min.compaction.lag.ms": "1",
        "min.cleanable.dirty.ratio": "0.5", "min.insync.replicas": "1", "retention.bytes": "-1",
        "retention.ms": "-1", "segment.bytes": "9000000", "segment.ms": "9000000",
    }  # fmt: skip
    configs = {**harmless, "unclean.leader.election.enable": "true"}
    body = {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "made-0",
                "configs": [
                    {"name": it, "config_operation": 0, "value": value}
                    for it, value in configs.items()
                ],
            }
        ],
        "validate_only": False,
    }
    await admin.ask(request(INCREMENTAL_ALTER_CONFIGS, 1, body))
    (line,) = told(caplog, "act")
    assert line["resources"][0] == "made-0"
    assert "unclean_election" in line["resources"][1], line
    admin.close()


async def test_what_is_done_is_named_behind_however_many_others(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    admin = Asker(node.context, "create topic made-*", audit=Audit())
    others = [f"t{number}" for number in range(2_500)]
    await admin.ask(creation(*others, "made-0"))
    assert [line["resources"] for line in told(caplog, "act")] == [["made-0"]]
    admin.close()


async def test_groups_that_a_kafka_client_deletes_are_told_of(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    admin = Asker(node.context, "delete group g*", audit=Audit())
    await admin.ask(request(DELETE_GROUPS, 2, {"groups_names": ["g-1", "other"]}))
    topics = [{"name": it, "partitions": [{"partition_index": 0}]} for it in ("orders", "bills")]
    await admin.ask(request(OFFSET_DELETE, 0, {"group_id": "g-1", "topics": topics}))
    lines = [(it["act"], it["resources"], it["outcome"]) for it in told(caplog, "attempt")]
    assert lines == [
        ("groups.delete", ["g-1"], "GroupNotFound"),
        ("groups.delete", ["other"], "GroupForbidden"),
        ("groups.delete_offsets", ["g-1", "orders/0", "bills/0"], "GroupNotFound"),
    ]
    assert {it["by"] for it in told(caplog, "attempt")} == {"Kafka"}
    admin.close()


def enveloped(data: bytes) -> bytes:
    body = {"request_data": data, "request_principal": None, "client_host_address": b"\x7f\0\0\x01"}
    return request(ENVELOPE, 0, body)


async def test_who_has_had_all_credentials_is_told_of(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    node.metadata.result = Granted(0, {"snapshot": "all of it"})
    for rules in (("describe cluster kafka-cluster",), ("alter cluster kafka-cluster",)):
        asker = Asker(node.context, *rules, audit=Audit())
        answer = await asker.ask(enveloped(encode_operation("cluster.export", {}))) or b""
        assert (b"all of it" in answer) == ("alter" in rules[0])
        asker.close()
    (attempt,), (act,) = told(caplog, "attempt"), told(caplog, "act")
    assert (attempt["act"], attempt["outcome"]) == ("cluster.export", "ClusterForbidden")
    assert (act["act"], act["outcome"], act["by"]) == ("cluster.export", "none", "Kafka")


async def test_a_command_that_nests_too_deep_is_refused_and_told(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    for rules in ((), ("alter cluster kafka-cluster",)):
        asker = Asker(node.context, *rules, audit=Audit())
        nested = b'{"command": "DrainNode", "node_id": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
        answer = await asker.ask(enveloped(nested))
        assert answer is not None
        assert b"InvalidRequest" in answer
        asker.close()
    assert [it["resources"] for it in told(caplog, "attempt")] == [["not a command"]] * 2


async def test_a_long_command_of_a_client_is_not_even_read(node: KafkaNode) -> None:
    """Those of nodes may be long; those of clients name a node, a partition, an offset."""
    asker = Asker(node.context, "alter cluster kafka-cluster")
    data = encode_command(DrainNode(node_id=NodeId(1))) + b" " * 65_536
    answer = await asker.ask(enveloped(data))
    assert answer is not None
    assert b"InvalidRequest" in answer
    asker.close()
