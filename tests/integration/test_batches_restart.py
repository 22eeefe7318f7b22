"""A node that goes while batches are under way: all of a batch is there, or nothing."""

from pathlib import Path

import pytest

from tests.integration.raw_publisher import RawPublisher, header_block
from tests.local_node import LocalNode
from tools.nodes.server_process import NatsServer


def block(batch_id: str, sequence: int, *lines: str) -> bytes:
    return header_block(f"Nats-Batch-Id: {batch_id}", f"Nats-Batch-Sequence: {sequence}", *lines)


async def publish(publisher: RawPublisher, batch_id: str, size: int, *, commit: bool) -> object:
    """The last answer."""
    answer: object = None
    for sequence in range(1, size + 1):
        lines = ["Nats-Batch-Commit: 1"] if commit and sequence == size else []
        payload = f"{batch_id}-{sequence}".encode()
        answer = await publisher.ask("orders", payload, block(batch_id, sequence, *lines))
    return answer


@pytest.mark.parametrize("settings", [{}, {"compression": "lz4", "partitions": 2}])
async def test_nothing_of_an_unfinished_batch_outlives_its_leader(
    tmp_path: Path, nats_server: NatsServer, settings: dict[str, object],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    async with RawPublisher(nats_server.url) as publisher:
        async with LocalNode(tmp_path / "data", nats_server.url) as node:
            await node.create("orders", allow_atomic=True, **settings)
            whole = {"stream": "orders", "seq": 3, "batch": "whole", "count": 3}
            assert await publish(publisher, "whole", 3, commit=True) == whole
            assert await publish(publisher, "half", 2, commit=False) == {}
            batches = node.partition("orders").log_end_offset
            assert batches == 3
        async with LocalNode(tmp_path / "data", nats_server.url) as node:
            answer = await publisher.ask("orders", b"x", block("half", 3, "Nats-Batch-Commit: 1"))
            assert answer is not None and answer["error"]["err_code"] == 10176
            values = [record.value for record in await node.records("orders")]
            assert values == [b"whole-1", b"whole-2", b"whole-3"]
    assert not caplog.records  # least of all that it waited for a commit that nobody can ask for


async def test_ids_of_a_batch_are_known_after_a_restart(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with RawPublisher(nats_server.url) as publisher:
        lines = ("Nats-Msg-Id: i", "Nats-Batch-Commit: 1")
        async with LocalNode(tmp_path / "data", nats_server.url) as node:
            await node.create("orders", allow_atomic=True)
            answer = await publisher.ask("orders", b"x", block("b", 1, *lines))
            assert answer == {"stream": "orders", "seq": 1, "batch": "b", "count": 1}
        async with LocalNode(tmp_path / "data", nats_server.url):
            again = await publisher.ask("orders", b"x", header_block("Nats-Msg-Id: i"))
            assert again == {"stream": "orders", "seq": 1, "duplicate": True}
            batch = await publisher.ask("orders", b"x", block("b", 1, *lines))
            assert batch is not None and batch["error"]["err_code"] == 10201
