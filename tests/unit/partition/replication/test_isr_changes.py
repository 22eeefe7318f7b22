"""What is put to the controller, and how often."""

from pathlib import Path

import pytest

from streamlog.errors import NoController, RequestTimedOut, StreamlogError
from streamlog.metadata.commands import AlterIsr
from streamlog.partition.replication import isr_changes
from tests.partition_world import Told, run_of
from tests.unit.partition.replica_world import ReplicaNode, ReplicaWorld, until


def changes_of(node: ReplicaNode) -> list[list[int]]:
    """The in-sync replicas of each proposal, in order."""
    return [
        [member for member, _, _ in change.isr]
        for command in node.asked
        if isinstance(command, AlterIsr)
        for change in command.changes
    ]


async def test_nothing_is_asked_while_all_is_well(tmp_path: Path) -> None:
    async with ReplicaWorld(
        tmp_path, 2, replica_lag_time_max_ms=500, fetch_wait_max_ms=10
    ) as world:
        await world.create()
        seen = world.leader.metrics.registry
        before = seen.get_sample_value("streamlog_requests_total", {"api": "Fetch"}) or 0

        def fetched() -> float:
            return (
                seen.get_sample_value("streamlog_requests_total", {"api": "Fetch"}) or 0
            ) - before

        await until(lambda: fetched() > 100)
        assert changes_of(world.leader) == []


async def test_all_partitions_share_a_request(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 2, replica_lag_time_max_ms=300) as world:
        await world.create(partitions=6)
        led = [it for it in world[1].registry.partitions() if it.is_leader]
        assert len(led) == 3
        await world[2].stop()
        told = [Told() for _ in led]
        for partition, one in zip(led, told, strict=True):
            partition.append(run_of(b"x"), one)
        for partition in led:
            await until(lambda partition=partition: partition.isr == {1})  # type: ignore[misc]
        commands = [it for it in world[1].asked if isinstance(it, AlterIsr)]
        assert any(len(it.changes) > 1 for it in commands)
        assert {change.partition for it in commands for change in it.changes} == {
            it.tp.partition for it in led
        }


@pytest.mark.parametrize(
    ("refusal", "is_in_doubt"), [(NoController("none"), False), (RequestTimedOut("?"), True)]
)
async def test_what_may_have_been_done_is_remembered(
    tmp_path: Path, refusal: StreamlogError, is_in_doubt: bool
) -> None:
    async with ReplicaWorld(tmp_path, 2, replica_lag_time_max_ms=200) as world:
        await world.create()
        leader = world.leader
        leader.refuse = refusal
        await world.followers[0].stop()
        partition = leader.partition()
        partition.append(run_of(b"x"), Told())
        await until(lambda: len(changes_of(leader)) > 2)
        assert len({tuple(it) for it in changes_of(leader)}) == 1, "the same again"
        assert partition.state.progress is not None
        in_sync = partition.state.progress.in_sync
        assert in_sync.proposal is not None
        assert (in_sync._doubted_ms is not None) == is_in_doubt
        leader.refuse = None
        await until(lambda: partition.isr == {leader.node_id})


async def test_a_request_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "CHANGES_MAX", 2)
    async with ReplicaWorld(tmp_path, 2, replica_lag_time_max_ms=200) as world:
        await world.create(partitions=10)
        led = [it for it in world[1].registry.partitions() if it.is_leader]
        await world[2].stop()
        for partition in led:
            partition.append(run_of(b"x"), Told())
        await until(lambda: all(it.isr == {1} for it in led))
        sizes = [len(it.changes) for it in world[1].asked if isinstance(it, AlterIsr)]
        assert max(sizes) == 2
