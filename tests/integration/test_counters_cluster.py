"""Counters of three nodes while their leaders are killed: no increment is lost, none counts twice."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from nats.aio.client import Client

from tests.integration.test_consumers_cluster import (
    SETTINGS,
    assert_no_faults,
    connected,
    make_stream,
    retried,
)
from tools.nodes.cluster import Cluster, NoNats

SUBJECTS: Final = ("counts.a", "counts.b", "counts.c")
PUBLISHERS: Final = 12
CALM: Final = 200
"""Increments before the first kill, between two, and after the last one."""

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster
        assert_no_faults(cluster)


class Publisher:
    """Increments one after the other; each is sent until it is acknowledged, under one id."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._chosen = random.Random(number)
        self.steps: dict[str, int] = {}
        """By id, of what was acknowledged."""
        self.told: list[tuple[str, int, int]] = []
        """Subject, sequence and value of each acknowledgement that has a value: a repeated one has none."""
        self.stopping = False

    async def run(self, cluster: Cluster) -> None:
        async with connected(cluster, self._number % 3 + 1, *(1, 2, 3)) as client:
            while not self.stopping:
                subject = self._chosen.choice(SUBJECTS)
                step = self._chosen.randrange(-5, 10**20)
                message_id = f"{self._number}-{len(self.steps)}"
                headers = {"Nats-Incr": str(step), "Nats-Msg-Id": message_id}

                async def publish() -> dict[str, object]:
                    answer = await client.request(subject, b"", headers=headers, timeout=1)  # noqa: B023
                    found: dict[str, object] = json.loads(answer.data)
                    if "error" in found:
                        code = found["error"]["err_code"]  # type: ignore[index]
                        assert code in (10008, 10077), found
                        raise TimeoutError
                    return found

                found = await retried(publish, timeout_s=60)
                self.steps[message_id] = step
                if "val" in found:
                    self.told.append((subject, int(str(found["seq"])), int(str(found["val"]))))


def total_count(publishers: list[Publisher]) -> int:
    return sum(len(it.steps) for it in publishers)


async def until_more(publishers: list[Publisher]) -> None:
    wanted = total_count(publishers) + CALM
    async with asyncio.timeout(60):
        while total_count(publishers) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def make_sums(client: Client) -> None:
    """A stream that adds up the counters of the other one; clients add to it besides."""
    transform = {"src": "counts.>", "dest": "sums.>"}
    config = {
        "name": "sums", "subjects": ["sums.>"], "num_replicas": 3, "allow_msg_counter": True,
        "sources": [{"name": "counts", "subject_transforms": [transform]}],
    }  # fmt: skip
    answer = await client.request("$JS.API.STREAM.CREATE.sums", json.dumps(config).encode())
    assert "error" not in json.loads(answer.data), answer.data


async def until_summed(client: Client, totals: Counter[str], own: int) -> None:
    """``own``: what clients have added to each sum."""
    for subject, total in totals.items():
        name = subject.replace("counts", "sums")
        async with asyncio.timeout(30):
            while True:
                message = await client.jetstream().get_last_msg("sums", name)
                if json.loads(message.data or b"") == {"val": str(total + own)}:
                    break
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
async def test_totals_outlive_their_leaders(trio: Cluster, kills: int) -> None:
    async with connected(trio, 1) as client:
        await make_stream(client.jetstream(), "counts", allow_msg_counter=True)
        await make_sums(client)
    partition = ("counts", 0)
    await asyncio.to_thread(trio.wait_settled, [partition, ("sums", 0)])
    publishers = [Publisher(number) for number in range(PUBLISHERS)]
    async with asyncio.TaskGroup() as group:
        for publisher in publishers:
            group.create_task(publisher.run(trio))
        await until_more(publishers)
        for _ in range(kills):
            for killed in (partition, ("sums", 0)):
                leader = await asyncio.to_thread(trio.leader, killed)
                await asyncio.to_thread(trio.kill, leader)
                await until_more(publishers)
                await asyncio.to_thread(trio.start, leader)
                await asyncio.to_thread(trio.wait_settled, [partition, ("sums", 0)])
                await until_more(publishers)
        for publisher in publishers:
            publisher.stopping = True
    await asyncio.to_thread(trio.wait_replicated, partition)
    steps = {message_id: step for it in publishers for message_id, step in it.steps.items()}
    told = {seq: (subject, total) for it in publishers for subject, seq, total in it.told}
    for log in trio.replicas(partition):
        totals: Counter[str] = Counter()
        for record in log.records:
            totals[record.subject] += steps[record.identity]
            assert json.loads(record.value) == {"val": str(totals[record.subject])}, log.name
            now = (record.subject, totals[record.subject])
            assert told.get(record.offset + 1, now) == now
        assert sorted(it.identity for it in log.records) == sorted(steps), log.name
    async with connected(trio, 1) as client:
        await until_summed(client, totals, 0)
        for subject in totals:
            name = subject.replace("counts", "sums")
            answer = await client.request(name, b"", headers={"Nats-Incr": "3"}, timeout=5)
            assert json.loads(answer.data)["val"] == str(totals[subject] + 3)
            await client.request(subject, b"", headers={"Nats-Incr": "4"}, timeout=5)
            totals[subject] += 4
        await until_summed(client, totals, 3)
