"""What the controller tells of the cluster."""

import copy
from typing import Any

import pytest

from streamlog.cli.cluster.description import Description
from streamlog.cli.cluster.quorum import rows
from streamlog.errors import CorruptData, NodeNotFound

NODE = {
    "node_id": 1, "host": "a", "port": 9092, "rack": None, "epoch": 7,
    "fenced": False, "stopping": False, "heard": True, "draining": False, "replicas": 3, "leaders": 2,
    "full": False, "unfit": (), "levels": None, "answers": None,
}  # fmt: skip
FIELDS: dict[str, Any] = {
    "controller": 1,
    "epoch": 4,
    "high_watermark": 90,
    "level": 1,
    "level_max": 1,
    "returning": [],
    "voters": [{"node_id": 1, "host": "a", "port": 9092, "directory_id": None}],
    "replicas": [
        {"node_id": 1, "end_offset": 91, "lag": 0, "last_fetch_ms": 0, "directory_id": None}
    ],
    "nodes": [NODE],
}


def test_what_is_told_is_kept() -> None:
    description = Description.of(FIELDS)
    assert (description.controller, description.epoch, description.high_watermark) == (1, 4, 90)
    assert description.voter_ids == {1}
    assert description.node(1)._asdict() == NODE
    assert [replica._asdict() for replica in description.replicas] == FIELDS["replicas"]


def test_what_a_newer_node_tells_beside_is_passed_over() -> None:
    newer = {**FIELDS, "more": 1, "nodes": [{**NODE, "more": 1}]}
    assert Description.of(newer) == Description.of(FIELDS)


@pytest.mark.parametrize("key", FIELDS)
def test_what_is_missing_is_no_description(key: str) -> None:
    with pytest.raises(CorruptData, match=key):
        Description.of({name: value for name, value in FIELDS.items() if name != key})


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(NodeNotFound, match="no node 2"):
        Description.of(FIELDS).node(2)


@pytest.mark.parametrize(
    ("votes_in", "is_in", "lost"),
    [("a", "a", set()), ("a", "b", {1}), (None, "b", set()), ("a", None, set())],
)
def test_a_voter_in_another_folder_has_lost_its_own(
    votes_in: str | None, is_in: str | None, lost: set[int]
) -> None:
    fields = copy.deepcopy(FIELDS)
    fields["voters"][0]["directory_id"] = votes_in
    fields["replicas"][0]["directory_id"] = is_in
    description = Description.of(fields)
    assert description.lost_voters == lost
    ((_, role, *_),) = rows(description)
    assert role == ("voter, metadata lost" if lost else "controller")


@pytest.mark.parametrize(
    ("fenced", "draining", "words"),
    [
        (False, False, "live"),
        (True, False, "fenced"),
        (False, True, "live, draining"),
        (True, True, "fenced, draining"),
    ],
)
def test_a_nodes_state_in_words(fenced: bool, draining: bool, words: str) -> None:
    node = Description.of(FIELDS).node(1)
    assert node._replace(fenced=fenced, draining=draining).words == words
    assert node._replace(fenced=fenced, full=True).words.endswith(", full")


@pytest.mark.parametrize("key", ["full", "unfit", "heard", "levels"])
def test_what_is_missing_of_a_node_is_no_description(key: str) -> None:
    node = {name: value for name, value in NODE.items() if name != key}
    with pytest.raises(CorruptData, match=key):
        Description.of({**FIELDS, "nodes": [node]})
