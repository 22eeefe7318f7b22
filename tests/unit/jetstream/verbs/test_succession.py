import uuid
from dataclasses import replace

import pytest
from immutables import Map

from streamlog.jetstream.errors import ApiRefused, no_peers
from streamlog.jetstream.verbs.cluster import NO_SUCCESSOR, PeerChoice, successor
from streamlog.metadata.image.metadata_image import (
    MetadataImage,
    NodeImage,
    NodeLoad,
    PartitionImage,
)
from streamlog.model import NodeId


def image(*racks: str | None, loads: dict[int, NodeLoad] | None = None) -> MetadataImage:
    """Node i + 1 is in ``racks[i]``."""
    nodes = {
        NodeId(i): NodeImage(NodeId(i), uuid.uuid4(), "host", 9092, rack)
        for i, rack in enumerate(racks, start=1)
    }
    found = {NodeId(i): load for i, load in (loads or {}).items()}
    return MetadataImage("test", nodes=Map(nodes), loads=Map(found))


def partition(*replicas: int, isr: tuple[int, ...] | None = None) -> PartitionImage:
    ids = tuple(NodeId(i) for i in replicas)
    in_sync = ids if isr is None else tuple(NodeId(i) for i in isr)
    return PartitionImage(ids, in_sync[0], 3, in_sync, 3)


def changed(image: MetadataImage, node_id: int, **fields: bool) -> MetadataImage:
    node = replace(image.nodes[NodeId(node_id)], **fields)  # type: ignore[arg-type]
    return replace(image, nodes=image.nodes.set(NodeId(node_id), node))


THREE = image(None, None, None, loads={2: NodeLoad(9, 5), 3: NodeLoad(9, 4)})


def test_the_successor_leads_least() -> None:
    assert successor(THREE, partition(1, 2, 3)) == 3
    assert successor(THREE, partition(1, 2, 3), PeerChoice("node-2")) == 2
    assert successor(THREE, partition(1, 2, 3), PeerChoice("2")) == 2
    assert successor(THREE, partition(1, 2, 3), PeerChoice(cluster="test")) == 3


@pytest.mark.parametrize(
    ("where", "of", "wanted"),
    [
        (THREE, partition(1), PeerChoice()),
        (THREE, partition(1, 2, 3, isr=(1,)), PeerChoice()),
        (changed(THREE, 2, fenced=True), partition(1, 2), PeerChoice()),
        (changed(THREE, 2, draining=True), partition(1, 2), PeerChoice()),
        (THREE, partition(1, 2, 3, isr=(1, 3)), PeerChoice("node-2")),
        (THREE, partition(1, 2, 3), PeerChoice(cluster="elsewhere")),
        (THREE, partition(1, 2, 3), PeerChoice(tags=("ssd",))),
    ],
)
def test_no_successor(where: MetadataImage, of: PartitionImage, wanted: PeerChoice) -> None:
    with pytest.raises(ApiRefused) as refused:
        successor(where, of, wanted)
    assert refused.value.error == NO_SUCCESSOR


@pytest.mark.parametrize(
    ("preferred", "problem"),
    [
        ("node-1", "is already leader"),
        ("node-3", "not known"),
        ("n\u0662", "not known"),
        ("elsewhere", "not known"),
    ],
)
def test_a_preferred_node_that_cannot_lead(preferred: str, problem: str) -> None:
    with pytest.raises(ApiRefused) as refused:
        successor(THREE, partition(1, 2), PeerChoice(preferred))
    assert refused.value.error == no_peers(f'preferred server "{preferred}" {problem}')
