"""Two changes of a stream in the same moment, each of which is allowed by itself."""

from typing import Any

import pytest

from streamlog.metadata.stream.stream_subjects import bound_subjects
from streamlog.wire import api_messages
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import APIS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS
from tests.kafka_node import KafkaNode
from tests.restricted import Asker


def request(key: int, version: int, **body: Any) -> bytes:
    header = encode_request_header(APIS[key], version, 7, "raw")
    return header + api_messages.encode_request(APIS[key], version, body)


@pytest.mark.parametrize("first", ["subject", "partitions"])
async def test_two_changes_at_once_bind_no_more_than_each_may(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Both are judged before either is carried out. ``shop.1`` is somebody else's."""
    node = KafkaNode()
    node.listener.open()
    node.metadata.register(9092)
    await node.add_stream("own")
    alice = Asker(
        node.context,
        "alter topic own", "alter_configs topic own", "create topic own", "create topic own.1",
        "create topic shop",
    )  # fmt: skip
    config = {"name": "subject", "config_operation": 0, "value": "shop"}
    resource = {"resource_type": 2, "resource_name": "own", "configs": [config]}
    topic = {"name": "own", "count": 2, "assignments": None}
    asked = {
        "subject": request(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False),
        "partitions": request(CREATE_PARTITIONS, 3, topics=[topic], timeout=1, validate_only=False),
    }
    (second,) = asked.keys() - {first}
    alter = node.metadata.alter_stream

    async def late(*args: Any, **more: Any) -> Any:
        """The other one is quicker."""
        monkeypatch.setattr(node.metadata, "alter_stream", alter)
        await alice.ask(asked[second])
        return await alter(*args, **more)

    monkeypatch.setattr(node.metadata, "alter_stream", late)
    answer = await alice.ask(asked[first])
    assert answer is not None
    assert b"in the same moment" in answer
    stream = node.metadata.image.stream("own").config
    assert bound_subjects(stream) in ({"shop"}, {"own", "own.1"})
    await node.listener.stop()
    node.close()
    alice.close()
