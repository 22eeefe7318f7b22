"""What is administered is in the audit log, whatever else is asked for at the same time."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamlog.app.logs import JsonLines
from streamlog.authority.audit import Audit
from streamlog.metadata.commands import DrainNode, encode_command
from streamlog.model import NodeId
from streamlog.wire import control
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import APIS, CREATE_TOPICS, ENVELOPE
from tests.kafka_node import KafkaNode
from tests.restricted import Asker


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    made = KafkaNode()
    made.listener.open()
    made.metadata.register(9092)
    yield made
    await made.listener.stop()
    made.close()


def request(key: int, version: int, body: dict[str, Any]) -> bytes:
    header = encode_request_header(APIS[key], version, 7, "raw")
    return header + control.encode_request(APIS[key], version, body)


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
    audit = Audit(lines_per_s=5)
    nobody = Asker(node.context, audit=audit)
    admin = Asker(node.context, "create topic made-*", audit=audit)
    for number in range(100):
        await nobody.ask(creation(f"t{number}"))
        await nobody.ask(creation())
        await admin.ask(creation(f"made-{number % 50}", validate_only=True))
    for number in range(20):
        await admin.ask(creation(f"made-{number}", "elsewhere"))
    assert [it["resources"] for it in told(caplog, "act")] == [
        [f"made-{number}", "elsewhere"] for number in range(20)
    ]
    assert len(told(caplog, "attempt")) <= 6
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
