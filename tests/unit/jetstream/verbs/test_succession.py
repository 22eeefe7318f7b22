import uuid
from dataclasses import replace

import pytest
from immutables import Map

from streamlog.jetstream.errors import PEER_NOT_MEMBER, PEER_REMAP, ApiRefused, no_peers
from streamlog.jetstream.verbs.cluster import NO_SUCCESSOR, PeerChoice, successor, without_peer
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


def test_another_rack_first_then_who_keeps_least() -> None:
    loads = {3: NodeLoad(1, 0), 4: NodeLoad(7, 0), 5: NodeLoad(6, 0)}
    five = image("a", "b", "b", "c", "c", loads=loads)
    assert without_peer(five, partition(1, 2), "node-1") == (5, 2)
    assert without_peer(five, partition(2, 1), "node-1") == (2, 5)
    assert without_peer(changed(five, 5, fenced=True), partition(1, 2), "node-1") == (4, 2)
    assert without_peer(image(None, None, None), partition(1, 2), "2") == (1, 3)


def test_a_move_under_way_is_built_upon() -> None:
    moving = replace(partition(3, 2, 1), adding=(NodeId(3),), removing=(NodeId(1),))
    assert without_peer(image(None, None, None, None), moving, "node-2") == (3, 1)
    with pytest.raises(ApiRefused) as refused:
        without_peer(image(None, None, None, None), moving, "node-1")
    assert refused.value.error == PEER_NOT_MEMBER


@pytest.mark.parametrize(
    ("peer", "error"),
    [("node-1", PEER_REMAP), ("node-4", PEER_NOT_MEMBER), ("", PEER_NOT_MEMBER)],
)
def test_no_replacement(peer: str, error: object) -> None:
    with pytest.raises(ApiRefused) as refused:
        without_peer(THREE, partition(1, 2, 3), peer)
    assert refused.value.error == error
