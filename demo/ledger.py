"""``python -m demo.ledger``: the flights ordered into blocks by two nodes, and delivered back.

Plain NATS messages go into a stream; two ordering nodes that never speak to each other cut it;
every flight is delivered by the second one and compared; both chains are verified from their files.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from demo.flights import Flights, load_flights
from demo.publish import ONE_BY_ONE, STREAM, publish_flights
from demo.servers import Servers, running_servers
from streamlog.cli.dev.child import Child
from streamlog.errors import StreamlogError
from streamlog.ledger.api import LedgerClient
from streamlog.ledger.core.verifier import ChainVerifier

CHANNEL: Final = "flights"
NODES: Final = ("one", "two")
BATCH_SIZE: Final = 500
TIMEOUT_S: Final = 300.0
POLL_S: Final = 0.1
STOP_TIMEOUT_S: Final = 30.0


class Different(Exception):
    """What was delivered is not what was published."""


async def run(folder: Path, count: int | None = None) -> list[str]:
    """What was done, in lines. Raises Different."""
    flights = _first(load_flights(), count)
    lines = []
    (folder / "servers").mkdir()
    async with running_servers(folder / "servers", default_ports=False) as servers:
        _, rate = await publish_flights(servers.nats, flights, lambda _: None)
        lines.append(f"{len(flights):,} flights published by plain NATS, {rate:,.0f} a second")
        started = time.monotonic()
        async with (
            _node(folder, servers, NODES[0]),
            _node(folder, servers, NODES[1]),
            LedgerClient(servers.nats) as ledger,
        ):
            for name in NODES:
                await _ordered(ledger, name, len(flights))
            took_s = time.monotonic() - started
            lines.append(f"ordered by two nodes, with their start, in {took_s:.1f} s")
            lines.append(await _compare(ledger, flights))
        reports = [await _verify(folder / name) for name in NODES]
    if reports[0] != reports[1] or reports[0]["records"] != len(flights):
        raise Different(f"the nodes' chains: {reports}")
    lines.append(f"both chains have {reports[0]['height']:,} blocks, tip {reports[0]['tip']}")
    return lines


def _first(flights: Flights, count: int | None) -> Flights:
    if count is None:
        return flights
    return replace(flights, subjects=flights.subjects[:count], payloads=flights.payloads[:count])


@asynccontextmanager
async def _node(folder: Path, servers: Servers, name: str) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "streamlog", "ledger", "serve", "--node", name]
    command += ["--dir", str(folder / name), "--channel", CHANNEL, "--stream", STREAM]
    command += ["--bootstrap-server", servers.kafka, "--nats-server", servers.nats]
    command += ["--batch-size", str(BATCH_SIZE), "--batch-timeout-ms", "500"]
    child = await Child.start(f"ordering node {name}", command, folder / f"{name}.log")
    try:
        yield
    finally:
        await child.stop(STOP_TIMEOUT_S)


async def _ordered(ledger: LedgerClient, node: str, count: int) -> None:
    """Until the node has so many of the stream's first records in blocks."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                found = await ledger.info(CHANNEL, node=node)
                if (found["next_offset"] or 0) >= count:
                    return
            except StreamlogError:
                pass  # it starts
            await asyncio.sleep(POLL_S)


async def _compare(ledger: LedgerClient, flights: Flights) -> str:
    """Each block's hashes, and each flight: its payload, its subject, its place."""
    verifier, number, started = ChainVerifier(channel=CHANNEL), 0, time.monotonic()
    async for found in ledger.deliver(CHANNEL, stop="newest", node=NODES[1]):
        verifier.take_block(found.block)
        if found.block.is_configuration:
            continue
        for record in found.records():
            subject = dict(record.headers)["subject"]
            if (record.value, subject) != (
                flights.payloads[number],
                flights.subjects[number].encode(),
            ):
                raise Different(f"flight {number} came back as {record.value!r}")
            number += 1
    if number != len(flights):
        raise Different(f"{number} of {len(flights)} flights came back")
    rate = number / (time.monotonic() - started)
    return f"all delivered by node two, each compared, each block verified, {rate:,.0f} a second"


async def _verify(directory: Path) -> dict[str, Any]:
    """By the command line, of the files alone."""
    command = [sys.executable, "-m", "streamlog", "ledger", "verify", str(directory), "--json"]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await child.communicate()
    if child.returncode:
        raise Different(f"{directory} is no chain")
    answer: dict[str, Any] = json.loads(said)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo.ledger", description=__doc__)
    parser.add_argument("--count", type=int, help=f"of flights, at least {ONE_BY_ONE}; default all")
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory(prefix="streamlog-demo-") as folder:
        for line in asyncio.run(run(Path(folder), count)):
            print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
