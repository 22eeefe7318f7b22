"""Clients of an ordering node: ``python -m benchmarks.ledger_client through|deliver|latency``.

``through``  broadcasts, many in flight, over a raw socket; until all are in blocks on disk; with
             ``--plain`` they are published to the stream's subject instead
``deliver``  the whole chain from the oldest block on; with ``--verify`` each block is checked
``latency``  broadcasts on a fixed schedule; how long until each comes back in a delivered block
"""

import argparse
import asyncio
import json
import sys
import time
from dataclasses import replace
from typing import Final

from benchmarks.connection import BenchmarkError, Connection
from benchmarks.publisher import CHUNK, Load, payload, publish, writes
from streamlog.errors import StreamlogError
from streamlog.ledger.api import LedgerClient
from streamlog.ledger.core.verifier import ChainVerifier

POLL_S: Final = 0.002
STALL_S: Final = 30.0
LEFT_OUT: Final = 10
"""One in so many latencies is of the beginning, and does not count."""
NUMBER_BYTES: Final = 8


def run_through(load: Load, channel: str, batch_size: int) -> dict[str, float]:
    """Rate from the first write until the last record is in a block."""
    unit = max(CHUNK, batch_size)
    warm_up = replace(load, count=unit)
    load = replace(load, count=max(unit, load.count // unit * unit))
    with Connection(load.nats) as connection:
        connection.subscribe("_INBOX.b.*", 1)
        ring = writes(load, acks_per_write=CHUNK)
        publish(connection, ring, warm_up, CHUNK)
        _wait_height(load.nats, channel, 1 + warm_up.count // batch_size)
        started = time.perf_counter()
        publish(connection, ring, load, CHUNK)
        acked_s = time.perf_counter() - started
        _wait_height(load.nats, channel, 1 + (warm_up.count + load.count) // batch_size)
        elapsed_s = time.perf_counter() - started
    return {"rate": load.count / elapsed_s, "acked_rate": load.count / acked_s} | {
        "elapsed_s": elapsed_s,
        "messages": warm_up.count + load.count,
    }


def _wait_height(nats: str, channel: str, height: int) -> None:
    deadline = time.monotonic() + STALL_S
    with Connection(nats) as connection:
        while True:
            info = connection.request(f"ledger.{channel}.info")
            found = info.get("height")
            if not isinstance(found, int) or found > height or time.monotonic() > deadline:
                raise BenchmarkError(f"height {height} was to come: {info}")
            if found == height:
                return
            time.sleep(POLL_S)


async def run_deliver(nats: str, channel: str, *, verify: bool) -> dict[str, float]:
    """Rate from the request to the last block."""
    verifier, records, size_bytes = ChainVerifier(channel=channel), 0, 0
    async with LedgerClient(f"nats://{nats}") as ledger:
        started = time.perf_counter()
        async for found in ledger.deliver(channel, stop="newest"):
            records += found.block.header.record_count
            size_bytes += len(found.block.data)
            if verify:
                verifier.take_block(found.block)
        elapsed_s = time.perf_counter() - started
    return {
        "rate": records / elapsed_s,
        "mb_per_s": size_bytes / elapsed_s / 1e6,
        "elapsed_s": elapsed_s,
        "messages": records,
    }


class Arrivals:
    """How long each record took."""

    def __init__(self, count: int) -> None:
        self.due = [0.0] * count
        """When each was to be sent, by its number."""
        self.took: list[float] = []
        self.ready = asyncio.Event()
        """The delivery has begun."""

    async def read(self, ledger: LedgerClient, channel: str) -> None:
        """Until all have come."""
        async for found in ledger.deliver(channel):
            now = time.perf_counter()
            self.ready.set()  # with the genesis
            if found.block.is_configuration:
                continue
            for record in found.records():
                number = int.from_bytes((record.value or b"")[:NUMBER_BYTES], "big")
                self.took.append(now - self.due[number])
            if len(self.took) == len(self.due):
                return


async def run_latency(load: Load, channel: str, rate: int) -> dict[str, float]:
    """Counts from when a record was due, whatever came back by then."""
    body = payload(load.size - NUMBER_BYTES, 1)
    arrivals = Arrivals(load.count)
    due = arrivals.due
    async with LedgerClient(f"nats://{load.nats}") as reader, asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(arrivals.read(reader, channel))
        await arrivals.ready.wait()
        with Connection(load.nats) as connection:
            started = time.perf_counter() + 0.05
            for number in range(load.count):
                due[number] = started + number / rate
                wait_s = due[number] - time.perf_counter()
                await asyncio.sleep(max(0.0, wait_s))
                line = b"PUB %s %d\r\n" % (load.subject.encode(), load.size)
                connection.send(line + number.to_bytes(NUMBER_BYTES, "big") + body + b"\r\n")
            async with asyncio.timeout(STALL_S):
                await reading
    took = sorted(arrivals.took[load.count // LEFT_OUT :])
    return {
        "p50_ms": 1000 * took[len(took) // 2],
        "p99_ms": 1000 * took[len(took) * 99 // 100],
        "messages": load.count,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("through", "deliver", "latency"))
    parser.add_argument("--nats", required=True, help="host:port")
    parser.add_argument("--channel", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=4000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    subject = options.channel if options.plain else f"ledger.{options.channel}.broadcast"
    load = Load(options.nats, "", subject, options.count, options.size, options.in_flight)
    try:
        match options.mode:
            case "through":
                result = run_through(load, options.channel, options.batch_size)
            case "deliver":
                deliver = run_deliver(options.nats, options.channel, verify=options.verify)
                result = asyncio.run(deliver)
            case _:
                result = asyncio.run(run_latency(load, options.channel, options.rate))
    except (BenchmarkError, StreamlogError, OSError) as error:
        print(json.dumps({"failed": str(error) or type(error).__name__}))
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
