"""A full disk: publishers are told at once, acknowledged records stay, room is enough to go on."""

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import APIError

from tests.small_disk import mounted
from tools.nodes.server_process import program, wait_until

STREAM = "full"
DISK_BYTES = 24 * 1024 * 1024
BALLAST_BYTES = 16 * 1024 * 1024
METADATA_RESERVE_BYTES = 256 * 1024
"""A start needs a little room: the epoch is recorded before it is used."""
PAYLOAD_BYTES = 60_000
ANSWER_S_MAX = 5.0
"""A publisher that hears nothing for so long fails by a time-out, which is no refusal."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    with mounted(tmp_path / "disk", DISK_BYTES) as path:
        yield path


async def publish(context: JetStreamContext, number: int) -> int:
    """Publish one numbered message; the sequence of its ack."""
    data = b"%09d" % number + b"x" * PAYLOAD_BYTES
    ack = await context.publish(STREAM, data, timeout=ANSWER_S_MAX)
    return ack.seq


async def publish_until_refused(
    context: JetStreamContext, first: int
) -> tuple[dict[int, int], APIError]:
    """Numbers acknowledged, by sequence, and the refusal that ended it."""
    acked: dict[int, int] = {}
    for number in range(first, first + 2 * DISK_BYTES // PAYLOAD_BYTES):
        try:
            acked[await publish(context, number)] = number
        except APIError as error:
            return acked, error
    raise AssertionError("the disk did not fill up")


async def publish_when_there_is_room(context: JetStreamContext, number: int) -> int:
    """The node may need a moment to notice; no restart."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return await publish(context, number)
        except APIError:
            assert time.monotonic() < deadline, "the node did not recover"
            await asyncio.sleep(0.05)


def check_all_say_so(node: Any) -> None:
    """/readyz, the page, the metrics and ``doctor``."""
    status, text = node.http("/readyz")
    assert status == 503 and "its disk is full" in json.loads(text)["reasons"]["disk"]
    said = json.loads(node.http("/api/status")[1])["findings"]
    assert [it["severity"] for it in said if "its disk is full" in it["what"]] == ["critical"]
    assert 'streamlog_node_unfit{reason="disk"} 1.0' in node.http("/metrics")[1]
    command = [program("streamlog"), "doctor", "--config", str(node.config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "CRITICAL node: Node 1: its disk is full" in done.stdout
    assert re.search(r"(CRITICAL|WARNING) +disk: .* of 24.0 MiB are free", done.stdout), done.stdout


def wait_started(node: Any) -> None:
    """It does all that a node with a full disk can do."""

    def is_up() -> bool:
        status, text = node.http("/readyz")
        return status != 0 and bool(json.loads(text)["reasons"].keys() <= {"disk"})

    wait_until(is_up, "the node does not start")


@pytest.mark.parametrize("sync", ["commit", "os"])
async def test_a_full_disk_refuses_keeps_and_recovers(
    small_disk: Path,
    nats_server: Any,
    new_node: Callable[..., Any],
    read_all: Callable[..., list[Any]],
    sync: str,
) -> None:
    node = new_node(data_dir=small_disk / "data", segment_bytes=1024 * 1024)
    node.start()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    reserve = small_disk / "reserve"
    reserve.write_bytes(bytes(METADATA_RESERVE_BYTES))
    client = await nats.connect(nats_server.url)
    try:
        context = client.jetstream(domain="streamlog")
        config = StreamConfig(name=STREAM, metadata={"streamlog.sync": sync})
        await context.add_stream(config)

        acked, refusal = await publish_until_refused(context, 0)
        assert (refusal.code, refusal.err_code) == (503, 10077)
        assert acked
        for number in range(1000, 1050):  # and it goes on refusing, without harm
            with pytest.raises(APIError):
                await publish(context, number)
        assert node.is_running()
        await asyncio.to_thread(check_all_say_so, node)

        def stored() -> dict[int, int]:
            return {
                record.offset + 1: int(record.value[:9]) for record in read_all(node.kafka, STREAM)
            }

        assert await asyncio.to_thread(stored) == acked

        ballast.unlink()
        acked[await publish_when_there_is_room(context, 5000)] = 5000
        more, _ = await publish_until_refused(context, 6000)
        assert more
        acked |= more
        assert sorted(acked) == list(range(1, len(acked) + 1))
        assert await asyncio.to_thread(stored) == acked

        node.kill()
        reserve.unlink()
        node.spawn()
        await asyncio.to_thread(wait_started, node)
        assert await asyncio.to_thread(stored) == acked
    finally:
        await client.close()
