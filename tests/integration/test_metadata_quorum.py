"""Members of a quorum on real sockets and folders, in one process."""

import asyncio
import errno
import os
import shutil
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from streamlog.clock import clock_ms
from streamlog.config import ClusterSection
from streamlog.errors import (
    InvalidRequest,
    NoController,
    NodeIdTaken,
    OtherCluster,
    Overloaded,
    RequestTimedOut,
    StaleNode,
    StorageFailed,
    StorageFull,
    StreamExists,
    StreamNotFound,
    Unavailable,
)
from streamlog.metadata.commands import (
    AddVoter,
    AllocateProducerIds,
    AwaitApplied,
    Command,
    DeleteStream,
    DescribeCluster,
    FenceNode,
    Heartbeat,
    RemoveNode,
    RemoveVoter,
    StopNode,
    TransferController,
)
from streamlog.metadata.controller import partition_changes
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import VotersChanged
from streamlog.metadata.quorum import raft_driver as quorum_module
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.raft.messages import BeginEpochRequest, VoteRequest
from streamlog.raft.voters import ReplicaKey
from tests.changed_streams import delete_stream, update_stream
from tests.quorum_member import HOST, SETTINGS, Member, until
from tests.unit.failing_disk import FailingDisk
from tools.nodes.ports import free_port

ONE, TWO, THREE, FOUR = (NodeId(number) for number in (1, 2, 3, 4))
PATIENT = SETTINGS.model_copy(
    update={
        "pause_tolerance_ms": 30_000,
        "leader_lease_ms": 30_000,
        "session_timeout_ms": 40_000,
    }
)
"""A lease outlasts any standstill of the tests."""
Start = Callable[..., Awaitable[list[Member]]]


def config(name: str, **settings: object) -> StreamConfig:
    return StreamConfig.of(name=name, **settings)


async def create_surely(member: Member, name: str = "s") -> None:
    """Create the stream while the controller may change. A new controller may lose its first epoch
    to a rival; the caller then hears that the outcome is unknown, and asks for the same stream again.
    """
    async with asyncio.timeout(60):
        while True:
            try:
                await member.service.create_stream(config(name))
            except RequestTimedOut:
                continue
            return


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """``await start(voters)``, or with further nodes that only observe."""
    members: list[Member] = []

    async def start_all(
        voters: int, observers: int = 0, *, settings: ClusterSection = SETTINGS
    ) -> list[Member]:
        ports = [free_port() for _ in range(voters + observers)]
        texts = [f"{i + 1}@{HOST}:{port}" for i, port in enumerate(ports[:voters])]
        for i, port in enumerate(ports):
            folder, disk = tmp_path / f"{i + 1}", FailingDisk()
            member = Member(folder, i + 1, port, texts, disk=disk, settings=settings)
            members.append(member)
            await member.start()
        await asyncio.gather(*(member.register() for member in members))
        await until(lambda: all_live(members, len(members)))
        return members

    yield start_all
    for member in members:
        await member.kill()


def all_live(members: list[Member], count: int) -> bool:
    """All of them know of ``count`` nodes that are not fenced."""
    images = [member.service.image for member in members]
    return all(sum(not it.fenced for it in image.nodes.values()) == count for image in images)


async def controller(members: list[Member]) -> Member:
    """As soon as one of them knows that it is: on a busy machine another one may just be elected."""
    await until(lambda: any_controller(members))
    return next(it for it in members if it.service.controller_id == it.node_id)


def any_controller(members: list[Member]) -> bool:
    return any(it.service.controller_id == it.node_id for it in members)


async def move_controller(asked: Member, target: Member) -> None:
    """Ask until it moved. On a busy machine the third voter may win the election."""
    async with asyncio.timeout(60):
        while not target.service._quorum.is_active:
            with suppress(Unavailable):
                await asked.service.request(TransferController(node_id=target.node_id))
            with suppress(TimeoutError):
                await until(lambda: target.service._quorum.is_active, seconds=3)


def others(members: list[Member], *without: Member) -> list[Member]:
    return [member for member in members if member not in without]


async def agree(members: list[Member]) -> None:
    """All of them have the image of the one that is furthest."""
    end = max(member.service.image.offset for member in members)
    await until(lambda: all(member.service.image.offset >= end for member in members))
    images = [member.service.image for member in members]
    assert all(image == images[0] for image in images)


# One node


async def test_create_update_delete_and_again_after_a_restart(start: Start) -> None:
    (member,) = await start(1)
    metadata = member.service
    stream, created = await metadata.create_stream(config("s"))
    assert created
    assert metadata.image.stream("s") is stream
    assert await metadata.create_stream(config("s")) == (stream, False)
    with pytest.raises(StreamExists):
        await metadata.create_stream(config("s", retention_ms=500))
    wider = await update_stream(metadata, config("s", subjects=("s", "t")))
    assert wider.config.subjects == ("s", "t")
    placed, created = await metadata.create_stream(config("placed"), ((ONE,),))
    assert (created, placed.partition(0).replicas) == (True, (ONE,))
    await delete_stream(metadata, "placed")
    change = SettingChange(setting="retention_ms", text="60000")
    assert (await metadata.alter_stream("s", (change,))).config.retention_ms == 60_000
    assert metadata.image.stream("s").config.subjects == ("s", "t")
    await metadata.create_stream(config("gone"))
    await delete_stream(metadata, "gone")
    with pytest.raises(StreamNotFound):
        await delete_stream(metadata, "gone")
    before = metadata.image.stream("s").partition(0).leader_epoch
    await member.stop()
    await member.start()
    await member.register()
    await until(lambda: member.service.image.stream("s").partition(0).leader == ONE)
    assert set(member.service.image.streams) == {"s"}
    assert member.service.image.stream("s").partition(0).leader_epoch > before


async def test_listeners_have_acted_before_the_caller_is_answered(start: Start) -> None:
    (member,) = await start(1)
    heard: list[tuple[str, int, int]] = []

    async def begin(_image: MetadataImage) -> None:
        pass

    def listener(name: str) -> Callable[[MetadataImage, MetadataImage], None]:
        return lambda old, new: heard.append((name, len(old.streams), len(new.streams)))

    async def settled(stream: str | None) -> None:
        await asyncio.sleep(0)
        asked.append((stream, len(heard)))

    asked: list[tuple[str | None, int]] = []
    for name in ("a", "b"):
        await member.service.attach(listener(name), begin, settled)
    await member.service.create_stream(config("s"))
    assert asked == [("s", 2), ("s", 2)]
    assert heard == [("a", 0, 1), ("b", 0, 1)]
    await member.service.create_stream(config("s"))
    assert len(heard) == 2, "no change, no call"


async def test_two_who_create_the_same_stream_both_succeed(start: Start) -> None:
    (member,) = await start(1)
    answers = await asyncio.gather(*(member.service.create_stream(config("s")) for _ in range(3)))
    assert sorted(created for _, created in answers) == [False, False, True]


async def test_a_caller_who_goes_away_stops_nothing(start: Start) -> None:
    (member,) = await start(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await member.service.create_stream(config("s"))
    await member.service.create_stream(config("t"))
    assert "t" in member.service.image.streams


async def test_a_full_disk_refuses_and_recovers(start: Start) -> None:
    (member,) = await start(1)
    assert isinstance(member.disk, FailingDisk)
    member.disk.faults.break_("pwrite", code=errno.ENOSPC, path=".log")
    with pytest.raises(StorageFull):
        await member.service.create_stream(config("s"))
    member.disk.faults.mend()
    await member.service.create_stream(config("s"))


async def test_a_failed_disk_ends_all_changes_and_no_reads(start: Start) -> None:
    (member,) = await start(1)
    await member.service.create_stream(config("s"))
    assert isinstance(member.disk, FailingDisk)
    member.disk.faults.break_("sync", path=".log")
    with pytest.raises(StorageFailed):
        await delete_stream(member.service, "s")
    member.disk.faults.mend()
    with pytest.raises(StorageFailed):
        await delete_stream(member.service, "s")
    assert member.service.failure is not None
    assert "s" in member.service.image.streams


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC])
async def test_what_was_not_written_is_refused(start: Start, code: int) -> None:
    """A new segment cannot be begun; later records take the offsets that were decided upon."""
    (member,) = await start(1)
    assert isinstance(member.disk, FailingDisk)
    first = member.service.image.producer_ids_end
    await member.service.create_stream(config("s", partitions=6_000))  # fills a segment
    member.disk.faults.break_("create", code=code, path=".log")
    ids = AllocateProducerIds(node_id=ONE)
    asking = asyncio.create_task(member.service.take(ids, forwarded=True))
    await asyncio.wait((asking,), timeout=1)
    member.disk.faults.mend()
    granted = await member.service.take(ids, forwarded=True)
    assert granted.result["first"] == first
    with pytest.raises(Unavailable, match=os.strerror(code)):
        print(await asking)
    assert member.service.failure is None


async def test_close_refuses_what_comes(start: Start) -> None:
    (member,) = await start(1)
    await member.service.close()
    await member.service.close()
    with pytest.raises(Unavailable):
        await member.service.create_stream(config("s"))


# Three


async def test_any_member_takes_any_request(start: Start) -> None:
    members = await start(3)
    for i, member in enumerate(members):
        stream, created = await member.service.create_stream(config(f"s{i}", replicas=3))
        assert created
        assert sorted(stream.partition(0).replicas) == [1, 2, 3]
        assert member.service.image.stream(f"s{i}") == stream
    await agree(members)


async def test_another_controller_goes_on_at_once_and_forgets_nothing(start: Start) -> None:
    members = await start(3)
    made = []
    for i in range(4):
        gone = await controller(members)
        made.append((await gone.service.create_stream(config(f"s{i}", replicas=3)))[0].name)
        await gone.kill()
        rest = others(members, gone)
        await create_surely(rest[0], f"t{i}")
        made.append(f"t{i}")
        await until(lambda gone=gone, rest=rest: rest[0].service.image.nodes[gone.node_id].fenced)  # type: ignore[misc]
        await gone.start()
        await gone.register()
        await until(lambda: all_live(members, 3))
    await agree(members)
    assert set(made) == set(members[0].service.image.streams)


async def test_a_candidate_that_has_died_is_no_controller(start: Start) -> None:
    one, two, three = await start(3)
    for member in (two, three):
        await member.kill()
    await until(lambda: one.service.controller_id is None)
    driver = one.service._quorum
    asked = VoteRequest(
        epoch=driver.replica.raft.epoch + 1,
        candidate=ReplicaKey(TWO, uuid.uuid4()),
        last_epoch=0,
        end_offset=0,
        pre_vote=False,
        voters_id=uuid.uuid4(),
    )
    answer = await driver.raft_request(asked)
    assert not answer.granted  # type: ignore[union-attr]
    assert one.service.controller_id is None


async def test_without_a_majority_nothing_is_decided_and_the_lease_ends(start: Start) -> None:
    members = await start(3)
    last = await controller(members)
    for member in others(members, last):
        await member.kill()
    with pytest.raises((NoController, RequestTimedOut)):
        await last.service.create_stream(config("s"))
    await until(lambda: not last.service.lease.held)
    back = others(members, last)[0]
    await back.start()
    await back.register()
    await until(lambda: last.service.lease.held)
    await create_surely(last, "t")


async def test_a_controller_that_resigned_waits_for_another_one_whatever_late_answers_say(
    start: Start,
) -> None:
    members = await start(3)
    last = await controller(members)
    for member in others(members, last):
        await member.kill()
    await until(lambda: last.service.controller_id is None)
    # As after the answer of a peer that has not heard yet that it resigned.
    last.service._quorum._transport.twin_leads = True
    with pytest.raises(NoController):
        await last.service.request(AllocateProducerIds(node_id=last.node_id))


async def test_a_silent_node_is_fenced_and_comes_back(start: Start) -> None:
    members = await start(3)
    silent = others(members, await controller(members))[0]
    silent.service._heartbeats._grant = _say_nothing  # type: ignore[assignment]
    await until(lambda: members[0].service.image.nodes[silent.node_id].fenced)
    await until(lambda: not silent.service.lease.held)
    silent.service._heartbeats._grant = silent.service._grant
    await until(lambda: all_live(members, 3))


async def _say_nothing(_command: object) -> None:
    raise NoController("as if it were cut off")


async def test_a_node_that_leaves_is_led_for_and_told_apart_from_a_dead_one(start: Start) -> None:
    members = await start(3)
    leaver = await controller(members)
    for i in range(6):
        await leaver.service.create_stream(config(f"s{i}", replicas=3))
    await leaver.stop()
    rest = others(members, leaver)
    await until(lambda: all(it.service.image.nodes[leaver.node_id].stopping for it in rest))
    leaders = {it.partition(0).leader for it in rest[0].service.image.streams.values()}
    assert leaver.node_id not in leaders


async def test_all_at_once_forget_nothing(start: Start) -> None:
    members = await start(3)
    await members[0].service.create_stream(config("s", replicas=3))
    for member in members:
        await member.kill()
    for member in members:
        await member.start()
    await asyncio.gather(*(member.register() for member in members))
    await until(lambda: all_live(members, 3))
    await agree(members)
    await until(lambda: members[0].service.image.stream("s").partition(0).leader > 0)


async def all_done(calls: Iterable[Awaitable[object]]) -> None:
    """Or not, where the controller changes meanwhile."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(
            result, Unavailable | StreamNotFound
        ):
            raise result


async def test_one_that_was_away_for_long_is_given_a_snapshot(start: Start) -> None:
    members = await start(3)
    away = others(members, await controller(members))[0]
    await away.kill()
    rest = others(members, away)
    stores = [member.service._quorum.replica.store for member in rest]
    # Either of them may be the controller that the one away comes back to.
    while not all(store.start_offset > 0 for store in stores):
        names = [f"s{i}" for i in range(50)]
        await all_done(rest[0].service.create_stream(config(it)) for it in names)
        await all_done(delete_stream(rest[0].service, it) for it in names)
    await away.start()
    await away.register()
    await agree(members)
    assert away.service._quorum.replica.store.start_offset > 0


# Voters


async def test_an_observer_becomes_a_voter_and_another_one_stops_voting(start: Start) -> None:
    members = await start(3, observers=1)
    await until(lambda: all(it.directory_id for it in members[0].service.voters.by_id.values()))
    await members[3].service.request(AddVoter(node_id=FOUR))
    await until(lambda: all(it.service.voters.ids == {1, 2, 3, 4} for it in members))
    gone = await controller(members)
    await gone.service.request(RemoveVoter(node_id=gone.node_id))
    rest = others(members, gone)
    await until(lambda: all(gone.node_id not in it.service.voters.ids for it in members))
    await until(lambda: any_controller(rest))
    await create_surely(rest[0])
    await agree(members)


async def test_voters_that_are_added_at_once_both_are_voters(start: Start) -> None:
    members = await start(3, observers=2)
    commands = [AddVoter(node_id=FOUR), AddVoter(node_id=NodeId(5))]
    await asyncio.gather(*(members[0].service.request(it) for it in commands))
    await until(lambda: all(it.service.voters.ids == {1, 2, 3, 4, 5} for it in members))
    changes: list[Command] = [RemoveVoter(node_id=ONE), RemoveVoter(node_id=FOUR)]
    await asyncio.gather(*(members[1].service.request(it) for it in changes))
    await until(lambda: all(it.service.voters.ids == {2, 3, 5} for it in members))


async def test_a_new_cluster_waits_for_all_of_its_voters(tmp_path: Path) -> None:
    """Two of three may be those that have lost what the third one knows."""
    ports = [free_port() for _ in range(3)]
    texts = [f"{number}@{HOST}:{port}" for number, port in enumerate(ports, 1)]
    members = [
        Member(tmp_path / str(number), number, port, texts) for number, port in enumerate(ports, 1)
    ]
    try:
        for member in members[:2]:
            await member.start()
        with pytest.raises(NoController, match=r"all of its voters \(1, 2, 3\) run"):
            await members[0].service.request(AllocateProducerIds(node_id=ONE))
        await members[2].start()
        await asyncio.gather(*(member.register() for member in members))
        await until(lambda: all_live(members, 3))
    finally:
        for member in members:
            await member.kill()


async def test_voters_are_known_by_their_folders(start: Start) -> None:
    members = await start(3)
    keys = {it.node_id: it.service._quorum.replica.key.directory_id for it in members}
    await until(
        lambda: (
            {it.node_id: it.directory_id for it in members[0].service.voters.by_id.values()} == keys
        )
    )


async def logged_voters(member: Member) -> list[frozenset[ReplicaKey]]:
    """All there ever were: images that come at once are taken together."""
    found: list[frozenset[ReplicaKey]] = []
    end = 0
    while batches := await member.service.history.read(end):
        for batch in batches:
            voters = [it.voter_set for it in batch.records if isinstance(it, VotersChanged)]
            found += [frozenset(it.replicas) for it in voters]
        end = batches[-1].end_offset
    return found


async def test_a_wiped_voter_votes_again_under_its_new_folder(start: Start) -> None:
    members = await start(3)
    await create_surely(members[0])
    await until(lambda: all(it.directory_id for it in members[0].service.voters.by_id.values()))
    wiped = others(members, await controller(members))[0]
    old = wiped.service._quorum.replica.key
    await wiped.kill()
    shutil.rmtree(wiped.directory)
    await wiped.start()
    await wiped.register()
    new = wiped.service._quorum.replica.key
    rest = others(members, wiped)
    await until(lambda: new in rest[0].service.image.voters.replicas)
    removed, added = (await logged_voters(rest[0]))[-2:]
    assert added == removed | {new}, "removed first, then added"
    assert old not in removed
    await rest[0].kill()  # without its vote nothing is decided any more
    await until(lambda: any(it.service._quorum.is_active for it in (rest[1], wiped)))
    leader = rest[1] if rest[1].service._quorum.is_active else wiped
    await create_surely(leader, "t")


async def test_others_have_their_turn_while_a_node_with_many_partitions_leaves(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may keep 100,000: all at once kept a new controller from deciding for seconds."""
    monkeypatch.setattr(partition_changes, "PORTION", 1)
    members = await start(3)
    leader = await controller(members)
    leaving = others(members, leader)[0]
    many = StreamConfig.of(name="many", partitions=60, replicas=3)
    await leader.service.create_stream(many)
    goodbye = StopNode(node_id=leaving.node_id, node_epoch=leaving.service.node_epoch)
    going = asyncio.create_task(leader.service.request(goodbye))
    await until(lambda: leaving.node_id not in leader.service.image.stream("many").partition(0).isr)
    await create_surely(leader, "between")
    gone_at = (await going).offset
    image = leader.service.image
    assert image.stream("between").partition(0).incarnations[0] < gone_at - 1
    assert leaving.node_id not in image.stream("between").partition(0).replicas
    assert all(leaving.node_id not in it.isr for it in image.stream("many").partitions)
    assert image.nodes[leaving.node_id].stopping


async def test_the_controller_moves_when_it_is_told_to(start: Start) -> None:
    members = await start(3)
    for _ in range(3):
        await move_controller(members[0], others(members, await controller(members))[0])
    with pytest.raises(InvalidRequest):
        await members[0].service.request(TransferController(node_id=FOUR))


# Bad input


@pytest.mark.parametrize("of_the_controller", [False, True])
async def test_a_second_node_of_the_same_id_is_refused(
    start: Start, tmp_path: Path, of_the_controller: bool
) -> None:
    members = await start(3)
    leader = await controller(members)
    first = leader if of_the_controller else others(members, leader)[0]
    texts = [f"{it.node_id}@{HOST}:{it.port}" for it in members]
    twin = Member(tmp_path / "twin", first.node_id, free_port(), texts)
    await twin.start()
    with pytest.raises(NodeIdTaken, match=f"node {first.node_id} is alive"):
        await twin.register()
    await twin.kill()
    assert all_live(members, 3)


async def test_an_older_incarnation_hears_that_it_is_one(start: Start) -> None:
    members = await start(3)
    older = others(members, await controller(members))[0]
    stale = StopNode(node_id=older.node_id, node_epoch=older.service.node_epoch - 1)
    with pytest.raises(StaleNode):
        await older.service.request(stale)


async def test_a_node_of_another_cluster_is_told_so(start: Start, tmp_path: Path) -> None:
    members = await start(3)
    texts = [f"{it.node_id}@{HOST}:{it.port}" for it in members]
    stranger = Member(tmp_path / "stranger", 4, free_port(), texts, cluster_id="other")
    await stranger.start()
    with pytest.raises(OtherCluster, match="'c', not 'other'"):
        await stranger.register()
    await stranger.kill()
    await create_surely(members[0])


async def test_one_stranger_among_the_voters_does_not_put_a_member_off(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    texts = [f"{i + 1}@{HOST}:{port}" for i, port in enumerate(ports)]
    *members, third = [
        Member(tmp_path / f"{i + 1}", i + 1, port, texts) for i, port in enumerate(ports)
    ]
    for member in (third, *members):
        await member.start()
    await asyncio.gather(*(member.register() for member in (third, *members)))
    for member in (third, *members):
        await member.kill()
    stranger = Member(tmp_path / "4", 3, ports[2], texts, cluster_id="other")
    for member in (stranger, *members):
        await member.start()
    await asyncio.gather(*(member.register() for member in members))
    await create_surely(members[0])
    for member in (stranger, *members):
        await member.kill()


async def test_other_voters_make_no_quorum_with_ours(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    texts = [f"{i + 1}@{HOST}:{port}" for i, port in enumerate(ports)]
    two = Member(tmp_path / "2", 2, ports[1], texts[:2])
    three = Member(tmp_path / "3", 3, ports[2], texts)
    for member in (two, three):
        await member.start()
    await until(lambda: "cluster.voters" in two.service._quorum.complaint)
    await until(lambda: "cluster.voters" in three.service._quorum.complaint)
    assert not two.service._quorum.is_active
    assert not three.service._quorum.is_active
    for member in (two, three):
        await member.kill()


async def test_what_only_the_controller_may_ask_for_is_refused(start: Start) -> None:
    (member,) = await start(1)
    with pytest.raises(InvalidRequest):
        await member.service.request(FenceNode(node_id=ONE, node_epoch=1))
    with pytest.raises(InvalidRequest):
        await member.service.request(RemoveVoter(node_id=ONE))
    with pytest.raises(InvalidRequest):
        await member.service.request(RemoveNode(node_id=ONE))


async def test_a_description_tells_who_votes_and_how_far_they_are(start: Start) -> None:
    members = await start(3)
    told = (await members[1].service.request(DescribeCluster())).result
    assert told["controller"] == (await controller(members)).node_id
    assert [it["node_id"] for it in told["voters"]] == [1, 2, 3]
    assert {it["node_id"] for it in told["replicas"]} == {1, 2, 3}
    assert [it["fenced"] for it in told["nodes"]] == [False] * 3


async def test_what_is_waited_for_too_long_is_said(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlog.metadata.service.READY_WAIT_MS", 50)
    (member,) = await start(1)
    with pytest.raises(RequestTimedOut, match="9999"):
        await member.service.request(AwaitApplied(offset=9999, wait_ms=10))


async def test_a_controller_that_is_cut_off_lends_nothing_of_later(start: Start) -> None:
    """Until it notices it answers heartbeats, while others may have elected another one."""
    members = await start(3)
    leading = await controller(members)
    for member in others(members, leading):
        await member.kill()
    cut_ms = clock_ms()
    beat = Heartbeat(node_id=leading.node_id, node_epoch=leading.service.node_epoch, offset=1)
    with pytest.raises(NoController):
        while True:
            asked_ms = clock_ms()
            granted = await leading.service.take(beat, forwarded=True)
            assert asked_ms - granted.result["unconfirmed_ms"] <= cut_ms
            await asyncio.sleep(0.01)


async def test_a_controller_that_is_cut_off_does_not_tell_what_is_decided(start: Start) -> None:
    """Another one may decide already; a reader that learns of it elsewhere asks here in vain."""
    members = await start(3)
    leading = await controller(members)
    for member in others(members, leading):
        await member.kill()
    cut_ms, given_up_ms = clock_ms(), leading.raft_settings.timeout_ms_min
    with pytest.raises(NoController):
        while True:
            asked_ms = clock_ms()
            assert not leading.service.is_current or asked_ms - cut_ms < given_up_ms
            await leading.service.take(DescribeCluster(), forwarded=True)
            assert asked_ms - cut_ms < given_up_ms
            await asyncio.sleep(0.01)


async def test_a_create_that_is_repeated_waits_for_the_leaders_as_well(start: Start) -> None:
    members = await start(3)
    asked, leader = others(members, await controller(members))
    may_listen = asyncio.Event()

    async def begin(_image: MetadataImage) -> None:
        pass

    async def settled(_stream: str | None) -> None:
        await may_listen.wait()

    await leader.service.attach(lambda _old, _new: None, begin, settled)
    create = asked.service.create_stream
    async with asyncio.TaskGroup() as group:
        first = group.create_task(create(config("s"), ((leader.node_id,),)))
        await until(lambda: "s" in asked.service.image.streams)
        second = group.create_task(create(config("s")))
        done, _ = await asyncio.wait((first, second), timeout=0.5)
        assert not done
        may_listen.set()
    assert (first.result()[1], second.result()[1]) == (True, False)


class _Late:
    """While it is entered, a member applies no metadata."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._may_go_on = asyncio.Event()

    async def __aenter__(self) -> None:
        is_held = asyncio.Event()

        async def begin(_image: MetadataImage) -> None:
            is_held.set()
            await self._may_go_on.wait()

        attach = self._member.service.attach
        self._attaching = asyncio.create_task(attach(lambda _old, _new: None, begin))
        await is_held.wait()

    async def __aexit__(self, *error: object) -> None:
        self._may_go_on.set()
        await self._attaching


async def test_a_leader_that_is_late_is_waited_for(start: Start) -> None:
    """It has a lease, and would acknowledge for the deleted stream; other streams do not wait."""
    members = await start(3, settings=PATIENT)
    asked, leader = others(members, await controller(members))
    await asked.service.create_stream(config("s"), ((leader.node_id,),))
    async with asyncio.TaskGroup() as group, _Late(leader):
        gone = group.create_task(delete_stream(asked.service, "s"))
        await until(lambda: "s" not in asked.service.image.streams)
        made = group.create_task(asked.service.create_stream(config("s"), ((asked.node_id,),)))
        of_its_subject = config("t", subjects=("s",))
        same = group.create_task(asked.service.create_stream(of_its_subject, ((asked.node_id,),)))
        await asked.service.create_stream(config("u"), ((asked.node_id,),))
        assert leader.service.lease.held
        assert "s" in leader.service.image.streams
        assert not gone.done()
        assert "s" not in asked.service.image.streams and "t" not in asked.service.image.streams
    assert made.result()[1] and same.result()[1]


async def test_a_leader_that_stays_late_gets_no_lease_and_is_waited_for_no_longer(
    start: Start,
) -> None:
    members = await start(3)
    asked, leader = others(members, await controller(members))
    await asked.service.create_stream(config("s"), ((leader.node_id,),))
    async with _Late(leader):
        command = DeleteStream(name="s")
        await asked.service.request(command)
        assert not leader.service.lease.held
        await asked.service.create_stream(config("s"), ((asked.node_id,),))
        assert not leader.service.lease.held
        assert "s" in leader.service.image.streams
    await until(lambda: leader.service.lease.held)


async def test_a_new_controller_waits_for_leaders_of_what_was_deleted_before(
    start: Start,
) -> None:
    members = await start(3, settings=PATIENT)
    before = await controller(members)
    asked, leader = others(members, before)
    await asked.service.create_stream(config("s"), ((leader.node_id,),))
    async with asyncio.TaskGroup() as group, _Late(leader):
        gone = group.create_task(before.service.request(DeleteStream(name="s")))
        await until(lambda: "s" not in asked.service.image.streams)
        gone.cancel()
        await move_controller(asked, asked)
        made = group.create_task(asked.service.create_stream(config("s"), ((asked.node_id,),)))
        done, _ = await asyncio.wait((made,), timeout=0.5)
        assert not done
        assert "s" not in asked.service.image.streams
    assert made.result()[1]


async def test_what_peers_send_is_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose disk hangs must not gather requests without end."""
    monkeypatch.setattr(quorum_module, "REQUESTS_MAX", 3)
    (member,) = await start(1)
    hangs, quorum = threading.Event(), member.service._quorum
    request = BeginEpochRequest(0, TWO)
    quorum.do(lambda: hangs.wait(10))
    async with asyncio.TaskGroup() as group:
        try:
            await until(lambda: not quorum._inbox)
            for _ in range(3):
                group.create_task(quorum.raft_request(request))
            await until(lambda: len(quorum._inbox) == 3)
            with pytest.raises(Overloaded):
                async with asyncio.timeout(2):
                    await quorum.raft_request(request)
        finally:
            hangs.set()
