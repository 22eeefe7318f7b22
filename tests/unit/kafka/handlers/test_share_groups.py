"""The APIs of share groups, over partitions and offsets in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from streamlog.config import GroupsSection
from streamlog.control.leaders import leader_router
from streamlog.control.leaders.group_coordinators import LocalCoordinators
from streamlog.coordination.keys import partition_of
from streamlog.errors import (
    InvalidRequest,
    NotEnoughReplicas,
    NotLeader,
    StorageFailed,
    StreamlogError,
)
from streamlog.kafka.handlers.groups import share_groups
from streamlog.metadata.image.feature_level import SHARE_GROUPS_LEVEL
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import TopicPartition
from streamlog.record.batch import CONTROL, batches
from streamlog.wire import registry as r
from streamlog.wire.error_codes import ErrorCode
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient

SETTINGS = GroupsSection(
    offsets_partitions=2,
    commit_timeout_ms=30_000,
    share_auto_offset_reset="earliest",
    share_record_lock_duration_ms=1_000,
)
JOINING = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "subscribed_topic_names": ["flights"],
}
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@pytest.fixture
async def shares() -> AsyncIterator[KafkaNode]:
    """A node with share groups, which leads all of ``__consumer_offsets``."""
    async with KafkaNode(SETTINGS) as node:
        running = [asyncio.create_task(it.run()) for it in (node.groups, node.shares)]
        await node.metadata.create_stream(StreamConfig.of(name="flights", partitions=2))
        node.metadata.image = replace(node.metadata.image, level=SHARE_GROUPS_LEVEL)
        assert (await node.groups.find("g")).node is not None
        node.groups.apply(MetadataImage(CLUSTER_ID), node.metadata.image)
        async with asyncio.timeout(10):
            while node.groups.statistics().loading:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
        yield node
        await node.shares.stop()
        await node.groups.stop()
        for task in running:
            task.cancel()
        await asyncio.wait(running)


class Member:
    """A share session over one connection."""

    def __init__(self, node: KafkaNode, client: RawClient, member_id: str = "m") -> None:
        self.topic_id = node.metadata.image.stream("flights").stream_id
        self.epoch = 0
        self._client = client
        self._member_id = member_id

    async def fetch(
        self, *acknowledged: tuple[int, int, Sequence[int]], version: int = 2, **more: Any
    ) -> Any:
        """The part of the answer about partition 0."""
        asked = {
            "max_wait": 20,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 100,
            "batch_size": 100,
            "forgotten_topics_data": [],
            **more,
        }
        return await self.ask(r.SHARE_FETCH, version, acknowledged, asked)

    async def acknowledge(self, *acknowledged: tuple[int, int, Sequence[int]], **more: Any) -> Any:
        return await self.ask(r.SHARE_ACKNOWLEDGE, 2, acknowledged, more)

    async def ask(
        self,
        key: int,
        version: int,
        acknowledged: Sequence[tuple[int, int, Sequence[int]]],
        more: dict[str, Any],
    ) -> Any:
        batches_ = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, types in acknowledged
        ]
        epoch = more.pop("epoch", self.epoch)
        asked = {
            "group_id": "g",
            "member_id": self._member_id,
            "share_session_epoch": epoch,
            "topics": [
                {
                    "topic_id": self.topic_id,
                    "partitions": [{"partition_index": 0, "acknowledgement_batches": batches_}],
                }
            ],
            **more,
        }
        answer = await self._client.ask(key, version, asked)
        if answer["error_code"]:
            return answer
        self.epoch = 0 if epoch == -1 else epoch + 1
        parts = [part for topic in answer["responses"] for part in topic["partitions"]]
        return parts[0] if parts else None


@pytest.fixture
async def member(shares: KafkaNode) -> AsyncIterator[Member]:
    async with RawClient(shares.port) as client:
        joined = await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, JOINING)
        assert joined["error_code"] == 0, joined
        yield Member(shares, client)


def flights(node: KafkaNode) -> FakePartition:
    return node.local[TopicPartition("flights", 0)]


def acquired(part: Any) -> list[tuple[int, int, int]]:
    if part is None:
        return []
    return [
        (it["first_offset"], it["last_offset"], it["delivery_count"])
        for it in part["acquired_records"]
    ]


def bases(part: Any) -> list[int]:
    """Of the batches that came."""
    return [header.base_offset for header, _ in batches(memoryview(part["records"]))]


async def test_a_heartbeat_needs_the_feature_level(shares: KafkaNode) -> None:
    shares.metadata.image = replace(shares.metadata.image, level=1)
    async with RawClient(shares.port) as client:
        refused = await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, JOINING)
        assert refused["error_code"] == 35
        told = await client.ask(r.API_VERSIONS, 4, {})
        assert "share.version" not in {it["name"] for it in told["finalized_features"]}
        shares.metadata.image = replace(shares.metadata.image, level=SHARE_GROUPS_LEVEL)
        joined = await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, JOINING)
        assert (joined["error_code"], joined["member_epoch"]) == (0, 1)
        (part,) = joined["assignment"]["topic_partitions"]
        assert list(part["partitions"]) == [0, 1]
        told = await client.ask(r.API_VERSIONS, 4, {})
        assert "share.version" in {it["name"] for it in told["finalized_features"]}
        asked = {"group_ids": ["g", "none"], "include_authorized_operations": True}
        found, missing = (await client.ask(r.SHARE_GROUP_DESCRIBE, 1, asked))["groups"]
        assert (found["group_state"], found["group_epoch"]) == ("Stable", 1)
        assert (found["assignor_name"], len(found["members"])) == ("simple", 1)
        assert (missing["error_code"], missing["authorized_operations"]) == (69, -(2**31))
        assert found["authorized_operations"] == sum(1 << it for it in (3, 6, 8, 10, 11))
        asked = {"states_filter": [], "types_filter": ["Share"]}
        (listed,) = (await client.ask(r.LIST_GROUPS, 5, asked))["groups"]
        assert (listed["group_type"], listed["protocol_type"]) == ("share", "share")


async def test_a_node_that_does_not_coordinate_says_nothing_of_levels(node: KafkaNode) -> None:
    """UNSUPPORTED_VERSION is fatal to clients, and a node that has just started knows no level."""
    async with RawClient(node.port) as client:
        assert (await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, JOINING))["error_code"] == 16
        asked = {**JOINING, "rebalance_timeout": 60_000, "topic_partitions": []}
        assert (await client.ask(r.CONSUMER_GROUP_HEARTBEAT, 1, asked))["error_code"] == 16


async def test_records_are_acquired_and_acknowledged(shares: KafkaNode, member: Member) -> None:
    assert await member.fetch() is not None  # a new session is told of all its partitions
    flights(shares).append([b"a", b"b", b"c"])
    flights(shares).append([b"d"])
    part = await member.fetch(max_wait=5_000)
    assert (acquired(part), bases(part)) == ([(0, 3, 1)], [0, 3])
    said = await member.acknowledge((0, 0, [ACCEPT]), (1, 2, [RELEASE, REJECT]))
    assert said["error_code"] == 0
    part = await member.fetch((3, 3, [ACCEPT]))
    assert part["acknowledge_error_code"] == 0
    assert (acquired(part), bases(part)) == ([(1, 1, 2)], [0])


async def test_not_more_records_than_asked_for(shares: KafkaNode, member: Member) -> None:
    await member.fetch()
    flights(shares).append([b"a", b"b", b"c", b"d"])
    assert acquired(await member.fetch(max_records=1, share_acquire_mode=1)) == [(0, 0, 1)]
    assert acquired(await member.fetch(max_records=1)) == [(1, 3, 1)]


async def test_large_records_come_together_up_to_the_bytes_asked_for(
    shares: KafkaNode, member: Member
) -> None:
    await member.fetch()
    for _ in range(4):
        flights(shares).append([b"x" * 200_000])
    reads = flights(shares).reads
    part = await member.fetch(max_bytes=500_000)
    assert (acquired(part), bases(part)) == ([(0, 2, 1)], [0, 1, 2])
    assert acquired(await member.fetch(max_records=1)) == [(3, 3, 1)]
    assert flights(shares).reads - reads == 4


async def test_what_is_not_shown_is_read_only_for_as_long_as_is_asked_for(
    shares: KafkaNode, member: Member
) -> None:
    await member.fetch()
    for _ in range(10):
        flights(shares).append([b"marker"], attributes=CONTROL)
    flights(shares).append([b"shown"])
    reads = flights(shares).reads
    for _ in range(10):
        assert acquired(await member.fetch(max_wait=0, max_bytes=1)) == []
    assert flights(shares).reads - reads == 10
    assert acquired(await member.fetch(max_wait=0, max_bytes=1)) == [(10, 10, 1)]
    assert flights(shares).reads - reads == 11


async def test_a_state_that_cannot_be_saved_is_taken_over_again(
    shares: KafkaNode, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not told to the member is delivered again, with the count of before."""
    monkeypatch.setattr(leader_router, "PATIENCE_S", 0.1)
    await member.fetch()
    log = shares.offsets.partition(TopicPartition("__consumer_offsets", partition_of("g", 2)))
    log.below_min_isr = True
    flights(shares).append([b"a"])
    assert acquired(await member.fetch()) == []
    log.below_min_isr = False
    assert acquired(await member.fetch(max_wait=10_000)) == [(0, 0, 1)]


async def test_locks_are_renewed(shares: KafkaNode, member: Member) -> None:
    now_ms = 0
    shares.shares.clock_ms = lambda: now_ms
    await member.fetch()
    flights(shares).append([b"a"])
    part = await member.fetch()
    assert acquired(part) == [(0, 0, 1)]
    refused = await member.acknowledge((0, 0, [RENEW]))
    assert refused["error_code"] == 42
    now_ms = 900
    renewed = await member.acknowledge((0, 0, [RENEW]), is_renew_ack=True)
    assert renewed["error_code"] == 0
    now_ms = 1_800
    assert acquired(await member.fetch()) == []
    now_ms = 1_900
    assert acquired(await member.fetch()) == [(0, 0, 2)]
    late = await member.acknowledge((0, 0, [ACCEPT]))
    assert late["error_code"] == 0


async def test_who_does_not_have_a_record_does_not_acknowledge_it(
    shares: KafkaNode, member: Member
) -> None:
    await member.fetch()
    flights(shares).append([b"a"])
    await member.fetch()
    async with RawClient(shares.port) as client:
        other = Member(shares, client, "other")
        await other.fetch()
        assert (await other.acknowledge((0, 0, [ACCEPT])))["error_code"] == 121
        assert (await other.acknowledge((7, 9, [ACCEPT])))["error_code"] == 121
        assert (await other.acknowledge((1, 0, [ACCEPT])))["error_code"] == 42
    assert (await member.acknowledge((0, 0, [ACCEPT])))["error_code"] == 0


async def test_a_session_that_is_closed_lets_go_of_its_records(
    shares: KafkaNode, member: Member
) -> None:
    await member.fetch()
    flights(shares).append([b"a", b"b"])
    assert acquired(await member.fetch()) == [(0, 1, 1)]
    async with RawClient(shares.port) as client:
        other = Member(shares, client, "other")
        await other.fetch()
        waiting = asyncio.create_task(other.fetch(max_wait=20_000))
        await asyncio.sleep(0)
        await member.acknowledge((0, 0, [ACCEPT]), epoch=-1)
        assert acquired(await waiting) == [(1, 1, 2)]
    assert (await member.fetch(epoch=3))["error_code"] == 122


async def test_a_connection_that_is_gone_lets_go_of_its_records(
    shares: KafkaNode, member: Member
) -> None:
    await member.fetch()
    flights(shares).append([b"a"])
    async with RawClient(shares.port) as client:
        assert acquired(await Member(shares, client, "other").fetch()) == [(0, 0, 1)]
        waiting = asyncio.create_task(member.fetch(max_wait=20_000))
        await asyncio.sleep(0)
    assert acquired(await waiting) == [(0, 0, 2)]


async def test_requests_that_do_not_go_on_with_a_session(shares: KafkaNode, member: Member) -> None:
    assert (await member.fetch((0, 0, [ACCEPT])))["error_code"] == 42
    assert (await member.acknowledge(epoch=0))["error_code"] == 123
    assert (await member.fetch(epoch=5))["error_code"] == 122
    await member.fetch()
    assert (await member.fetch(epoch=5))["error_code"] == 123


async def test_a_partition_that_is_led_elsewhere(shares: KafkaNode, member: Member) -> None:
    flights(shares).is_leader = False
    part = await member.fetch()
    assert part["error_code"] == 6
    assert part["current_leader"]["leader_id"] >= 0
    member.topic_id = UUID(int=99)
    assert (await member.fetch(epoch=0))["error_code"] == 100


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotLeader("x"), 6),
        (NotEnoughReplicas("x"), 6),  # Java's client ends at its own code
        (StorageFailed("x"), 56),
        (InvalidRequest("x"), -1),
    ],
)
async def test_reads_that_fail_are_told_as_clients_know_them(
    shares: KafkaNode, member: Member, error: StreamlogError, code: int
) -> None:
    await member.fetch()
    flights(shares).append([b"a"])
    flights(shares).failure = error
    assert (await member.fetch())["error_code"] == code
    flights(shares).failure = None
    assert acquired(await member.fetch()) == [(0, 0, 1)]


async def test_another_leadership_goes_on_from_what_is_kept(
    shares: KafkaNode, member: Member
) -> None:
    await member.fetch()
    flights(shares).append([b"a", b"b"])
    await member.fetch()
    assert (await member.acknowledge((0, 0, [ACCEPT])))["error_code"] == 0
    flights(shares).leader_epoch += 1
    said = await member.acknowledge((1, 1, [ACCEPT]))
    assert said["error_code"] == 121  # locks are the leader's alone
    assert acquired(await member.fetch()) == [(1, 1, 2)]


async def test_offsets_are_altered_and_deleted(shares: KafkaNode, member: Member) -> None:
    await member.fetch()
    flights(shares).append([b"a", b"b", b"c"])
    await member.fetch()
    await member.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))
    async with RawClient(shares.port) as client:
        start = {"partition_index": 0, "start_offset": 2}
        altered = {
            "group_id": "g",
            "topics": [{"topic_name": "flights", "partitions": [start]}],
        }
        deleted = {"group_id": "g", "topics": [{"topic_name": "flights"}]}
        for key, asked in (
            (r.ALTER_SHARE_GROUP_OFFSETS, altered),
            (r.DELETE_SHARE_GROUP_OFFSETS, deleted),
        ):
            assert (await client.ask(key, 0, asked))["error_code"] == 68  # it has a member
        await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, {**JOINING, "member_epoch": -1})
        answer = await client.ask(r.ALTER_SHARE_GROUP_OFFSETS, 0, altered)
        assert [it["error_code"] for it in answer["responses"][0]["partitions"]] == [0]
        await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, JOINING)
        assert acquired(await member.fetch(epoch=0, max_wait=20_000)) == [(2, 2, 1)]
        await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, {**JOINING, "member_epoch": -1})
        answer = await client.ask(r.DELETE_SHARE_GROUP_OFFSETS, 0, deleted)
        assert [it["error_code"] for it in answer["responses"]] == [0]
        await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, JOINING)
        # It begins again.
        assert acquired(await member.fetch(epoch=0, max_wait=20_000)) == [(0, 2, 1)]
        missing = await client.ask(r.DELETE_SHARE_GROUP_OFFSETS, 0, {**deleted, "group_id": "none"})
        assert missing["error_code"] == 69


async def test_a_group_is_made_by_its_offsets(shares: KafkaNode) -> None:
    flights(shares).append([b"a", b"b", b"c"])
    start = {"partition_index": 0, "start_offset": 2}
    altered = {"group_id": "g", "topics": [{"topic_name": "flights", "partitions": [start]}]}
    deleted = {"group_id": "g", "topics": [{"topic_name": "flights"}]}
    async with RawClient(shares.port) as client:
        answer = await client.ask(r.ALTER_SHARE_GROUP_OFFSETS, 0, altered)
        assert answer["error_code"] == 0, answer["error_message"]
        (listed,) = (await client.ask(r.LIST_GROUPS, 5, {}))["groups"]
        assert (listed["group_type"], listed["group_state"]) == ("share", "Empty")
        await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, JOINING)
        member = Member(shares, client)
        assert acquired(await member.fetch(max_wait=20_000)) == [(2, 2, 1)]
        await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, {**JOINING, "member_epoch": -1})
        answer = await client.ask(r.DELETE_SHARE_GROUP_OFFSETS, 0, deleted)
        assert answer["error_code"] == 0
        gone = await client.ask(r.DELETE_GROUPS, 2, {"groups_names": ["g"]})
        assert gone["results"][0]["error_code"] == 0


async def test_groups_whose_coordinators_are_away_are_waited_for_together(
    shares: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_coordinators: object, _group: str) -> None:
        await asyncio.sleep(4)

    monkeypatch.setattr(LocalCoordinators, "known", away)
    monkeypatch.setattr(share_groups, "ANSWER_S", 0.2)
    groups = [{"group_id": f"g{number}", "topics": None} for number in range(120)]
    async with RawClient(shares.port) as client:
        async with asyncio.timeout(60):  # one wait after the other would take minutes
            answer = await client.ask(r.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": groups})
    assert [it["group_id"] for it in answer["groups"]] == [it["group_id"] for it in groups]
    assert {it["error_code"] for it in answer["groups"]} == {ErrorCode.coordinator_not_available}


async def test_configs_of_a_group(shares: KafkaNode, member: Member) -> None:
    async with RawClient(shares.port) as client:

        async def alter(name: str, operation: int, value: str | None) -> int:
            config = {"name": name, "config_operation": operation, "value": value}
            resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
            asked = {"resources": [resource], "validate_only": False}
            answer = await client.ask(r.INCREMENTAL_ALTER_CONFIGS, 1, asked)
            code: int = answer["responses"][0]["error_code"]
            return code

        async def shown(name: str) -> tuple[str, int]:
            resource = {"resource_type": 32, "resource_name": "g", "configuration_keys": [name]}
            asked = {"resources": [resource], "include_synonyms": False}
            (result,) = (await client.ask(r.DESCRIBE_CONFIGS, 4, asked))["results"]
            (config,) = result["configs"]
            return config["value"], config["config_source"]

        limit = "share.delivery.count.limit"
        assert await shown(limit) == ("5", 4)
        assert await alter(limit, 0, "2") == 0
        assert await shown(limit) == ("2", 8)
        assert await alter(limit, 0, "99") == 42
        assert await alter("no.such.config", 0, "1") == 42
        await member.fetch()
        flights(shares).append([b"a"])
        for count in (1, 2):
            assert acquired(await member.fetch()) == [(0, 0, count)]
            await member.acknowledge((0, 0, [RELEASE]))
        assert acquired(await member.fetch()) == []
        assert await alter(limit, 1, None) == 0
        assert await shown(limit) == ("5", 4)


async def test_a_share_group_is_described_as_one_alone(shares: KafkaNode) -> None:
    """ConsumerGroupDescribe does not know it (KIP-932), nor does DescribeGroups (KIP-1043)."""
    async with RawClient(shares.port) as client:
        await client.ask(r.SHARE_GROUP_HEARTBEAT, 1, JOINING)
        asked = {"group_ids": ["g"], "include_authorized_operations": False}
        (group,) = (await client.ask(r.SHARE_GROUP_DESCRIBE, 1, asked))["groups"]
        assert (group["error_code"], len(group["members"])) == (0, 1)
        (group,) = (await client.ask(r.CONSUMER_GROUP_DESCRIBE, 1, asked))["groups"]
        assert group["error_code"] == ErrorCode.group_id_not_found
        assert group["error_message"] == "Group g is not a consumer group."
        asked = {"groups": ["g"], "include_authorized_operations": False}
        (group,) = (await client.ask(r.DESCRIBE_GROUPS, 6, asked))["groups"]
        assert group["error_message"] == "Group g is not a classic group."
