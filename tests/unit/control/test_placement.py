"""Another node takes the place of one that leaves."""

from dataclasses import replace

import pytest

from streamlog.control.placement import NoReplacement, without_node
from streamlog.errors import NodeNotFound
from streamlog.metadata.image.metadata_image import NodeLoad
from streamlog.model import NodeId
from tests.unit.jetstream.verbs.test_succession import THREE, changed, image, partition

ONE, TWO = NodeId(1), NodeId(2)


def test_another_rack_first_then_who_keeps_least() -> None:
    loads = {3: NodeLoad(1, 0), 4: NodeLoad(7, 0), 5: NodeLoad(6, 0)}
    five = image("a", "b", "b", "c", "c", loads=loads)
    assert without_node(five, partition(1, 2), ONE) == (5, 2)
    assert without_node(five, partition(2, 1), ONE) == (2, 5)
    assert without_node(changed(five, 5, fenced=True), partition(1, 2), ONE) == (4, 2)
    assert without_node(image(None, None, None), partition(1, 2), TWO) == (1, 3)


def test_a_move_under_way_is_built_upon() -> None:
    moving = replace(partition(3, 2, 1), adding=(NodeId(3),), removing=(NodeId(1),))
    assert without_node(image(None, None, None, None), moving, TWO) == (3, 1)
    with pytest.raises(NodeNotFound):
        without_node(image(None, None, None, None), moving, ONE)


def test_no_replacement() -> None:
    with pytest.raises(NoReplacement):
        without_node(THREE, partition(1, 2, 3), ONE)
    with pytest.raises(NodeNotFound):
        without_node(THREE, partition(1, 2, 3), NodeId(4))
