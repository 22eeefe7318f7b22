"""Message schedules of three nodes while their leaders are killed: every time fires, and none fires twice."""

import asyncio
import json
import random
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import nats.js.api
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

STREAM: Final = "plans"
PARTITION: Final = (STREAM, 0)
EVERY: Final = {"@every 2s": 2.0, "@every 5s": 5.0, "*/3 * * * * *": 3.0}
"""Seconds between two firings."""
ONCE: Final = 60
APART_S: Final = 0.25
"""Between the times of those that fire once."""
CATCH_UP_S: Final = 60

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster
        assert_no_faults(cluster)


class Fired(NamedTuple):
    subject: str
    stored: datetime
    scheduler: str
    next: str
    payload: bytes


async def schedule(client: Client, name: str, spec: str, *, ttl: str = "") -> None:
    """As a client of JetStream publishes it: until it is acknowledged."""
    headers = {
        "Nats-Schedule": spec,
        "Nats-Schedule-Target": f"{STREAM}.fired.{name}",
        "Nats-Msg-Id": name,
    }
    if ttl:
        headers["Nats-Schedule-TTL"] = ttl
    js = client.jetstream()
    subject = f"{STREAM}.schedule.{name}"
    await retried(lambda: js.publish(subject, name.encode(), timeout=2, headers=headers))


async def fired(client: Client) -> tuple[list[Fired], set[str]]:
    """What was, and the subjects of the schedules that are left."""
    js = client.jetstream()
    state = (await retried(lambda: js.stream_info(STREAM))).state
    found, left = list[Fired](), set[str]()
    for seq in range(state.first_seq, state.last_seq + 1):
        message: Any = await retried(lambda: message_at(client, seq))  # noqa: B023
        if message is None:
            continue
        lines = b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
        headers = dict(line.split(": ", 1) for line in lines if line)
        if "Nats-Scheduler" not in headers:
            left.add(message["subject"])
            continue
        stored = datetime.fromisoformat(message["time"][:26].rstrip("Z").ljust(26, "0") + "+00:00")
        told = headers["Nats-Scheduler"], headers["Nats-Schedule-Next"]
        found.append(Fired(message["subject"], stored, *told, b64decode(message.get("data", ""))))
    return found, left


async def message_at(client: Client, seq: int) -> Any:
    """None: it is not there any more."""
    wanted = f'{{"seq":{seq}}}'.encode()
    answer = await client.request(f"$JS.API.STREAM.MSG.GET.{STREAM}", wanted, timeout=2)
    told: dict[str, Any] = json.loads(answer.data)
    if "error" in told and told["error"]["code"] != 404:
        raise TimeoutError
    return told.get("message")


async def until_fired(client: Client, *names: str) -> None:
    wanted = {f"{STREAM}.schedule.{name}" for name in names}
    while not wanted <= {it.scheduler for it in (await fired(client))[0]}:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.slow)])
async def test_every_time_fires_once(trio: Cluster, kills: int) -> None:
    chosen = random.Random(kills)
    async with connected(trio, 1, 2, 3) as client:
        await make_stream(client.jetstream(), STREAM, allow_msg_schedules=True, allow_msg_ttl=True)
        await asyncio.to_thread(trio.wait_settled, [PARTITION])
        begun = datetime.now(UTC)
        for number, spec in enumerate(EVERY):
            await schedule(client, f"every-{number}", spec)
        due = [begun + timedelta(seconds=3 + APART_S * number) for number in range(ONCE)]
        for number, time in enumerate(due):
            await schedule(client, f"once-{number}", f"@at {time.isoformat()}")
        for _ in range(kills):
            await asyncio.sleep(chosen.uniform(2, 4))
            leader = await asyncio.to_thread(trio.leader, PARTITION)
            await asyncio.to_thread(trio.kill, leader)
            await asyncio.to_thread(trio.start, leader)
            await asyncio.to_thread(trio.wait_settled, [PARTITION])
        async with asyncio.timeout(CATCH_UP_S):
            while True:
                found, left = await fired(client)
                if sum(".once-" in it.subject for it in found) >= ONCE:
                    break
                await asyncio.sleep(0.5)
        await asyncio.sleep(max(EVERY.values()))
        found, left = await fired(client)
        ended = datetime.now(UTC)
    by_scheduler = defaultdict[str, list[Fired]](list)
    for it in found:
        by_scheduler[it.scheduler].append(it)
    for number, time in enumerate(due):
        (once,) = by_scheduler.pop(f"{STREAM}.schedule.once-{number}")
        assert once.next == "purge"
        assert once.payload == f"once-{number}".encode()
        assert once.stored >= time
    assert left == by_scheduler.keys()
    for number, every_s in enumerate(EVERY.values()):
        times = by_scheduler[f"{STREAM}.schedule.every-{number}"]
        due_at = begun
        for it in times:
            assert it.stored >= due_at, "a time has fired twice"
            due_at = datetime.fromisoformat(it.next)
            assert due_at > it.stored
        assert due_at >= ended - timedelta(seconds=1 + every_s), "it has stopped"
    end = await asyncio.to_thread(trio.wait_replicated, PARTITION)
    first, *others = (  # the schedules fire on while the logs are read
        [it for it in log.records if it.offset < end] for log in trio.replicas(PARTITION)
    )
    assert first
    assert all(it == first for it in others)


async def test_times_that_pass_while_all_nodes_are_down(trio: Cluster) -> None:
    """Each fires once, when they are there again; what has fired before does not."""
    async with connected(trio, 1, 2, 3) as client:
        await make_stream(client.jetstream(), STREAM, allow_msg_schedules=True, allow_msg_ttl=True)
        await asyncio.to_thread(trio.wait_settled, [PARTITION])
        now = datetime.now(UTC)
        await schedule(client, "early", f"@at {now.isoformat()}")
        await schedule(client, "late", f"@at {(now + timedelta(seconds=6)).isoformat()}")
        await schedule(client, "every", "@every 3s", ttl="1s")
        async with asyncio.timeout(CATCH_UP_S):
            await until_fired(client, "early", "every")
        await asyncio.to_thread(trio.kill, 1, 2, 3)
        await asyncio.sleep(8)
        started = datetime.now(UTC)
        await asyncio.to_thread(trio.start, 1, 2, 3)
        await asyncio.to_thread(trio.wait_settled, [PARTITION])
        async with asyncio.timeout(CATCH_UP_S):
            await until_fired(client, "late")
        await asyncio.sleep(4)
        found, left = await fired(client)
    assert left == {f"{STREAM}.schedule.every"}
    assert sum(it.scheduler.endswith("early") for it in found) == 1
    assert sum(it.scheduler.endswith("late") for it in found) == 1
    again = [it for it in found if it.scheduler.endswith("every") and it.stored > started]
    steps = [datetime.fromisoformat(it.next) - it.stored for it in again]
    assert len(again) <= 3
    assert all(step > timedelta(seconds=2) for step in steps), (
        "it has fired for each time that passed"
    )


async def test_a_work_queue_of_what_a_schedule_fires(trio: Cluster) -> None:
    """A worker takes the jobs; the schedule, which nobody takes, stays until it is ended."""
    async with connected(trio, 1) as client:
        js = client.jetstream()
        await make_stream(js, STREAM, allow_msg_schedules=True, retention="workqueue")
        await asyncio.to_thread(trio.wait_settled, [PARTITION])
        consumer = await retried(
            lambda: js.pull_subscribe(
                f"{STREAM}.fired.>",
                durable="worker",
                config=nats.js.api.ConsumerConfig(filter_subject=f"{STREAM}.fired.>"),
            )
        )
        await schedule(client, "job", "@every 1s")
        for _ in range(3):
            (message,) = await retried(lambda: consumer.fetch(1, timeout=3))
            assert message.subject == f"{STREAM}.fired.job"
            assert message.data == b"job"
            await message.ack_sync(timeout=3)
        headers = {"Nats-Schedule-Next": "purge", "Nats-Scheduler": f"{STREAM}.schedule.job"}
        await js.publish(f"{STREAM}.end", b"", headers=headers)
        _, left = await fired(client)
        assert f"{STREAM}.schedule.job" not in left
