"""How far the metadata of a node is behind what is decided, in offsets, while NATS hangs."""

import asyncio
import json
from pathlib import Path

import nats

from streamlog.metadata.commands import CreateStream, DeleteStream
from streamlog.metadata.stream.stream_config import StreamConfig
from tests.changed_streams import delete_stream
from tests.local_node import LocalNode, until
from tools.nodes.server_process import NatsServer

TURNS = 20
"""Of the event loop: enough to apply an image, not enough for any round trip to time out."""


async def test_a_nats_that_hangs_holds_no_metadata_back(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with LocalNode(tmp_path / "data", nats_server.url) as node:
        await node.create("first")
        behind: list[int] = []
        nats_server.pause()
        try:
            for number in range(6):
                config = StreamConfig.of(name=f"s{number}", subjects=[f"s{number}"])
                granted = await node.metadata.take(CreateStream(config=config), forwarded=True)
                if number == 0:
                    await node.metadata.take(DeleteStream(name="first"), forwarded=True)
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                behind.append(granted.offset - node.metadata.image.offset)
        finally:
            nats_server.resume()
        assert max(behind) <= 0, behind
        assert "first" not in node.metadata.image.streams
        await until(lambda: node.source.has_settled(node.metadata.image))
        nc = await nats.connect(nats_server.url)
        answers = [json.loads((await nc.request(f"s{it}", b"x")).data) for it in range(6)]
        await nc.close()
        assert [answer["seq"] for answer in answers] == [1] * 6


async def test_a_stream_that_is_created_takes_the_very_next_message(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    async with LocalNode(tmp_path / "data", nats_server.url) as node:
        nc = await nats.connect(nats_server.url)
        for number in range(30):
            await node.create(f"s{number}", subjects=[f"s{number}"])
            answer = json.loads((await nc.request(f"s{number}", b"x")).data)
            assert answer["seq"] == 1
            if number % 3 == 0:  # nobody listens any more, and the next one does
                await delete_stream(node.metadata, f"s{number}")
                await node.create(f"s{number}", subjects=[f"s{number}"])
                assert json.loads((await nc.request(f"s{number}", b"x")).data)["seq"] == 1
        await nc.close()
