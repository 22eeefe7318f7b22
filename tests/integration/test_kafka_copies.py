"""Records that a Kafka producer wrote, as copies of a stream have them: their headers are data."""

from pathlib import Path

import pytest

from streamlog.record.codec import RecordRun
from streamlog.record.produced import check_inside, check_outside
from tests.integration.raw_publisher import RawPublisher, header_block
from tests.local_node import LocalNode, until
from tests.partition_world import Told
from tools.nodes.server_process import NatsServer

HEADERS = [(b"Nats-Rollup", b"all"), (b"Nats-Msg-Id", b"1"), (b"Nats-TTL", b"1")]


@pytest.mark.parametrize("timestamp_type", ["LogAppendTime", "CreateTime"])
async def test_what_they_would_ask_for_is_not_done_by_the_next_leader(
    tmp_path: Path, nats_server: NatsServer, timestamp_type: str
) -> None:
    asks = {"allow_rollup": True, "allow_ttl": True, "timestamp_type": timestamp_type}
    async with RawPublisher(nats_server.url) as publisher:
        async with LocalNode(tmp_path / "data", nats_server.url) as node:
            await node.create("s", **asks)
            for number in range(5):
                await publisher.ask("s", b"%d" % number)
            run, told = RecordRun(), Told()
            run.append(None, b"copy", [(b"subject", b"s"), *HEADERS])
            data = run.seal(base_offset=0, leader_epoch=-1, timestamp_ms=5, max_timestamp_ms=5)
            node.partition("s").produce(check_inside(check_outside(data), data), told)
            await told.answer
        async with LocalNode(tmp_path / "data", nats_server.url) as node:
            answer = await publisher.ask("s", b"first", header_block("Nats-Msg-Id: 1"))
            assert answer == {"stream": "s", "seq": 7}
            again = await publisher.ask("s", b"again", header_block("Nats-Msg-Id: 1"))
            assert again == {"stream": "s", "seq": 7, "duplicate": True}
            partition = node.partition("s")
            await until(lambda: partition.high_watermark == 7)
            assert not partition.erased
            assert len(await node.records("s")) == 7
