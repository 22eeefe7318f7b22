"""Known mistakes of self-healing, each planted into streamlog's own code, one at a time."""

from dataclasses import replace

import pytest

from streamlog.metadata.controller import drain, reassignment
from streamlog.metadata.controller.partition_changes import PartitionChanges, ReplicaPlace
from streamlog.metadata.controller.self_healing import LostNodes
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.model import NO_LEADER, NodeId


def replace_before_it_is_copied(patch: pytest.MonkeyPatch) -> None:
    """The new replica counts as one in sync."""

    def retargeted(
        changes: PartitionChanges, place: ReplicaPlace, target: tuple[NodeId, ...]
    ) -> PartitionImage:
        known = place.partition
        if set(known.target) <= changes.available:
            return inner(changes, place, target)
        isr = tuple(it for it in target if it in (*known.isr, *target) and it in changes.available)
        leader = known.leader if known.leader in isr else NO_LEADER
        after = replace(known, replicas=target, isr=isr, adding=(), removing=())
        return after if leader != NO_LEADER else inner(changes, place, target)

    inner = reassignment.retargeted
    patch.setattr(drain, "retargeted", retargeted)


def replace_whoever_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """However short a time it is away."""

    def look(self: LostNodes, image: MetadataImage, now_ms: int) -> frozenset[NodeId]:
        return frozenset(it.node_id for it in image.nodes.values() if it.fenced)

    patch.setattr(LostNodes, "look", look)


def take_the_time_of_an_earlier_absence(patch: pytest.MonkeyPatch) -> None:
    """A node that has been back in between counts as away since it was away first."""

    def look(self: LostNodes, image: MetadataImage, now_ms: int) -> frozenset[NodeId]:
        for it in image.nodes.values():
            if it.fenced:
                self._since_ms.setdefault((it.node_id, 0), now_ms)
        return frozenset(
            it.node_id
            for it in image.nodes.values()
            if it.fenced and now_ms - self._since_ms[it.node_id, 0] >= self._after_ms
        )

    patch.setattr(LostNodes, "look", look)
