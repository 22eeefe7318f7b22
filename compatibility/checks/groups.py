"""Consumer groups: one member, three that come and one that goes, offsets that stay."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from compatibility.checks.check import same, same_records
from compatibility.checks.membership import Membership, committed
from compatibility.program import Record
from compatibility.scene import Scene, values

COUNT: Final = 300


def group(scene: Scene) -> str:
    """One member reads all partitions, each in order, from the earliest record."""
    topic = scene.topic(partitions=3)
    for partition in range(3):
        scene.publish(topic, values(partition * COUNT, (partition + 1) * COUNT), partition)
    program = scene.start("group", topic=topic, group=f"{topic}-g", client_id="only")
    found = _by_partition(program.records(3 * COUNT))
    for partition in range(3):
        wanted = values(partition * COUNT, (partition + 1) * COUNT)
        same_records(found[partition], wanted, partition=partition)
    program.finish()
    same(committed(scene, topic, 3), {0: COUNT, 1: COUNT, 2: COUNT}, "committed")
    return ""


def commit_and_resume(scene: Scene) -> str:
    """Another member goes on exactly where the one before it stopped."""
    topic = scene.topic()
    wanted = values(0, COUNT)
    scene.publish(topic, wanted)
    stop = COUNT // 3 + 1
    ask = {"topic": topic, "group": f"{topic}-g", "client_id": "one"}
    first = scene.start("group", **ask, count=stop)
    same_records(first.records(stop), wanted[:stop])
    same(first.finish(), [], "more than was asked for")
    same(committed(scene, topic, 1), {0: stop}, "committed")
    second = scene.start("group", **ask)
    same_records(second.records(COUNT - stop), wanted[stop:], stop)
    second.finish()
    same(committed(scene, topic, 1), {0: COUNT}, "committed at the end")
    return ""


def rebalance(scene: Scene) -> str:
    """Three members share six partitions, then two; records are read by whom they belong to."""
    return _come_and_go(Membership(scene))


def new_protocol(scene: Scene) -> str:
    """The same, where the coordinator assigns the partitions."""
    return _come_and_go(Membership(scene, "consumer"))


def _come_and_go(members: Membership) -> str:
    for name in ("a", "b", "c"):
        members.join(name)
        owners = members.wait_shared()
    members.publish()
    members.wait_read(owners)
    members.leave("c")
    owners = members.wait_shared()
    members.publish()
    members.wait_read(owners)
    members.finish()
    return ""


def coordinator_killed(scene: Scene) -> str:
    """The node that a group of two is led by is killed: they read on, and commit."""
    members = Membership(scene)
    for name in ("a", "b"):
        members.join(name)
        owners = members.wait_shared()
    members.publish()
    members.wait_read(owners)
    scene.cluster.crash(members.coordinator())
    try:
        members.publish()
        members.wait_read()
        members.finish()
    finally:
        scene.cluster.restore()
    return ""


def _by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return found
