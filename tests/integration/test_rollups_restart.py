"""A leader that ends between a rollup and the erasure of what was before it."""

from pathlib import Path

import nats
import pytest

from tests.integration.raw_publisher import RawPublisher, header_block
from tests.local_node import LocalNode, until
from tools.nodes.server_process import NatsServer


@pytest.mark.parametrize(
    ("rollup", "kept"), [("sub", [b"b", b"rolled up"]), ("all", [b"rolled up"])]
)
@pytest.mark.parametrize("settings", [{}, {"compression": "zstd"}])
async def test_a_new_leader_makes_up_for_it(
    tmp_path: Path,
    nats_server: NatsServer,
    rollup: str,
    kept: list[bytes],
    settings: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RawPublisher(nats_server.url) as publisher:
        async with LocalNode(tmp_path / "data", nats_server.url) as node:
            await node.create("s", subjects=("s.*",), allow_rollup=True, **settings)
            for subject in ("a", "b", "a"):
                await publisher.ask(f"s.{subject}", subject.encode())
            partition = node.partition("s")
            with monkeypatch.context() as broken:
                broken.setattr("streamlog.ingest.admission.rollups.superseded", failing)
                block = header_block(f"Nats-Rollup: {rollup}")
                answer = await publisher.ask("s.a", b"rolled up", block)
            assert answer is not None and answer["error"]["err_code"] == 10077
            assert partition.log_end_offset == 4, "stored, and no erasure"
        async with LocalNode(tmp_path / "data", nats_server.url) as node:
            partition = node.partition("s")
            await until(lambda: 0 in partition.erased)
            assert partition.log_end_offset == 5
            found = [
                it.value for it in await node.records("s") if it.offset not in partition.erased
            ]
            assert found == kept
            client = await nats.connect(nats_server.url)
            info = await client.jetstream(domain="streamlog").stream_info("s")
            assert info.state.messages == len(kept)
            await client.close()


def failing(*_: object) -> None:
    raise OSError("as asked for")
