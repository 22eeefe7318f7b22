"""How long consumers wait after the kill -9 of their coordinator: ``python -m benchmarks.coordinator_killed``.

Three nodes with NATS ports have one stream with many durable consumers, which one node coordinates. Some of them pull
all the time, through another node, while messages are published. The gap of a consumer is the longest time between two
of its deliveries since the kill.
"""

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import nats
import nats.errors
from nats.aio.client import Client

from benchmarks.asking import PREFIX, ask_all
from benchmarks.consumers import creations
from benchmarks.side import STREAM
from benchmarks.streamlog_trio import AS_JETSTREAM
from tools.nodes.cluster import Cluster

CONSUMERS: Final = (100, 10_000, 100_000)
ASKED_AT_ONCE: Final = 256
PULLING: Final = 24
PUBLISH_S: Final = 0.01
BEFORE_S: Final = 2.0
AFTER_S: Final = 15.0
PULL: Final = json.dumps({"batch": 1, "expires": 5_000_000_000}).encode()
PULL_S: Final = 5.5


class Pulling:
    """Consumers that pull one message after the other, and when each got one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.got_s: dict[int, list[float]] = {number: [] for number in range(PULLING)}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish())
            for number in self.got_s:
                group.create_task(self._pull(number))

    async def _publish(self) -> None:
        while True:
            with contextlib.suppress(nats.errors.Error):
                await self._client.publish(f"{STREAM}.a", b"x")
            await asyncio.sleep(PUBLISH_S)

    async def _pull(self, number: int) -> None:
        inbox = self._client.new_inbox()
        answers = await self._client.subscribe(inbox)
        while True:
            await self._client.publish(
                f"{PREFIX}CONSUMER.MSG.NEXT.{STREAM}.c{number}", PULL, reply=inbox
            )
            try:
                message = await answers.next_msg(timeout=PULL_S)
            except nats.errors.TimeoutError:
                continue
            if message.reply.startswith("$JS.ACK"):
                self.got_s[number].append(time.perf_counter())
                await message.ack()

    def gaps_s(self, since_s: float) -> list[float]:
        """The longest of each."""
        found = list[float]()
        for got_s in self.got_s.values():
            times = [since_s, *(it for it in got_s if it > since_s), time.perf_counter()]
            found.append(max(late - early for early, late in pairwise(times)))
        return found


async def _ask(client: Client, verb: str, body: Any = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    while True:
        answer = await client.request(f"{PREFIX}{verb}", data, timeout=30)
        reply: dict[str, Any] = json.loads(answer.data)
        if reply.get("error", {}).get("code") != 503:
            return reply
        await asyncio.sleep(0.1)


def _number(name: str) -> int:
    found = re.search(r"\d+$", name)
    assert found is not None, "nodes are numbered"
    return int(found[0])


async def gaps_s(cluster: Cluster, consumers: int) -> list[float]:
    """One after the other of ``PULLING``."""
    client = await nats.connect(cluster[1].port_url)
    config = {"name": STREAM, "subjects": [f"{STREAM}.>"], "num_replicas": len(cluster.nodes)}
    await _ask(client, f"STREAM.CREATE.{STREAM}", config)
    begun_s = time.perf_counter()
    await asyncio.to_thread(
        ask_all, cluster[1].port_url.removeprefix("nats://"), creations(consumers), ASKED_AT_ONCE
    )
    print(f"  made at {consumers / (time.perf_counter() - begun_s):,.0f} a second")
    info = await _ask(client, f"CONSUMER.INFO.{STREAM}.c0")
    victim = _number(info["cluster"]["leader"])
    await client.close()
    client = await nats.connect(cluster[victim % 3 + 1].port_url)
    pulling = Pulling(client)
    task = asyncio.create_task(pulling.run())
    await asyncio.sleep(BEFORE_S)
    killed_s = time.perf_counter()
    await asyncio.to_thread(cluster.kill, victim)
    await asyncio.sleep(AFTER_S)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await client.close()
    return pulling.gaps_s(killed_s)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("consumers", nargs="*", type=int, default=CONSUMERS)
    for consumers in arguments.parse_args().consumers:
        print(f"{consumers:,} consumers")
        with (
            tempfile.TemporaryDirectory() as directory,
            Cluster(Path(directory), settings={**AS_JETSTREAM, "nats_listen": {}}) as cluster,
        ):
            found = sorted(asyncio.run(gaps_s(cluster, consumers)))
            print(f"  gap: median {statistics.median(found):.2f} s, longest {found[-1]:.2f} s")


if __name__ == "__main__":
    main()
