"""The APIs of consumer groups in every version, over offsets in memory."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from streamlog.config import GroupsSection
from streamlog.coordination.keys import partition_of
from streamlog.errors import NoController
from streamlog.groups.offsets_topic import config_of as offsets_config
from streamlog.kafka.handlers.groups.classic_groups import DELETES_AT_ONCE, list_groups
from streamlog.metadata.image.feature_level import CONSUMER_GROUPS_LEVEL
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig
from streamlog.model import TopicPartition
from streamlog.wire import registry as r
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.group_world import subscription
from tests.kafka_node import KafkaNode, until
from tests.offsets_partition import OffsetsPartition
from tests.raw_client import RawClient
from tests.restricted import Asker

GROUP = "g"
JOIN = {
    "group_id": GROUP,
    "session_timeout": 10_000,
    "rebalance_timeout": 60_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": subscription("flights")}],
}


SETTINGS = GroupsSection(
    offsets_partitions=2, initial_rebalance_delay_ms=0, commit_timeout_ms=30_000
)


IMPATIENT = SETTINGS.model_copy(update={"commit_timeout_ms": 1})


def log_of(node: KafkaNode) -> OffsetsPartition:
    """Where the group's offsets are."""
    found: OffsetsPartition = node.offsets.partition(
        TopicPartition(OFFSETS_STREAM, partition_of(GROUP, 2))
    )
    return found


@pytest.fixture
async def groups() -> AsyncIterator[KafkaNode]:
    """A node that leads all of ``__consumer_offsets``, and has read it."""
    async with KafkaNode(SETTINGS) as node:
        running = asyncio.create_task(node.groups.run())
        await node.metadata.create_stream(StreamConfig.of(name="flights", partitions=2))
        assert (await node.groups.find(GROUP)).node is not None
        node.groups.apply(MetadataImage(CLUSTER_ID), node.metadata.image)
        async with asyncio.timeout(10):
            while node.groups.statistics().loading:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
        yield node
        await node.groups.stop()
        running.cancel()
        await asyncio.wait([running])


async def ask(groups: KafkaNode, key: int, version: int, asked: dict[str, Any]) -> Any:
    async with RawClient(groups.port) as client:
        return await client.ask(key, version, asked)


async def joined(groups: KafkaNode, version: int = 9, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await ask(groups, r.JOIN_GROUP, version, {**JOIN, **fields})
    if answer["error_code"] == 79:
        return await joined(groups, version, **{**fields, "member_id": answer["member_id"]})
    assert answer["error_code"] == 0, answer
    return answer


async def stable(groups: KafkaNode) -> dict[str, Any]:
    answer = await joined(groups)
    assignment = [{"member_id": answer["member_id"], "assignment": b"all"}]
    synced = await ask(groups, r.SYNC_GROUP, 5, sync_of(answer, assignment))
    assert (synced["error_code"], bytes(synced["assignment"])) == (0, b"all")
    return answer


def sync_of(member: dict[str, Any], assignments: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group_id": GROUP,
        "generation_id": member["generation_id"],
        "member_id": member["member_id"],
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": assignments,
    }


def commit_of(offset: int, member: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    one = {
        "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 4,
        "committed_metadata": "note",
    }  # fmt: skip
    return {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1 if member is None else member["generation_id"],
        "member_id": "" if member is None else member["member_id"],
        "retention_time": -1,
        "topics": [
            {"name": "flights", "partitions": [one, {**one, "partition_index": 9}]},
            {"name": "unknown", "partitions": [one]},
        ],
        **fields,
    }


def codes(answer: dict[str, Any]) -> list[int]:
    return [it["error_code"] for topic in answer["topics"] for it in topic["partitions"]]


@pytest.mark.parametrize("version", range(10))
async def test_join_group(groups: KafkaNode, version: int) -> None:
    answer = await joined(groups, version)
    assert answer["generation_id"] == 1
    assert answer["leader"] == answer["member_id"]
    assert [bytes(it["metadata"]) for it in answer["members"]] == [subscription("flights")]
    bad = await ask(groups, r.JOIN_GROUP, version, {**JOIN, "session_timeout": 1})
    assert (bad["error_code"], bad["protocol_name"]) == (26, "" if version < 7 else None)


@pytest.mark.parametrize("version", range(6))
async def test_sync_group(groups: KafkaNode, version: int) -> None:
    member = await joined(groups)
    assignment = [{"member_id": member["member_id"], "assignment": b"all"}]
    answer = await ask(groups, r.SYNC_GROUP, version, sync_of(member, assignment))
    assert (answer["error_code"], bytes(answer["assignment"])) == (0, b"all")


@pytest.mark.parametrize("version", range(5))
async def test_heartbeat(groups: KafkaNode, version: int) -> None:
    member = await stable(groups)
    asked = {"group_id": GROUP, "member_id": member["member_id"], "generation_id": 1}
    assert (await ask(groups, r.HEARTBEAT, version, asked))["error_code"] == 0
    asked["generation_id"] = 2
    assert (await ask(groups, r.HEARTBEAT, version, asked))["error_code"] == 22


@pytest.mark.parametrize("version", range(6))
async def test_leave_group(groups: KafkaNode, version: int) -> None:
    member = await stable(groups)
    asked: dict[str, Any] = {"group_id": GROUP, "member_id": member["member_id"]}
    asked["members"] = [{"member_id": member["member_id"]}, {"member_id": "nobody"}]
    answer = await ask(groups, r.LEAVE_GROUP, version, asked)
    assert answer["error_code"] == 0
    if version >= 3:
        assert [it["error_code"] for it in answer["members"]] == [0, 25]


@pytest.mark.parametrize("version", range(2, 10))
async def test_offset_commit(groups: KafkaNode, version: int) -> None:
    answer = await ask(groups, r.OFFSET_COMMIT, version, commit_of(5))
    assert codes(answer) == [0, 3, 3]
    member = await stable(groups)
    assert codes(await ask(groups, r.OFFSET_COMMIT, version, commit_of(6, member))) == [0, 3, 3]
    assert codes(await ask(groups, r.OFFSET_COMMIT, version, commit_of(7))) == [25, 3, 3]


@pytest.mark.parametrize("version", range(1, 10))
async def test_offset_fetch(groups: KafkaNode, version: int) -> None:
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5))
    topics = [{"name": "flights", "partition_indexes": [0, 1]}]
    one = {"group_id": GROUP, "topics": topics}
    answer = await ask(groups, r.OFFSET_FETCH, version, {**one, "groups": [one]})
    (found,) = answer["groups"] if version >= 8 else [answer]
    (topic,) = found["topics"]
    assert [(it["committed_offset"], it["metadata"]) for it in topic["partitions"]] == [
        (5, "note"), (-1, ""),
    ]  # fmt: skip
    if version >= 5:
        assert topic["partitions"][0]["committed_leader_epoch"] == 4
    if version >= 2:
        every = {**one, "topics": None}
        answer = await ask(groups, r.OFFSET_FETCH, version, {**every, "groups": [every]})
        (found,) = answer["groups"] if version >= 8 else [answer]
        assert [len(it["partitions"]) for it in found["topics"]] == [1]


async def test_several_groups_are_asked_for_at_once(groups: KafkaNode) -> None:
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5))
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(6, group_id="h"))
    asked = [{"group_id": name, "topics": None} for name in (GROUP, "h", "i")]
    answer = await ask(groups, r.OFFSET_FETCH, 8, {"groups": asked})
    found = {
        it["group_id"]: [p["committed_offset"] for t in it["topics"] for p in t["partitions"]]
        for it in answer["groups"]
    }
    assert found == {GROUP: [5], "h": [6], "i": []}


async def test_an_offset_is_not_told_by_who_cannot_say_that_it_leads(groups: KafkaNode) -> None:
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5))
    log_of(groups).commits = False
    groups.groups.settings = IMPATIENT
    asked = {"group_id": GROUP, "topics": None}
    answer = await ask(groups, r.OFFSET_FETCH, 7, asked)
    assert (answer["error_code"], answer["topics"]) == (15, [])
    log_of(groups).resign()
    assert (await ask(groups, r.OFFSET_FETCH, 7, asked))["error_code"] == 16
    asked["topics"] = [{"name": "flights", "partition_indexes": [0]}]  # type: ignore[assignment]
    assert codes(await ask(groups, r.OFFSET_FETCH, 1, asked)) == [16]


@pytest.fixture
async def coming() -> AsyncIterator[KafkaNode]:
    """A node whose metadata do not name ``__consumer_offsets`` yet."""
    async with KafkaNode(SETTINGS) as node:
        running = asyncio.create_task(node.groups.run())
        yield node
        await node.groups.stop()
        running.cancel()
        await asyncio.wait([running])


async def learn(node: KafkaNode, leader: int = NODE) -> None:
    """Have the stream of offsets be known at the node, and be led by ``leader``."""
    before = node.metadata.image
    await node.metadata.create_stream(offsets_config(SETTINGS, 1))
    for number in range(2):
        node.metadata.change(OFFSETS_STREAM, number, leader=leader)
    node.groups.apply(before, node.metadata.image)


@asynccontextmanager
async def fetching(node: KafkaNode) -> AsyncIterator[Awaitable[int]]:
    """An OffsetFetch that has come and waits; its error code."""

    async def fetch() -> int:
        answer = await ask(node, r.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None})
        code: int = answer["error_code"]
        return code

    async with asyncio.TaskGroup() as group:
        code = group.create_task(fetch())
        await until(lambda: len(node.groups._unopened) == 1)
        yield code
    assert not node.groups._unopened


async def test_an_offset_fetch_waits_for_the_metadata_that_name_the_coordinator(
    coming: KafkaNode,
) -> None:
    async with fetching(coming) as code:
        await learn(coming)
        assert await code == 0


async def test_an_offset_fetch_waits_for_a_log_that_has_yet_to_be_opened(coming: KafkaNode) -> None:
    log = log_of(coming)
    log.is_leader = False  # in the image it is the leader
    await learn(coming)
    async with fetching(coming) as code:
        log.is_leader = True
        coming.groups.look(log.tp)
        assert await code == 0


async def test_an_offset_fetch_waits_for_a_log_that_is_read(coming: KafkaNode) -> None:
    log = log_of(coming)
    log.high_watermark_known = False
    await learn(coming)
    async with fetching(coming) as code:
        log.high_watermark_known = True
        log.changed()
        assert await code == 0


async def test_an_offset_fetch_waits_no_longer_once_another_node_coordinates(
    coming: KafkaNode,
) -> None:
    async with fetching(coming) as code:
        await learn(coming, leader=NODE + 1)
        assert await code == 16
    asked = {"group_id": GROUP, "topics": None}
    assert (await ask(coming, r.OFFSET_FETCH, 7, asked))["error_code"] == 16


async def test_an_offset_fetch_waits_no_longer_once_the_leadership_has_passed_on(
    coming: KafkaNode,
) -> None:
    log_of(coming).high_watermark_known = False
    await learn(coming)
    async with fetching(coming) as code:
        before = coming.metadata.image
        coming.metadata.change(OFFSETS_STREAM, partition_of(GROUP, 2), leader=NODE + 1)
        coming.groups.apply(before, coming.metadata.image)
        assert await code == 16


async def test_an_offset_fetch_waits_no_longer_at_a_node_that_stops(coming: KafkaNode) -> None:
    async with fetching(coming) as code:
        await coming.groups.stop()
        assert await code == 16


async def test_an_offset_fetch_waits_no_longer_than_a_commit(coming: KafkaNode) -> None:
    coming.groups.settings = IMPATIENT
    asked = {"group_id": GROUP, "topics": None}
    assert (await ask(coming, r.OFFSET_FETCH, 7, asked))["error_code"] == 15
    gc.collect()
    assert not coming.groups._unopened


@pytest.mark.parametrize("every", [False, True])
async def test_an_offset_of_a_deleted_stream_is_none_of_the_one_that_has_its_name(
    groups: KafkaNode, every: bool
) -> None:
    """Even where the coordinator could not remove it."""
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5))
    await groups.metadata.delete_stream("flights")
    await groups.metadata.create_stream(StreamConfig.of(name="flights", partitions=2))
    topics = None if every else [{"name": "flights", "partition_indexes": [0]}]
    answer = await ask(groups, r.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": topics})
    found = [it["committed_offset"] for topic in answer["topics"] for it in topic["partitions"]]
    assert found == ([] if every else [-1])


async def test_a_commit_that_takes_too_long_is_told_so_and_counts_later(groups: KafkaNode) -> None:
    log_of(groups).commits = False
    groups.groups.settings = IMPATIENT
    assert codes(await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5))) == [15, 3, 3]
    groups.groups.settings = SETTINGS
    log_of(groups).commit()
    log_of(groups).commits = True
    answer = await ask(groups, r.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None})
    assert [it["committed_offset"] for it in answer["topics"][0]["partitions"]] == [5]


@pytest.mark.parametrize("version", range(7))
async def test_describe_groups(groups: KafkaNode, version: int) -> None:
    member = await stable(groups)
    answer = await ask(groups, r.DESCRIBE_GROUPS, version, {"groups": [GROUP, "none"]})
    known, unknown = answer["groups"]
    assert (known["error_code"], known["group_state"], known["protocol_data"]) == (
        0, "Stable", "range",
    )  # fmt: skip
    (shown,) = known["members"]
    assert (shown["member_id"], shown["client_host"]) == (member["member_id"], "/127.0.0.1")
    assert bytes(shown["member_assignment"]) == b"all"
    assert (unknown["error_code"], unknown["group_state"]) == (69 if version >= 6 else 0, "Dead")


@pytest.mark.parametrize("version", range(6))
async def test_list_groups(groups: KafkaNode, version: int) -> None:
    await stable(groups)
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5, group_id="h"))

    async def listed(**filters: Any) -> set[str]:
        answer = await ask(groups, r.LIST_GROUPS, version, filters)
        assert answer["error_code"] == 0
        return {it["group_id"] for it in answer["groups"]}

    assert await listed(states_filter=[], types_filter=[]) == {GROUP, "h"}
    if version >= 4:
        assert await listed(states_filter=["stable"], types_filter=[]) == {GROUP}
    if version >= 5:
        assert await listed(states_filter=[], types_filter=["Classic"]) == {GROUP, "h"}
        assert await listed(states_filter=[], types_filter=["consumer"]) == set()


@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        ((), []),
        (("describe group h",), ["h"]),
        (("describe group *",), [GROUP, "h"]),
        (("describe cluster kafka-cluster",), [GROUP, "h"]),
        (("read topic flights", "delete group h"), ["h"]),
    ],
)
async def test_lists_name_the_groups_that_the_caller_may_know_of(
    groups: KafkaNode, rules: tuple[str, ...], seen: list[str]
) -> None:
    """Whichever protocol asks, and with nothing in the audit log."""
    for name in (GROUP, "h"):
        await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5, group_id=name))
    asker = Asker(groups.context, *rules)
    answer = await list_groups({}, 5, asker.context)
    assert sorted(it["group_id"] for it in answer["groups"]) == seen
    page = await asker.context.control.groups.list()
    assert ([it.group for it in page.groups], page.total) == (seen, len(seen))
    assert asker.audit.refusals == []
    asker.close()


@pytest.mark.parametrize("version", range(3))
async def test_delete_groups(groups: KafkaNode, version: int) -> None:
    await stable(groups)
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5, group_id="h"))
    answer = await ask(groups, r.DELETE_GROUPS, version, {"groups_names": [GROUP, "h", "i"]})
    told = {it["group_id"]: it["error_code"] for it in answer["results"]}
    assert told == {GROUP: 68, "h": 0, "i": 69}


async def test_offset_delete(groups: KafkaNode) -> None:
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5))
    partitions = [{"partition_index": 0}, {"partition_index": 9}]
    asked = {"group_id": GROUP, "topics": [{"name": "flights", "partitions": partitions}]}
    answer = await ask(groups, r.OFFSET_DELETE, 0, asked)
    assert (answer["error_code"], codes(answer)) == (0, [0, 3])
    answer = await ask(groups, r.OFFSET_DELETE, 0, {**asked, "group_id": "none"})
    assert answer["error_code"] == 69


async def deleted(groups: KafkaNode, *names: str) -> list[int]:
    """The codes of a DeleteGroups."""
    answer = await ask(groups, r.DELETE_GROUPS, 2, {"groups_names": list(names)})
    assert [it["group_id"] for it in answer["results"]] == list(names)
    return [it["error_code"] for it in answer["results"]]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leader is waited for."""
    monkeypatch.setattr("streamlog.control.leaders.leader_router.PATIENCE_S", 0.0)


async def test_a_group_without_a_name_may_have_committed_and_is_deleted(groups: KafkaNode) -> None:
    assert codes(await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5, group_id=""))) == [0, 3, 3]
    assert await deleted(groups, "") == [0]
    assert await deleted(groups, "", "x" * 4097) == [69, 24]


@pytest.mark.usefixtures("impatient")
async def test_a_group_that_is_not_coordinated_just_now_is_deleted_later(
    groups: KafkaNode,
) -> None:
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5))
    asked = {"group_id": GROUP, "topics": [{"name": "flights", "partitions": [PARTITION_0]}]}
    log_of(groups).below_min_isr = True
    assert await deleted(groups, GROUP) == [15]
    assert (await ask(groups, r.OFFSET_DELETE, 0, asked))["error_code"] == 15
    log_of(groups).below_min_isr = False
    log_of(groups).resign()
    assert await deleted(groups, GROUP) == [16]
    assert (await ask(groups, r.OFFSET_DELETE, 0, asked))["error_code"] == 16


PARTITION_0 = {"partition_index": 0}


async def test_a_deletion_that_takes_too_long_is_told_so_and_done_later(groups: KafkaNode) -> None:
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5))
    log_of(groups).commits = False
    groups.groups.settings = IMPATIENT
    assert await deleted(groups, GROUP) == [15]
    log_of(groups).commit()
    groups.groups.settings = SETTINGS
    assert await deleted(groups, GROUP) == [69]


def offsets_logs(node: KafkaNode) -> list[OffsetsPartition]:
    return [node.offsets.partition(TopicPartition(OFFSETS_STREAM, it)) for it in (0, 1)]


async def test_groups_are_deleted_some_at_once(groups: KafkaNode) -> None:
    names = [f"g-{number}" for number in range(DELETES_AT_ONCE + 20)]
    for name in names:
        await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5, group_id=name))
    logs = offsets_logs(groups)
    for log in logs:
        log.commits = False
    deleting = asyncio.create_task(deleted(groups, *names))
    async with asyncio.timeout(30):
        while sum(len(log.waiting) for log in logs) < DELETES_AT_ONCE:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert sum(len(log.waiting) for log in logs) == DELETES_AT_ONCE
    for log in logs:
        log.commits = True
        log.commit()
    assert await deleting == [0] * len(names)


async def test_groups_are_deleted_no_longer_than_a_commit_takes(
    groups: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlog.kafka.handlers.groups.classic_groups.DELETES_AT_ONCE", 2)
    names = [f"g-{number}" for number in range(6)]
    for name in names:
        await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5, group_id=name))
    logs = offsets_logs(groups)
    for log in logs:
        log.commits = False
    groups.groups.settings = IMPATIENT
    assert set(await deleted(groups, *names)) == {15}
    begun = sum(len(log.waiting) for log in logs)
    assert begun <= 2, "none is begun once the time is over"
    for log in logs:
        log.commit()
        log.commits = True
    groups.groups.settings = SETTINGS
    # One that was begun may have run out of time before it wrote anything: then it is not the first that is gone.
    assert sorted(await deleted(groups, *names)) == [0] * (6 - begun) + [69] * begun


@pytest.mark.usefixtures("impatient")
async def test_what_no_controller_confirms_is_not_said_to_be_gone(node: KafkaNode) -> None:
    assert await deleted(node, GROUP) == [69]
    node.metadata.no_controller = NoController("lost")
    assert await deleted(node, GROUP) == [16]
    asked = {"group_id": GROUP, "topics": [{"name": "flights", "partitions": [PARTITION_0]}]}
    assert (await ask(node, r.OFFSET_DELETE, 0, asked))["error_code"] == 16


async def test_offsets_of_what_members_read_are_not_deleted(groups: KafkaNode) -> None:
    await groups.metadata.create_stream(StreamConfig.of(name="other", partitions=1))
    member = await stable(groups)
    await ask(groups, r.OFFSET_COMMIT, 9, commit_of(5, member))
    topics = [
        {"name": "flights", "partitions": [PARTITION_0, {"partition_index": 9}]},
        {"name": "other", "partitions": [PARTITION_0, PARTITION_0]},
        {"name": "unknown", "partitions": [PARTITION_0]},
        {"name": "none", "partitions": []},
    ]
    answer = await ask(groups, r.OFFSET_DELETE, 0, {"group_id": GROUP, "topics": topics})
    assert answer["error_code"] == 0
    told = {it["name"]: [p["error_code"] for p in it["partitions"]] for it in answer["topics"]}
    assert told == {"flights": [86, 3], "other": [0, 0], "unknown": [3], "none": []}


async def test_offsets_are_not_deleted_of_a_name_that_no_group_has(groups: KafkaNode) -> None:
    for name in ("", "x" * 4097):
        answer = await ask(groups, r.OFFSET_DELETE, 0, {"group_id": name, "topics": []})
        assert answer["error_code"] == 24


async def test_whoever_waits_is_no_burden_to_others_and_may_come_back(groups: KafkaNode) -> None:
    member = await stable(groups)
    async with RawClient(groups.port) as waiting:
        waiting.send(r.JOIN_GROUP, 3, JOIN)
        beat = {"group_id": GROUP, "member_id": member["member_id"], "generation_id": 1}
        async with asyncio.timeout(10):
            while (await ask(groups, r.HEARTBEAT, 0, beat))["error_code"] == 0:
                pass
    # The one that waited is gone; its group is not told before its session ends.
    described = await ask(groups, r.DESCRIBE_GROUPS, 0, {"groups": [GROUP]})
    assert len(described["groups"][0]["members"]) == 2


async def test_requests_without_a_coordinator(node: KafkaNode) -> None:
    for key, version, asked in (
        (r.JOIN_GROUP, 9, JOIN),
        (r.HEARTBEAT, 4, {"group_id": GROUP, "member_id": "m", "generation_id": 1}),
        (r.LEAVE_GROUP, 5, {"group_id": GROUP, "members": []}),
    ):
        assert (await ask(node, key, version, asked))["error_code"] == 16, key
    for key, version, asked in (
        (r.JOIN_GROUP, 9, {**JOIN, "group_id": ""}),
        (r.HEARTBEAT, 4, {"group_id": "", "member_id": "m", "generation_id": 1}),
        (r.FIND_COORDINATOR, 3, {"key": "", "key_type": 0}),
    ):
        assert (await ask(node, key, version, asked))["error_code"] == 24, key
    answer = await ask(node, r.FIND_COORDINATOR, 3, {"key": "x", "key_type": 7})
    assert answer["error_code"] == 42


async def test_nobody_else_writes_to_the_stream_of_offsets(groups: KafkaNode) -> None:
    asked = {"topics": [{"name": OFFSETS_STREAM, "topic_id": None}], "timeout": 1_000}
    answer = await ask(groups, r.DELETE_TOPICS, 6, asked)
    assert [it["error_code"] for it in answer["responses"]] == [17]
    partitions = [{"partition_index": 0, "offset": -1}]
    asked = {"topics": [{"name": OFFSETS_STREAM, "partitions": partitions}], "timeout": 1_000}
    assert codes(await ask(groups, r.DELETE_RECORDS, 2, asked)) == [17]
    topic = {"name": OFFSETS_STREAM, "count": 9, "assignments": None}
    asked = {"topics": [topic], "timeout": 1_000, "validate_only": False}
    answer = await ask(groups, r.CREATE_PARTITIONS, 3, asked)
    assert [it["error_code"] for it in answer["results"]] == [37]
    answer = await ask(groups, r.METADATA, 12, {"topics": None})
    shown = {it["name"]: it["is_internal"] for it in answer["topics"]}
    assert shown == {OFFSETS_STREAM: True, "flights": False}


LARGE = 1_000
"""How often a group is named in one request; what a member has us keep of it may take a MiB."""


@pytest.mark.parametrize("version", [0, 6])
async def test_a_group_that_is_named_often_is_described_once(
    groups: KafkaNode, version: int
) -> None:
    """An answer takes memory in proportion to what there is, not to how often it is named."""
    await stable(groups)
    asked = [GROUP, "none"] * LARGE
    answer = await ask(groups, r.DESCRIBE_GROUPS, version, {"groups": asked})
    assert [it["group_id"] for it in answer["groups"]] == [GROUP, "none"]


@pytest.mark.parametrize("version", [8, 9])
async def test_a_group_whose_offsets_are_asked_for_twice_is_refused(
    groups: KafkaNode, version: int
) -> None:
    await ask(groups, r.OFFSET_COMMIT, 2, commit_of(0))
    asked = [{"group_id": name, "topics": None} for name in (GROUP, "other", GROUP, GROUP)]
    answer = await ask(groups, r.OFFSET_FETCH, version, {"groups": asked})
    told = [(it["group_id"], it["error_code"], it["topics"]) for it in answer["groups"]]
    assert told == [(GROUP, 42, []), ("other", 0, []), (GROUP, 42, []), (GROUP, 42, [])]


async def test_offsets_by_the_ids_of_topics(groups: KafkaNode) -> None:
    known, strange = groups.metadata.image.stream("flights").stream_id, UUID(int=99)

    def by_id(**partition: Any) -> list[dict[str, Any]]:
        return [{"topic_id": it, **partition} for it in (known, strange)]

    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "x"}]
    asked = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": by_id(partitions=partitions),
    }
    answer = await ask(groups, r.OFFSET_COMMIT, 10, asked)
    assert [(it["topic_id"], it["partitions"][0]["error_code"]) for it in answer["topics"]] == [
        (known, 0),
        (strange, 100),
    ]
    for topics in (by_id(partition_indexes=[0]), None):
        wanted = {"groups": [{"group_id": GROUP, "topics": topics}]}
        (found,) = (await ask(groups, r.OFFSET_FETCH, 10, wanted))["groups"]
        told = [
            (it["topic_id"], part["committed_offset"], part["error_code"])
            for it in found["topics"]
            for part in it["partitions"]
        ]
        assert told == [(known, 5, 0), (strange, -1, 100)][: len(told)]
        assert len(told) == (1 if topics is None else 2)


JOINING = {
    "group_id": "new",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout": 60_000,
    "subscribed_topic_names": ["flights"],
    "topic_partitions": [],
}


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_of_the_consumer_protocol(groups: KafkaNode, version: int) -> None:
    refused = await ask(groups, r.CONSUMER_GROUP_HEARTBEAT, version, JOINING)
    assert refused["error_code"] == 35  # UNSUPPORTED_VERSION: the cluster is of an earlier level
    groups.metadata.image = replace(groups.metadata.image, level=CONSUMER_GROUPS_LEVEL)
    flights = groups.metadata.image.stream("flights").stream_id
    member_id = "" if version == 0 else "m"
    joined = await ask(
        groups, r.CONSUMER_GROUP_HEARTBEAT, version, {**JOINING, "member_id": member_id}
    )
    assert joined["error_code"] == 0
    assert joined["member_epoch"] == 1
    assert joined["heartbeat_interval"] == SETTINGS.consumer_heartbeat_interval_ms
    (part,) = joined["assignment"]["topic_partitions"]
    assert (part["topic_id"], list(part["partitions"])) == (flights, [0, 1])
    asked = {"group_ids": ["new", "none", "new"], "include_authorized_operations": True}
    answer = await ask(groups, r.CONSUMER_GROUP_DESCRIBE, version, asked)
    found, missing = answer["groups"]
    assert (missing["error_code"], missing["authorized_operations"]) == (69, -(2**31))
    assert found["authorized_operations"] == sum(1 << it for it in (3, 6, 8, 10, 11))
    assert (found["group_state"], found["group_epoch"], found["assignment_epoch"]) == (
        "Stable",
        1,
        1,
    )
    assert found["assignor_name"] == "uniform"
    (member,) = found["members"]
    assert member["member_id"] == joined["member_id"]
    assert list(member["subscribed_topic_names"]) == ["flights"]
    (assigned,) = member["assignment"]["topic_partitions"]
    assert assigned["topic_name"] == "flights"
    assert member.get("member_type", 1) == 1
    listed = await ask(
        groups, r.LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["Consumer"]}
    )
    assert [(it["group_id"], it["group_type"]) for it in listed["groups"]] == [("new", "consumer")]
    (classic,) = (await ask(groups, r.DESCRIBE_GROUPS, 6, {"groups": ["new"]}))["groups"]
    assert (classic["error_code"], classic["error_message"]) == (
        69,
        "Group new is not a classic group.",
    )
    stale = {
        "groups": [
            {"group_id": "new", "member_id": joined["member_id"], "member_epoch": 7, "topics": None}
        ]
    }
    assert (await ask(groups, r.OFFSET_FETCH, 9, stale))["groups"][0]["error_code"] == 113
    beat = {
        "group_id": "new",
        "member_id": joined["member_id"],
        "member_epoch": 1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }
    answered = await ask(groups, r.CONSUMER_GROUP_HEARTBEAT, version, beat)
    assert (answered["error_code"], answered["assignment"]) == (0, None)
