"""A consumer's Fetch of many partitions is answered in turns, as one of a few is at once."""

import asyncio
import sys
import time
from collections import Counter
from typing import Any

import pytest

from streamlog import fairness
from streamlog.kafka.fetch import fetch_session
from streamlog.kafka.fetch.fetch_session import FetchCaller, FetchSession, Steps
from streamlog.kafka.handlers import fetch as handler
from streamlog.kafka.handlers.fetch import DelayedFetch
from streamlog.model import NodeId, TopicPartition
from streamlog.wire.fetch import NEW_SESSION, FetchRequest, FetchTopic
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at, wanted
from tests.unit.kafka.fetch import test_fetch_session, test_fetch_without_session
from tests.unit.kafka.handlers import test_fetch

PARTITIONS = 600
STEPS = PARTITIONS // fetch_session.STEP

for module in (test_fetch, test_fetch_session, test_fetch_without_session):
    names = {name: it for name, it in vars(module).items() if name.startswith("test_")}
    globals().update({f"{name}_in_turns": it for name, it in names.items()})


@pytest.fixture(autouse=True)
def tiny_turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition takes a turn of its own, also where there are few of them."""
    monkeypatch.setattr(fairness, "TURN_S", 0.0)
    if "in_turns" in request.node.name:
        monkeypatch.setattr(handler, "AT_ONCE_BYTES", 0)
        monkeypatch.setattr(handler, "TOLD_AT_ONCE", 0)
        monkeypatch.setattr(handler, "TURN_S", 0.0)
        for module in (fetch_session, handler):
            monkeypatch.setattr(module, "STEP", 1)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often others had their turn, and between which steps. Time does not count."""
    taken: Counter[str] = Counter()

    async def turn(self: DelayedFetch) -> None:
        caller = sys._getframe(1)
        taken[f"{caller.f_code.co_name}:{caller.f_lineno}"] += 1
        await asyncio.sleep(0)

    monkeypatch.setattr(DelayedFetch, "turn", turn)
    return taken


def all_of(first: int = 0, **more: Any) -> FetchRequest:
    """``first``: the offset in the first partition."""
    request = wanted(at(first), *(at(0, partition=it) for it in range(1, PARTITIONS)))
    return request._replace(**more)


async def test_without_a_session_others_have_their_turn(
    node: KafkaNode, turns: Counter[str]
) -> None:
    partition = await node.add_stream("flights", PARTITIONS)
    partition.append([b"x"])
    async with RawClient(node.port) as client:
        found = await client.fetch(all_of())
    assert len(found.partitions) == PARTITIONS
    assert [it.fetched.records_bytes > 0 for it in found.partitions[:2]] == [True, False]
    assert all(it.closed for it in partition.slices)
    assert list(turns.values()) == [STEPS] * 3, "begun, grouped by topic, told"


async def test_topics_of_one_partition_are_begun_a_few_at_a_time_too(node: KafkaNode) -> None:
    topics = [FetchTopic(f"topic-{it}", [at(0)], b"") for it in range(PARTITIONS)]
    request = wanted()._replace(topics=topics)
    begun = FetchSession(FetchCaller(NodeId(-1), -1, ""), by_id=False)
    steps = list(begun.begin(request, time.monotonic, lambda: None))
    assert len(steps) == PARTITIONS // fetch_session.STEP
    assert len(begun.due) == PARTITIONS
    async with RawClient(node.port) as client:
        found = await client.fetch(request)
    assert [it.topic for it in found.partitions] == [it.name for it in topics]


async def test_in_a_session_others_have_their_turn_and_what_changes_meanwhile_is_told(
    node: KafkaNode, turns: Counter[str]
) -> None:
    await node.add_stream("flights", PARTITIONS)
    last = node.partition(TopicPartition("flights", PARTITIONS - 1))
    async with RawClient(node.port) as client:
        sent = client.send_fetch(all_of(session_epoch=NEW_SESSION, max_wait_ms=1))
        found = await client.fetched(sent)
        assert len(found.partitions) == PARTITIONS
        steps = "begun, watched while it waits, grouped by topic, told, kept"
        assert list(turns.values()) == [STEPS] * 5, steps
        (session,) = (slot.session for slot in node.context.fetch_sessions._kept.values())
        await until(lambda: not session.busy)
        last.append([b"x"])
        again = wanted(max_wait_ms=5_000, session_id=found.session_id, session_epoch=1)
        again = again._replace(topics=())
        (told,) = (await client.fetch(again)).partitions
        assert told.fetched.partition == PARTITIONS - 1


async def test_what_is_remembered_as_told_is_what_was_told(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log start moves after its partition's part of the answer was made."""
    await node.add_stream("flights", PARTITIONS)
    first = node.partition(TopicPartition("flights", 0))
    first.append([b"x"])
    inner = FetchSession.end

    def end(self: FetchSession) -> Steps:
        first.log_start_offset = 1
        yield from inner(self)

    monkeypatch.setattr(FetchSession, "end", end)
    async with RawClient(node.port) as client:
        found = await client.fetch(all_of(1, session_epoch=NEW_SESSION))
        again = wanted(at(1), session_id=found.session_id, session_epoch=1)
        (told,) = (await client.fetch(again)).partitions
    assert told.fetched.log_start_offset == 1
