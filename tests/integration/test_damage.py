"""Damaged files: bad records are found, named, not served; what can be rebuilt is rebuilt."""

import asyncio
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from nats.js.api import StreamConfig

STREAM = "damage"
SEGMENT_BYTES = 64 * 1024
WAVES, WAVE, PAYLOAD_BYTES = 40, 10, 2000
TRY_S = 3.0


class Batch(NamedTuple):
    """Where a record batch lies in its file; offsets ``[start, stop)``."""

    position: int
    size: int
    start: int
    stop: int


def batches(segment: Path) -> Iterator[Batch]:
    """The batches of a segment, by their headers."""
    data, position = segment.read_bytes(), 0
    while position < len(data):
        start, length = struct.unpack_from(">qi", data, position)
        (last_delta,) = struct.unpack_from(">i", data, position + 23)
        yield Batch(position, 12 + length, start, start + last_delta + 1)
        position += 12 + length


def segments(node: Any) -> list[Path]:
    return sorted((node.data_dir / "streams" / STREAM / "0").glob("*.log"))


async def fill(nats_server: Any, first: int, waves: int = WAVES) -> None:
    """Numbered messages with acks, some at a time so that there are many batches."""
    client = await nats.connect(nats_server.url)
    context = client.jetstream(domain="streamlog")
    await context.add_stream(StreamConfig(name=STREAM))
    for wave in range(waves):
        numbers = range(first + wave * WAVE, first + (wave + 1) * WAVE)
        await asyncio.gather(*(context.publish(STREAM, message(i), timeout=10) for i in numbers))
    await client.close()


def message(number: int) -> bytes:
    return b"%09d" % number + b"y" * PAYLOAD_BYTES


def values(records: list[Any]) -> dict[int, bytes]:
    return {record.offset: record.value for record in records}


def expected(start: int, stop: int) -> dict[int, bytes]:
    return {offset: message(offset) for offset in range(start, stop)}


def consumer_settings(kafka: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka,
        "group.id": "test",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10,
    }


def try_to_read(kafka: str, start: int) -> list[int | None]:
    """The offsets that a client gets from ``start`` on if it keeps asking for a while."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(consumer_settings(kafka))
    consumer.assign([TopicPartition(STREAM, 0, start)])
    offsets, deadline = [], time.monotonic() + TRY_S
    while time.monotonic() < deadline:
        messages = consumer.consume(1000, timeout=0.2)
        offsets += [message.offset() for message in messages if not message.error()]
    consumer.close()
    return offsets


def verify(path: Path) -> tuple[int, str]:
    """``streamlog log verify``: exit code and what it prints."""
    command = [str(Path(sys.executable).parent / "streamlog"), "log", "verify", str(path)]
    environment = os.environ | {"COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


async def test_a_flipped_byte_is_found_named_and_not_served(
    nats_server: Any, new_node: Callable[..., Any], read_all: Callable[..., list[Any]]
) -> None:
    node = new_node(segment_bytes=SEGMENT_BYTES)
    node.start()
    await fill(nats_server, 0)
    assert node.stop() == 0
    assert verify(node.data_dir)[0] == 0

    segment = segments(node)[2]
    batch = list(batches(segment))[1]
    with segment.open("r+b") as file:
        file.seek(batch.position + batch.size // 2)
        flipped = file.read(1)[0] ^ 0x10
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([flipped]))
    code, told = verify(node.data_dir)
    assert code != 0
    assert segment.name in told
    assert str(batch.position) in told

    node.start()
    end = WAVES * WAVE
    before = await asyncio.to_thread(read_all, node.kafka, STREAM, 0, batch.start)
    assert values(before) == expected(0, batch.start)
    served = await asyncio.to_thread(try_to_read, node.kafka, batch.start)
    assert not set(served) & set(range(batch.start, batch.stop))
    after = await asyncio.to_thread(read_all, node.kafka, STREAM, batch.stop, end)
    assert values(after) == expected(batch.stop, end)
    log = node.log_text()
    assert segment.name in log
    assert str(batch.position) in log

    await fill(nats_server, end, waves=1)  # the rest of the node is well
    more = await asyncio.to_thread(read_all, node.kafka, STREAM, end)
    assert values(more) == expected(end, end + WAVE)


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\x00garbage\n" * 7)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(max(path.stat().st_size, 24)))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def removed(path: Path) -> None:
    path.unlink()


class Plan(NamedTuple):
    """How the node ends each time, and what happens to its files then."""

    crash: bool
    damages: tuple[Callable[[Path], None], ...]


DAMAGES = (garbage, emptied, zeroed, cut_short, removed)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(False, (garbage, removed)), id="after-stops"),
        pytest.param(Plan(False, DAMAGES), id="after-stops-all", marks=pytest.mark.slow),
        pytest.param(Plan(True, DAMAGES), id="after-kills-all", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "pattern",
    [
        f"streams/{STREAM}/0/*.index",
        f"streams/{STREAM}/0/*.timeindex",
        f"streams/{STREAM}/0/leader-epoch-checkpoint",
        "*-checkpoint",
    ],
    ids=["offset-indexes", "time-indexes", "epochs", "checkpoints"],
)
async def test_damaged_small_files_lose_nothing(
    nats_server: Any,
    new_node: Callable[..., Any],
    read_all: Callable[..., list[Any]],
    pattern: str,
    plan: Plan,
) -> None:
    node = new_node(segment_bytes=SEGMENT_BYTES, checkpoint_interval_ms=50)
    node.start()
    await fill(nats_server, 0)
    end = WAVES * WAVE
    for damage in plan.damages:
        if plan.crash:
            node.kill()
        else:
            assert node.stop() == 0
        files = list(node.data_dir.glob(pattern))
        assert files, f"nothing is called {pattern}"
        for path in files:
            damage(path)
        await asyncio.to_thread(node.start)
        records = await asyncio.to_thread(read_all, node.kafka, STREAM)
        assert values(records) == expected(0, end), damage.__name__
        await asyncio.to_thread(check_times, node.kafka, end)
        await fill(nats_server, end, waves=1)
        end += WAVE
    assert node.stop() == 0
    assert verify(node.data_dir)[0] == 0


def check_times(kafka: str, end: int) -> None:
    """Each of some records is found by its own time, so the time index tells the truth."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(consumer_settings(kafka))
    for offset in (0, end // 3, end - 1):
        consumer.assign([TopicPartition(STREAM, 0, offset)])
        record = consumer.consume(1, timeout=20)[0]
        assert record.offset() == offset
        at = record.timestamp()[1]
        (found,) = consumer.offsets_for_times([TopicPartition(STREAM, 0, at)], timeout=20)
        assert 0 <= found.offset <= offset
        consumer.assign([TopicPartition(STREAM, 0, found.offset)])
        assert consumer.consume(1, timeout=20)[0].timestamp()[1] == at
        if found.offset:
            consumer.assign([TopicPartition(STREAM, 0, found.offset - 1)])
            assert consumer.consume(1, timeout=20)[0].timestamp()[1] < at
    consumer.close()
