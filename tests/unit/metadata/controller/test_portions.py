"""What is decided about very many partitions comes in portions, and to the same."""

from collections.abc import Callable

import pytest

from streamlog.metadata import commands as c
from streamlog.metadata.controller import partition_changes
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import NodeFenced, PartitionChanged
from streamlog.model import NO_LEADER, NodeId
from tests.controller_world import World

ONE = NodeId(1)
MANY = 40


def world() -> World:
    it = World(3)
    it.create("pair", partitions=MANY, replicas=2)
    it.create("all", partitions=MANY, replicas=3)
    it.create("alone", partitions=MANY, replicas=1)
    return it


def fenced(it: World) -> None:
    it.fence(1)


def stopped(it: World) -> None:
    it.stop(1)


def restarted(it: World) -> None:
    it.register(1)


def restarted_without_its_tail(it: World) -> None:
    it.register(1, tail_lost=True)


def restarted_without_its_folder(it: World) -> None:
    it.live.discard(ONE)
    it.register(1, directory=9)


ENDS = (fenced, stopped, restarted, restarted_without_its_tail, restarted_without_its_folder)


@pytest.mark.parametrize("portion", [1, 7])
@pytest.mark.parametrize("end", ENDS)
def test_portions_come_to_what_one_decision_does(
    end: Callable[[World], None], portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = world(), world()
    end(whole)
    monkeypatch.setattr(partition_changes, "PORTION", portion)
    end(parts)
    parts.runs = whole.runs
    assert without_runs(parts.image) == without_runs(whole.image)
    assert parts.image.offset == whole.image.offset


def test_losses_are_told_with_the_last_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told with an earlier one the node would never hear of."""
    monkeypatch.setattr(partition_changes, "PORTION", 5)
    it = world()
    alone = [place for place in it.image.stream("alone").partitions if place.isr == (ONE,)]
    assert len(alone) > 5
    it.live.discard(ONE)
    assert len(it.register(1, directory=9).result["data_lost"]) == len(alone)


def test_no_portion_is_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_changes, "PORTION", 5)
    it = world()
    it.live.discard(ONE)
    command = c.FenceNode(node_id=ONE, node_epoch=it.epoch(1))
    sizes, led = list[int](), it.image.load(ONE).leaders
    while (decision := it.ask_once(command)).unfinished:
        assert all(isinstance(record, PartitionChanged) for record in decision.records)
        if led > 5:  # publishers wait for these
            assert it.image.load(ONE).leaders == led - 5
        led = it.image.load(ONE).leaders
        sizes.append(len(decision.records))
    assert max(sizes) == 5
    assert decision.records[-1] == NodeFenced(node_id=ONE, fenced=True)


def test_a_node_that_returns_leads_what_waited_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first heartbeat has as many led as one decision may change, and the controller goes on."""
    it = world()
    it.fence(1, 2, 3)
    monkeypatch.setattr(partition_changes, "PORTION", 5)
    assert it.image.leaderless == 3 * MANY
    it.register(1)
    assert len(it.beat(1).records) == 6
    for _ in range(MANY):
        it.go_on()
    assert not it.go_on().records
    waiting = [p for s in it.image.streams.values() for p in s.partitions if p.leader == NO_LEADER]
    assert all(ONE not in partition.isr for partition in waiting)
    assert it.image.load(ONE).leaders == 3 * MANY - len(waiting)


def without_runs(image: MetadataImage) -> object:
    """Incarnations of processes differ by the number of questions."""
    return [*image.streams.items()], {it.node_id: it.fenced for it in image.nodes.values()}
