"""A node that has what a power cut left, against what was acknowledged before."""

import asyncio
from collections.abc import Iterable
from typing import Final

import nats
from confluent_kafka import Consumer, TopicPartition
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError, NotFoundError

from tests.power.workload import BUCKET, GROUP, SYNC_INTERVAL_MS, SYNCS, Told
from tools.nodes.node_process import NodeProcess

NS_PER_MS: Final = 1_000_000
LATE_MS: Final = 1_000
"""So much later than ``sync_interval_ms`` may a sync end, on a busy machine and a slow disk."""
WAIT_S: Final = 20.0


class Lost(AssertionError):
    """Or there, and never acknowledged nor sent."""


async def judge(node: NodeProcess, told: Told, cut_ns: int) -> None:
    """Raises Lost."""
    client = await nats.connect(node.port_url)
    try:
        js = client.jetstream(domain="streamlog")
        for sync in SYNCS:
            if sync in told.streams:
                await _judge_stream(js, told, sync, cut_ns)
        await _judge_bucket(js, told, cut_ns)
    finally:
        await client.close()
    await asyncio.to_thread(_judge_offsets, node, told, cut_ns)


async def _judge_stream(js: JetStreamContext, told: Told, name: str, cut_ns: int) -> None:
    try:
        state = (await js.stream_info(name)).state
    except NotFoundError:
        if told.streams[name] < cut_ns:
            raise Lost(f"stream {name}, which was made before") from None
        return
    found = dict[int, bytes]()
    for sequence in range(max(1, state.first_seq), state.last_seq + 1):
        message = await js.get_msg(name, sequence)
        found[sequence] = message.data or b""
    if len(set(found.values())) < len(found):
        raise Lost(f"a message is in {name} twice")
    for sequence, payload in found.items():
        acked = told.messages[name].get(sequence)
        if payload not in told.sent[name] or (acked is not None and acked[1] != payload):
            raise Lost(f"{name} has at {sequence} what was never there")
    start = max((it for _, of, it in told.asked_purges if of == name), default=0)
    safe_ns = _safe_ns(name, cut_ns)
    for sequence, (at_ns, _) in told.messages[name].items():
        if at_ns < safe_ns and sequence >= start and sequence not in found:
            raise Lost(f"{name} {sequence}, {(cut_ns - at_ns) / 1e6:.1f} ms after its ack")
    begin = max(1, state.first_seq)  # 0: it never had a message
    for at_ns, of, first in told.purges:
        if of == name and at_ns < cut_ns and begin < first:
            raise Lost(f"the purge of {name} below {first}: it begins at {begin}")
    again = await js.publish(name, b"afterwards", timeout=WAIT_S)
    if again.seq != state.last_seq + 1:
        raise Lost(f"{name} goes on at {again.seq} after {state.last_seq}")


def _safe_ns(sync: str, cut_ns: int) -> int:
    """What was acknowledged before then is on the disk (docs/durability.md)."""
    match sync:
        case "commit":
            return cut_ns
        case "interval":
            return cut_ns - (SYNC_INTERVAL_MS + LATE_MS) * NS_PER_MS
    return 0


async def _judge_bucket(js: JetStreamContext, told: Told, cut_ns: int) -> None:
    if told.streams.get(f"KV_{BUCKET}", cut_ns) >= cut_ns:
        return
    bucket = await js.key_value(BUCKET)
    for key in "ab":
        try:
            value = int((await bucket.get(key)).value or b"-1")
        except KeyNotFoundError:
            value = -1
        puts = ((at_ns, number) for at_ns, of, number in told.values if of == key)
        _check_newest(f"key {key}", value, puts, cut_ns)


def _judge_offsets(node: NodeProcess, told: Told, cut_ns: int) -> None:
    if told.streams["commit"] >= cut_ns or not told.offsets:
        return
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": GROUP, "log_level": 0})
    try:
        (place,) = consumer.committed([TopicPartition("commit", 0)], timeout=WAIT_S)
    finally:
        consumer.close()
    _check_newest("the offset of the group", place.offset, told.offsets, cut_ns)


def _check_newest(what: str, value: int, told: Iterable[tuple[int, int]], cut_ns: int) -> None:
    """Some may be told of later than others that came after them."""
    before = [number for at_ns, number in told if at_ns < cut_ns]
    if before and value < min(before[-1], max(before)):
        raise Lost(f"{what} is {value}; {before[-1]} was acknowledged last")
