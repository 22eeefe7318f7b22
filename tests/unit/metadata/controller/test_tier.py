"""Which manifest of the object store counts: the one that the current leader has made of the one before it."""

from uuid import UUID

import pytest

from streamlog.errors import StaleNode
from streamlog.metadata import commands as c
from streamlog.metadata.image.image_types import TierImage
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.model import NodeId
from tests.controller_world import World


@pytest.fixture
def world() -> World:
    """Node 1 leads s-0 of nodes 1 to 3, which is tiered."""
    world = World(3)
    world.place(1, 2, 3, tiered=True)
    assert world.alter_tier(world.tier_change(0, 0, 0), leader=1) == ["granted"]
    return world


def test_it_begins_with_nothing_in_the_store() -> None:
    world = World(3)
    world.place(1, 2, 3, tiered=True)
    assert tier(world) is None
    assert world.alter_tier(world.tier_change(1, 0, 100), leader=1) == ["refused"]
    assert world.alter_tier(world.tier_change(0, 5, 9), leader=1) == ["refused"]
    assert world.alter_tier(world.tier_change(0, 5, 5), leader=1) == ["granted"]
    assert tier(world) == (world.partition().leader_epoch, 0, 5, 5)
    assert world.alter_tier(world.tier_change(0, 7, 7), leader=1) == ["granted"], "a purge"
    assert world.alter_tier(world.tier_change(1, 7, 90), leader=1) == ["granted"]


def tier(world: World) -> tuple[int, ...] | None:
    found = world.partition().tier
    return None if found is None else tuple(found)


def test_the_leader_has_manifests_accepted_one_after_the_other(world: World) -> None:
    epoch = world.partition().leader_epoch
    assert world.alter_tier(world.tier_change(1, 0, 100), leader=1) == ["granted"]
    assert tier(world) == (epoch, 1, 0, 100)
    assert world.alter_tier(world.tier_change(2, 40, 300), leader=1) == ["granted"]
    assert tier(world) == (epoch, 2, 40, 300)


def test_what_is_in_force_is_granted_again(world: World) -> None:
    change = world.tier_change(1, 0, 100)
    assert world.alter_tier(change, leader=1) == ["granted"]
    offset = world.image.offset
    assert world.alter_tier(change, leader=1) == ["granted"]
    assert world.image.offset == offset, "nothing is written"


@pytest.mark.parametrize(
    "changed",
    [
        {"leader_epoch": 9},
        {"expected": None},
        {"expected": (0, 7)},
        {"stream_id": UUID(int=99)},
        {"stream": "t"},
        {"partition": 1},
        {"partition": -1},
    ],
)
def test_an_old_view_is_stale(world: World, changed: dict[str, object]) -> None:
    assert world.alter_tier(world.tier_change(1, 0, 100), leader=1) == ["granted"]
    before = tier(world)
    assert world.alter_tier(world.tier_change(2, 0, 200, **changed), leader=1) == ["stale"]
    assert tier(world) == before


def test_a_deposed_leader_has_nothing_accepted(world: World) -> None:
    change = world.tier_change(1, 0, 100)
    assert world.alter_tier(change, leader=2) == ["stale"]
    world.elect(2)
    assert world.alter_tier(change, leader=1) == ["stale"]
    assert world.alter_tier(change, leader=2) == ["stale"], "it is of an older epoch"
    before = tier(world)
    assert before is not None
    assert before[1] == 0
    assert world.alter_tier(world.tier_change(1, 0, 90), leader=2) == ["granted"]
    world.elect(1)
    late = world.tier_change(2, 0, 200, expected=None)
    assert world.alter_tier(late, leader=1) == ["stale"]


def test_a_leader_of_an_older_run_is_stale(world: World) -> None:
    change = world.tier_change(1, 0, 100)
    old = world.epoch(1)
    world.start(1)
    with pytest.raises(StaleNode):
        world.ask(c.AlterTier(node_id=NodeId(1), node_epoch=old, changes=(change,)))


@pytest.mark.parametrize(
    ("version", "start", "end"),
    [
        (3, 40, 100),  # a version is skipped
        (2, 39, 100),  # the log start falls
        (2, 40, 99),  # the same leader takes back what it has put there
        (2, 101, 100),
        (1, 40, 101),  # another end by the same manifest
        (1, 39, 100),
        (0, 40, 100),
    ],
)
def test_what_contradicts_what_counts_is_refused(
    world: World, version: int, start: int, end: int
) -> None:
    assert world.alter_tier(world.tier_change(1, 40, 100), leader=1) == ["granted"]
    before = tier(world)
    assert world.alter_tier(world.tier_change(version, start, end), leader=1) == ["refused"]
    assert tier(world) == before


def test_the_log_start_rises_without_a_new_manifest(world: World) -> None:
    epoch = world.partition().leader_epoch
    world.alter_tier(world.tier_change(1, 0, 100), leader=1)
    assert world.alter_tier(world.tier_change(1, 60, 100), leader=1) == ["granted"]
    assert tier(world) == (epoch, 1, 60, 100)
    world.elect(2)
    assert world.alter_tier(world.tier_change(1, 70, 100), leader=2) == ["granted"]
    assert tier(world) == (epoch, 1, 70, 100), "the manifest is the other leader's"
    assert world.alter_tier(world.tier_change(1, 130, 130), leader=2) == ["granted"], "a purge"
    assert tier(world) == (epoch, 1, 130, 130)


def test_only_a_new_leader_may_have_less_in_the_store(world: World) -> None:
    world.alter_tier(world.tier_change(1, 0, 100), leader=1)
    world.elect(2)
    assert world.alter_tier(world.tier_change(2, 0, 80), leader=2) == ["granted"]
    assert tier(world) == (world.partition().leader_epoch, 2, 0, 80)
    assert world.alter_tier(world.tier_change(3, 0, 70), leader=2) == ["refused"]


def test_two_changes_of_one_partition_are_not_decided_at_once(world: World) -> None:
    first, second = world.tier_change(1, 0, 100), world.tier_change(1, 0, 100)
    assert world.alter_tier(first, second, leader=1) == ["granted", "stale"]


def test_only_of_tiered_streams(world: World) -> None:
    world.place(1, 2, 3, name="t")
    stream = world.image.stream("t")
    change = world.tier_change(0, 9, 9, stream_id=stream.stream_id, stream="t", expected=None)
    change = change.model_copy(update={"leader_epoch": stream.partition(0).leader_epoch})
    assert world.alter_tier(change, leader=1) == ["refused"]


def test_it_outlives_changes_of_the_partition_and_snapshots(world: World) -> None:
    world.alter_tier(world.tier_change(1, 5, 100), leader=1)
    world.elect(3)
    world.alter_isr(1, 3)
    world.update(partitions=2)
    kept = world.partition().tier
    assert isinstance(kept, TierImage)
    assert kept[1:] == (1, 5, 100)
    snapshot = encode_snapshot(world.image)
    assert decode_snapshot(snapshot, world.image.cluster_id) == world.image


def test_it_is_not_turned_off(world: World) -> None:
    with pytest.raises(Exception, match="out of tiered storage"):
        world.update(tiered=False)
