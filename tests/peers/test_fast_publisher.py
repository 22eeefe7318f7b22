"""orbit.go's fast publisher: all of its batches are there, and its acks count them."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import nats
import pytest

from tests.peers.nats_cli import fast_publisher
from tests.peers.sources import NoSourcesError
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings

pytestmark = [pytest.mark.peers, pytest.mark.slow]

STORIES: Final = ((20_000, 500, 4), (20_000, 100, 2), (200, 1, 1))
"""Messages; from ack to ack at most; acks that may be missing."""
SIZE: Final = 100


def publish(url: str, messages: int, flow: int, outstanding: int) -> dict[str, Any]:
    try:
        program = fast_publisher()
    except NoSourcesError as error:
        pytest.skip(f"orbit.go cannot be had: {error}")
    numbers = map(str, (messages, SIZE, flow, outstanding))
    command = [str(program), url, "orders", "fast", *numbers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


async def asked(url: str, verb: str, **request: Any) -> dict[str, Any]:
    client = await nats.connect(url)
    body = json.dumps(request).encode() if request else b""
    answer = await client.request(f"$JS.streamlog.API.STREAM.{verb}.orders", body, timeout=10)
    await client.close()
    told: dict[str, Any] = json.loads(answer.data)
    assert "error" not in told, told
    return told


@pytest.mark.parametrize("at_port", [False, True])
async def test_every_message_is_there(tmp_path: Path, at_port: bool) -> None:
    settings: Settings | None = {"nats_listen": {}} if at_port else None
    nodes = 1 if at_port else 3
    with Cluster(
        tmp_path, nodes=nodes, settings=settings, nats=NoNats() if at_port else None
    ) as it:
        url = it[1].port_url if at_port else it.nats.url
        body = {"name": "orders", "subjects": ["orders"], "num_replicas": nodes}
        await asked(url, "CREATE", **body, allow_batched=True)
        total = 0
        for messages, flow, outstanding in STORIES:
            told = publish(url, messages, flow, outstanding)
            total += messages
            assert told["errors"] is None
            assert (told["ack"]["seq"], told["ack"]["count"]) == (total, messages)
        state = (await asked(url, "INFO"))["state"]
        assert (state["messages"], state["last_seq"]) == (total, total)
