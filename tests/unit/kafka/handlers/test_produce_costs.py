"""What a producer's request with one record may cost, in counts that are the same on every run.

See the head of ``tests/unit/test_costs.py`` for what to do about a limit that is passed.
"""

from collections import Counter
from typing import Final

import pytest

from streamlog.wire import api_messages
from streamlog.wire.registry import APIS, PRODUCE
from tests.call_counts import counted
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient
from tests.record_batches import HandRecord, hand_batch

REQUESTS: Final = 10
CALLS_MAX: Final = 60
"""Our functions, and what they call, the client and its partition's stand-in included."""
BATCH: Final = hand_batch([HandRecord(b"a")], max_timestamp_ms=1_000)
REQUEST: Final[api_messages.Message] = {
    "acks": -1,
    "timeout": 5_000,
    "topic_data": [{"name": "flights", "partition_data": [{"index": 0, "records": BATCH}]}],
}


@pytest.mark.parametrize("version", [3, 9, 12])
async def test_a_record_by_itself_takes_few_calls(version: int) -> None:
    async with KafkaNode() as node, RawClient(node.port) as client:
        await node.add_stream("flights")
        costs: list[Counter[str]] = []
        for _ in range(2):
            await client.ask(PRODUCE, version, REQUEST)
        with counted() as calls:
            for _ in range(REQUESTS):
                before = calls.copy()
                client.send(PRODUCE, version, REQUEST)
                await client.frame()
                costs.append(calls - before)
        encoding = Counter[str]()
        with counted() as calls:
            api_messages.encode_request(APIS[PRODUCE], version, REQUEST)
            encoding = calls.copy()
    assert min(it.total() for it in costs) - encoding.total() <= CALLS_MAX, costs[0]
