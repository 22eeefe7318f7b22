"""Whole nodes' partitions that follow each other over real connections."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streamlog.client.connection import Connection
from streamlog.clock import monotonic_ms
from streamlog.errors import NotLeader, RequestTimedOut
from streamlog.metadata import commands as c
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.replication.partition_follower import FetchPosition, PartitionFollower
from streamlog.partition.replication.replica_fetcher import COPY_BYTES_MIN, COPY_WINDOW_S
from streamlog.wire.fetch import FetchRequest, FetchResponse
from tests.partition_world import Told, publish, run_of, values_of
from tests.unit.failing_disk import FailingDisk
from tests.unit.partition.replica_world import TP, ReplicaWorld, replicas, until


async def test_what_is_acknowledged_is_synced_on_every_replica_in_sync(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        for i in range(20):
            offset = await publish(world.leader.partition(), b"%d" % i)
            assert offset == i
            for node in world.nodes.values():
                assert node.partition().recovery_point == i + 1
        await until(lambda: all(n.partition().high_watermark == 20 for n in world.nodes.values()))
        expected = [b"%d" % i for i in range(20)]
        for node in world.nodes.values():
            assert await values_of(node.partition()) == expected
        for follower in world.followers:
            assert not follower.partition().is_leader
            assert follower.partition().may_serve_reads
            with pytest.raises(NotLeader):
                follower.partition().append(run_of(b"x"), Told())


async def test_a_new_stream_is_followed_at_once_although_others_wait(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 2, fetch_wait_max_ms=30_000) as world:
        for number in range(5):
            world.controller.create(f"s{number}", replicas=2)
            await world.spread()
            tp = TopicPartition(f"s{number}", 0)
            leader = world.nodes[world.controller.partition(0, f"s{number}").leader]
            async with asyncio.timeout(5):
                await publish(leader.partition(tp), b"x")


async def test_what_rests_is_not_named_and_what_moves_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[FetchRequest] = []
    inner = Connection.fetch

    async def fetch(self: Connection, request: FetchRequest, **more: Any) -> FetchResponse:
        requests.append(request)
        return await inner(self, request, **more)

    monkeypatch.setattr(Connection, "fetch", fetch)
    async with ReplicaWorld(tmp_path, 2, fetch_wait_max_ms=10) as world:
        await world.create(partitions=8)
        partitions = [TopicPartition("s", number) for number in range(8)]

        def rest() -> bool:
            return len(requests) > 8 and not any(it.topics for it in requests[-4:])

        await until(rest)
        leader = world.nodes[world.controller.partition(3).leader]
        requests.clear()
        await publish(leader.partition(partitions[3]), b"x")
        await until(rest)
        named = {it.partition for request in requests for topic in request.topics
                 for it in topic.partitions}  # fmt: skip
        assert named == {3}
        assert len({request.session_id for request in requests}) == 2, "of either leader"
        follower = next(it for it in world.nodes.values() if it is not leader)
        await until(lambda: follower.partition(partitions[3]).high_watermark == 1)


async def test_a_session_that_is_lost_is_begun_anew(tmp_path: Path) -> None:
    async with replicas(tmp_path, fetch_wait_max_ms=50) as world:
        for number in range(5):
            sessions = world.leader.listener._context.fetch_sessions
            for session_id in list(sessions._kept):
                sessions._remove(session_id)
            assert await publish(world.leader.partition(), b"x") == number
        assert world.isr() == {1, 2, 3}
        await until(lambda: len(sessions) == 2)


async def test_an_absent_leader_is_tried_without_a_look_at_what_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = looks = 0
    connect, position = Connection.open, PartitionFollower.position

    async def try_to_connect(host: str, port: int, **more: Any) -> Connection:
        nonlocal tries
        tries += 1
        return await connect(host, port, **more)

    def look(self: PartitionFollower) -> FetchPosition | None:
        nonlocal looks
        looks += 1
        return position(self)

    async with replicas(tmp_path, 2, fetch_backoff_ms=5) as world:
        monkeypatch.setattr(Connection, "open", try_to_connect)
        monkeypatch.setattr(PartitionFollower, "position", look)
        await world.leader.stop()
        await until(lambda: tries > 2)
        tries = looks = 0
        await until(lambda: tries > 10)
        assert looks == 0


async def test_a_leader_that_is_back_elsewhere_is_found(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, fetch_wait_max_ms=30_000) as world:
        await publish(world.leader.partition(), b"x")
        leader, follower = int(world.leader.node_id), world.followers[0]
        await world.leader.stop()
        await world.start(leader)
        await until(lambda: world.isr() == {1, 2})
        await world.elect(leader)
        await publish(world.leader.partition(), b"y")
        await until(lambda: follower.partition().high_watermark == 2)


async def test_who_rests_is_in_sync_when_the_log_grows_after_a_long_time(tmp_path: Path) -> None:
    lag_ms = 1_500  # no machine is so busy that all of a process stands still for that long
    async with replicas(tmp_path, fetch_wait_max_ms=50, replica_lag_time_max_ms=lag_ms) as world:
        partition = world.leader.partition()
        progress = partition.state.progress
        assert progress is not None
        fetched = {it: follower._told_ms for it, follower in progress.followers.items()}
        await until(lambda: monotonic_ms() - max(fetched.values()) > 2 * lag_ms)
        partition.append(run_of(b"x"), Told())
        partition.carry_out(partition.state.settle())
        for follower in progress.followers.values():
            assert 0 <= follower.lag_ms(1, monotonic_ms()) <= lag_ms
        await until(lambda: partition.high_watermark == 1)
        assert world.isr() == {1, 2, 3}
        assert world.controller.partition().partition_epoch == 0


async def test_who_is_dropped_although_it_has_all_is_proposed_again(tmp_path: Path) -> None:
    async with replicas(tmp_path, fetch_wait_max_ms=50) as world:
        await publish(world.leader.partition(), b"x")
        follower = world.followers[0].node_id
        image = world.controller.partition()
        change = c.IsrChange(
            stream_id=world.controller.image.streams["s"].stream_id,
            stream="s",
            partition=0,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            isr=tuple(
                (it, world.controller.epoch(it), image.incarnation(it))
                for it in sorted(set(image.isr) - {follower})
            ),
        )
        leader = world.leader
        await world.ask(
            c.AlterIsr(node_id=leader.node_id, node_epoch=leader.node_epoch, changes=(change,))
        )
        assert follower not in world.isr()
        await until(lambda: world.isr() == {1, 2, 3})


async def test_another_leader_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    async with replicas(tmp_path, fetch_wait_max_ms=30_000) as world:
        for i in range(6):
            await publish(world.leader.partition(), b"%d" % i)
            number = next(n for n in (1, 2, 3) if world[n] is not world.leader)
            before = world.leader
            await world.elect(number)
            assert world.leader is world[number] is not before
            assert not before.partition().is_leader
        await publish(world.leader.partition(), b"last")
        await until(lambda: all(n.partition().log_end_offset == 7 for n in world.nodes.values()))
        entries = [node.partition().state.log.epochs.entries for node in world.nodes.values()]
        assert entries[0] == entries[1] == entries[2]


async def test_what_waits_fails_when_leadership_is_lost(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        before, told = world.leader, Told()
        world.deaf = {node.node_id for node in world.followers}
        before.partition().append(run_of(b"x"), told)
        await world.elect(world.followers[0].node_id)
        with pytest.raises(NotLeader):
            await told.answer


async def test_an_unacknowledged_tail_is_cut_where_it_parts(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await publish(world.leader.partition(), b"kept")
        old = world.leader
        world.deaf = {old.node_id}
        await world.elect(world.followers[0].node_id)
        tail = [Told() for _ in range(3)]
        for told in tail:
            old.partition().append(run_of(b"lost", b"lost"), told)
        new = Told()
        world.leader.partition().append(run_of(b"new"), new)
        await until(lambda: old.partition().recovery_point == 7)
        assert (old.partition().high_watermark, new.answer.done()) == (1, False)
        world.deaf.clear()
        await world.spread()
        for told in tail:
            with pytest.raises(NotLeader):
                await told.answer
        assert await new.answer == 1
        await until(lambda: old.partition().high_watermark == 2)
        assert await values_of(old.partition()) == [b"kept", b"new"]
        entries = old.partition().state.log.epochs.entries
        assert entries == world.leader.partition().state.log.epochs.entries


async def test_a_follower_that_is_away_leaves_and_comes_back(tmp_path: Path) -> None:
    async with replicas(tmp_path, replica_lag_time_max_ms=400) as world:
        follower = world.followers[0]
        await follower.stop()  # and nobody fences it
        told = Told()
        world.leader.partition().append(run_of(b"x"), told)
        assert await told.answer == 0
        assert follower.node_id not in world.isr()
        await world.start(follower.node_id)
        await until(lambda: world.isr() == {1, 2, 3})
        for name in ("shrinks", "expands"):
            assert world.leader.metrics.registry.get_sample_value(f"streamlog_isr_{name}_total")


async def test_too_few_in_sync_commit_nothing(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        leader = world.leader.node_id
        for number in {1, 2, 3} - {leader}:
            await world.stop(number)
        partition = world.leader.partition()
        assert partition.isr == {leader}
        assert partition.below_min_isr
        told = Told()
        partition.append(run_of(b"x"), told)
        await partition.wait_synced()
        await asyncio.sleep(0)
        assert (partition.high_watermark, told.answer.done()) == (0, False)
        await world.start(next(n for n in (1, 2, 3) if n != leader))
        assert await told.answer == 0
        assert not partition.below_min_isr


async def test_without_the_lease_nothing_is_taken_or_acknowledged(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        leader = world.leader
        told = Told()
        leader.partition().append(run_of(b"x"), told)
        leader.lease.lapse()
        await until(lambda: all(n.partition().recovery_point == 1 for n in world.nodes.values()))
        await until(lambda: leader.partition().state.progress.high_watermark == 1)  # type: ignore[union-attr]
        assert (leader.partition().high_watermark, told.answer.done()) == (0, False)
        with pytest.raises(NotLeader):
            leader.partition().append(run_of(b"y"), Told())
        leader.lease.turn(True)
        assert await told.answer == 0
        follower = world.followers[0]
        follower.lease.lapse()
        assert not follower.partition().may_serve_reads


async def test_with_the_lease_back_all_is_committed_although_nobody_waits(tmp_path: Path) -> None:
    """Records of an earlier leader, and followers that have nothing new to say."""
    async with replicas(tmp_path) as world:
        world.leader.partition().append(run_of(b"x"), Told())
        world.leader.lease.lapse()
        await until(lambda: all(n.partition().recovery_point == 1 for n in world.nodes.values()))
        after = world.followers[0]
        after.lease.lapse()
        await world.elect(after.node_id)
        state = after.partition().state
        await until(lambda: state.progress is not None and state.progress.high_watermark == 1)
        assert (state.high_watermark, state.in_flight_bytes) == (0, 0)
        after.lease.turn(True)
        await until(lambda: state.high_watermark == 1)


async def test_the_controller_is_asked_again_until_it_answers(tmp_path: Path) -> None:
    async with replicas(tmp_path, replica_lag_time_max_ms=100) as world:
        leader, follower = world.leader, world.followers[0]
        leader.refuse = RequestTimedOut("nobody knows")
        await follower.stop()
        told = Told()
        leader.partition().append(run_of(b"x"), told)
        await until(lambda: len(leader.asked) > 3)
        assert not told.answer.done(), "the follower may still be in sync"
        leader.refuse = None
        assert await told.answer == 0


async def test_a_leader_that_is_away_is_reported_by_who_is_in_sync(tmp_path: Path) -> None:
    async with replicas(tmp_path) as world:
        await world.leader.stop()
        for node in world.nodes.values():
            await until(lambda node=node: node.reports == [TP])  # type: ignore[misc]


async def test_purged_records_go_from_followers_and_new_ones_begin_after_them(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path, 2) as world:
        leader = world.leader
        for _ in range(4):
            await publish(leader.partition(), b"a", b"b", b"c")
        assert await leader.partition().purge(7) == 7
        await until(lambda: world.followers[0].partition().log_start_offset == 7)
        await world.stop(world.followers[0].node_id)
        number = 3 - leader.node_id
        folder = tmp_path / str(number) / "streams" / "s" / "0"
        for file in folder.iterdir():
            file.unlink()
        returned = await world.start(number)
        await until(lambda: world.isr() == {1, 2})
        await publish(leader.partition(), b"d")
        await until(lambda: returned.partition().high_watermark == 13)
        assert returned.partition().log_start_offset == 7
        assert await values_of(returned.partition()) == await values_of(leader.partition())


async def test_a_replica_that_moves_away_takes_its_folder_along(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 3) as world:
        await world.create(replicas=2)
        await publish(world.leader.partition(), b"x")
        here = set(world.controller.partition().replicas)
        new = ({1, 2, 3} - here).pop()
        leader = int(world.controller.partition().leader)
        wanted = (NodeId(leader), NodeId(new))
        await world.ask(c.MovePartition(stream="s", partition=0, replicas=wanted))
        await until(lambda: set(world.controller.partition().replicas) == {leader, new})
        (gone,) = here - {leader}
        await until(lambda: not (tmp_path / str(gone) / "streams" / "s").exists())
        assert await values_of(world[new].partition()) == [b"x"]


async def test_a_failing_disk_of_a_follower_costs_that_follower(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with ReplicaWorld(tmp_path, 2, replica_lag_time_max_ms=400) as world:
        failing = await world.start(3, disk)
        world.controller.create("s", replicas=3)
        await world.spread()
        if world.leader is failing:
            await world.elect(1)
        await publish(world.leader.partition(), b"x")
        disk.faults.break_("sync", path="streams/s/")
        told = Told()
        world.leader.partition().append(run_of(b"y"), told)
        assert await told.answer == 1
        await until(lambda: failing.offline == {TP})
        await until(lambda: world.isr() == {1, 2})


async def test_many_partitions_and_large_answers(tmp_path: Path) -> None:
    async with ReplicaWorld(tmp_path, 2, fetch_bytes_max=64 * 1024) as world:
        await world.create(partitions=8)
        for number in range(8):
            leader = world.nodes[world.controller.partition(number).leader]
            for _ in range(10):
                leader.partition(TopicPartition("s", number)).append(run_of(bytes(20_000)), Told())
        everywhere = [p for node in world.nodes.values() for p in node.registry.partitions()]
        assert len(everywhere) == 16
        await until(lambda: all(p.high_watermark == 10 for p in everywhere))


async def test_what_is_not_in_sync_is_copied_no_faster_than_allowed(tmp_path: Path) -> None:
    rate, size, count = 512 * 1024, 8 * 1024, 192
    async with replicas(tmp_path, 3, copy_bytes_per_s=rate) as world:
        leader, late = world.leader, next(iter(world.followers))
        await world.stop(late.node_id)
        for _ in range(count):
            await publish(leader.partition(), bytes(size))
        loop = asyncio.get_running_loop()
        began, acks = loop.time(), 0
        await world.start(late.node_id)
        beside = TopicPartition("beside", 0)
        world.controller.create("beside", replicas=3)
        await world.spread()
        leads = world.nodes[world.controller.partition(0, "beside").leader]
        while len(world.isr()) < 3:
            async with asyncio.timeout(30):
                await publish(leads.partition(beside), b"x")
            acks += 1
        # What may be used at once, and the last answer, are not waited for.
        assert loop.time() - began > (count * size - rate * COPY_WINDOW_S) / rate - 1
        assert acks > 2, "what is in sync goes on meanwhile"
        assert set(world.controller.partition(0, "beside").isr) == {1, 2, 3}
        assert len(await values_of(world[late.node_id].partition())) == count


async def test_copies_that_wait_take_turns(tmp_path: Path) -> None:
    """They share the limit of the node, whoever leads them."""
    async with ReplicaWorld(tmp_path, 3, copy_bytes_per_s=512 * 1024) as world:
        await world.create(partitions=6)
        await world.stop(3)
        places = [TopicPartition("s", number) for number in range(6)]
        for tp in places:
            leading = world.nodes[world.controller.partition(tp.partition).leader]
            for _ in range(8):
                await publish(leading.partition(tp), bytes(16 * 1024))
        await world.start(3)
        await until(
            lambda: all(len(world.controller.partition(it.partition).isr) == 3 for it in places)
        )
        for tp in places:
            assert len(await values_of(world[3].partition(tp))) == 8


async def test_copies_of_one_request_share_what_a_second_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[list[int]] = []
    inner, rate = Connection.fetch, 4 * COPY_BYTES_MIN

    async def fetch(self: Connection, request: FetchRequest, **more: Any) -> FetchResponse:
        wanted = [it.max_bytes for topic in request.topics for it in topic.partitions]
        requests.append([it for it in wanted if it <= rate])
        return await inner(self, request, **more)

    async with ReplicaWorld(tmp_path, 2, copy_bytes_per_s=rate) as world:
        await world.create(partitions=16)
        await world.stop(2)
        monkeypatch.setattr(Connection, "fetch", fetch)
        await world.start(2)
        await until(lambda: all(len(world.controller.partition(it).isr) == 2 for it in range(16)))
    assert max(len(it) for it in requests) == 4
    assert all(sum(it) <= rate for it in requests)
