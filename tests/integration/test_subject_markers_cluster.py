"""Markers of three nodes while their leaders are killed: one for each time that a subject ends."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from streamlog.partition.deletes.subject_markers import REASON_HEADER
from tests.integration.test_consumers_cluster import (
    SETTINGS,
    assert_no_faults,
    connected,
    make_stream,
    retried,
)
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.replica_log import ReplicaLog

SUBJECTS: Final = 40
CALM_S: Final = 2.5
"""Of publishing, before the first kill and after each of them."""
HOUR_NS: Final = 3_600 * 10**9
PARTITION: Final = ("kv", 0)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster
        assert_no_faults(cluster)


async def publish(cluster: Cluster, number: int, stopping: asyncio.Event) -> None:
    chosen = random.Random(number)
    count = 0
    async with connected(cluster, number % 3 + 1, *(1, 2, 3)) as client:
        js = client.jetstream()
        while not stopping.is_set():
            subject = f"kv.{chosen.randrange(SUBJECTS)}"
            headers = {"Nats-TTL": "1", "Nats-Msg-Id": f"{number}-{count}"}
            await retried(
                lambda subject=subject, headers=headers: js.publish(  # type: ignore[misc]
                    subject, b"x", headers=headers, timeout=1
                ),
                timeout_s=60,
            )
            count += 1
            await asyncio.sleep(chosen.random() / 5)


def check(log: ReplicaLog) -> None:
    """Each subject ends with a marker, and has none behind a marker. A message that was published again has an id."""
    last: dict[str, bool] = {}
    for record in log.records:
        marks = not record.identity
        assert not (marks and last.get(record.subject, True)), (log.name, record)
        last[record.subject] = marks
    assert len(last) == SUBJECTS
    assert all(last.values()), log.name


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
async def test_each_end_has_one_marker(trio: Cluster, kills: int) -> None:
    async with connected(trio, 1) as client:
        js = client.jetstream()
        await make_stream(
            js,
            "kv",
            max_msgs_per_subject=1,
            allow_msg_ttl=True,
            subject_delete_marker_ttl=HOUR_NS // 10**9,
        )
        assert (await js.stream_info("kv")).config.subject_delete_marker_ttl == HOUR_NS // 10**9
    await asyncio.to_thread(trio.wait_settled, [PARTITION])
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(publish(trio, number, stopping))
        await asyncio.sleep(CALM_S)
        for round_ in range(kills):
            leader = await asyncio.to_thread(trio.leader, PARTITION)
            if round_ % 3 == 2:
                await asyncio.to_thread(trio.kill)
                await asyncio.to_thread(trio.start)
            else:
                await asyncio.to_thread(trio.kill, leader)
                await asyncio.sleep(CALM_S)
                await asyncio.to_thread(trio.start, leader)
            await asyncio.to_thread(trio.wait_settled, [PARTITION])
            await asyncio.sleep(CALM_S)
        stopping.set()
    async with connected(trio, 1) as client:
        js = client.jetstream()

        async def all_markers() -> None:
            info = await js.stream_info("kv")
            if info.state.messages != SUBJECTS:
                raise TimeoutError
            for number in range(SUBJECTS):
                found = await js.get_last_msg("kv", f"kv.{number}")
                if REASON_HEADER not in (found.headers or {}):
                    raise TimeoutError

        await retried(all_markers, timeout_s=60)
    await asyncio.to_thread(trio.wait_replicated, PARTITION)
    logs = trio.replicas(PARTITION)
    assert len({tuple((it.offset, it.subject) for it in log.records) for log in logs}) == 1
    for log in logs:
        check(log)
